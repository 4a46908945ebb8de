//! The places where threads were without a CPU, from the ticks of each.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::tail::Tail;
use super::tick::Tick;
use super::unseen::{Birth, Example, Kind, ShortThreads, Unseen};
use crate::machine::{Switches, ThreadCounters};
use crate::trace::{Nanos, Pid, Tid};

/// Longest time that the scheduler has not counted yet of a thread that runs: that between two ticks of its
/// timer, at its lowest frequency.
const UNCOUNTED_NS: u64 = 10_000_000;

/// Time in which the ticks of a thread arrive after its end, in nanoseconds.
const LINGER_NS: u64 = 200_000_000;

/// What each thread did until its last tick.
#[derive(Debug)]
pub(in crate::capture) struct Timeline<P> {
    threads: FxHashMap<Tid, Line<P>>,
    /// Ends of new threads that were not found waiting, in order.
    ended: VecDeque<(Nanos, Tid)>,
    short_threads: ShortThreads<P>,
}

impl<P> Default for Timeline<P> {
    fn default() -> Self {
        Self {
            threads: FxHashMap::default(),
            ended: VecDeque::new(),
            short_threads: ShortThreads::default(),
        }
    }
}

#[derive(Debug)]
struct Line<P> {
    /// Time of the last tick at which it waited, or the start. Its counters are exact only then: while it
    /// runs, or waits for a CPU, the scheduler has not counted what lasts.
    last: Nanos,
    /// Counters at that time, but the time in which it was ready up to the last tick.
    counters: ThreadCounters,
    /// Where it waited then. `None` at the start.
    place: Option<P>,
    /// Time until which it is known to have waited there, if it has run at a tick since.
    left: Option<Nanos>,
    /// Times since then that were returned already, in nanoseconds.
    returned: u64,
    /// What happened since the last tick.
    tail: Tail,
    /// `None` if it started before the capture.
    birth: Option<Birth>,
    has_ticks: bool,
}

/// A time that a thread spent without a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::capture) struct Wait<P> {
    pub(in crate::capture) state: State<P>,
    /// Start.
    pub(in crate::capture) start: Nanos,
    /// Length in nanoseconds.
    pub(in crate::capture) length: u64,
}

/// Why a thread had no CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::capture) enum State<P> {
    /// It waited at a place, if that is known.
    Waits(Option<P>),
    /// It was ready, after it had waited at a place.
    Ready(Option<P>),
    /// The scheduler had taken its CPU.
    Preempted,
    /// Its control group had used up its CPU time: it was ready, after it had waited at a place.
    ReadyThrottled(Option<P>),
    /// Its control group had used up its CPU time while it ran.
    Throttled,
}

impl<P: Clone> Timeline<P> {
    /// Returns whether a thread has ticks, and has not ended.
    pub(in crate::capture) fn follows(&self, tid: Tid) -> bool {
        self.threads.get(&tid).is_some_and(|line| line.has_ticks)
    }

    /// Returns where a thread waited when it last did at a tick.
    pub(in crate::capture) fn place(&self, tid: Tid) -> Option<&P> {
        self.threads.get(&tid)?.place.as_ref()
    }

    /// Returns the same place, to be replaced by what is known better of it.
    pub(in crate::capture) fn place_mut(&mut self, tid: Tid) -> Option<&mut P> {
        self.threads.get_mut(&tid)?.place.as_mut()
    }

    /// Adds a sample of a thread that ran, which stands for `length` nanoseconds.
    pub(in crate::capture) fn sample(&mut self, tid: Tid, time: Nanos, length: u64) {
        if let Some(line) = self.threads.get_mut(&tid) {
            line.tail.sample(time, length);
        }
    }

    /// Adds a new thread.
    pub(in crate::capture) fn start(&mut self, pid: Pid, tid: Tid, time: Nanos) {
        let known = self.threads.get(&tid);
        if known.is_some_and(|line| line.birth.is_none() && line.tail.end.is_none()) {
            // The record is late: a tick was ahead of it.
            return;
        }
        let name = Box::default();
        let kind = Kind { pid, name };
        let birth = Some(Birth { time, kind });
        let line = Line::new(time, ThreadCounters::default(), birth);
        self.threads.insert(tid, line);
    }

