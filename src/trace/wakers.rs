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

/// Between the name of the thread that was woken and who woke it, in the name of a root.
const WOKEN_BY: &str = " woken by ";

impl Waker {
    /// Returns the name: that of the thread, so that those of a pool are one, as are other processes of one name.
    #[must_use]
    pub fn name(self, processes: &[Process], threads: &[Thread], outsiders: &[Outsider]) -> String {
        let name = match self {
            Self::Thread(thread) => threads.get(thread.index()).map(|row| row.name.to_string()),
            Self::OfOther(thread) => threads.get(thread.index()).and_then(|row| {
                let process = processes.get(row.process.index())?;
                Some(format!("{} ({})", process.name, process.pid))
            }),
            Self::Outsider(row) => outsiders.get(row as usize).map(|process| {
                let same = outsiders.iter().filter(|other| other.name == process.name);
                match same.count() {
                    1 => format!("{} ({})", process.name, process.pid),
                    several => format!("{} ({several} processes)", process.name),
                }
            }),
            Self::Interrupt => Some(InterruptSource::Other.name().to_owned()),
        };
        name.unwrap_or_else(|| "a thread".to_owned())
    }
}

impl InterruptSource {
    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Timer => "a timer",
            Self::Network => "the network",
            Self::Disk => "a disk",
            Self::Other => "an interrupt",
        }
    }
}

/// Returns the name of the root of a wake-up: who was woken by whom.
#[must_use]
pub fn wakeup_label(woken: &str, waker: &str) -> String {
    format!("[{woken}{WOKEN_BY}{waker}]")
}

/// Returns who woke, from the name of a root. Names of threads may contain anything.
#[must_use]
pub fn waker_of_label(root: &str) -> &str {
    let root = root.strip_suffix(']').unwrap_or(root);
    root.rsplit_once(WOKEN_BY).map_or("", |(_, waker)| waker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waker_is_in_the_name_of_the_root() {
        for woken in ["worker", "a woken by b", "[", ""] {
            for waker in ["boss", "a timer", "x (12)", "]", ""] {
                assert_eq!(waker_of_label(&wakeup_label(woken, waker)), waker);
            }
        }
        assert_eq!(waker_of_label("main"), "");
    }
}
