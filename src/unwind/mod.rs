//! From a sample to its code addresses: the kernel's callchain, then the user stack walked from registers and the
//! copy of the stack, or along the frame pointers.

mod chain;
mod managed;
mod module;
mod modules;
mod signal;
mod stack_copy;
mod walk;

pub use managed::SampledProcess;
pub use managed::{DiscoveredCode, FunctionBytes, ReadyToRunImage, UnwindRule, function_rule};
pub use walk::{Unwinder, Walked};
