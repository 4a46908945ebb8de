//! The writers: each starts from a [`crate::trace::Trace`] and escapes what the target named for its own format.
//!
//! ```text
//! Trace ─┬─ perf_text ───────────── perf.data.txt ─┐
//!        ├─ call_tree ─┬─ folded ── stacks.folded ─┤
//!        │             └─ flame_graph ─ .svg ──────┼─ archive ── NAME.trace.zip (file)
//!        └─ summary ─────────────── summary.json ──┘
//! ```

pub mod archive;
mod call_tree;
pub mod file;
pub mod flame_graph;
pub mod folded;
mod label;
pub mod perf_text;
pub(crate) mod sanitize;
mod short_name;
pub mod spool_file;
pub mod summary;

pub use short_name::MethodNames;
