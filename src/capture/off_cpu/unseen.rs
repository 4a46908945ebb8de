//! Threads that ended before a look found where they wait: their time has the places of other short threads of their
//! process and name.

use std::collections::VecDeque;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::timeline::{State, Wait, share};
use crate::trace::{Nanos, Pid, Tid};

/// Longest life of a short thread, in nanoseconds. One that lives longer and was never found waiting runs, or is one of
/// the kernel.
const MAX_LIFE_NS: u64 = 2_000_000_000;
/// Least time of a wait, in nanoseconds: shorter ones add up to one, as each takes a row of its thread.
const MIN_WAIT_NS: i64 = 1_000_000;
/// Largest CPU time of samples that threads which ran without one may pay back, in nanoseconds.
const MAX_EXCESS_NS: i64 = 100_000_000;
/// Examples that are kept of a kind of threads, and kinds that have some.
const MAX_EXAMPLES: usize = 16;
const MAX_KINDS: usize = 256;
/// Start of the names of the kernel's own threads in a process, of io_uring.
const KERNEL_WORKER: &[u8] = b"iou-";

/// Threads of a process with the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) pid: Pid,
    pub(super) name: Box<[u8]>,
}

/// The start of a thread.
#[derive(Debug)]
pub(super) struct Birth {
    pub(super) time: Nanos,
    /// Its name is that at its end.
    pub(super) kind: Kind,
}

impl Birth {
    /// Returns whether a thread that ended at `end` was a short one.
    pub(super) fn is_short(&self, end: Nanos) -> bool {
        let life = end.0.saturating_sub(self.time.0);
        life <= MAX_LIFE_NS && !self.kind.name.starts_with(KERNEL_WORKER)
    }
}

/// A thread that was not found waiting, and its time without a CPU.
#[derive(Debug)]
pub(in crate::capture) struct Unseen<P> {
    /// Its process. `None` if it started before the capture.
    pub(in crate::capture) pid: Option<Pid>,
    pub(in crate::capture) tid: Tid,
    pub(in crate::capture) waits: Vec<Wait<P>>,
}

/// Where a short thread waited, and for how many nanoseconds it did and was ready.
#[derive(Clone, Debug)]
pub(super) struct Example<P> {
    pub(super) place: P,
    pub(super) waited: u64,
    pub(super) ready: u64,
}

/// What is known of short threads.
#[derive(Debug)]
pub(super) struct ShortThreads<P> {
    examples: FxHashMap<Kind, VecDeque<Example<P>>>,
    /// Lives of the threads of each name less their CPU time, in nanoseconds, as far as no wait has it yet. A sample
    /// stands for a period, in which other threads ran without one.
    balances: FxHashMap<Box<[u8]>, i64>,
}

impl<P> Default for ShortThreads<P> {
    fn default() -> Self {
        Self {
            examples: FxHashMap::default(),
            balances: FxHashMap::default(),
        }
    }
}

impl<P: Clone> ShortThreads<P> {
    /// Adds a thread that was seen.
    pub(super) fn add(&mut self, kind: Kind, example: Example<P>) {
        if example.waited == 0 && example.ready == 0 {
            return;
        }
        make_room(&mut self.examples, &kind);
        let examples = self.examples.entry(kind).or_default();
        examples.truncate(MAX_EXAMPLES - 1);
        examples.push_front(example);
    }

    /// Returns where a thread was that had `start` to `end` to wait or to run, of which its samples show the CPU time.
    /// Each call for a kind follows the next example.
    pub(super) fn waits(
        &mut self,
        kind: &Kind,
        start: Nanos,
        end: Nanos,
        ran: u64,
    ) -> Vec<Wait<P>> {
        let life = end.0.saturating_sub(start.0);
        make_room(&mut self.balances, &kind.name);
        let balance = self.balances.entry(kind.name.clone()).or_default();
        // A life is short, and samples of it are not longer than it by more than a few periods.
        let without_cpu = life as i64 - i64::try_from(ran).unwrap_or(MAX_EXCESS_NS);
        *balance = balance.saturating_add(without_cpu).max(-MAX_EXCESS_NS);
        if *balance < MIN_WAIT_NS {
            return Vec::new();
        }
        let rest = std::mem::take(balance).unsigned_abs();
        let examples = self.examples.get_mut(kind);
        let example = examples.and_then(|examples| {
            examples.rotate_left(1);
            examples.back().cloned()
        });
        let ready = example.as_ref().map_or(0, |example| {
            let all = example.waited.saturating_add(example.ready);
            share(rest, example.ready, all)
        });
        let place = example.map(|example| example.place);
        let (waited, start) = (rest - ready, end.0.saturating_sub(rest));
        let waits = Wait::of(State::Waits(place.clone()), start, waited);
        let ready = Wait::of(State::Ready(place), start + waited, ready);
        waits.into_iter().chain(ready).collect()
    }
}

