//! Who owns the lock that a thread waits for.

use serde::{Deserialize, Serialize};

use super::reason::public_name;
use crate::capture::{Futex, SnapshotThread, Wait};

/// Offset of `__owner` from the futex of a mutex of glibc (`struct __pthread_mutex_s`).
const GLIBC_OWNER: i64 = 8;
/// Offset of `__cur_writer` from the futexes of a lock for readers and writers of glibc: `__wrphase_futex`,
/// at 8 bytes, and `__writers_futex`, at 12 bytes of `struct __pthread_rwlock_arch_t`.
const GLIBC_WRITER: [i64; 2] = [16, 12];
/// Bits of the id of an owner in the word of a priority-inheriting futex (`<linux/futex.h>`), and in that
/// of a mutex of musl.
const OWNER_BITS: u32 = 0x3fff_ffff;

/// The word of a normal mutex of musl, which does not know its owner (`EBUSY`).
const MUSL_BUSY: u32 = 16;

/// A lock that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lock {
    /// Its address in the process.
    pub address: u64,
    /// Thread that has it, if that is known. It may be the one that waits.
    pub owner: Option<i32>,
    /// Id of the owner in the memory of the process, in its pid namespace, if no thread of the process
    /// has it: the owner has ended, or belongs to another process.
    pub foreign_owner: Option<u32>,
}

/// The C library of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CLibrary {
    Glibc,
    Musl,
}

impl Lock {
    /// Finds the lock that a thread waits for, if it waits for one. `frames` are the modules and the
    /// functions on its stack, from the top. `thread` returns the thread of its process with an id in
    /// its pid namespace.
    pub(super) fn of<'a>(
        thread: &SnapshotThread,
        wait: &Wait,
        mut frames: impl Iterator<Item = (&'a str, &'a str)> + Clone,
        find: impl Fn(u32) -> Option<i32>,
    ) -> Option<Self> {
        // The owner of the lock of one that has run since is not known.
        // Its mutexes are inside of .NET's monitors.
        if let Some(monitor) = thread.monitor {
            let owner = Some(monitor.owner).filter(|_| thread.has_stayed);
            return Some(Self::owned(monitor.address, owner, find));
        }
        let futex = wait.futex.as_ref()?;
        let has = |start: &str| {
            let mut called = frames.clone().take(6);
            called.any(|(_, name)| public_name(name).starts_with(start))
        };
        let owner = if futex.has_owner {
            futex.word(0).map(|word| word & OWNER_BITS)
        } else if has("pthread_rwlock_") {
            let [phase, writers] = GLIBC_WRITER;
            futex.word(if futex.address % 8 == 0 {
                phase
            } else {
                writers
            })
        } else if has("pthread_mutex_") {
            let library = frames.find_map(|(module, _)| library(module));
            mutex_owner(futex, library)
        } else {
            None
        };
        let owner = owner.filter(|_| thread.has_stayed);
        Some(Self::owned(futex.address, owner, find))
    }

    fn owned(address: u64, id: Option<u32>, find: impl Fn(u32) -> Option<i32>) -> Self {
        let id = id.filter(|id| *id != 0);
        let owner = id.and_then(find);
        Self {
            address,
            owner,
            foreign_owner: id.filter(|_| owner.is_none()),
        }
    }
}

/// Returns the library of a module, if it is a C library.
fn library(module: &str) -> Option<CLibrary> {
    match module {
        "libc.so" => Some(CLibrary::Musl),
        _ if module.contains("musl") => Some(CLibrary::Musl),
        _ if module.starts_with("libc.so.") => Some(CLibrary::Glibc),
        _ => None,
    }
}

