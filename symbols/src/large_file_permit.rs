//! Bound on memory: only one thread at a time reads a file that needs much of it.
//!
//! A file may need much memory for what it has or declares. Several such files at once, on as many
//! threads, would need too much.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that a file may use without the permit.
///
/// Few files need more: 300 addresses of a program with 500 MB of debug information do not.
const FREE_BYTES_PER_FILE: u64 = 32 << 20;
/// A charge that always requires the permit.
pub(crate) const LARGE_BYTES: u64 = FREE_BYTES_PER_FILE + 1;

static PERMIT: Mutex<()> = Mutex::new(());

/// The memory use of a file.
#[derive(Default)]
struct Usage {
    bytes: u64,
    permit: Option<MutexGuard<'static, ()>>,
}

thread_local! {
    /// Usage of the file that this thread reads, if it is inside [`with_large_file_permit`].
    static USAGE: RefCell<Option<Usage>> = const { RefCell::new(None) };
}

/// Calls `read`, which reads a file and its debug files and keeps none of their contents.
///
/// Of all such calls, only one at a time uses more than 32 MiB for the contents of files. Other
/// threads that need more wait until it returns.
///
/// ```
/// use perfcollect_symbols::{elf::ElfFile, with_large_file_permit};
///
/// let file = std::fs::File::open("/proc/self/exe")?;
/// let symbols = with_large_file_permit(|| ElfFile::open(&file)?.symbols())?;
/// assert!(!symbols.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn with_large_file_permit<T>(read: impl FnOnce() -> T) -> T {
    /// Releases the permit, also on a panic.
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

/// Counts bytes that are about to be allocated, and waits for the permit if they are too many.
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
    fn counts_the_bytes_that_are_read() {
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
    fn permits_one_large_file_and_does_not_delay_small_ones() {
        let large = AtomicUsize::new(0);
        let read_large = || {
            charge(FREE_BYTES_PER_FILE);
            charge(1);
            assert_eq!(large.fetch_add(1, Ordering::SeqCst), 0);
            thread::yield_now();
            // Neither a small file nor a nested call waits.
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
