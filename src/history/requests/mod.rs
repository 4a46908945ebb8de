//! Requests that a process answered (ASP.NET Core) and sent (HttpClient), with what threads did for them.
//!
//! The start and the stop of a request have the same activity id, whatever threads they are on. The id
//! contains those of the activities around it, so that an outgoing request has an incoming one. A thread runs
//! for the activity that it set last.

mod activity_path;
mod path_name;
mod pauses;
mod request_event;
#[cfg(test)]
mod tests;
mod thread_spans;

use hashbrown::HashMap;

use super::CpuSample;
use crate::trace::{Nanos, RuntimeEvent, Tid};
use activity_path::{ActivityId, with_outer};
pub(crate) use pauses::Pauses;
use pauses::{RESTARTED, SUSPEND};
use request_event::RequestEvent;
pub(crate) use request_event::{Direction, is_about_requests};
use thread_spans::ThreadSpans;

/// Limits per process: requests, those that are open at once, and different names.
const MAX_REQUESTS: usize = 1 << 18;
const MAX_OPEN: usize = 1 << 14;
const MAX_ROUTES: usize = 1 << 10;
/// Part of the time of a request, as a divisor, that may be later than the last sample.
const UNSAMPLED_PART: u64 = 10;
/// Name of the requests without a name.
const OTHERS: &str = "(others)";

/// Requests with the same name: `GET /orders/{id}`, or `http://host/orders/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    pub(crate) direction: Direction,
    pub(crate) name: String,
    /// Row of the incoming requests that send these.
    pub(crate) caller: Option<u32>,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Row of its name.
    pub(crate) route: u32,
    pub(crate) start: Nanos,
    /// Its end, or that of the events.
    pub(crate) end: Nanos,
    pub(crate) has_ended: bool,
    pub(crate) failed: bool,
    /// CPU time of threads that ran for it. Its other times belong here.
    pub(crate) cpu_ns: u64,
    /// Time without a CPU of threads that ran for it.
    pub(crate) waits_ns: u64,
    /// Time in which it waited for an outgoing request at least.
    pub(crate) calls_ns: u64,
}

/// Counts of the requests of a direction, with those that have no row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestTotals {
    /// Number of requests that started.
    pub(crate) started: u64,
    /// Number of these that ended.
    pub(crate) ended: u64,
    /// Number of these that failed.
    pub(crate) failed: u64,
    /// Number of requests beyond [`MAX_OPEN`] that have not ended. Their ids are not kept.
    beyond_open: u64,
}

/// A request that has not ended.
#[derive(Clone, Copy, Debug)]
struct OpenRequest {
    /// `None` if there are too many rows.
    row: Option<u32>,
    direction: Direction,
    failed: bool,
    /// Activity of the incoming request that sends it.
    caller: Option<ActivityId>,
    /// Number of its outgoing requests that are open, and since when there are any.
    calls: u32,
    calls_since: Nanos,
}

/// The requests of a process.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// In order of their starts.
    pub(crate) rows: Vec<Request>,
    /// By direction.
    totals: [RequestTotals; 2],
    pub(crate) routes: Vec<Route>,
    by_route: HashMap<Route, u32>,
    open: HashMap<ActivityId, OpenRequest>,
    spans: ThreadSpans,
    pub(crate) pauses: Pauses,
    /// Whether events report what threads run for.
    has_switches: bool,
    /// Whether CPU time was counted, and time without a CPU.
    has_cpu_time: bool,
    has_waits: bool,
    /// Until when samples are known, if events go on for longer.
    samples_end: Option<Nanos>,
    /// Number of requests that ended and whose start is not known.
    pub(crate) unstarted: u64,
    /// Number of requests without a row: there were too many. The totals have them.
    pub(crate) omitted: u64,
    /// Number of requests without an activity, whose start and stop cannot be joined.
    pub(crate) without_activity: u64,
}

impl Requests {
    /// Returns whether an event of the runtime is about pauses.
    pub(super) fn is_pause(id: u32) -> bool {
        matches!(id, RESTARTED | SUSPEND)
    }

    /// Takes an event of the runtime that starts or ends a pause.
    pub(super) fn take_pause(&mut self, event: &RuntimeEvent) {
        self.pauses.take(event);
    }

    /// Takes an event that [is about requests](is_about_requests).
    pub(super) fn take(&mut self, event: &RuntimeEvent) {
        let id = event.activity.id;
        match RequestEvent::read(event) {
            Some(RequestEvent::Start(direction, name)) => self.start(event, direction, name),
            Some(RequestEvent::Failed(direction)) => self.fail(id, direction),
            Some(RequestEvent::Stop(direction, failed)) => {
                self.stop(id, event.time, direction, failed);
            }
            Some(RequestEvent::Switch(id)) => self.switch(event.thread, event.time, id),
            None => {}
        }
    }