/// Returns the owner of a mutex. A normal mutex of musl has none.
fn mutex_owner(futex: &Futex, library: Option<CLibrary>) -> Option<u32> {
    let musl = || futex.word(0).map(|word| word & OWNER_BITS);
    let glibc = || futex.word(GLIBC_OWNER);
    // 1 and 2 are the values of a lock of glibc. The library may be linked into the program.
    let is_glibc = || futex.word(0).is_some_and(|word| word <= 2);
    match library {
        Some(CLibrary::Musl) => musl().filter(|word| *word != MUSL_BUSY),
        Some(CLibrary::Glibc) if is_glibc() => glibc(),
        Some(CLibrary::Glibc) => None,
        None if is_glibc() => glibc(),
        None => musl().filter(|word| *word != MUSL_BUSY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Activity;
    use crate::dotnet::Monitor;
    use crate::trace::{Pid, Tid};

    fn owner(words: [u32; 12], has_owner: bool, frames: &[(&str, &str)]) -> Option<i32> {
        lock(None, words, has_owner, frames).owner
    }

    fn lock(
        monitor: Option<Monitor>,
        words: [u32; 12],
        has_owner: bool,
        frames: &[(&str, &str)],
    ) -> Lock {
        lock_at(0x1000, monitor, words, has_owner, frames)
    }

    fn lock_at(
        address: u64,
        monitor: Option<Monitor>,
        words: [u32; 12],
        has_owner: bool,
        frames: &[(&str, &str)],
    ) -> Lock {
        let wait = Wait {
            futex: Some(Futex::new(address, has_owner, words.into())),
            ..Wait::default()
        };
        let mut thread = SnapshotThread::new(Pid(700), Tid(701), Activity::Runs);
        thread.monitor = monitor;
        thread.has_stayed = true;
        // Threads 701 to 703 are 1 to 3 in their namespace.
        let find = |id: u32| (1..=3).contains(&id).then_some(700 + id as i32);
        Lock::of(&thread, &wait, frames.iter().copied(), find).unwrap()
    }

    /// The words from 16 bytes before the futex.
    const WORDS: [u32; 12] = [0; 12];

    #[test]
    fn owners_of_mutexes_are_in_their_words() {
        let glibc = [
            ("libc.so.6", "__lll_lock_wait"),
            ("libc.so.6", "pthread_mutex_lock"),
        ];
        let mut words = WORDS;
        (words[4], words[6]) = (2, 2);
        assert_eq!(owner(words, false, &glibc), Some(702));
        words[6] = 1;
        assert_eq!(owner(words, false, &glibc), Some(701), "itself");
        for foreign in [4, u32::MAX] {
            words[6] = foreign;
            let lock = lock(None, words, false, &glibc);
            assert_eq!((lock.owner, lock.foreign_owner), (None, Some(foreign)));
        }
        words[6] = 0;
        assert_eq!(lock(None, words, false, &glibc).foreign_owner, None);
        // A lock of `malloc` has other words.
        words[6] = 2;
        let private = [
            ("libc.so.6", "__lll_lock_wait_private"),
            ("libc.so.6", "malloc"),
        ];
        assert_eq!(owner(words, false, &private), None);
        let musl = [("ld-musl-x86_64.so.1", "pthread_mutex_timedlock")];
        words[4] = 3 | 0x8000_0000;
        assert_eq!(owner(words, false, &musl), Some(703));
        let linked = [("app", "__pthread_mutex_timedlock")];
        assert_eq!(owner(words, false, &linked), Some(703));
        words[4] = 16;
        assert_eq!(lock(None, words, false, &musl).foreign_owner, None);
        let unknown = [("libx.so", "wait")];
        words[4] = 2 | 0x8000_0000;
        assert_eq!(owner(words, true, &unknown), Some(702));
        assert_eq!(owner(words, false, &unknown), None);
    }

    #[test]
    fn writers_are_in_the_words_of_a_lock_for_readers() {
        let glibc = [("libc.so.6", "pthread_rwlock_rdlock")];
        for (address, word) in [(0x1008, 8), (0x100c, 7)] {
            let mut words = WORDS;
            words[word] = 2;
            let found = lock_at(address, None, words, false, &glibc);
            assert_eq!(found.owner, Some(702), "{address:#x}");
        }
    }

    #[test]
    fn a_monitor_hides_its_mutex() {
        let monitor = Monitor {
            address: 0x2000,
            owner: 3,
            waiters: 1,
        };
        let found = lock(
            Some(monitor),
            [2; 12],
            false,
            &[("libc.so.6", "lll_lock_wait")],
        );
        let expected = Lock {
            address: 0x2000,
            owner: Some(703),
            foreign_owner: None,
        };
        assert_eq!(found, expected);
    }
}
