//! Text of tracepoints: the fields of their samples, printed by the kernel's format of the event.

mod expression;
mod format;
mod formats;
mod print;

#[cfg(test)]
mod tests;

pub(super) use formats::Formats;
