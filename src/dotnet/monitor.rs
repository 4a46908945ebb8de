//! The owner of a monitor (`lock` in C#) that a thread waits for.
//!
//! A thread that waits for a monitor has the address of the runtime's `AwareLock` on its stack, near the
//! top. That structure is the same from .NET 8 to 10 (`src/coreclr/vm/syncblk.h` in dotnet/runtime), and
//! has enough that is redundant to tell it from other memory:
//!
//! ```text
//!  0 u32 lock state: bit 0 locked, from bit 6 on the number of waiters
//!  4 u32 recursion: at least 1
//!  8 u64 owner: a pointer, or since .NET 10 an id
//! 16 u64 id of the owner in the operating system
//! 24 u32 transient precious: the number of threads that use it
//! 28 u32 index of the sync block, with bit 31 set
//! ```

use std::collections::HashSet;

use super::memory::Memory;

/// Size of the structure that is read.
const LOCK_BYTES: usize = 32;
/// Size of the part of the stack that is searched. The address is some 1400 bytes from the top.
const MAX_STACK_BYTES: usize = 4096;
/// Addresses below are no pointers.
const MIN_ADDRESS: u64 = 1 << 16;
/// End of the addresses of user space.
const MAX_ADDRESS: u64 = 1 << 47;
const LOCKED: u32 = 1;
const WAITERS_SHIFT: u32 = 6;
/// Limits of plausible numbers of threads, recursions and sync blocks.
const MAX_THREADS: u32 = 1 << 16;
const MAX_RECURSION: u32 = 1 << 20;
const PRECIOUS: u32 = 1 << 31;

/// A monitor that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Monitor {
    /// Address of the runtime's `AwareLock`.
    pub address: u64,
    /// Id of the owner in the pid namespace of its process.
    pub owner: u32,
    /// Number of threads that wait for it.
    pub waiters: u32,
}

impl Monitor {
    /// Finds the monitor that a thread may wait for, from the top of its stack. `is_thread` returns
    /// whether an id is that of another thread of the process.
    ///
    /// It may be one that the thread does not wait for any more: the caller must know that it waits for
    /// one.
    pub fn on_stack(
        stack: &[u8],
        memory: &impl Memory,
        is_thread: impl Fn(u32) -> bool,
    ) -> Option<Self> {
        let (words, _) = stack
            .get(..MAX_STACK_BYTES)
            .unwrap_or(stack)
            .as_chunks::<8>();
        let mut seen = HashSet::new();
        words.iter().find_map(|word| {
            let address = u64::from_le_bytes(*word);
            let is_pointer = (MIN_ADDRESS..MAX_ADDRESS).contains(&address) && address % 8 == 0;
            if !is_pointer || !seen.insert(address) {
                return None;
            }
            Self::at(address, memory, &is_thread)
        })
    }

    /// Reads the monitor at an address, if one is there that a thread has and others wait for.
    pub fn at(address: u64, memory: &impl Memory, is_thread: impl Fn(u32) -> bool) -> Option<Self> {
        let mut bytes = [0; LOCK_BYTES];
        let read = memory.read(address, &mut bytes);
        (read == LOCK_BYTES).then(|| Self::parse(address, &bytes, is_thread))?
    }

    fn parse(
        address: u64,
        bytes: &[u8; LOCK_BYTES],
        is_thread: impl Fn(u32) -> bool,
    ) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<4>();
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let &[
            state,
            recursion,
            owner_low,
            owner_high,
            thread,
            0,
            users,
            index,
        ] = &words[..]
        else {
            return None;
        };
        let waiters = state >> WAITERS_SHIFT;
        let is_lock = state & LOCKED != 0
            && (1..MAX_THREADS).contains(&waiters)
            && (1..MAX_RECURSION).contains(&recursion)
            && (owner_low, owner_high) != (0, 0)
            && users < MAX_THREADS
            && index & PRECIOUS != 0
            && index & !PRECIOUS != 0;
        (is_lock && is_thread(thread)).then_some(Self {
            address,
            owner: thread,
            waiters,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dotnet::Image;
    use proptest::prelude::*;

    const ADDRESS: u64 = 0x7f00_0000_1000;

    fn lock(words: [u32; 8]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn find(lock: &[u8], stack: &[u64]) -> Option<Monitor> {
        let stack: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
        let memory = Image {
            start: ADDRESS,
            bytes: lock,
        };
        Monitor::on_stack(&stack, &memory, |thread| thread == 77)
    }

    /// The words of a real lock of .NET 10 with two waiters.
    #[test]
    fn finds_the_owner() {
        let words = [0x83, 1, 5, 0, 77, 0, 2, 0x8000_0002];
        let expected = Monitor {
            address: ADDRESS,
            owner: 77,
            waiters: 2,
        };
        let stack = [0, ADDRESS + 4, 0xdead_beef, ADDRESS];
        assert_eq!(find(&lock(words), &stack), Some(expected));
        for (index, word) in [
            (0, 0x82),
            (0, 0x03),
            (1, 0),
            (2, 0),
            (4, 78),
            (5, 1),
            (6, u32::MAX),
            (7, 2),
            (7, 0x8000_0000),
        ] {
            let mut other = words;
            other[index] = word;
            assert_eq!(find(&lock(other), &stack), None, "{index} {word:#x}");
        }
        assert_eq!(find(&lock(words)[..31], &stack), None);
        let far: Vec<u64> = [0; 512].into_iter().chain([ADDRESS]).collect();
        assert_eq!(find(&lock(words), &far), None);
    }

    proptest! {
        #[test]
        fn any_memory_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = find(&bytes, &[ADDRESS, ADDRESS + 8, u64::MAX]);
        }
    }
}
