//! Threads that are watched one by one, where the whole machine may not be.
//!
//! Each has an event on each CPU, all of a CPU in one ring, and what a thread starts inherits its events. While they are
//! opened the target goes on: a thread may start another one before it has all its events, or after. So the threads
//! are listed until there is no new one. One that is found so may have inherited its events nevertheless:
//!
//! ```text
//! listed: A           events on A           B starts, inherits them      listed: A, B      events on B
//! ```
//! Then B is sampled twice, and so is what B starts. A sample tells its event, so a thread that two events sample at
//! a time gives them away. The younger one was opened for a thread that had inherited the older one, and so had all it has
//! started since: the younger one can be closed.

use std::io;

use rustc_hash::{FxHashMap, FxHashSet};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::effective_request::EffectiveRequest;
use super::event::{Event, Role};
use super::record::Record;
use crate::ids::{Cpu, Nanos, Tid};
use crate::trace::Notice;

/// How often threads are listed at most. Each time only those can be new that were started since the time before by
/// threads which were new themselves then.
const MAX_LISTS: usize = 16;
/// Files that are left to open for other purposes: those with the code of the target, above all.
const OTHER_FILES: u64 = 256;

/// Sooner than this no id is given to another thread: there are at least 32 768.
const SAME_THREAD_NS: u64 = 50_000_000;

/// The event on a CPU whose ring the events of threads share.
pub(super) struct RingOf<'a> {
    pub(super) cpu: Cpu,
    pub(super) owner: &'a Event,
}

/// Threads with events of their own, and how that went.
#[derive(Default)]
pub(super) struct ThreadEvents {
    /// By their ids.
    events: FxHashMap<u64, (Cpu, Event)>,
    /// The latest sample of a thread on each CPU.
    latest: FxHashMap<Tid, Vec<LastSample>>,
    /// Events that were closed, as their threads had inherited others. Some of their samples may still come.
    closed: FxHashSet<u64>,
    lost_of_closed: Vec<(Cpu, u64)>,
    refused: SkippedThreads,
}

/// Which event took a sample, and when.
struct LastSample {
    cpu: Cpu,
    event: u64,
    time: Nanos,
}

/// Threads that are not watched, by reason.
#[derive(Default)]
struct SkippedThreads {
    denied: usize,
    too_many: usize,
    other: Option<(usize, Errno)>,
    /// Still new ones after [`MAX_LISTS`].
    endless: bool,
}

