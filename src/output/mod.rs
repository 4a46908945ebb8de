//! The writers: each starts from a [`crate::trace::Trace`] and escapes what the target named for its own format.
//!
//! ```text
//! Trace ─┬─ perf_text ───────────── perf.data.txt ─┐
//!        ├─ ctf ─────────────────── lttngTrace/ ───┤
//!        ├─ pictures ──┬─ folded ── stacks.folded ─┤
//!        │  call_tree  └─ flame_graph ─ .svg ──────┼─ archive, deflate ── NAME.trace.zip (file)
//!        ├─ summary ─────────────── summary.json ──┘
//!        ├─ nettrace ────────────── NAME.nettrace (file)
//!        └─ perf_data ───────────── NAME.perf.data (file) and NAME.perf.symbols (folder)
//! ```

pub mod archive;
mod call_tree;
mod code_map;
pub mod ctf;
mod deflate;
pub mod event_folder;
pub(crate) mod event_json;
mod event_threads;
pub mod file;
pub mod flame_graph;
pub mod folded;
mod folder;
pub(crate) mod label;
pub mod message_file;
pub mod nettrace;
pub mod perf_data;
pub mod perf_text;
mod pictures;
pub(crate) mod sanitize;
mod short_name;
pub mod spool_file;
pub mod summary;
mod time_zero;

pub use pictures::Pictures;
pub use short_name::MethodNames;
