//! Requests of a process.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Context, kept, ms};
use crate::history::requests::{Direction, Request, Requests};
use crate::trace::Pid;

/// Maximum number of names of each direction, and of single requests.
const MAX_ROUTES: usize = 50;
const MAX_SLOWEST: usize = 50;

/// Requests that a process answered (ASP.NET Core) and sent (HttpClient).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestSummary {
    /// Requests that it answered.
    pub incoming: RequestCounts,
    /// Requests that it sent.
    pub outgoing: RequestCounts,
    /// Number of requests that ended and whose start is not known.
    pub unstarted: u64,
    /// Number of requests without a time and a name, because there were too many. `incoming` and `outgoing` have them.
    pub omitted: u64,
    /// Number of requests without an activity id: their starts and stops cannot be joined.
    pub without_activity: u64,
    /// Why there is no CPU time, or none of some requests; empty if there is.
    pub lacks_cpu: String,
    /// Requests by name, slowest first (by p99, or the age of one that has not ended): at most 50 incoming and 50
    /// outgoing.
    pub routes: Vec<RequestRoute>,
    /// Number of names that are not in the list.
    pub other_routes: u64,
    /// The slowest incoming requests: at most 50.
    pub slowest: Vec<SlowRequest>,
}

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestCounts {
    /// Number of requests that started.
    pub count: u64,
    /// Number per second.
    pub per_second: f64,
    /// Number of these that had not ended when the events ended, or whose end is lost.
    pub unended: u64,
    /// Number of these that failed. Incoming: with an exception that nothing in the program handled. Outgoing:
    /// without an answer, or with a status code of 400 or more.
    pub failed: u64,
}

/// Whether a process answers requests or sends them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestDirection {
    /// It answers them.
    #[default]
    In,
    /// It sends them.
    Out,
}

/// Requests with the same name. Times are of those that ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestRoute {
    /// Direction.
    pub direction: RequestDirection,
    /// Method and path without ids, or URL of an outgoing request. Untrusted.
    pub name: String,
    /// Outgoing: name of the incoming requests that sent them, if known.
    pub caller: Option<String>,
    /// Counts.
    #[serde(flatten)]
    pub counts: RequestCounts,
    /// Duration: mean, and 50th, 95th and 99th percentile, and the longest.
    pub mean_ms: f64,
    /// Half of the requests took no longer.
    pub p50_ms: f64,
    /// 95 % of the requests took no longer.
    pub p95_ms: f64,
    /// 99 % of the requests took no longer.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Age of the oldest one that has not ended.
    pub unended_ms: Option<f64>,
    /// CPU time of threads that ran for them, in percent of their time: of those requests of which it is known. `None` if there are none.
    pub cpu_percent: Option<f64>,
    /// Time without a CPU of threads that ran for them, in the same way.
    pub waiting_percent: Option<f64>,
    /// Pauses of garbage collections, in percent of their time.
    pub gc_percent: f64,
    /// Time in which they had an outgoing request, in percent of their time.
    pub calls_percent: f64,
}

/// A single incoming request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowRequest {
    /// Method and path without ids. Untrusted.
    pub name: String,
    /// Milliseconds from the start of the capture to its start.
    pub start_ms: f64,
    /// Duration, or age when the events ended.
    pub ms: f64,
    /// Whether it ended.
    pub ended: bool,
    /// Whether it failed.
    pub failed: bool,
    /// CPU time of threads that ran for it; `None` if it is unknown.
    pub cpu_ms: Option<f64>,
    /// Time without a CPU of threads that ran for it; `None` if it is unknown.
    pub waiting_ms: Option<f64>,
    /// Pauses of garbage collections meanwhile.
    pub gc_ms: f64,
    /// Time in which it had an outgoing request.
    pub calls_ms: f64,
}

impl RequestSummary {
    /// Drops the rows of lists beyond what perfcollect writes.
    pub(super) fn truncate(&mut self) {
        self.routes.truncate(2 * MAX_ROUTES);
        self.slowest.truncate(MAX_SLOWEST);
    }
}

pub(super) fn summary(
    context: &Context<'_>,
    pid: Pid,
    requests: &Requests,
) -> Option<RequestSummary> {
    let (unstarted, without_activity) = (requests.unstarted, requests.without_activity);
    if requests.rows.is_empty() && unstarted == 0 && without_activity == 0 {
        return None;
    }
    let lacks_cpu = lacks_cpu(context, pid, requests);
    let times = Times::new(context, requests, lacks_cpu);
    let lacks_cpu = match lacks_cpu {
        "" => lacks_some_cpu(&times),
        reason => reason,
    };
    let counts = |direction| {
        let totals = requests.totals(direction);
        RequestCounts {
            count: totals.started,
            per_second: context.per_second(totals.started),
            unended: totals.started.saturating_sub(totals.ended),
            failed: totals.failed,
        }
    };
    let (routes, other_routes) = routes(context, &times);
    Some(RequestSummary {
        incoming: counts(Direction::Incoming),
        outgoing: counts(Direction::Outgoing),
        unstarted,
        omitted: requests.omitted,
        without_activity,
        lacks_cpu: lacks_cpu.to_owned(),
        routes,
        other_routes,
        slowest: slowest(context, &times),
    })
}

