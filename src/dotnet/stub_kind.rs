//! Kinds of stubs: small pieces of runtime code that calls go through.

use std::fmt;

/// Kind of a stub (`StubCodeBlockKind` of the runtime).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StubKind {
    /// Unknown kind.
    Unknown,
    /// A jump to a target beyond the range of a direct jump.
    Jump,
    /// The entry point of a method that may not be compiled yet.
    Precode,
    /// A helper of ReadyToRun code, generated on first use.
    DynamicHelper,
    /// A precode that passes the method as an argument.
    StubPrecode,
    /// The precode of most methods.
    FixupPrecode,
    /// Virtual stub dispatch: an interface call that mostly has one target type.
    VsdDispatch,
    /// Virtual stub dispatch: an interface call that has many target types.
    VsdResolve,
    /// Virtual stub dispatch: an interface call before its first execution.
    VsdLookup,
    /// Virtual stub dispatch: a virtual call.
    VsdVtable,
    /// Other code: write barriers, helpers of ReadyToRun code, instantiating and shuffle thunks.
    Helper,
}

impl fmt::Display for StubKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Jump => "JumpStub",
            Self::Precode => "Precode",
            Self::DynamicHelper => "DynamicHelper",
            Self::StubPrecode => "StubPrecode",
            Self::FixupPrecode => "FixupPrecode",
            Self::VsdDispatch => "VSD_DispatchStub",
            Self::VsdResolve => "VSD_ResolveStub",
            Self::VsdLookup => "VSD_LookupStub",
            Self::VsdVtable => "VSD_VTableStub",
            Self::Helper => "runtime helper",
        })
    }
}

impl StubKind {
    pub(super) fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Jump,
            2 => Self::Precode,
            3 => Self::DynamicHelper,
            4 => Self::StubPrecode,
            5 => Self::FixupPrecode,
            6 => Self::VsdDispatch,
            7 => Self::VsdResolve,
            8 => Self::VsdLookup,
            9 => Self::VsdVtable,
            _ => Self::Unknown,
        }
    }
}
