//! Who wakes threads.

use hashbrown::HashMap;

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

/// Number of processes of one name from which on they are one: a shell starts a program again and again.
const MANY: usize = 8;

/// Between the name of the thread that was woken and who woke it, in the name of a root.
const WOKEN_BY: &str = " woken by ";

/// Number of processes of the target with each name. Targets choose the names, so their hashes have a random seed.
#[derive(Debug)]
pub struct ProcessCounts(HashMap<Box<str>, usize>);

impl ProcessCounts {
    /// Counts the processes.
    #[must_use]
    pub fn new(processes: &[Process]) -> Self {
        let mut counts = HashMap::new();
        for process in processes {
            *counts.entry(process.name.clone()).or_default() += 1;
        }
        Self(counts)
    }
}

impl Waker {
    /// Returns the name: that of the thread, so that those of a pool are one, as are other processes of one name.
    #[must_use]
    pub fn name(
        self,
        processes: &[Process],
        counts: &ProcessCounts,
        threads: &[Thread],
        outsiders: &[Outsider],
    ) -> String {
        let name = match self {
            Self::Thread(thread) => threads.get(thread.index()).map(|row| row.name.to_string()),
            Self::OfOther(thread) => threads.get(thread.index()).and_then(|row| {
                let process = processes.get(row.process.index())?;
                Some(match counts.0.get(&process.name) {
                    Some(&several) if several >= MANY => {
                        format!("{} ({several} processes)", process.name)
                    }
                    _ => format!("{} ({})", process.name, process.pid),
                })
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

/// Returns who woke a thread called `woken`, from the name of a root. Names of threads may contain anything.
#[must_use]
pub fn waker_of_label<'a>(root: &'a str, woken: &str) -> &'a str {
    let label = root
        .strip_prefix('[')
        .and_then(|root| root.strip_suffix(']'));
    let of_thread = label.and_then(|label| label.strip_prefix(woken)?.strip_prefix(WOKEN_BY));
    // The root of many has no names of threads.
    let of_any = || Some(label?.rsplit_once(WOKEN_BY)?.1);
    of_thread.or_else(of_any).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waker_is_in_the_name_of_the_root() {
        for woken in ["worker", "a woken by b", "[", ""] {
            for waker in ["boss", "a timer", "x (12)", "]", "p] woken by q", ""] {
                assert_eq!(waker_of_label(&wakeup_label(woken, waker), woken), waker);
            }
        }
        assert_eq!(
            waker_of_label("[others woken by others]", "worker"),
            "others"
        );
        assert_eq!(waker_of_label("main", "worker"), "");
    }
}