/// Returns why the CPU time of all requests is unknown; empty if it is not.
fn lacks_cpu(context: &Context<'_>, pid: Pid, requests: &Requests) -> &'static str {
    let mut streams = context.trace.events.streams().iter();
    let is_lossy =
        streams.any(|stream| stream.name.process == pid && stream.counts.losses.dropped_events > 0);
    match () {
        () if !context.trace.info.counts_time() => "the samples count no time",
        () if context.trace.quality.losses.is_incomplete() => "samples are lost",
        () if !requests.has_switches() => "the capture has no events of the threads' activities",
        () if is_lossy => "events are lost",
        () if !requests.has_cpu_time() => "the process has no samples",
        () => "",
    }
}

/// Returns why the CPU time of some requests is unknown; empty if it is known of all.
fn lacks_some_cpu(times: &Times<'_>) -> &'static str {
    let requests = times.requests;
    let is_incoming = |row: &&Request| requests.route(row).direction == Direction::Incoming;
    let mut incoming = requests.rows.iter().filter(is_incoming);
    let is_unknown = incoming.find(|row| requests.cpu_ns(row).is_none());
    match is_unknown {
        _ if !times.has_single_cpu => "samples are lost (single requests only)",
        Some(row) if !requests.has_samples(row) => {
            "the samples end before the events (last requests only)"
        }
        Some(_) => "threads changed their activity too often (later requests only)",
        None => "",
    }
}

fn counts<'a>(
    context: &Context<'_>,
    rows: impl Iterator<Item = &'a Request> + Clone,
) -> RequestCounts {
    let count = rows.clone().count() as u64;
    RequestCounts {
        count,
        per_second: context.per_second(count),
        unended: rows.clone().filter(|row| !row.has_ended).count() as u64,
        failed: rows.filter(|row| row.failed).count() as u64,
    }
}

/// The times of requests.
struct Times<'a> {
    requests: &'a Requests,
    has_cpu: bool,
    /// Whether it is known of a single request, too. Samples are often lost together: a few lost ones change a
    /// mean little, but may be all of one request.
    has_single_cpu: bool,
}

impl<'a> Times<'a> {
    /// `lacks_cpu` is why the CPU time of all requests is unknown, if it is.
    fn new(context: &Context<'_>, requests: &'a Requests, lacks_cpu: &str) -> Self {
        Self {
            requests,
            has_cpu: lacks_cpu.is_empty(),
            has_single_cpu: !context.trace.quality.losses.is_notable(),
        }
    }

    fn cpu_ns(&self, row: &Request) -> Option<u64> {
        let cpu = self.requests.cpu_ns(row);
        cpu.filter(|_| self.has_cpu)
    }

    fn waits_ns(&self, row: &Request) -> Option<u64> {
        let waits = self.requests.waits_ns(row);
        waits.filter(|_| self.has_cpu)
    }

    /// Returns a time of a single request, from the one that has a part in a mean.
    fn single(&self, ns: Option<u64>) -> Option<u64> {
        ns.filter(|_| self.has_single_cpu)
    }

    fn gc_ns(&self, row: &Request) -> u64 {
        self.requests.pauses.within(row.start, row.end)
    }
}

/// Returns the duration of a request.
fn ns(row: &Request) -> u64 {
    row.end.0.saturating_sub(row.start.0)
}

/// Returns the rows by name, and the number of those that are left out.
fn routes(context: &Context<'_>, times: &Times<'_>) -> (Vec<RequestRoute>, u64) {
    let mut by_route: BTreeMap<u32, Vec<&Request>> = BTreeMap::new();
    for row in &times.requests.rows {
        by_route.entry(row.route).or_default().push(row);
    }
    let rows = by_route
        .values()
        .filter_map(|rows| route(context, times, rows));
    let mut rows: Vec<RequestRoute> = rows.collect();
    rows.sort_by(|a, b| {
        let [a_ms, b_ms] = [a, b].map(|row| row.p99_ms.max(row.unended_ms.unwrap_or(0.0)));
        let slowest_first = b_ms.total_cmp(&a_ms);
        slowest_first.then_with(|| (&a.name, &a.caller).cmp(&(&b.name, &b.caller)))
    });
    let all = rows.len();
    for direction in [RequestDirection::In, RequestDirection::Out] {
        let mut kept = 0;
        rows.retain(|row| {
            kept += usize::from(row.direction == direction);
            row.direction != direction || kept <= MAX_ROUTES
        });
    }
    let omitted = all - rows.len();
    (rows, omitted as u64)
}

