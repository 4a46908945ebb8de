//! Unwinds samples to code addresses.
//!
//! The kernel part of a stack is the kernel's callchain. The user part is unwound from the
//! registers and the stack copy, or by frame pointers.

mod chain;
mod managed;
mod module;
mod modules;
mod owner_time;
mod signal;
mod stack_copy;
mod walk;

pub use managed::{Epoch, MetCode, MetKind, SampledProcess};
pub use managed::{FunctionBytes, ReadyToRunImage, UnwindRule, function_rule};
pub use walk::{Unwinder, WalkOutcome};
