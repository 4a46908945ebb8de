//! Per-thread events, for users who may not sample system-wide.
//!
//! Each thread has an event on each CPU. The events of a CPU share one ring buffer. Threads and
//! processes inherit the events of the thread that starts them.
//!
//! The target keeps running while perfcollect opens the events. A thread may start another one
//! before or after it has all its events. perfcollect therefore lists the threads until there is no
//! new one. A thread that was listed late may nevertheless have inherited events:
//!
//! ```text
//! listed: A       events on A       B starts, inherits them       listed: A, B       events on B
//! ```
//! Then two events sample B and everything that B starts. Each sample contains the id of its event,
//! so perfcollect detects two events that sample the same thread. The newer event was opened for a
//! thread that had already inherited the older one, as has everything that the thread started
//! since. perfcollect closes the newer event.

use std::io;

use rustc_hash::{FxHashMap, FxHashSet};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::event::{Event, Role};
use super::occurrence_events::{Occurrence, SampledOccurrence};
use super::record::Record;
use super::request::EffectiveRequest;
use crate::ids::{Cpu, Nanos, Tid};
use crate::trace::{Notice, NoticeKind};

/// Maximum number of times the threads are listed.
///
/// A thread is new in a list only if a thread that was new in the previous list started it.
const MAX_LISTS: usize = 16;
/// Descriptors reserved for other files, mainly those with the code of the target.
const RESERVED_FILES: u64 = 256;

/// Time within which the kernel does not reuse a thread id: there are at least 32 768 ids.
const SAME_THREAD_NS: u64 = 50_000_000;

/// The event on a CPU whose ring buffer the per-thread events share.
pub(super) struct RingOwner<'a> {
    pub(super) cpu: Cpu,
    pub(super) event: &'a Event,
}

/// Events of single threads, and the threads without events.
#[derive(Default)]
pub(super) struct ThreadEvents {
    /// Open events by id.
    events: FxHashMap<u64, ThreadEvent>,
    /// The last sample of each thread on each CPU.
    last_samples: FxHashMap<Tid, Vec<LastSample>>,
    /// Closed duplicate events, whose last samples may still be in the ring buffers.
    closed: FxHashSet<u64>,
    lost_by_closed: Vec<(Cpu, u64)>,
    skipped: SkippedThreads,
}

/// An open event of a thread.
struct ThreadEvent {
    cpu: Cpu,
    event: Event,
    /// What it samples beside CPU time.
    kind: Option<Occurrence>,
}

/// Event and time of the last sample of a thread on a CPU, one of each kind of samples.
struct LastSample {
    cpu: Cpu,
    kind: Option<Occurrence>,
    event: u64,
    time: Nanos,
}

/// Threads without events, by reason.
#[derive(Default)]
struct SkippedThreads {
    denied: usize,
    too_many: usize,
    other: Option<(usize, Errno)>,
    /// Whether there were still new threads after [`MAX_LISTS`].
    endless: bool,
}