    /// Ends what is open.
    pub(super) fn finish(&mut self, end: Nanos) {
        for (_, open) in std::mem::take(&mut self.open) {
            if let Some(row) = row_of(&mut self.rows, open.row) {
                row.end = end.max(row.start);
                row.calls_ns = row.calls_ns.saturating_add(open.calls_ns(end));
            }
        }
        self.spans.finish(end);
    }

    /// Sets until when samples are known. The CPU time of requests that end later is unknown.
    pub(super) fn set_samples_end(&mut self, end: Nanos) {
        self.samples_end = Some(end);
    }

    /// Adds the CPU time of a sample.
    pub(super) fn add_cpu_time(&mut self, sample: &CpuSample) {
        self.has_cpu_time = true;
        let request = self.spans.at(sample.thread, sample.time);
        let request = request.and_then(|row| self.rows.get_mut(row as usize));
        let is_within = |it: &&mut Request| it.start < sample.time && sample.time <= it.end;
        if let Some(request) = request.filter(is_within) {
            request.cpu_ns = request.cpu_ns.saturating_add(sample.ns);
        }
    }

    /// Adds the time from `start` to `end` in which a thread had no CPU.
    pub(super) fn add_wait(&mut self, thread: Tid, start: Nanos, end: Nanos) {
        self.has_waits = true;
        for (row, start, end) in self.spans.within(thread, start, end) {
            let Some(request) = self.rows.get_mut(row as usize) else {
                continue;
            };
            let (start, end) = (start.max(request.start), end.min(request.end));
            let ns = end.0.saturating_sub(start.0);
            request.waits_ns = request.waits_ns.saturating_add(ns);
        }
    }

    /// Returns whether events report what threads run for.
    pub(crate) fn has_switches(&self) -> bool {
        self.has_switches
    }

    /// Returns whether the process has samples.
    pub(crate) fn has_cpu_time(&self) -> bool {
        self.has_cpu_time
    }

    /// Returns the counts of a direction.
    pub(crate) fn totals(&self, direction: Direction) -> RequestTotals {
        self.totals[direction as usize]
    }

    /// Returns the CPU time of a request, if events report what threads run for, and not too many.
    pub(crate) fn cpu_ns(&self, request: &Request) -> Option<u64> {
        self.knows_threads(request).then_some(request.cpu_ns)
    }

    /// Returns the time without a CPU of threads that ran for a request, if the capture followed that, events
    /// report what threads run for, and not too many.
    pub(crate) fn waits_ns(&self, request: &Request) -> Option<u64> {
        let is_known = self.has_waits && self.knows_threads(request);
        is_known.then_some(request.waits_ns)
    }

    fn knows_threads(&self, request: &Request) -> bool {
        let is_incoming = self.route(request).direction == Direction::Incoming;
        let is_known = self.has_switches && is_incoming;
        is_known && self.has_spans(request) && self.has_samples(request)
    }

    /// Returns whether all is known that threads ran for until a request ended.
    pub(crate) fn has_spans(&self, request: &Request) -> bool {
        self.spans.are_known_until(request.end)
    }

    /// Returns whether there are samples until a request ended, or nearly.
    pub(crate) fn has_samples(&self, request: &Request) -> bool {
        let ns = request.end.0.saturating_sub(request.start.0);
        let covers = |end: Nanos| request.end.0.saturating_sub(end.0) <= ns / UNSAMPLED_PART;
        self.samples_end.is_none_or(covers)
    }

    /// Returns the name of a request.
    pub(crate) fn route(&self, request: &Request) -> &Route {
        &self.routes[request.route as usize]
    }

    fn start(&mut self, event: &RuntimeEvent, direction: Direction, name: String) {
        let id = event.activity.id;
        if id == ActivityId::default() {
            self.without_activity += 1;
            return;
        }
        let totals = &mut self.totals[direction as usize];
        totals.started += 1;
        let is_kept = self.open.len() < MAX_OPEN;
        totals.beyond_open += u64::from(!is_kept);
        let caller = match direction {
            Direction::Outgoing if is_kept => self.incoming(id),
            _ => None,
        };
        let has_row = is_kept && self.rows.len() < MAX_REQUESTS;
        let row = has_row.then(|| {
            let caller = caller.and_then(|(_, row)| row);
            let route = self.route_row(Route {
                direction,
                name,
                caller: caller.map(|row| self.rows[row as usize].route),
            });
            self.rows.push(Request::new(route, event.time));
            self.rows.len() as u32 - 1
        });
        self.omitted += u64::from(row.is_none());
        if direction == Direction::Incoming {
            self.spans.switch(event.thread, event.time, row);
        }
        if !is_kept {
            return;
        }
        let caller = caller.map(|(id, _)| id);
        if let Some(caller) = caller.and_then(|id| self.open.get_mut(&id)) {
            if caller.calls == 0 {
                caller.calls_since = event.time;
            }
            caller.calls += 1;
        }
        let request = OpenRequest {
            row,
            direction,
            failed: false,
            caller,
            calls: 0,
            calls_since: event.time,
        };
        // If the stop of a request with this id is lost, the row stays without an end.
        let lost = self.open.insert(id, request);
        if let Some(row) = lost.and_then(|lost| row_of(&mut self.rows, lost.row)) {
            row.end = event.time.max(row.start);
        }
    }

