//! From a sample to its code addresses: the kernel's callchain, then the user stack walked from registers and the
//! copy of the stack.

mod module;
mod stack_copy;
mod walk;

pub use walk::Unwinder;