/// Forgets all kinds if a new one is too many.
fn make_room<K: Eq + Hash, V>(kinds: &mut FxHashMap<K, V>, new: &K) {
    if kinds.len() >= MAX_KINDS && !kinds.contains_key(new) {
        kinds.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn kind(pid: i32) -> Kind {
        let name = Box::from(*b"worker");
        Kind {
            pid: Pid(pid),
            name,
        }
    }

    fn sum(waits: &[Wait<char>]) -> u64 {
        waits.iter().map(|wait| wait.length).sum()
    }

    #[test]
    fn times_are_those_of_examples_in_turn() {
        let mut threads = ShortThreads::default();
        for place in ['a', 'b'] {
            let example = Example {
                place,
                waited: 3,
                ready: 1,
            };
            threads.add(kind(1), example);
        }
        let mut places = Vec::new();
        for _ in 0..4 {
            let waits = threads.waits(&kind(1), Nanos(MS), Nanos(5 * MS), 0);
            let [waited, ready] = waits.as_slice() else {
                panic!("{waits:?}");
            };
            assert_eq!((waited.start, waited.length), (Nanos(MS), 3 * MS));
            assert_eq!((ready.start, ready.length), (Nanos(4 * MS), MS));
            places.push(waited.state.clone());
        }
        assert_eq!(places[..2], places[2..]);
        assert_ne!(places[0], places[1]);
        let busy = Example {
            place: 'c',
            waited: 0,
            ready: 0,
        };
        threads.add(kind(2), busy);
        let other = threads.waits(&kind(2), Nanos(0), Nanos(4 * MS), 0);
        let unknown = Wait::of(State::Waits(None), 0, 4 * MS);
        assert_eq!(other, unknown.into_iter().collect::<Vec<_>>());
    }

    /// One of ten threads that run for 0.1 ms has a sample, which stands for 1 ms.
    #[test]
    fn threads_that_only_run_do_not_wait() {
        let mut threads = ShortThreads::<char>::default();
        let waits = (0..10_000).map(|number| {
            let ran = if number % 10 == 0 { MS } else { 0 };
            sum(&threads.waits(&kind(1), Nanos(0), Nanos(MS / 10), ran))
        });
        assert_eq!(waits.sum::<u64>(), 0);
    }

    #[test]
    fn short_waits_add_up() {
        let mut threads = ShortThreads::<char>::default();
        let (start, end) = (Nanos(5 * MS), Nanos(5 * MS + MS / 4));
        let waits = (0..8).map(|_| threads.waits(&kind(1), start, end, 0));
        let waits: Vec<_> = waits.collect();
        assert_eq!(waits.iter().filter(|waits| waits.is_empty()).count(), 6);
        assert_eq!(waits.iter().map(|waits| sum(waits)).sum::<u64>(), 2 * MS);
    }

    #[test]
    fn examples_are_bounded() {
        let mut threads = ShortThreads::default();
        for number in 0..10_000 {
            let example = || Example {
                place: number,
                waited: 1,
                ready: 0,
            };
            threads.add(kind(1), example());
            threads.add(kind(number), example());
        }
        assert!(threads.examples.len() <= MAX_KINDS);
        for number in 0..10_000_u32 {
            let name = Box::from(number.to_le_bytes());
            let pid = Pid(1);
            threads.waits(&Kind { pid, name }, Nanos(0), Nanos(MS), 0);
        }
        assert!(threads.balances.len() <= MAX_KINDS);
        let examples = threads.examples.values();
        assert!(examples.map(VecDeque::len).all(|n| n <= MAX_EXAMPLES));
    }
}