    fn fail(&mut self, id: ActivityId, direction: Direction) {
        let is_same = |open: &OpenRequest| open.direction == direction;
        let id = with_outer(id).find(|id| self.open.get(id).is_some_and(is_same));
        let Some(open) = id.and_then(|id| self.open.get_mut(&id)) else {
            return;
        };
        self.totals[direction as usize].failed += u64::from(!open.failed);
        open.failed = true;
        if let Some(row) = row_of(&mut self.rows, open.row) {
            row.failed = true;
        }
    }

    fn stop(&mut self, id: ActivityId, time: Nanos, direction: Direction, failed: bool) {
        let is_same = |open: &OpenRequest| open.direction == direction;
        let is_open = self.open.get(&id).is_some_and(is_same);
        let totals = &mut self.totals[direction as usize];
        if !is_open && totals.beyond_open == 0 {
            self.unstarted += 1;
            return;
        }
        totals.ended += 1;
        let open = match is_open {
            true => self.open.remove(&id),
            false => None,
        };
        let Some(open) = open else {
            totals.beyond_open -= 1;
            totals.failed += u64::from(failed);
            return;
        };
        totals.failed += u64::from(failed && !open.failed);
        if let Some(row) = row_of(&mut self.rows, open.row) {
            row.end = time.max(row.start);
            row.has_ended = true;
            row.failed |= failed;
            row.calls_ns = row.calls_ns.saturating_add(open.calls_ns(time));
        }
        let Some(caller) = open.caller.and_then(|id| self.open.get_mut(&id)) else {
            return;
        };
        if caller.calls == 1
            && let Some(row) = row_of(&mut self.rows, caller.row)
        {
            row.calls_ns = row.calls_ns.saturating_add(caller.calls_ns(time));
        }
        caller.calls = caller.calls.saturating_sub(1);
    }

    fn switch(&mut self, thread: Tid, time: Nanos, id: ActivityId) {
        self.has_switches = true;
        let request = self.incoming(id).and_then(|(_, row)| row);
        self.spans.switch(thread, time, request);
    }

    /// Returns the incoming request that an activity is part of, and its row if it has one.
    fn incoming(&self, id: ActivityId) -> Option<(ActivityId, Option<u32>)> {
        with_outer(id).find_map(|id| {
            let open = self.open.get(&id)?;
            (open.direction == Direction::Incoming).then_some((id, open.row))
        })
    }

    /// Returns the row of the name of the incoming request that an activity is for.
    pub(super) fn incoming_route(&self, id: ActivityId) -> Option<u32> {
        let (_, row) = self.incoming(id)?;
        Some(self.rows.get(row? as usize)?.route)
    }

    /// Returns the row of a name, or that of all others.
    fn route_row(&mut self, route: Route) -> u32 {
        if let Some(row) = self.by_route.get(&route) {
            return *row;
        }
        let route = match self.routes.len() < MAX_ROUTES {
            true => route,
            false => Route {
                name: OTHERS.to_owned(),
                caller: None,
                ..route
            },
        };
        let row = self.by_route.entry(route).or_insert_with_key(|route| {
            self.routes.push(route.clone());
            self.routes.len() as u32 - 1
        });
        *row
    }
}

impl Request {
    fn new(route: u32, start: Nanos) -> Self {
        Self {
            route,
            start,
            end: start,
            has_ended: false,
            failed: false,
            cpu_ns: 0,
            waits_ns: 0,
            calls_ns: 0,
        }
    }
}

impl OpenRequest {
    /// Returns the time in which outgoing requests have been open since the last one ended.
    fn calls_ns(&self, now: Nanos) -> u64 {
        match self.calls {
            0 => 0,
            _ => now.0.saturating_sub(self.calls_since.0),
        }
    }
}

/// Returns the request of a row, if it has one.
fn row_of(rows: &mut [Request], row: Option<u32>) -> Option<&mut Request> {
    rows.get_mut(row? as usize)
}
