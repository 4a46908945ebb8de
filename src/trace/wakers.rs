//! Who wakes threads.

use super::ids::ThreadId;
use super::{Process, Thread};
use crate::ids::Pid;

/// Who woke a thread: the root of the stack of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waker {
    /// A thread of the same process.
    Thread(ThreadId),
    /// A thread of a process of the target, but another one.
    OfOther(ThreadId),
    /// A process that is not one of the target: its row in [`super::RawTrace::outsiders`].
    Outsider(u32),
    /// An interrupt: of a timer or a device.
    Interrupt,
}

/// A process that is not one of the target, and woke a thread of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outsider {
    /// Process id.
    pub pid: Pid,
    /// Name. Untrusted.
    pub name: Box<str>,
}

/// Source of an interrupt that wakes threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptSource {
    /// A time is over.
    Timer,
    /// Data or space of the network.
    Network,
    /// A request to a disk has ended.
    Disk,
    /// Another one, or its functions have no names.
    Other,
}

/// Start of the name of a root.
const START: &str = "[woken by ";

impl Waker {
    /// Returns the name of the root: it has the name of the thread, so that those of a pool are one.
    #[must_use]
    pub fn label(
        self,
        processes: &[Process],
        threads: &[Thread],
        outsiders: &[Outsider],
    ) -> String {
        let name = match self {
            Self::Thread(thread) => threads.get(thread.index()).map(|row| row.name.to_string()),
            Self::OfOther(thread) => threads.get(thread.index()).and_then(|row| {
                let process = processes.get(row.process.index())?;
                Some(format!("{} ({})", process.name, process.pid))
            }),
            Self::Outsider(row) => outsiders
                .get(row as usize)
                .map(|process| format!("{} ({})", process.name, process.pid)),
            Self::Interrupt => return InterruptSource::Other.label(),
        };
        format!("{START}{}]", name.as_deref().unwrap_or("a thread"))
    }
}

impl InterruptSource {
    /// Returns the name of the root.
    #[must_use]
    pub fn label(self) -> String {
        let name = match self {
            Self::Timer => "a timer",
            Self::Network => "the network",
            Self::Disk => "a disk",
            Self::Other => "an interrupt",
        };
        format!("{START}{name}]")
    }
}

/// Returns who woke a thread, from the name of a root.
#[must_use]
pub fn waker_name(root: &str) -> Option<&str> {
    root.strip_prefix(START)?.strip_suffix(']')
}