impl ThreadEvents {
    /// Watches all threads of `list` on these CPUs; an error if the kernel refuses all of them.
    pub(super) fn attach(
        &mut self,
        grant: &EffectiveRequest,
        rings: &[RingOf<'_>],
        list: impl Fn() -> Vec<Tid>,
    ) -> Result<(), Errno> {
        let mut seen = FxHashSet::default();
        let mut opened = Vec::new();
        let mut denied = None;
        for round in 0.. {
            let found: Vec<Tid> = list().into_iter().filter(|&tid| seen.insert(tid)).collect();
            if found.is_empty() {
                break;
            }
            if round == MAX_LISTS {
                self.refused.endless = true;
                break;
            }
            for tid in found {
                match self.open(grant, rings, tid) {
                    Ok(ids) => opened.extend(ids),
                    // It has ended meanwhile.
                    Err(Errno::SRCH) => {}
                    Err(errno @ (Errno::ACCESS | Errno::PERM)) => {
                        self.refused.denied += 1;
                        denied = Some(errno);
                    }
                    Err(Errno::MFILE | Errno::NFILE) => self.refused.too_many += 1,
                    Err(errno) => {
                        let count = self.refused.other.map_or(0, |(count, _)| count);
                        self.refused.other = Some((count + 1, errno));
                    }
                }
            }
        }
        // All at once: opening takes its time, and the samples of the first would fill the rings.
        for (_, event) in opened.iter().filter_map(|id| self.events.get(id)) {
            let enabled = event.set_enabled(true);
            enabled.map_err(|error| errno(&error))?;
        }
        match denied {
            Some(errno) if opened.is_empty() => Err(errno),
            _ => Ok(()),
        }
    }

    /// Opens the events of a thread, all or none; gives their ids.
    fn open(
        &mut self,
        grant: &EffectiveRequest,
        rings: &[RingOf<'_>],
        tid: Tid,
    ) -> Result<Vec<u64>, Errno> {
        let may_open = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let all = self.events.len() as u64 + rings.len() as u64;
        if all.saturating_add(OTHER_FILES) > may_open {
            return Err(Errno::MFILE);
        }
        let mut opened = Vec::with_capacity(rings.len());
        for ring in rings {
            let event = Event::open(grant, Role::Thread(tid), ring.cpu.0)?;
            event.write_to(ring.owner).map_err(|error| errno(&error))?;
            let id = event.id().map_err(|error| errno(&error))?;
            opened.push((id, (ring.cpu, event)));
        }
        let ids: Vec<u64> = opened.iter().map(|(id, _)| *id).collect();
        self.events.extend(opened);
        Ok(ids)
    }

    /// Whether a record is to be used: not the second sample of the same.
    pub(super) fn accepts(&mut self, record: &Record<'_>) -> bool {
        match *record {
            // Of the machine there is one event on a CPU.
            Record::Sample(ref sample) if sample.event != 0 => {
                let latest = LastSample {
                    cpu: sample.cpu,
                    event: sample.event,
                    time: sample.time,
                };
                if let Some(younger) = self.second_event(sample.tid, latest) {
                    self.close(younger);
                }
                !self.closed.contains(&sample.event)
            }
            // Its id goes to another thread: in an exec, at once.
            Record::Exit { tid, .. }
            | Record::Comm {
                tid, exec: true, ..
            } => {
                self.latest.remove(&tid);
                true
            }
            _ => true,
        }
    }

    /// The younger one of two events that sample a thread, at its next sample. One that follows another later on tells
    /// nothing: the end of the thread may have been lost, and its id be another's.
    fn second_event(&mut self, tid: Tid, next: LastSample) -> Option<u64> {
        let latest = self.latest.entry(tid).or_default();
        let Some(latest) = latest.iter_mut().find(|latest| latest.cpu == next.cpu) else {
            latest.push(next);
            return None;
        };
        let before = std::mem::replace(latest, next);
        let at_a_time = latest.time.0.saturating_sub(before.time.0) < SAME_THREAD_NS;
        if before.event == latest.event || !at_a_time {
            return None;
        }
        let younger = latest.event.max(before.event);
        latest.event = latest.event.min(before.event);
        Some(younger)
    }

    fn close(&mut self, id: u64) {
        self.closed.insert(id);
        if let Some((cpu, event)) = self.events.remove(&id) {
            self.lost_of_closed.push((cpu, event.lost().unwrap_or(0)));
        }
    }

    /// Records dropped, by event.
    pub(super) fn lost(&self) -> impl Iterator<Item = (Cpu, u64)> {
        let open = self.events.values();
        let open = open.filter_map(|(cpu, event)| Some((*cpu, event.lost()?)));
        open.chain(self.lost_of_closed.iter().copied())
    }

    /// Stops sampling.
    pub(super) fn stop(&self) -> io::Result<()> {
        self.events
            .values()
            .try_for_each(|(_, event)| event.set_enabled(false))
    }

    /// Who is not watched, and why.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let SkippedThreads {
            denied,
            too_many,
            other,
            endless,
        } = self.refused;
        let mut notices = Vec::new();
        let mut say = |count: usize, why: &str, remedy: &str| {
            let what = format!("{count} threads of the target are not sampled: {why}");
            notices.push(Notice::new(what, remedy));
        };
        if denied > 0 {
            let why = "they belong to another user, or to a program with more rights";
            say(
                denied,
                why,
                "run as root (sudo), or with the capability CAP_PERFMON",
            );
        }
        if too_many > 0 {
            let why = "a file is needed for each of them on each CPU, and no more may be open";
            say(too_many, why, "raise `ulimit -n`, or run as root (sudo)");
        }
        if let Some((count, errno)) = other {
            say(count, &format!("perf_event_open: {errno}"), "");
        }
        if endless {
            let what =
                "the target starts threads faster than they can be found: some may be missing";
            let remedy = "run as root (sudo), or with the capability CAP_PERFMON";
            notices.push(Notice::new(what, remedy));
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
    fn the_younger_of_two_events_at_a_time_is_the_second() {
        let mut threads = ThreadEvents::default();
        let mut second = |tid, cpu, event, ms: u64| {
            let time = Nanos(ms * 1_000_000);
            let latest = LastSample {
                cpu: Cpu(cpu),
                event,
                time,
            };
            threads.second_event(Tid(tid), latest)
        };
        // On another CPU, of another thread, or later on, another event is no second one.
        for (tid, cpu, event, ms) in [(1, 0, 10, 1), (1, 1, 11, 1), (1, 0, 10, 2), (2, 0, 20, 2)] {
            assert_eq!(second(tid, cpu, event, ms), None);
        }
        assert_eq!(second(1, 0, 30, 200), None);
        assert_eq!(second(1, 0, 40, 201), Some(40));
        assert_eq!(second(1, 0, 10, 202), Some(30));
        assert_eq!(second(1, 0, 10, 203), None);
    }
}