    /// Adds that a thread executes another program. One that is not the first of its process gets the id of that one,
    /// which has ended.
    pub(in crate::capture) fn execute(&mut self, tid: Tid) {
        if let Some(line) = self.threads.get_mut(&tid) {
            line.tail.end = None;
        }
    }

    /// Adds the end of a thread with its name. Its last tick may follow.
    pub(in crate::capture) fn end(&mut self, tid: Tid, time: Nanos, name: &[u8]) {
        let Some(line) = self.threads.get_mut(&tid) else {
            return;
        };
        line.tail.end = Some(time);
        if let Some(birth) = &mut line.birth {
            birth.kind.name = name.into();
            if line.place.is_none() {
                self.ended.push_back((time, tid));
            }
        }
    }

    /// Returns the next thread that ended before it was found waiting, if all its ticks are known at a time. One that
    /// was no short one has no times.
    pub(in crate::capture) fn next_unseen(&mut self, now: Nanos) -> Option<Unseen<P>> {
        loop {
            let (end, tid) = *self.ended.front()?;
            if end.0.saturating_add(LINGER_NS) > now.0 {
                return None;
            }
            self.ended.pop_front();
            let Entry::Occupied(entry) = self.threads.entry(tid) else {
                continue;
            };
            // It may have been found since, or another thread has its id.
            if entry.get().tail.end != Some(end) || entry.get().place.is_some() {
                continue;
            }
            let line = entry.remove();
            let birth = line.birth.filter(|birth| birth.is_short(end));
            let ran = line.tail.ran_at(end).saturating_sub(line.counters.ran_ns);
            let start = Nanos(line.last.0.saturating_add(line.returned));
            let pid = birth.as_ref().map(|birth| birth.kind.pid);
            let waits = birth.map(|birth| self.short_threads.waits(&birth.kind, start, end, ran));
            let waits = waits.unwrap_or_default();
            return Some(Unseen { pid, tid, waits });
        }
    }

