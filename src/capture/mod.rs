//! A live capture: from a request to a recording.

mod command;
mod conversion;
mod engine;
mod error;
mod event_sessions;
mod finished;
mod limits;
mod live;
mod method_sessions;
mod notable;
mod recovery;
mod sample_rate;
mod signals;
mod standstill;
mod target;
pub mod usage;
mod young;

pub use command::{Command, CommandError};
pub use conversion::{Conversion, convert};
pub(crate) use conversion::{left_out, one_of_several, wanted_events};
pub use error::CaptureError;
pub use event_sessions::EventRequest;
pub use finished::{Capture, End};
pub use live::{CaptureRequest, Progress, run};
pub use recovery::recover;
pub use signals::Signals;
pub use standstill::Standstill;
pub use target::{Target, TargetError};

/// Of a command line, what the trace says of its target.
const MAX_TARGET_CHARS: usize = 4096;

#[cfg(test)]
mod replay_tests;