impl ThreadEvents {
    /// Opens and enables events for all threads of `list` on the CPUs of `rings`.
    ///
    /// # Errors
    /// Returns the error of the kernel if it denies access to all threads.
    pub(super) fn attach(
        &mut self,
        effective: &EffectiveRequest,
        rings: &[RingOwner<'_>],
        list: impl Fn() -> Vec<Tid>,
    ) -> Result<(), Errno> {
        let mut seen = FxHashSet::default();
        let mut opened = Vec::new();
        let mut denied = None;
        for round in 0.. {
            let new: Vec<Tid> = list().into_iter().filter(|&tid| seen.insert(tid)).collect();
            if new.is_empty() {
                break;
            }
            if round == MAX_LISTS {
                self.skipped.endless = true;
                break;
            }
            for tid in new {
                match self.open(effective, rings, tid) {
                    Ok(ids) => opened.extend(ids),
                    // The thread has ended.
                    Err(Errno::SRCH) => {}
                    Err(errno @ (Errno::ACCESS | Errno::PERM)) => {
                        self.skipped.denied += 1;
                        denied = Some(errno);
                    }
                    Err(Errno::MFILE | Errno::NFILE) => self.skipped.too_many += 1,
                    Err(errno) => {
                        let count = self.skipped.other.map_or(0, |(count, _)| count);
                        self.skipped.other = Some((count + 1, errno));
                    }
                }
            }
        }
        // Opening is slow: samples of the first events would fill the ring buffers meanwhile.
        for of_thread in opened.iter().filter_map(|id| self.events.get(id)) {
            let enabled = of_thread.event.set_enabled(true);
            enabled.map_err(|error| errno(&error))?;
        }
        match denied {
            Some(errno) if opened.is_empty() => Err(errno),
            _ => Ok(()),
        }
    }

    /// Opens the events of a thread, all or none, and returns their ids.
    fn open(
        &mut self,
        effective: &EffectiveRequest,
        rings: &[RingOwner<'_>],
        tid: Tid,
    ) -> Result<Vec<u64>, Errno> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let occurrences = effective.request.kinds().into_iter().map(Some);
        let kinds: Vec<_> = [None].into_iter().chain(occurrences).collect();
        let all = self.events.len() as u64 + (rings.len() * kinds.len()) as u64;
        if all.saturating_add(RESERVED_FILES) > limit {
            return Err(Errno::MFILE);
        }
        let mut opened = Vec::with_capacity(rings.len() * kinds.len());
        for ring in rings {
            for &kind in &kinds {
                let role = kind.map_or(Role::Thread(tid), |kind| {
                    Role::OccurrencesOfThread(kind, tid)
                });
                let event = Event::open(effective, role, ring.cpu.0)?;
                event.write_to(ring.event).map_err(|error| errno(&error))?;
                let id = event.id().map_err(|error| errno(&error))?;
                let of_thread = ThreadEvent {
                    cpu: ring.cpu,
                    event,
                    kind,
                };
                opened.push((id, of_thread));
            }
        }
        let ids: Vec<u64> = opened.iter().map(|(id, _)| *id).collect();
        self.events.extend(opened);
        Ok(ids)
    }

    /// Returns the id of each event that samples occurrences, and what its samples stand for.
    pub(super) fn occurrences(&self) -> impl Iterator<Item = (u64, SampledOccurrence)> {
        let events = self.events.iter();
        events.filter_map(|(id, event)| {
            let kind = event.kind?;
            let period = kind.thread_period()?;
            Some((*id, SampledOccurrence { kind, period }))
        })
    }

    /// Whether to use a record. Rejects samples of duplicate events.
    pub(super) fn accepts(&mut self, record: &Record<'_>) -> bool {
        match *record {
            Record::Sample(ref sample) | Record::Occurrences(_, ref sample)
                if sample.event != 0 =>
            {
                let last = LastSample {
                    cpu: sample.cpu,
                    kind: match *record {
                        Record::Occurrences(kind, _) => Some(kind),
                        _ => None,
                    },
                    event: sample.event,
                    time: sample.time,
                };
                if let Some(newer) = self.duplicate_event(sample.tid, last) {
                    self.close(newer);
                }
                !self.closed.contains(&sample.event)
            }
            // Another thread may get this id; after an exec immediately.
            Record::Exit { tid, .. }
            | Record::Comm {
                tid, exec: true, ..
            } => {
                self.last_samples.remove(&tid);
                true
            }
            _ => true,
        }
    }

    /// Returns the newer of two events that sample the same thread.
    ///
    /// Ignores samples of two events that are [`SAME_THREAD_NS`] apart: the exit record may have
    /// been lost and the thread id reused.
    fn duplicate_event(&mut self, tid: Tid, next: LastSample) -> Option<u64> {
        let samples = self.last_samples.entry(tid).or_default();
        let is_same = |sample: &&mut LastSample| (sample.cpu, sample.kind) == (next.cpu, next.kind);
        let Some(last) = samples.iter_mut().find(is_same) else {
            samples.push(next);
            return None;
        };
        let previous = std::mem::replace(last, next);
        let is_same_thread = last.time.0.saturating_sub(previous.time.0) < SAME_THREAD_NS;
        if previous.event == last.event || !is_same_thread {
            return None;
        }
        let newer = last.event.max(previous.event);
        last.event = last.event.min(previous.event);
        Some(newer)
    }

    fn close(&mut self, id: u64) {
        self.closed.insert(id);
        if let Some(ThreadEvent { cpu, event, .. }) = self.events.remove(&id) {
            self.lost_by_closed.push((cpu, event.lost().unwrap_or(0)));
        }
    }

    /// Returns the number of lost records and the CPU of each event.
    pub(super) fn lost(&self) -> impl Iterator<Item = (Cpu, u64)> {
        let open = self.events.values();
        let open = open.filter_map(|of_thread| Some((of_thread.cpu, of_thread.event.lost()?)));
        open.chain(self.lost_by_closed.iter().copied())
    }

    /// Disables all events.
    pub(super) fn stop(&self) -> io::Result<()> {
        self.events
            .values()
            .try_for_each(|of_thread| of_thread.event.set_enabled(false))
    }

    /// Returns a notice for each reason why threads are not sampled.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let SkippedThreads {
            denied,
            too_many,
            other,
            endless,
        } = self.skipped;
        let mut notices = Vec::new();
        let mut add = |count: usize, cause: &str, remedy: &str| {
            let what = format!("cannot sample {count} threads of the target: {cause}");
            notices.push(Notice::new(NoticeKind::ThreadsNotSampled, what, remedy).counting(count));
        };
        if denied > 0 {
            let cause = "they belong to another user or to a program with more privileges";
            add(
                denied,
                cause,
                "run as root (sudo), or with the capability CAP_PERFMON",
            );
        }
        if too_many > 0 {
            let cause = "each thread needs an open file per CPU, which exceeds the limit";
            add(too_many, cause, "raise `ulimit -n`, or run as root (sudo)");
        }
        if let Some((count, errno)) = other {
            add(count, &format!("perf_event_open: {errno}"), "");
        }
        if endless {
            let what =
                "cannot find all threads: the target starts threads faster than they can be listed";
            let remedy = "run as root (sudo), or with the capability CAP_PERFMON";
            notices.push(Notice::new(NoticeKind::ThreadsNotSampled, what, remedy));
        }
        notices
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_newer_of_two_events_that_sample_one_thread() {
        let mut threads = ThreadEvents::default();
        let mut duplicate = |tid, cpu, event, ms: u64| {
            let time = Nanos(ms * 1_000_000);
            let last = LastSample {
                cpu: Cpu(cpu),
                kind: (event >= 100).then_some(Occurrence::Fault),
                event,
                time,
            };
            threads.duplicate_event(Tid(tid), last)
        };
        // An event on another CPU, of another thread or much later is not a duplicate.
        for (tid, cpu, event, ms) in [(1, 0, 10, 1), (1, 1, 11, 1), (1, 0, 10, 2), (2, 0, 20, 2)] {
            assert_eq!(duplicate(tid, cpu, event, ms), None);
        }
        assert_eq!(duplicate(1, 0, 30, 200), None);
        assert_eq!(duplicate(1, 0, 40, 201), Some(40));
        assert_eq!(duplicate(1, 0, 10, 202), Some(30));
        assert_eq!(duplicate(1, 0, 10, 203), None);
        // A thread has an event of each kind.
        assert_eq!(duplicate(1, 0, 100, 204), None);
        assert_eq!(duplicate(1, 0, 10, 205), None);
        assert_eq!(duplicate(1, 0, 101, 206), Some(101));
    }
}
