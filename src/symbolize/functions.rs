//! The functions of addresses.

use super::identity::Identity;
use super::unresolved::Unresolved;
use super::{jit, kernel};
use crate::trace::{CodeAddress, Distinct, Function, FunctionId, FunctionKind, Notice};

/// Result of symbolizing one group of addresses: a function per address, and problems to report.
#[derive(Default)]
pub(super) struct SymbolizedGroup {
    pub(super) functions: Functions,
    pub(super) of_codes: Vec<FunctionId>,
    /// The inlined functions, outermost first, of the addresses that have any, in their order.
    pub(super) inlined: Vec<(usize, Vec<FunctionId>)>,
    pub(super) notices: Vec<Notice>,
    pub(super) gaps: Vec<Unresolved>,
    /// The ELF file, if the group is one.
    pub(super) identity: Option<Identity>,
}

impl SymbolizedGroup {
    /// Creates a group with one function per address.
    pub(super) fn of(functions: impl Iterator<Item = Function>) -> Self {
        let mut rows = Functions::default();
        Self {
            of_codes: functions.map(|function| rows.intern(function)).collect(),
            functions: rows,
            ..Self::default()
        }
    }

    /// Adds the function of the next address.
    pub(super) fn push(&mut self, function: Function) {
        let id = self.functions.intern(function);
        self.of_codes.push(id);
    }
}

/// Functions, each stored once.
#[derive(Default)]
pub(super) struct Functions(Distinct<Function>);

impl Functions {
    pub(super) fn intern(&mut self, function: Function) -> FunctionId {
        FunctionId(self.0.intern(function))
    }

    pub(super) fn into_rows(self) -> Vec<Function> {
        self.0.into_rows()
    }
}

/// Returns the function of an address without a symbol: the address and its module.
pub(crate) fn unsymbolized(code: CodeAddress) -> Function {
    let (module, kind, name) = match code {
        CodeAddress::Kernel(_) => (kernel::PROPER, FunctionKind::Kernel, None),
        CodeAddress::Elf(..) | CodeAddress::File(..) => ("", FunctionKind::Native, None),
        CodeAddress::Jit(..) => (jit::MODULE, FunctionKind::Jit, None),
        CodeAddress::Unmapped(..) => ("unmapped", FunctionKind::Unmapped, None),
        CodeAddress::Truncated(why) => {
            let name = why.marker().to_owned();
            ("perfcollect", FunctionKind::Marker, Some(name))
        }
        CodeAddress::Blocked(place) => (
            "perfcollect",
            FunctionKind::Blocked,
            Some(place.label("blocked")),
        ),
        CodeAddress::Waker(_) => ("perfcollect", FunctionKind::Blocked, None),
    };
    Function {
        name: name.map(Into::into),
        start: None,
        module: module.into(),
        tier: None,
        kind,
        inlined: false,
    }
}

/// Returns whether a name carries no information, so that the start of the function identifies it.
pub(super) fn is_blank(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_whitespace)
}

pub(super) fn lossy(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(bytes).into()
}
