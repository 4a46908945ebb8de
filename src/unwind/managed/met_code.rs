//! JIT code that walks meet.

use crate::dotnet::StubKind;

/// JIT code of a .NET process that a walk met.
///
/// A walk looks up the rule of each frame in JIT code, also of frames of the kernel's callchain,
/// which need none. It reports the code unless the rule is in its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetCode {
    /// Instruction pointer or return address of the frame.
    pub ip: u64,
    /// Whether the frame was interrupted there. Otherwise it called another function.
    pub interrupted: bool,
    /// Start address of the code.
    pub start: u64,
    /// Exclusive end address of the code.
    pub end: u64,
    /// Kind of the code.
    pub kind: MetKind,
    /// Whether the runtime may free the code and reuse its address at any time.
    pub collectible: bool,
}

/// Kind of JIT code, as the runtime describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetKind {
    /// A method, with the address of its `MethodDesc`.
    Method(u64),
    /// A stub: a few instructions that jump elsewhere.
    Stub(StubKind),
    /// Code that the runtime does not describe.
    Foreign,
}

/// What one walk met.
#[derive(Default)]
pub(in crate::unwind) struct Met {
    /// Code, leaf first.
    pub(in crate::unwind) code: Vec<MetCode>,
    /// Whether the process has a .NET runtime whose structures could not be read.
    pub(in crate::unwind) unreadable_runtime: bool,
}

impl Met {
    /// Removes what the last walk met.
    pub(in crate::unwind) fn clear(&mut self) {
        self.code.clear();
        self.unreadable_runtime = false;
    }
}