fn route(context: &Context<'_>, times: &Times<'_>, rows: &[&Request]) -> Option<RequestRoute> {
    let requests = times.requests;
    let route = requests.route(rows.first()?);
    let caller = route
        .caller
        .and_then(|row| requests.routes.get(row as usize));
    let ended: Vec<&Request> = rows.iter().copied().filter(|row| row.has_ended).collect();
    let mut durations: Vec<u64> = ended.iter().map(|row| ns(row)).collect();
    durations.sort_unstable();
    let total: u64 = durations
        .iter()
        .fold(0, |sum, ns| u64::saturating_add(sum, *ns));
    let percent = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    let sum = |part: &dyn Fn(&Request) -> u64| {
        let parts = ended.iter().map(|row| part(row));
        percent(parts.fold(0, u64::saturating_add), total)
    };
    let percent_of_known = |part: &dyn Fn(&Request) -> Option<u64>| {
        let known = ended.iter().filter_map(|row| Some((part(row)?, ns(row))));
        let sums = known.reduce(|(parts, total), (part, ns)| {
            (parts.saturating_add(part), total.saturating_add(ns))
        });
        sums.map(|(parts, total)| percent(parts, total))
    };
    let unended = rows.iter().filter(|row| !row.has_ended);
    Some(RequestRoute {
        direction: match route.direction {
            Direction::Incoming => RequestDirection::In,
            Direction::Outgoing => RequestDirection::Out,
        },
        name: kept(&route.name),
        caller: caller.map(|caller| kept(&caller.name)),
        counts: counts(context, rows.iter().copied()),
        mean_ms: ms(total) / durations.len().max(1) as f64,
        p50_ms: percentile(&durations, 50),
        p95_ms: percentile(&durations, 95),
        p99_ms: percentile(&durations, 99),
        max_ms: percentile(&durations, 100),
        unended_ms: unended.map(|row| ms(ns(row))).reduce(f64::max),
        cpu_percent: percent_of_known(&|row| times.cpu_ns(row)),
        waiting_percent: percent_of_known(&|row| times.waits_ns(row)),
        gc_percent: sum(&|row| times.gc_ns(row)),
        calls_percent: sum(&|row| row.calls_ns),
    })
}

/// Returns the duration in milliseconds that this part of the requests did not exceed. `durations` are in order.
fn percentile(durations: &[u64], percent: usize) -> f64 {
    let rank = (durations.len() * percent).div_ceil(100);
    let at = rank.checked_sub(1).and_then(|at| durations.get(at));
    at.map_or(0.0, |ns| ms(*ns))
}

/// Returns the slowest incoming requests.
fn slowest(context: &Context<'_>, times: &Times<'_>) -> Vec<SlowRequest> {
    let requests = times.requests;
    let is_incoming = |row: &&Request| requests.route(row).direction == Direction::Incoming;
    let mut rows: Vec<&Request> = requests.rows.iter().filter(is_incoming).collect();
    rows.sort_by_key(|row| (Reverse(ns(row)), row.start));
    let rows = rows.into_iter().take(MAX_SLOWEST);
    rows.map(|row| SlowRequest {
        name: kept(&requests.route(row).name),
        start_ms: context.ms_at(row.start),
        ms: ms(ns(row)),
        ended: row.has_ended,
        failed: row.failed,
        cpu_ms: times.single(times.cpu_ns(row)).map(ms),
        waiting_ms: times.single(times.waits_ns(row)).map(ms),
        gc_ms: ms(times.gc_ns(row)),
        calls_ms: ms(row.calls_ns),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    #[test]
    fn cpu_time_is_unknown_if_samples_are_lost() {
        let mut trace = Trace::default();
        trace.info.event = "cpu-clock".into();
        let requests = Requests::default();
        for (lost, all, single) in [
            (
                5,
                "the capture has no events of the threads' activities",
                "",
            ),
            (
                50,
                "the capture has no events of the threads' activities",
                "samples are lost (single requests only)",
            ),
            (
                500,
                "samples are lost",
                "samples are lost (single requests only)",
            ),
        ] {
            trace.quality.losses.samples_seen = 1000 - lost;
            trace.quality.losses.lost_records = lost;
            let context = Context { trace: &trace };
            assert_eq!(lacks_cpu(&context, Pid(1), &requests), all);
            let times = Times::new(&context, &requests, "");
            assert_eq!(lacks_some_cpu(&times), single);
            assert_eq!(times.single(Some(7)), single.is_empty().then_some(7));
        }
    }

    #[test]
    fn percentiles_are_durations_of_requests() {
        let durations: Vec<u64> = (1..=200).map(|ms| ms * 1_000_000).collect();
        let all = [1, 50, 99, 100].map(|percent| percentile(&durations, percent));
        assert_eq!(all, [2.0, 100.0, 198.0, 200.0]);
        assert_eq!(percentile(&durations[..1], 99), 1.0);
        assert_eq!(percentile(&[], 99), 0.0);
    }
}