    /// Adds a tick, with the place where the thread waits. Returns the times since the tick before, in
    /// order; a time of zero length is left out.
    pub(in crate::capture) fn tick(&mut self, tick: &Tick, place: Option<P>) -> Vec<Wait<P>> {
        let known = self.threads.remove(&tick.tid);
        let first = tick.first;
        let first = first.map(|(last, counters)| Line::new(last, counters, None));
        let Some(mut line) = known.or(first) else {
            return Vec::new();
        };
        // A process that nobody has waited for keeps its counters.
        let has_ended =
            |end: &Nanos| tick.counters.is_none() || place.is_none() && *end <= tick.time;
        let ended = line.tail.end.filter(has_ended);
        if line.is_newer_than(tick) || ended.is_some() && line.is_unseen() {
            self.threads.insert(tick.tid, line);
            return Vec::new();
        }
        line.has_ticks = true;
        let start = line.last.0;
        let end = ended
            .map_or(tick.time, |end| end.min(tick.time))
            .0
            .max(start);
        let was_waiting = line.place.is_some() && line.left.is_none();
        let old = line.place.clone();
        let at_end = ended.map(|_| line.counters_at(Nanos(end)));
        let Some(counters) = tick.counters.or(at_end) else {
            let unchanged = if was_waiting {
                tick.unchanged_until.0.clamp(start, end) - start
            } else {
                0
            };
            // When it ended is not known.
            let last = Wait::of(State::Waits(old), start, unchanged);
            return last.into_iter().collect();
        };
        let has_run = counters.slices != line.counters.slices;
        let is_last = tick.is_last || ended.is_some();
        if was_waiting && place.is_none() && !has_run && !is_last {
            // It has been woken and waits for a CPU: since when is counted when it has one.
            line.tail.look(tick.time, counters.ran_ns);
            self.threads.insert(tick.tid, line);
            return Vec::new();
        }
        let ran = counters.ran_ns.saturating_sub(line.counters.ran_ns);
        let spent = [ran, line.returned].into_iter();
        let unknown = spent.fold(end - start, u64::saturating_sub);
        let ready = counters
            .waited_ns
            .saturating_sub(line.counters.waited_ns)
            .min(unknown);
        let waited_until = match line.left {
            // It may have been ready at the end of this time, when it had not run either.
            None if was_waiting => tick
                .unchanged_until
                .0
                .clamp(start, start + (unknown - ready)),
            None => start,
            Some(left) => left.0,
        };
        let unchanged = if was_waiting { waited_until - start } else { 0 };
        let old_start = waited_until - unchanged;
        line.counters.waited_ns = counters.waited_ns;
        let throttled = tick.throttled.min(ready);
        // A thread that its control group stops while it runs counts as preempted.
        let of_running = |time| match tick.switches {
            Some(Switches { waits, preemptions }) => {
                share(time, preemptions, preemptions.saturating_add(waits))
            }
            None if was_waiting => 0,
            None => time,
        };
        let (stopped, preempted) = (of_running(throttled), of_running(ready - throttled));
        let (held, woken) = (throttled - stopped, ready - throttled - preempted);
        let spent = [unchanged, ran, ready, line.returned].into_iter();
        let rest = spent.fold(end - start, u64::saturating_sub);
        // The scheduler counts a wait for a CPU when it ends. A thread that runs is counted from tick to tick.
        let not_running = tick.ready;
        let not_running =
            not_running.filter(|_| place.is_none() && !was_waiting && ended.is_none());
        let (for_cpu, is_throttled) = not_running.map_or((0, false), |(since, is_throttled)| {
            (end.saturating_sub(since.0).min(rest), is_throttled)
        });
        let for_cpu = if for_cpu > UNCOUNTED_NS { for_cpu } else { 0 };
        let rest = rest - for_cpu;
        // Of what is between two looks, nothing shows where it was: half of it belongs to each place.
        let (to_old, to_new) = match &place {
            Some(_) if old.is_some() => (unchanged + rest / 2, rest - rest / 2),
            Some(_) => (unchanged, rest),
            None if ended.is_some() && was_waiting => (unchanged + rest, 0),
            None if is_last => (unchanged + rest.saturating_sub(UNCOUNTED_NS), 0),
            None => (unchanged, 0),
        };
        let new_start = end - to_new - for_cpu;
        // It was ready before it ran.
        let ready_start = new_start.saturating_sub(ready).max(old_start + to_old);
        let parts = [
            (State::ReadyThrottled(old.clone()), held),
            (State::Ready(old.clone()), woken),
            (State::Throttled, stopped),
            (State::Preempted, preempted),
        ];
        let mut part_start = ready_start;
        let parts = parts.map(|(state, length)| {
            let part = Wait::of(state, part_start, length);
            part_start += length;
            part
        });
        let before = match ended.is_some() && !was_waiting {
            // It could run at its last look, and its samples show that it did not: it waited for a CPU.
            true => State::Preempted,
            false => State::Waits(old.clone()),
        };
        let before = Wait::of(before, old_start, to_old);
        let last = match is_throttled {
            true => State::Throttled,
            false => State::Preempted,
        };
        let last = Wait::of(last, end - for_cpu, for_cpu);
        let after = Wait::of(State::Waits(place.clone()), new_start, to_new);
        let waits = before.into_iter().chain(parts.into_iter().flatten());
        let waits = waits.chain(last).chain(after).collect();
        if ended.is_some() {
            let birth = line.birth.filter(|birth| birth.is_short(Nanos(end)));
            if let (Some(birth), Some(place)) = (birth, old) {
                let ready = counters.waited_ns;
                let life = end.saturating_sub(birth.time.0);
                let spent = [counters.ran_ns, ready].into_iter();
                let waited = spent.fold(life, u64::saturating_sub);
                let example = Example {
                    place,
                    waited,
                    ready,
                };
                self.short_threads.add(birth.kind, example);
            }
            return waits;
        }
        line.tail.look(tick.time, counters.ran_ns);
        match place {
            Some(_) => {
                line = Line {
                    last: Nanos(end),
                    counters,
                    place,
                    left: None,
                    returned: 0,
                    ..line
                };
            }
            None => {
                line.left = Some(Nanos(waited_until));
                line.returned += unchanged + ready;
            }
        }
        self.threads.insert(tick.tid, line);
        waits
    }
}

