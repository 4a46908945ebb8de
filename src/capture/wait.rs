//! What a thread waits for, read from the memory and the descriptors of its process.

use std::time::Duration;

use crate::dotnet::PrivateMemory;
use crate::machine::{Descriptors, Resource, SystemCall};

/// Number of files of a `poll` that are described.
const MAX_FILES: usize = 3;
/// Size of `struct pollfd`, which starts with the descriptor (poll(2)).
const POLLFD_BYTES: u64 = 8;
/// Memory around a futex word that is read: a lock of a C library is there.
const FUTEX_BEFORE: u64 = 16;
const FUTEX_AFTER: u64 = 32;

/// What a thread waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// The system call that it has made. `None` in a page fault, and if it is stopped.
    pub call: Option<SystemCall>,
    /// The function of the kernel that it waits in, if the kernel permits to read it.
    pub kernel_function: Option<String>,
    /// The files that it waits for: the first ones. Untrusted.
    pub files: Vec<String>,
    /// Number of all of them.
    pub file_count: u64,
    /// The futex that it waits for.
    pub futex: Option<Futex>,
    /// How long it asked to sleep.
    pub sleep: Option<Duration>,
}

/// A futex, and the words of memory around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Futex {
    /// Address of the word.
    pub address: u64,
    /// Whether the word has the id of the owner.
    pub has_owner: bool,
    /// Whether the wait ends at a time.
    pub has_timeout: bool,
    /// 32-bit words from 16 bytes before it. Empty if they cannot be read. Untrusted.
    words: Vec<u32>,
}

impl Futex {
    /// Creates a futex with the 32-bit words from 16 bytes before it.
    #[must_use]
    pub fn new(address: u64, has_owner: bool, words: Vec<u32>) -> Self {
        Self {
            address,
            has_owner,
            has_timeout: false,
            words,
        }
    }

    /// Returns the word at a distance in bytes from the futex.
    #[must_use]
    pub fn word(&self, distance: i64) -> Option<u32> {
        let offset = distance.checked_add(FUTEX_BEFORE as i64)?;
        let index = usize::try_from(offset).ok()? / 4;
        self.words.get(index).copied()
    }
}

impl Wait {
    /// Reads the words of its futex again.
    pub(super) fn refresh(&mut self, memory: &PrivateMemory) {
        if let Some(futex) = &mut self.futex {
            futex.words = futex_words(memory, futex.address);
        }
    }

    /// Reads what a thread waits for.
    pub(super) fn of(
        call: Option<SystemCall>,
        memory: Option<&PrivateMemory>,
        descriptors: &Descriptors,
    ) -> Self {
        let mut wait = Self {
            call,
            ..Self::default()
        };
        let describe = |descriptor: i32| descriptors.describe(descriptor);
        match call.map(|call| call.resource()) {
            Some(Resource::File(descriptor)) => {
                wait.files.extend(describe(descriptor));
                wait.file_count = 1;
            }
            Some(Resource::Files { array, count }) => {
                let polled = memory.map(|memory| polled(memory, array, count));
                let polled = polled.into_iter().flatten();
                wait.files
                    .extend(polled.filter_map(describe).take(MAX_FILES));
                wait.file_count = count;
            }
            Some(Resource::Futex {
                address,
                has_owner,
                has_timeout,
            }) => {
                let words = memory.map(|memory| futex_words(memory, address));
                wait.futex = Some(Futex {
                    has_timeout,
                    ..Futex::new(address, has_owner, words.unwrap_or_default())
                });
            }
            Some(Resource::Time(request)) => {
                wait.sleep = memory.and_then(|memory| time(memory, request));
            }
            _ => {}
        }
        wait
    }
}

/// Returns the first descriptors of an array of `struct pollfd`. Negative ones are ignored (poll(2)).
fn polled(memory: &PrivateMemory, array: u64, count: u64) -> Vec<i32> {
    let bytes = count.min(MAX_FILES as u64) * POLLFD_BYTES;
    let content = memory.copy(array..array.saturating_add(bytes));
    let (entries, _) = content.as_chunks::<8>();
    let descriptors = entries
        .iter()
        .map(|&[a, b, c, d, ..]| i32::from_le_bytes([a, b, c, d]));
    descriptors.filter(|descriptor| *descriptor >= 0).collect()
}

fn futex_words(memory: &PrivateMemory, address: u64) -> Vec<u32> {
    let start = address.saturating_sub(FUTEX_BEFORE);
    let content = memory.copy(start..address.saturating_add(FUTEX_AFTER));
    let (words, _) = content.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// Reads a `struct timespec`.
fn time(memory: &PrivateMemory, address: u64) -> Option<Duration> {
    let content = memory.copy(address..address.saturating_add(16));
    let (words, _) = content.as_chunks::<8>();
    let &[seconds, nanoseconds] = words else {
        return None;
    };
    let nanoseconds = u64::from_le_bytes(nanoseconds);
    let nanoseconds = u32::try_from(nanoseconds)
        .ok()
        .filter(|ns| *ns < 1_000_000_000)?;
    Some(Duration::new(u64::from_le_bytes(seconds), nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Pid;

    #[test]
    fn reads_what_calls_refer_to() {
        let pid = Pid(std::process::id() as i32);
        let memory = PrivateMemory::open(pid).unwrap();
        let descriptors = Descriptors::of(pid);
        let (reader, _writer) = std::io::pipe().unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&reader);
        // In memory of no file.
        let words: Vec<u32> = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        let polls = [[-1, 0], [descriptor, 0], [i32::MAX, 0]];
        let times = [3_u64, 500_000_000, 3, 1_000_000_000];
        let of = |name: syscalls::Sysno, arguments: [u64; 3]| {
            let [first, second, third] = arguments;
            let call = SystemCall {
                number: name.id() as u64,
                arguments: [first, second, third, 0, 0, 0],
            };
            Wait::of(Some(call), Some(&memory), &descriptors)
        };
        let futex = of(syscalls::Sysno::futex, [words.as_ptr() as u64 + 16, 0, 0]);
        let futex = futex.futex.unwrap();
        let found = [-16, 0, 8, 28, 32, -20].map(|distance| futex.word(distance));
        assert_eq!(found, [Some(1), Some(5), Some(7), Some(12), None, None]);
        let poll = of(syscalls::Sysno::poll, [polls.as_ptr() as u64, 3, 0]);
        assert_eq!((&*poll.files, poll.file_count), (&["a pipe".into()][..], 3));
        let sleep = |at| {
            of(
                syscalls::Sysno::nanosleep,
                [times.as_ptr() as u64 + at, 0, 0],
            )
            .sleep
        };
        assert_eq!(sleep(0), Some(Duration::from_millis(3500)));
        assert_eq!(sleep(16), None);
        assert_eq!(of(syscalls::Sysno::nanosleep, [0, 0, 0]).sleep, None);
        let huge = of(syscalls::Sysno::poll, [u64::MAX, u64::MAX, 0]);
        assert!(huge.files.is_empty());
    }
}
