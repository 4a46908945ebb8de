//! What tracepoints say: the fields of their samples, printed as the kernel's own format of the event tells.

mod expression;
mod format;
mod formats;
mod print;

#[cfg(test)]
mod tests;

pub(super) use formats::Formats;
