//! Bound on memory: of all files, only one at a time is read beyond a small allowance.
//!
//! A file may need much memory for what it has or declares. Several such files at once, on as many
//! threads, would need too much.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Bytes that a file may use without the permit.
///
/// Few files need more: 300 addresses of a program with 500 MB of debug information do not.
const FREE_BYTES_PER_FILE: u64 = 32 << 20;
/// A charge that always requires the permit.
pub(crate) const LARGE_BYTES: u64 = FREE_BYTES_PER_FILE + 1;

/// The permit to read a large file, which the files of one symbolizer share.
#[derive(Debug, Default)]
pub(crate) struct MemoryBudget {
    is_taken: Mutex<bool>,
    changed: Condvar,
}

/// The memory that reading a file and its debug files has taken, in bytes.
#[derive(Debug, Default)]
pub(crate) struct MemoryUse {
    bytes: AtomicU64,
    has_permit: AtomicBool,
    readers: AtomicUsize,
    /// `None`: reading never waits.
    budget: Option<Arc<MemoryBudget>>,
}

impl MemoryUse {
    pub(crate) fn new(budget: &Arc<MemoryBudget>) -> Self {
        let budget = Some(Arc::clone(budget));
        Self {
            bytes: AtomicU64::new(0),
            has_permit: AtomicBool::new(false),
            readers: AtomicUsize::new(0),
            budget,
        }
    }

    /// Counts bytes that are about to be allocated, and waits for the permit if they are too many.
    pub(crate) fn charge(&self, bytes: u64) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > FREE_BYTES_PER_FILE
            && !self.has_permit.load(Ordering::Relaxed)
            && let Some(budget) = &self.budget
        {
            self.wait(budget);
        }
    }

    /// Waits until this file has the permit.
    ///
    /// The permit is the file's: its threads may wait for each other, so none waits for the permit
    /// that another of them has.
    fn wait(&self, budget: &MemoryBudget) {
        let taken = budget.is_taken.lock();
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        while *taken && !self.has_permit.load(Ordering::Relaxed) {
            let woken = budget.changed.wait(taken);
            taken = woken.unwrap_or_else(PoisonError::into_inner);
        }
        *taken = true;
        self.has_permit.store(true, Ordering::Relaxed);
        budget.changed.notify_all();
    }

    /// Starts to read the file. It keeps the permit until all its readers have ended.
    pub(crate) fn read(&self) -> Reading<'_> {
        self.readers.fetch_add(1, Ordering::Relaxed);
        Reading(self)
    }

    /// Returns the permit if `is_done` still holds while no other thread can take or return it.
    fn release_if(&self, is_done: impl FnOnce() -> bool) {
        let Some(budget) = &self.budget else { return };
        let taken = budget.is_taken.lock();
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        if is_done() && self.has_permit.swap(false, Ordering::Relaxed) {
            *taken = false;
            budget.changed.notify_all();
        }
    }
}

/// A reader of a file.
#[must_use]
pub(crate) struct Reading<'a>(&'a MemoryUse);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let memory = self.0;
        let was_last = memory.readers.fetch_sub(1, Ordering::AcqRel) == 1;
        if was_last && memory.has_permit.load(Ordering::Relaxed) {
            memory.release_if(|| memory.readers.load(Ordering::Acquire) == 0);
        }
    }
}

/// A reader that owns what it reads.
#[must_use]
pub(crate) struct HeldMemory(Arc<MemoryUse>);

impl HeldMemory {
    pub(crate) fn new(memory: Arc<MemoryUse>) -> Self {
        memory.readers.fetch_add(1, Ordering::Relaxed);
        Self(memory)
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        drop(Reading(&self.0));
    }
}

impl Drop for MemoryUse {
    fn drop(&mut self) {
        self.release_if(|| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    #[test]
    fn permits_one_large_file_and_does_not_delay_small_ones() {
        let budget = Arc::new(MemoryBudget::default());
        let large = AtomicUsize::new(0);
        let read_large = || {
            let memory = MemoryUse::new(&budget);
            memory.charge(FREE_BYTES_PER_FILE);
            memory.charge(1);
            assert_eq!(large.fetch_add(1, Ordering::SeqCst), 0);
            thread::yield_now();
            let small = thread::spawn({
                let memory = MemoryUse::new(&budget);
                move || memory.charge(FREE_BYTES_PER_FILE)
            });
            small.join().expect("it ends");
            large.fetch_sub(1, Ordering::SeqCst);
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| read_large()));
            }
        });
    }

    #[test]
    fn readers_of_one_file_share_the_permit_until_the_last_ends() {
        let budget = Arc::new(MemoryBudget::default());
        let is_taken = || *budget.is_taken.lock().expect("no panic");
        let memory = MemoryUse::new(&budget);
        let first = memory.read();
        memory.charge(LARGE_BYTES);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _second = memory.read();
                memory.charge(1);
            });
        });
        assert!(is_taken());
        drop(first);
        assert!(!is_taken());
        let other = MemoryUse::new(&budget);
        let _other = other.read();
        other.charge(LARGE_BYTES);
        assert!(is_taken());
    }
}