impl<P> Line<P> {
    fn new(last: Nanos, counters: ThreadCounters, birth: Option<Birth>) -> Self {
        Self {
            last,
            counters,
            place: None,
            left: None,
            returned: 0,
            tail: Tail::new(last, counters.ran_ns),
            birth,
            has_ticks: false,
        }
    }

    /// Returns whether a tick is one of an earlier thread with the same id.
    fn is_newer_than(&self, tick: &Tick) -> bool {
        let is_first = !self.has_ticks && tick.first.is_none();
        let birth = self.birth.as_ref();
        birth.is_some_and(|birth| is_first || birth.time > tick.time)
    }

    /// Returns whether it has ended, was a short thread, and was not found waiting.
    fn is_unseen(&self) -> bool {
        let (Some(birth), Some(end)) = (&self.birth, self.tail.end) else {
            return false;
        };
        self.place.is_none() && birth.is_short(end)
    }

    /// Returns the counters at the end of the thread. It may have waited for a CPU since the last tick: that is
    /// not known.
    fn counters_at(&self, end: Nanos) -> ThreadCounters {
        ThreadCounters {
            ran_ns: self.tail.ran_at(end),
            ..self.counters
        }
    }
}

impl<P> Wait<P> {
    /// Returns `None` for a time of zero length.
    pub(super) fn of(state: State<P>, start: u64, length: u64) -> Option<Self> {
        (length > 0).then_some(Self {
            state,
            start: Nanos(start),
            length,
        })
    }
}

