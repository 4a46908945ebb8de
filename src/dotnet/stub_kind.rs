//! What stubs are for: pieces of code of the runtime's own, through which calls go.

use std::fmt;

/// The kinds (`StubCodeBlockKind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StubKind {
    /// Not known.
    Unknown,
    /// A jump to a target that is too far for a direct one.
    Jump,
    /// The start of a method that was not yet called.
    Precode,
    /// A helper of precompiled code, made when it was needed first.
    DynamicHelper,
    /// As `Precode`, with the method as argument.
    StubPrecode,
    /// As `Precode`, as most methods have it.
    FixupPrecode,
    /// A call through an interface that mostly meets one type.
    VsdDispatch,
    /// A call through an interface that meets many types.
    VsdResolve,
    /// A call through an interface that was not yet made.
    VsdLookup,
    /// A virtual call.
    VsdVtable,
    /// Something else: write barriers, helpers of precompiled code, instantiating and shuffle thunks.
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
    pub(super) fn of(number: u32) -> Self {
        match number {
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
