//! Slow requests: which, how slow, and where their time goes; and those that do not end.

use super::scene::{Runtime, Scene, percent, shown};
use crate::output::duration::duration;
use crate::output::short_name;
use crate::output::summary::{
    AwaitRow, Finding, RequestDirection, RequestRoute, RequestSummary, TRACE,
};
use crate::trace::Symptom;

/// Duration of the slowest 1 % of the requests with a name below which they are not slow.
///
/// The second is for a capture of slow requests, whose user decides what is slow.
const MIN_P99_MS: [f64; 2] = [500.0, 100.0];
/// Number of requests with a name below which they are not remarkable.
const MIN_REQUESTS: u64 = 3;
/// Age from which requests may hang, the second for a capture of slow requests, and the cost of that: below what
/// is certain.
const MIN_STUCK_MS: [f64; 2] = [5000.0, 1000.0];
const STUCK_COST: f64 = 0.1;
/// Part of the time of requests, in percent, below which it is not named.
const MIN_PERCENT: f64 = 5.0;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.runtimes().flat_map(|runtime| {
        let requests = runtime.summary.requests.as_ref();
        let found = requests.map(|it| [slow(scene, &runtime, it), stuck(scene, &runtime, it)]);
        found.into_iter().flatten().flatten()
    });
    programs.collect()
}

/// Returns the finding about the slow requests that took most time.
fn slow(scene: &Scene<'_>, runtime: &Runtime<'_>, requests: &RequestSummary) -> Option<Finding> {
    let slow: Vec<&RequestRoute> = incoming(requests)
        .filter(|route| is_slow(scene, route))
        .collect();
    let by_time = slow.iter();
    let route = by_time.max_by(|a, b| total_ms(a).total_cmp(&total_ms(b)))?;
    let mut text = format!(
        "requests {} of {} are slow: {} at p50, {} at p99, {} in all",
        shown(&route.name),
        runtime.name(),
        seconds(route.p50_ms),
        seconds(route.p99_ms),
        ended(route),
    );
    let parts = parts(requests, route);
    if !parts.is_empty() {
        text += &format!("; of their time {}", parts.join(", "));
    }
    if let Some(row) = longest_await(runtime, route, |row| row.ms) {
        text += &format!(
            "; asynchronous methods wait longest in {} ({} times, {} each)",
            awaiting(row),
            row.count,
            duration(row.ms / 1e3 / row.count.max(1) as f64)
        );
    }
    match slow.len() - 1 {
        0 => {}
        1 => text += "; those with another name are slow, too",
        others => text += &format!("; those with {others} more names are slow, too"),
    }
    let finding = finding(runtime, "slow-requests", text)
        .figure("requests", ended(route) as f64)
        .figure("p50_ms", route.p50_ms)
        .figure("p99_ms", route.p99_ms)
        .figure("gc_percent", route.gc_percent)
        .figure("calls_percent", route.calls_percent)
        // Users wait, but neither a CPU nor a thread needs to be taken.
        .costing((total_ms(route) / 1e3 / scene.seconds).min(1.0));
    let known = [
        ("cpu_percent", route.cpu_percent),
        ("waiting_percent", route.waiting_percent),
    ];
    let known = known.into_iter();
    Some(known.fold(finding, |finding, (name, part)| match part {
        Some(part) => finding.figure(name, part),
        None => finding,
    }))
}

/// Returns the finding about the requests that have been open for longest.
fn stuck(scene: &Scene<'_>, runtime: &Runtime<'_>, requests: &RequestSummary) -> Option<Finding> {
    let min_ms = of_capture(scene, MIN_STUCK_MS);
    let several = incoming(requests).filter(|it| it.counts.unended >= MIN_REQUESTS);
    let old = several.filter_map(|it| {
        let age = it.unended_ms.filter(|ms| *ms >= min_ms)?;
        Some((it, age))
    });
    let (route, age_ms) = old.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let mut text = format!(
        "{} requests {} of {} have not ended, the oldest after {}: they hang, unless they are WebSockets or streams",
        route.counts.unended,
        shown(&route.name),
        runtime.name(),
        seconds(age_ms),
    );
    if let Some(row) = longest_await(runtime, route, |row| row.unended_ms) {
        let (method, unended) = (awaiting(row), row.unended);
        text += &format!("; their asynchronous methods still wait in {method} ({unended} times)");
    }
    let finding = finding(runtime, "stuck-requests", text);
    Some(
        finding
            .figure("unended", route.counts.unended as f64)
            .figure("age_ms", age_ms)
            .costing(STUCK_COST),
    )
}