/// Returns the share of a time, as large as that of `part` in `all`.
pub(super) fn share(time: u64, part: u64, all: u64) -> u64 {
    if part >= all {
        return time;
    }
    let share = u128::from(time) * u128::from(part) / u128::from(all);
    u64::try_from(share).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Pid;

    const MS: u64 = 1_000_000;

    fn tick(ms: u64, unchanged_ms: u64, ran_ms: u64, ready_ms: u64, slices: u64) -> Tick {
        Tick {
            pid: Pid(1),
            tid: Tid(2),
            time: Nanos(ms * MS),
            unchanged_until: Nanos(unchanged_ms * MS),
            counters: Some(ThreadCounters {
                ran_ns: ran_ms * MS,
                waited_ns: ready_ms * MS,
                slices,
            }),
            first: None,
            switches: None,
            throttled: 0,
            ready: None,
            is_last: false,
            found: None,
        }
    }

    /// Returns a first tick.
    fn start(ms: u64, ran_ms: u64, ready_ms: u64) -> Tick {
        let tick = tick(ms, ms, ran_ms, ready_ms, 1);
        Tick {
            first: tick.counters.map(|counters| (tick.time, counters)),
            ..tick
        }
    }

    fn switches(waits: u64, preemptions: u64) -> Option<Switches> {
        Some(Switches { waits, preemptions })
    }

    fn waits(found: &[Wait<char>]) -> Vec<(State<char>, u64, u64)> {
        let waits = found.iter();
        let row = |wait: &Wait<char>| (wait.state.clone(), wait.start.0 / MS, wait.length / MS);
        waits.map(row).collect()
    }

    #[test]
    fn times_between_looks_add_up() {
        let mut timeline = Timeline::default();
        assert!(timeline.tick(&start(100, 5, 1), Some('a')).is_empty());
        // It waited at `a` until 900 at least, then ran 10 and waited for a CPU 20, and waits at `b`.
        let found = timeline.tick(&tick(1000, 900, 15, 21, 2), Some('b'));
        let expected = [
            (State::Waits(Some('a')), 100, 835),
            (State::Ready(Some('a')), 945, 20),
            (State::Waits(Some('b')), 965, 35),
        ];
        assert_eq!(waits(&found), expected);
        // The same place again is one place.
        let found = timeline.tick(&tick(1100, 1000, 25, 21, 3), Some('b'));
        assert_eq!(found.iter().map(|wait| wait.length / MS).sum::<u64>(), 90);
        let at_b = |wait: &Wait<char>| wait.state == State::Waits(Some('b'));
        assert!(found.iter().all(at_b));
        // One time of four it left the CPU because another thread took it.
        let preempted = Tick {
            switches: switches(3, 1),
            ..tick(1200, 1100, 25, 101, 7)
        };
        let found = timeline.tick(&preempted, Some('b'));
        let expected = [
            (State::Waits(Some('b')), 1100, 10),
            (State::Ready(Some('b')), 1110, 60),
            (State::Preempted, 1170, 20),
            (State::Waits(Some('b')), 1190, 10),
        ];
        assert_eq!(waits(&found), expected);
    }

    #[test]
    fn what_a_running_thread_has_not_counted_is_no_wait() {
        let mut timeline = Timeline::default();
        timeline.tick(&start(100, 0, 0), Some('a'));
        // It runs since 150, of which nothing is counted, and then waits for a CPU.
        let found = timeline.tick(&tick(200, 150, 0, 0, 2), None);
        assert_eq!(waits(&found), [(State::Waits(Some('a')), 100, 50)]);
        assert!(timeline.tick(&tick(300, 200, 60, 0, 2), None).is_empty());
        let found = timeline.tick(&tick(400, 300, 60, 90, 3), None);
        assert_eq!(waits(&found), [(State::Preempted, 310, 90)]);
        // All of it is counted when it waits again: it ran for 150 and was ready for 90.
        let found = timeline.tick(&tick(500, 400, 150, 90, 3), Some('b'));
        let expected = [
            (State::Waits(Some('a')), 150, 55),
            (State::Waits(Some('b')), 445, 55),
        ];
        assert_eq!(waits(&found), expected);
    }

    #[test]
    fn a_limit_of_a_control_group_is_a_reason() {
        let mut timeline = Timeline::default();
        timeline.tick(&start(100, 0, 0), Some('a'));
        // What it waited for has come, but its group may not run until 280, and then another thread runs.
        let woken = Tick {
            throttled: 80 * MS,
            switches: switches(1, 0),
            ..tick(300, 200, 10, 90, 2)
        };
        let found = timeline.tick(&woken, Some('b'));
        let expected = [
            (State::Waits(Some('a')), 100, 100),
            (State::ReadyThrottled(Some('a')), 210, 80),
            (State::Ready(Some('a')), 290, 10),
        ];
        assert_eq!(waits(&found), expected);
        // It was stopped while it ran. What its group waited beyond its own waits concerns other threads.
        let stopped = Tick {
            throttled: 700 * MS,
            switches: switches(0, 2),
            ..tick(400, 300, 30, 170, 4)
        };
        let found = timeline.tick(&stopped, None);
        assert_eq!(waits(&found), [(State::Throttled, 320, 80)]);
    }

    #[test]
    fn a_thread_on_a_run_queue_does_not_wait_at_its_place() {
        let mut timeline = Timeline::default();
        timeline.tick(&start(100, 0, 0), Some('a'));
        // Somewhere before 300 it was woken, and has not run.
        assert!(timeline.tick(&tick(300, 300, 0, 0, 1), None).is_empty());
        // It ran at 900, after 700 on the queue, and waits again.
        let found = timeline.tick(&tick(910, 890, 10, 700, 2), Some('b'));
        let expected = [
            (State::Waits(Some('a')), 100, 100),
            (State::Ready(Some('a')), 210, 700),
        ];
        assert_eq!(waits(&found), expected);
    }

    #[test]
    fn a_wait_for_a_cpu_at_the_end_is_not_counted_by_the_scheduler() {
        for (is_throttled, state) in [(true, State::Throttled), (false, State::Preempted)] {
            let mut timeline = Timeline::default();
            timeline.tick(&start(100, 0, 0), None);
            let last = Tick {
                is_last: true,
                ready: Some((Nanos(140 * MS), is_throttled)),
                ..tick(200, 190, 40, 0, 1)
            };
            let found = timeline.tick(&last, None);
            assert_eq!(waits(&found), [(state, 140, 60)]);
        }
        // One that runs has not been counted for less than a tick.
        let mut timeline = Timeline::<char>::default();
        timeline.tick(&start(100, 0, 0), None);
        let last = Tick {
            is_last: true,
            ready: Some((Nanos(195 * MS), true)),
            ..tick(200, 190, 95, 0, 1)
        };
        assert!(timeline.tick(&last, None).is_empty());
    }

    #[test]
    fn a_thread_ends() {
        let mut timeline = Timeline::default();
        timeline.tick(&start(100, 0, 0), Some('a'));
        let end = Tick {
            counters: None,
            ..tick(300, 200, 0, 0, 0)
        };
        let found = timeline.tick(&end, None);
        assert_eq!(waits(&found), [(State::Waits(Some('a')), 100, 100)]);
        assert!(!timeline.follows(Tid(2)));
        assert!(timeline.tick(&tick(500, 500, 0, 0, 1), None).is_empty());
    }

    #[test]
    fn a_short_thread_without_a_look_is_like_others_of_its_name() {
        let last = Tick {
            counters: None,
            ..tick(300, 200, 0, 0, 0)
        };
        let mut timeline = Timeline::default();
        timeline.start(Pid(1), Tid(2), Nanos(100 * MS));
        timeline.tick(&start(200, 0, 50), Some('a'));
        timeline.end(Tid(2), Nanos(300 * MS), b"worker");
        timeline.tick(&last, None);
        for (tid, name) in [(3, b"worker"), (4, b"poller")] {
            timeline.start(Pid(1), Tid(tid), Nanos(400 * MS));
            timeline.sample(Tid(tid), Nanos(420 * MS), 20 * MS);
            timeline.end(Tid(tid), Nanos(500 * MS), name);
        }
        // Their ticks may still follow.
        assert!(timeline.next_unseen(Nanos(600 * MS)).is_none());
        let mut next = || {
            let unseen = timeline.next_unseen(Nanos(900 * MS))?;
            Some((unseen.tid, waits(&unseen.waits)))
        };
        let expected = [
            (State::Waits(Some('a')), 420, 60),
            (State::Ready(Some('a')), 480, 20),
        ];
        assert_eq!(next(), Some((Tid(3), expected.to_vec())));
        let expected = (State::Waits(None), 420, 80);
        assert_eq!(next(), Some((Tid(4), vec![expected])));
        assert_eq!(next(), None);
        assert!(!timeline.follows(Tid(3)));
    }

    #[test]
    fn ticks_belong_to_threads_not_to_their_ids() {
        let mut timeline = Timeline::default();
        timeline.tick(&start(100, 0, 0), Some('a'));
        // This record is late.
        timeline.start(Pid(1), Tid(2), Nanos(99 * MS));
        let found = timeline.tick(&tick(200, 200, 0, 0, 1), Some('a'));
        assert_eq!(waits(&found), [(State::Waits(Some('a')), 100, 100)]);
        // Another thread gets the id before the last ticks of this one arrive.
        timeline.end(Tid(2), Nanos(250 * MS), b"");
        timeline.start(Pid(1), Tid(2), Nanos(300 * MS));
        assert!(timeline.tick(&tick(240, 240, 0, 0, 1), None).is_empty());
        let last = Tick {
            counters: None,
            ..tick(320, 240, 0, 0, 0)
        };
        assert!(timeline.tick(&last, None).is_empty());
        let found = timeline.tick(&start(400, 0, 0), Some('b'));
        assert_eq!(waits(&found), [(State::Waits(Some('b')), 300, 100)]);
    }

    #[test]
    fn a_program_that_another_thread_executes_goes_on() {
        let mut timeline = Timeline::default();
        timeline.start(Pid(1), Tid(2), Nanos(100 * MS));
        timeline.tick(&start(150, 50, 0), None);
        timeline.end(Tid(2), Nanos(200 * MS), b"");
        timeline.execute(Tid(2));
        assert!(timeline.next_unseen(Nanos(900 * MS)).is_none());
        let found = timeline.tick(&tick(900, 600, 500, 0, 2), Some('a'));
        assert_eq!(found.iter().map(|wait| wait.length / MS).sum::<u64>(), 300);
    }

    #[test]
    fn a_process_that_nobody_waits_for_has_ended() {
        let mut timeline = Timeline::default();
        timeline.start(Pid(1), Tid(2), Nanos(100 * MS));
        timeline.tick(&start(150, 0, 0), Some('a'));
        timeline.end(Tid(2), Nanos(200 * MS), b"");
        let last = Tick {
            is_last: true,
            ready: Some((Nanos(150 * MS), false)),
            ..tick(2000, 160, 20, 5, 2)
        };
        let found = timeline.tick(&last, None);
        let expected = [
            (State::Waits(Some('a')), 150, 25),
            (State::Ready(Some('a')), 175, 5),
        ];
        let lengths = |(state, _, length): (State<char>, u64, u64)| (state, length);
        let found: Vec<_> = waits(&found).into_iter().map(lengths).collect();
        assert_eq!(found, expected.map(lengths));
        assert!(!timeline.follows(Tid(2)));
    }

    #[test]
    fn what_follows_the_last_look_ends_with_the_thread() {
        let last = Tick {
            counters: None,
            ..tick(300, 200, 0, 0, 0)
        };
        // It was waiting until 200 at least, and ended at 280.
        let mut timeline = Timeline::default();
        timeline.tick(&start(100, 0, 0), Some('a'));
        timeline.end(Tid(2), Nanos(280 * MS), b"");
        let found = timeline.tick(&last, None);
        assert_eq!(waits(&found), [(State::Waits(Some('a')), 100, 180)]);
        assert!(!timeline.follows(Tid(2)));
        // It ran for 30 of that. Its counters contain the sample before the last look.
        let mut timeline = Timeline::default();
        timeline.tick(&start(100, 0, 0), Some('a'));
        for ms in [180, 220, 230, 240] {
            timeline.sample(Tid(2), Nanos(ms * MS), 10 * MS);
        }
        timeline.tick(&tick(200, 150, 12, 0, 2), Some('b'));
        timeline.end(Tid(2), Nanos(280 * MS), b"");
        let found = timeline.tick(&last, None);
        assert_eq!(waits(&found), [(State::Waits(Some('b')), 200, 50)]);
        // It ran at the last look, and the rest is less than what the scheduler counts late.
        let mut timeline = Timeline::<char>::default();
        timeline.tick(&start(100, 0, 0), None);
        timeline.sample(Tid(2), Nanos(105 * MS), 75 * MS);
        timeline.end(Tid(2), Nanos(180 * MS), b"");
        assert!(timeline.tick(&last, None).is_empty());
        // It could run at the last look, and ran for 20 of 180 until its end.
        let mut timeline = Timeline::default();
        timeline.tick(&start(100, 0, 0), Some('a'));
        timeline.tick(&tick(110, 105, 5, 0, 2), None);
        timeline.sample(Tid(2), Nanos(150 * MS), 20 * MS);
        timeline.end(Tid(2), Nanos(280 * MS), b"");
        let found = timeline.tick(&last, None);
        assert!(
            found.iter().all(|wait| wait.state == State::Preempted),
            "{found:?}"
        );
        let length: u64 = found.iter().map(|wait| wait.length).sum();
        assert!((140..=160).contains(&(length / MS)), "{found:?}");
    }
}
