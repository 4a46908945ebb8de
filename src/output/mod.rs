//! Writers of the output formats.
//!
//! Each writer starts from a [`crate::trace::Trace`] and escapes names of the target for its
//! format.
//!
//! ```text
//! Trace ─┬─ perf_text ───────────── perf.data.txt ─┐
//!        ├─ ctf ─────────────────── lttngTrace/ ───┤
//!        ├─ stack_views ┬ folded ── stacks.folded ─┤
//!        │  call_tree  └─ flame_graph ─ .svg ──────┼─ archive, deflate ── NAME.trace.zip (file)
//!        ├─ summary ─────────────── summary.json ──┘
//!        ├─ exports ─────────────── FILE (one, for another viewer)
//!        ├─ nettrace ────────────── NAME.nettrace (file)
//!        └─ perf_data ───────────── NAME.perf.data (file) and NAME.perf.symbols (directory)
//! ```

pub mod archive;
mod call_tree;
pub mod ctf;
mod deflate;
mod directory;
pub(crate) mod duration;
pub mod event_directory;
pub(crate) mod event_json;
mod event_threads;
pub mod exports;
pub mod file;
pub mod flame_graph;
pub mod folded;
mod go_code;
pub(crate) mod label;
pub mod message_file;
pub mod nettrace;
pub mod output_file;
pub(crate) mod own_code;
pub mod perf_data;
pub mod perf_text;
mod process_labels;
mod raw_events;
pub(crate) mod sanitize;
pub(crate) mod short_name;
pub mod spool_file;
mod stack_views;
pub mod summary;
mod synthetic_layout;
mod thread_labels;
mod time_zero;
pub(crate) mod utc;
mod variant_name;

pub(crate) use call_tree::Measure;
pub(crate) use raw_events::is_added_event;
pub use short_name::NameStyle;
pub use stack_views::StackViews;
pub(crate) use variant_name::variant_name;
