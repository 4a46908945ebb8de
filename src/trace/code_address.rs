//! Code addresses.

use super::blocked::Blocked;
use super::ids::{ModuleId, ProcessId};
use super::quality::Truncation;
use super::wakers::Waker;

/// A code address before symbolization.
///
/// Equal code in two processes that map the same file is one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeAddress {
    /// In the kernel.
    Kernel(u64),
    /// In a loaded ELF file: SVMA.
    Elf(ModuleId, u64),
    /// In a mapped file, but in none of its ELF segments (a PE image, for example): file offset.
    File(ModuleId, u64),
    /// In memory with JIT code.
    Jit(ProcessId, u64),
    /// In no interned mapping.
    Unmapped(ProcessId, u64),
    /// Represents the missing callers of a truncated stack.
    Truncated(Truncation),
    /// Represents where a thread waited: the leaf of its stack.
    Blocked(Blocked),
    /// Represents who woke a thread: the root of the stack of a wake-up.
    Waker(Waker),
}