/// Returns the asynchronous method of the user whose awaits for requests of a name took longest, by a time of these.
fn longest_await<'a>(
    runtime: &Runtime<'a>,
    route: &RequestRoute,
    ms: impl Fn(&AwaitRow) -> f64,
) -> Option<&'a AwaitRow> {
    let rows = runtime
        .summary
        .awaits
        .iter()
        .flat_map(|awaits| &awaits.rows);
    let own = rows.filter(|row| row.is_own && row.request == route.name && ms(row) > 0.0);
    own.max_by(|a, b| ms(a).total_cmp(&ms(b)))
}

fn awaiting(row: &AwaitRow) -> String {
    shown(&short_name::awaiting(&row.method.name))
}

fn finding(runtime: &Runtime<'_>, rule: &str, text: String) -> Finding {
    let finding = runtime.finding(rule, text);
    let finding = finding.from("runtimes.requests.routes");
    finding.more(&["report", TRACE, "-kind", "requests"])
}

fn incoming(requests: &RequestSummary) -> impl Iterator<Item = &RequestRoute> {
    let routes = requests.routes.iter();
    routes.filter(|route| route.direction == RequestDirection::In)
}

fn is_slow(scene: &Scene<'_>, route: &RequestRoute) -> bool {
    ended(route) >= MIN_REQUESTS && route.p99_ms >= of_capture(scene, MIN_P99_MS)
}

/// Returns one of two thresholds, the second if the capture is for slow requests.
fn of_capture(scene: &Scene<'_>, [min_ms, min_of_symptom_ms]: [f64; 2]) -> f64 {
    match scene.is_for(Symptom::SlowRequests) {
        true => min_of_symptom_ms,
        false => min_ms,
    }
}

fn ended(route: &RequestRoute) -> u64 {
    route.counts.count.saturating_sub(route.counts.unended)
}

fn total_ms(route: &RequestRoute) -> f64 {
    route.mean_ms * ended(route) as f64
}

fn seconds(ms: f64) -> String {
    format!("{:.2} s", ms / 1e3)
}

/// Returns where the time of requests goes.
fn parts(requests: &RequestSummary, route: &RequestRoute) -> Vec<String> {
    let is_notable = |part: &f64| *part >= MIN_PERCENT;
    let shown_part = |part: f64| percent(part / 100.0);
    let off_cpu = route.cpu_percent.map(|cpu| 100.0 - cpu);
    let off_cpu = off_cpu.filter(is_notable);
    let off_cpu = off_cpu.map(|part| format!("{} is outside the CPU", shown_part(part)));
    let waits = route.waiting_percent.filter(is_notable);
    let waits = waits.map(|part| match part > 100.0 {
        true => "all of it and more is threads that wait, several for one request".to_owned(),
        false => format!("{} is threads that wait", shown_part(part)),
    });
    let calls = Some(route.calls_percent).filter(is_notable);
    let calls = calls.map(|part| {
        let sent = requests.routes.iter();
        let sent = sent.filter(|call| call.caller.as_ref() == Some(&route.name));
        let longest = sent.max_by(|a, b| total_ms(a).total_cmp(&total_ms(b)));
        let name = longest.map_or_else(String::new, |call| format!(" ({})", shown(&call.name)));
        format!(
            "{} waits for requests that they send{name}",
            shown_part(part)
        )
    });
    let gc = Some(route.gc_percent).filter(is_notable);
    let gc = gc.map(|part| format!("{} is pauses of garbage collections", shown_part(part)));
    [off_cpu, waits, calls, gc].into_iter().flatten().collect()
}
