//! Captures: live, imported from a perf.data recording, or recovered from a spool.

mod block_io;
mod block_requests;
mod code_names;
mod command;
mod connections;
mod conversion;
mod counting;
mod cpu_waits;
mod disk_budget;
mod doubtful_code;
mod early_stacks;
mod engine;
mod error;
mod event_code;
mod event_sessions;
mod finished;
mod group_reader;
mod last_words;
mod latencies;
mod limit_groups;
mod live;
mod memory_use;
mod named_ranges;
mod not_running;
mod notable;
mod off_cpu;
mod patience;
mod priority;
mod process_limits;
mod recovery;
mod rundown_sessions;
mod runtime_search;
mod sample_rate;
mod session_starts;
mod signals;
mod snapshot;
mod stack_walker;
mod starting_processes;
mod target;
mod thread_waits;
mod tracepoint;
pub mod usage;
mod wait;
mod wakeups;
mod weight;
mod woken_threads;

pub use command::{Command, CommandEnd, CommandError};
pub use conversion::{ConvertRequest, convert};
pub(crate) use conversion::{choose_events, left_out, one_of_several};
pub use disk_budget::DiskBudget;
pub use error::CaptureError;
pub use event_sessions::EventRequest;
pub use finished::{Capture, End, StoppedCapture};
pub use last_words::LastWords;
pub use live::{CaptureRequest, Progress, run};
pub use not_running::NotRunning;
pub use process_limits::address_space_limit;
pub(crate) use process_limits::raise_limits;
pub use recovery::recover;
pub use signals::{Kept, Signals};
pub(crate) use snapshot::MAX_THREADS;
pub use snapshot::{Activity, OmittedThreads, Snapshot, SnapshotThread, snapshot};
pub use target::{Target, TargetError};
pub use wait::{Futex, Wait};

/// Maximum length of the target's command line in a trace.
const MAX_TARGET_CHARS: usize = 4096;

#[cfg(test)]
mod replay_tests;
