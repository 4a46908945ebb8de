//! Unwinds samples to code addresses.
//!
//! The kernel part of a stack is the kernel's callchain. The user part is unwound from the
//! registers and the stack copy, or by frame pointers.

mod analysis;
mod chain;
mod covered_code;
mod go;
#[cfg(test)]
mod go_tests;
mod jit;
mod live_stack;
mod managed;
mod module;
mod modules;
mod owner_time;
mod path;
mod rule;
mod signal;
mod stack_copy;
#[cfg(test)]
mod test_elf;
mod uncovered;
mod walk;

pub use analysis::{Analysis, Certainty, Finding, FunctionStarts};
pub use managed::{Epoch, MetCode, MetKind, SampledProcess};
pub use managed::{FunctionBytes, ReadyToRunImage, function_rule};
pub use rule::UnwindRule;
pub use walk::{Unwinder, WalkOutcome};
