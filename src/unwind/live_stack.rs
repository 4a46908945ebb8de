//! The stack of a running process above an absent page, which ends the copy of a sample.
//!
//! A large local variable that is not used yet leaves pages that are not in memory. The kernel's
//! copy ends at the first of them. The frames above belong to callers, which change only when the
//! sampled functions have returned.
//!
//! Only pages in memory that belong to no file are read: for others, a file system of the target
//! could let the reader wait.

use std::cell::{Cell, RefCell};

use crate::dotnet::{PAGE_BYTES, PrivateMemory};
use crate::trace::Pid;

/// Maximum distance from the copy: the default limit of a stack.
const MAX_BYTES: u64 = 8 << 20;
/// Maximum number of reads for one sample: some three for each frame.
const MAX_READS: u32 = 192;

/// Memory above an absent page, read page by page.
pub(super) struct LiveStack {
    pid: Pid,
    /// End of the absent page.
    start: u64,
    reads_left: Cell<u32>,
    /// Whether a word was null.
    had_null: Cell<bool>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Opened by the first read. `None` inside if that failed.
    memory: Option<Option<PrivateMemory>>,
    /// Address and content of the last page.
    page: u64,
    bytes: Vec<u8>,
}

impl LiveStack {
    /// Creates the memory above the absent page at an address.
    pub(super) fn new(pid: Pid, absent_page: u64) -> Self {
        Self {
            pid,
            start: absent_page.saturating_add(PAGE_BYTES),
            reads_left: Cell::new(MAX_READS),
            had_null: Cell::new(false),
            state: RefCell::default(),
        }
    }

    /// Returns the word at an address above the absent page.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let distance = address.checked_sub(self.start)?;
        let is_within = distance < MAX_BYTES && address.is_multiple_of(8);
        let word = is_within.then(|| self.read_word(address))??;
        self.had_null.set(self.had_null.get() || word == 0);
        Some(word)
    }

    /// Returns whether a word was null since the last call.
    pub(super) fn take_null(&self) -> bool {
        self.had_null.take()
    }

    /// Returns the word that the process has at an address now.
    pub(super) fn current(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let mut state = self.state.try_borrow_mut().ok()?;
        let is_whole = self.fill(&mut state, address, &mut bytes) == bytes.len();
        is_whole.then_some(u64::from_le_bytes(bytes))
    }

    fn read_word(&self, address: u64) -> Option<u64> {
        let mut state = self.state.try_borrow_mut().ok()?;
        let offset = address % PAGE_BYTES;
        let page = address - offset;
        if state.bytes.is_empty() || state.page != page {
            let mut bytes = std::mem::take(&mut state.bytes);
            bytes.resize(PAGE_BYTES as usize, 0);
            let filled = self.fill(&mut state, page, &mut bytes);
            bytes.truncate(filled);
            (state.page, state.bytes) = (page, bytes);
        }
        let word = state.bytes.get(offset as usize..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word))
    }

    fn fill(&self, state: &mut State, address: u64, buffer: &mut [u8]) -> usize {
        let Some(left) = self.reads_left.get().checked_sub(1) else {
            return 0;
        };
        self.reads_left.set(left);
        let open = || PrivateMemory::open(self.pid);
        let memory = state.memory.get_or_insert_with(open).as_ref();
        memory.map_or(0, |memory| memory.read_resident(address, buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_words_above_the_page_until_its_reads_are_used_up() {
        let words: Vec<u64> = (0..2048).collect();
        let address = words.as_ptr() as u64;
        let page = address - address % PAGE_BYTES;
        let live = LiveStack::new(Pid(std::process::id() as i32), page);
        let start = page + PAGE_BYTES;
        for at in [start, start + 8, start + PAGE_BYTES] {
            assert_eq!(live.word(at), Some((at - address) / 8));
        }
        for at in [
            0,
            page,
            start - 8,
            start + 4,
            start + MAX_BYTES,
            u64::MAX - 7,
        ] {
            assert_eq!(live.word(at), None, "{at:#x}");
        }
        for _ in 2..MAX_READS {
            assert_eq!(live.current(address + 8), Some(1));
        }
        assert_eq!(live.current(address), None);
        // The last page that was read is still there.
        assert!(live.word(start + PAGE_BYTES).is_some());
        assert_eq!(live.word(start), None);
    }

    /// A file system could let the reader wait.
    #[test]
    fn reads_no_memory_of_a_file() {
        static FILE: [u8; 64] = [1; 64];
        let live = LiveStack::new(Pid(std::process::id() as i32), 0);
        let address = std::hint::black_box(&FILE).as_ptr() as u64;
        assert_eq!(live.current(address.next_multiple_of(8)), None);
    }

    #[test]
    fn reads_nothing_of_a_process_that_has_ended() {
        let live = LiveStack::new(Pid(i32::MAX), 0);
        assert_eq!(live.word(PAGE_BYTES), None);
    }
}
