//! Large files one at a time: a file may take much memory, by what it has or claims to have, and several at once, on as many threads, too much.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a file may take without waiting for its turn. Few need more: 300 addresses of a program with 500 MB of debug information do not.
const FREE_BYTES_PER_FILE: u64 = 32 << 20;
/// More than that.
pub(crate) const LARGE_BYTES: u64 = FREE_BYTES_PER_FILE + 1;

static PERMIT: Mutex<()> = Mutex::new(());

/// What a file has taken.
#[derive(Default)]
struct Usage {
    bytes: u64,
    permit: Option<MutexGuard<'static, ()>>,
}

thread_local! {
    /// Of the file that this thread reads in turn.
    static USAGE: RefCell<Option<Usage>> = const { RefCell::new(None) };
}

/// Calls `read`, which reads a file with its debug files, and keeps nothing of them. Of all such calls on different threads only one at
/// a time takes more than 32 MiB for what is in the files; the others wait until it returns.
pub fn with_large_file_permit<T>(read: impl FnOnce() -> T) -> T {
    /// Gives the turn to the next, also in a panic.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            USAGE.take();
        }
    }
    if USAGE.with_borrow(Option::is_some) {
        return read();
    }
    USAGE.set(Some(Usage::default()));
    let _end = End;
    read()
}

/// Counts bytes that are about to be taken.
pub(crate) fn charge(bytes: u64) {
    USAGE.with_borrow_mut(|taken| {
        let Some(taken) = taken else { return };
        taken.bytes = taken.bytes.saturating_add(bytes);
        if taken.bytes > FREE_BYTES_PER_FILE && taken.permit.is_none() {
            taken.permit = Some(PERMIT.lock().unwrap_or_else(PoisonError::into_inner));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn what_is_read_is_counted() {
        use crate::elf::ElfFile;
        let has_turn =
            || USAGE.with_borrow(|taken| taken.as_ref().is_some_and(|t| t.permit.is_some()));
        let path = std::env::current_exe().expect("a path");
        let file = std::fs::File::open(path).expect("it can be opened");
        with_large_file_permit(|| {
            let elf = ElfFile::open(&file).expect("ELF");
            assert!(!has_turn());
            while !has_turn() {
                let before = USAGE.with_borrow(|taken| taken.as_ref().map(|t| t.bytes));
                elf.symbols().expect("symbols");
                let after = USAGE.with_borrow(|taken| taken.as_ref().map(|t| t.bytes));
                assert!(before < after);
            }
        });
        assert!(!has_turn());
    }

    #[test]
    fn only_one_takes_much_and_small_ones_go_on() {
        let large = AtomicUsize::new(0);
        let read_large = || {
            charge(FREE_BYTES_PER_FILE);
            charge(1);
            assert_eq!(large.fetch_add(1, Ordering::SeqCst), 0);
            thread::yield_now();
            // Waits for nobody, nor does what is read inside.
            let small = thread::spawn(|| with_large_file_permit(|| charge(FREE_BYTES_PER_FILE)));
            small.join().expect("it ends");
            with_large_file_permit(|| charge(LARGE_BYTES));
            large.fetch_sub(1, Ordering::SeqCst);
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| with_large_file_permit(read_large)));
            }
        });
    }
}
