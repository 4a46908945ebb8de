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

/// A request that has not ended.
#[derive(Clone, Copy, Debug)]
struct OpenRequest {
    row: u32,
    direction: Direction,
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
    /// Number of requests that ended and had started before the events, or whose start is lost.
    pub(crate) unstarted: u64,
    /// Number of requests without a row: there were too many.
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
            let row = &mut self.rows[open.row as usize];
            row.end = end.max(row.start);
            row.calls_ns = row.calls_ns.saturating_add(open.calls_ns(end));
        }
        self.spans.finish(end);
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
        is_known && self.spans.are_known_until(request.end)
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
        if self.rows.len() >= MAX_REQUESTS || self.open.len() >= MAX_OPEN {
            self.omitted += 1;
            return;
        }
        let caller = match direction {
            Direction::Incoming => None,
            Direction::Outgoing => self.incoming(id),
        };
        let caller_route = caller.map(|(_, row)| self.rows[row as usize].route);
        let route = self.route_row(Route {
            direction,
            name,
            caller: caller_route,
        });
        let row = self.rows.len() as u32;
        self.rows.push(Request {
            route,
            start: event.time,
            end: event.time,
            has_ended: false,
            failed: false,
            cpu_ns: 0,
            waits_ns: 0,
            calls_ns: 0,
        });
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
            caller,
            calls: 0,
            calls_since: event.time,
        };
        // If the stop of a request with this id is lost, the row stays without an end.
        if let Some(lost) = self.open.insert(id, request) {
            let row = &mut self.rows[lost.row as usize];
            row.end = event.time.max(row.start);
        }
        if direction == Direction::Incoming {
            self.spans.switch(event.thread, event.time, Some(row));
        }
    }

    fn fail(&mut self, id: ActivityId, direction: Direction) {
        let mut open = with_outer(id).filter_map(|id| self.open.get(&id));
        if let Some(open) = open.find(|open| open.direction == direction) {
            self.rows[open.row as usize].failed = true;
        }
    }

    fn stop(&mut self, id: ActivityId, time: Nanos, direction: Direction, failed: bool) {
        let is_same = |open: &OpenRequest| open.direction == direction;
        if !self.open.get(&id).is_some_and(is_same) {
            self.unstarted += 1;
            return;
        }
        let Some(open) = self.open.remove(&id) else {
            return;
        };
        let row = &mut self.rows[open.row as usize];
        row.end = time.max(row.start);
        row.has_ended = true;
        row.failed |= failed;
        row.calls_ns = row.calls_ns.saturating_add(open.calls_ns(time));
        let Some(caller) = open.caller.and_then(|id| self.open.get_mut(&id)) else {
            return;
        };
        if caller.calls == 1 {
            let row = &mut self.rows[caller.row as usize];
            row.calls_ns = row.calls_ns.saturating_add(caller.calls_ns(time));
        }
        caller.calls = caller.calls.saturating_sub(1);
    }

    fn switch(&mut self, thread: Tid, time: Nanos, id: ActivityId) {
        self.has_switches = true;
        let request = self.incoming(id).map(|(_, row)| row);
        self.spans.switch(thread, time, request);
    }

    /// Returns the incoming request that an activity is part of, and its row.
    fn incoming(&self, id: ActivityId) -> Option<(ActivityId, u32)> {
        with_outer(id).find_map(|id| {
            let open = self.open.get(&id)?;
            (open.direction == Direction::Incoming).then_some((id, open.row))
        })
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

impl OpenRequest {
    /// Returns the time in which outgoing requests have been open since the last one ended.
    fn calls_ns(&self, now: Nanos) -> u64 {
        match self.calls {
            0 => 0,
            _ => now.0.saturating_sub(self.calls_since.0),
        }
    }
}
