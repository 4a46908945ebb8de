//! What threads wait for, in words, from a snapshot of their stacks: groups of threads with the same
//! stack, owners of locks, and deadlocks.

mod deadlock;
mod group;
mod lock;
mod places;
mod read;
mod reason;
mod report;
mod sequence;
mod summary;

pub use deadlock::Deadlock;
pub use group::{Group, StackFrame, WaitingThread};
pub use lock::Lock;
pub use places::name_places;
pub use read::ReadError;
pub use reason::Reason;
pub use report::{SnapshotProcess, StackReport};
pub use summary::summarize;
