//! Requests and connections to others, of a capture that is for that (`-for networking`).

use super::scene::{Runtime, Scene, shown};
use super::symptoms::no_runtime;
use crate::output::summary::{
    Finding, NetworkStep, RequestDirection, RequestRoute, StepKind, TRACE,
};
use crate::trace::{ConnectionRow, Symptom};

/// Duration from which requests (the slowest 1 %) and steps of a connection are slow, in milliseconds, and the age of
/// those that have not ended.
const MIN_MS: f64 = 100.0;
/// Part of the duration of a request that a step takes at least if it is the cause.
const MIN_CAUSE: f64 = 0.5;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    if !scene.is_for(Symptom::Networking) {
        return Vec::new();
    }
    let found = scene.runtimes().filter_map(|runtime| of(scene, &runtime));
    found.collect()
}

fn of(scene: &Scene<'_>, runtime: &Runtime<'_>) -> Option<Finding> {
    let slow = outgoing(runtime).filter(|route| duration_ms(route) >= MIN_MS);
    let slow = slow.max_by(|a, b| total_ms(a).total_cmp(&total_ms(b)));
    let failed = outgoing(runtime).filter(|route| route.counts.failed > 0);
    let failed = failed.max_by_key(|route| route.counts.failed);
    let failures = count(runtime, |route| route.counts.failed);
    let mut parts: Vec<String> = Vec::new();
    parts.extend(slow.map(slow_requests));
    parts.extend(failed.map(|route| {
        format!(
            "{failures} of {} requests failed, {} of them to {}",
            sent(runtime),
            route.counts.failed,
            shown(&route.name)
        )
    }));
    let mut steps: Vec<&NetworkStep> = runtime.summary.network.iter().collect();
    steps.retain(|step| step.failed > 0 || step.max_ms >= MIN_MS || age_ms(step) >= MIN_MS);
    // A request waits for a connection because another step takes long, if one does.
    steps.sort_by_key(|step| step.kind == StepKind::Queue);
    parts.extend(steps.iter().map(|step| described(step)));
    if parts.is_empty() {
        return None;
    }
    let open_ms = slow.map_or(0.0, total_ms);
    let steps_ms = steps.iter();
    let steps_ms = steps_ms.map(|step| step.mean_ms * step.count as f64 + age_ms(step));
    let waiting = (open_ms + steps_ms.sum::<f64>()) / 1e3 / scene.seconds;
    let waiting = if waiting.is_finite() {
        waiting.min(1.0)
    } else {
        0.0
    };
    let text = format!("{}: {}", runtime.name(), parts.join("; "));
    let all_steps = |of: fn(&NetworkStep) -> u64| {
        let steps = runtime.summary.network.iter();
        steps.map(of).fold(0, u64::saturating_add) as f64
    };
    let finding = runtime.finding("network", text);
    // Requests are slow because of a step that takes most of their time.
    let slow_ms = slow.map_or(0.0, duration_ms);
    let is_cause = |step: &&NetworkStep| {
        step.failed > 0 || step.max_ms.max(age_ms(step)) >= slow_ms * MIN_CAUSE
    };
    let table = match steps.iter().any(is_cause) {
        true => "network",
        false => "requests",
    };
    Some(
        finding
            .from("runtimes.requests.routes")
            .from("runtimes.network")
            .figure("failed_requests", failures)
            .figure("failed_steps", all_steps(|step| step.failed))
            .figure("unended_requests", unended(runtime))
            .figure("unended_steps", all_steps(|step| step.unended))
            .figure("slowest_p99_ms", slow.map_or(0.0, |route| route.p99_ms))
            .more(&["report", TRACE, "-kind", table])
            .costing(waiting),
    )
}

/// Describes requests that take long or do not end.
fn slow_requests(route: &RequestRoute) -> String {
    let name = shown(&route.name);
    let open = route.unended_ms.map(|age| oldest(age, ""));
    if ended(route) == 0 {
        let unended = route.counts.unended;
        let have = match unended {
            1 => format!("1 request to {name} has"),
            _ => format!("{unended} requests to {name} have"),
        };
        return format!("{have} not ended{}", open.unwrap_or_default());
    }
    let open = open.map(|oldest| format!("; {}{oldest}", not_ended(route.counts.unended)));
    format!(
        "requests to {name} take {:.2} s at p50, {:.2} s at p99 ({} in all){}",
        route.p50_ms / 1e3,
        route.p99_ms / 1e3,
        route.counts.count,
        open.unwrap_or_default()
    )
}

/// Returns the age of the oldest one that has not ended, with its name in brackets, if it has one.
fn oldest(age_ms: f64, name: &str) -> String {
    format!(", the oldest after {:.2} s{}", age_ms / 1e3, named(name))
}

fn named(name: &str) -> String {
    match name {
        "" => String::new(),
        name => format!(" ({})", shown(name)),
    }
}

/// Returns how many have not ended, with a verb.
fn not_ended(count: u64) -> String {
    match count {
        1 => "1 has not ended".to_owned(),
        several => format!("{several} have not ended"),
    }
}

fn described(step: &NetworkStep) -> String {
    let (what, each) = match step.kind {
        StepKind::Queue => ("waits for a connection of the pool", "the longest"),
        StepKind::Resolution => ("name resolutions", "the longest"),
        StepKind::Connect => ("connections", "the slowest"),
        StepKind::Handshake => ("TLS handshakes", "the slowest"),
    };
    let mut parts = Vec::new();
    if step.count > 0 {
        let failed = match step.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        parts.push(format!(
            "{} {what}{failed}, {each} took {:.0} ms{}",
            step.count,
            step.max_ms,
            named(&step.slowest)
        ));
    }
    parts.extend(step.unended_ms.map(|age| {
        let unended = match parts.is_empty() {
            true => format!("{} {what}: not ended", step.unended),
            false => not_ended(step.unended),
        };
        unended + &oldest(age, &step.oldest)
    }));
    if parts.is_empty() {
        parts.push(format!("{} {what} failed", step.failed));
    }
    parts.join(", ")
}

/// Returns the age of the oldest step that has not ended; 0 if there is none.
fn age_ms(step: &NetworkStep) -> f64 {
    step.unended_ms.unwrap_or_default()
}

/// Returns the requests that a process sent.
fn outgoing<'a>(runtime: &Runtime<'a>) -> impl Iterator<Item = &'a RequestRoute> + use<'a> {
    let requests = runtime.summary.requests.iter();
    let routes = requests.flat_map(|requests| &requests.routes);
    routes.filter(|route| route.direction == RequestDirection::Out)
}

/// Returns the number of requests with a name that ended.
fn ended(route: &RequestRoute) -> u64 {
    route.counts.count.saturating_sub(route.counts.unended)
}

/// Returns how long the slowest 1 % of the requests with a name took, or the age of one that has not ended.
fn duration_ms(route: &RequestRoute) -> f64 {
    route.p99_ms.max(route.unended_ms.unwrap_or_default())
}

/// Returns the time of the requests with a name that is known at least.
fn total_ms(route: &RequestRoute) -> f64 {
    route.mean_ms * ended(route) as f64 + route.unended_ms.unwrap_or_default()
}

fn count(runtime: &Runtime<'_>, of: impl Fn(&RequestRoute) -> u64) -> f64 {
    outgoing(runtime).map(of).fold(0, u64::saturating_add) as f64
}

/// Describes a network without trouble.
pub(super) fn measured(scene: &Scene<'_>) -> String {
    let Some(runtime) = scene.runtimes().max_by(|a, b| sent(a).total_cmp(&sent(b))) else {
        return connections(scene).unwrap_or_else(no_runtime);
    };
    let slowest = outgoing(&runtime).map(|route| route.p99_ms);
    let slowest = slowest.fold(0.0, f64::max);
    let name = runtime.name();
    match (sent(&runtime), unended(&runtime)) {
        (0.0, _) => format!(
            "HttpClient of {name} sent no request while the capture ran, and those that were open at its start are not \
             seen"
        ),
        (sent, unended) if sent == unended => {
            format!("{name} sent {sent} requests, just before the capture ended")
        }
        (sent, _) => format!(
            "{name} sent {sent} requests, none failed, and the slowest 1 % took {slowest:.0} ms or more"
        ),
    }
}

/// Describes the TCP connections, if these were followed.
fn connections(scene: &Scene<'_>) -> Option<String> {
    let connections = scene.summary.info.connections.as_ref()?;
    let sum = |of: fn(&ConnectionRow) -> u64| {
        let rows = connections.rows.iter();
        rows.map(of).fold(0, u64::saturating_add)
    };
    let failed = match (connections.has_attempts, sum(|row| row.failed)) {
        (true, failed) => format!("{failed} attempts to connect failed"),
        (false, _) => "whether attempts to connect failed is not known".to_owned(),
    };
    let slowest = connections.rows.iter().map(|row| row.connect_max_ms);
    Some(format!(
        "there were {} TCP connections, {} segments were sent again, {failed}, and no connection took more than {:.0} ms to \
         open",
        sum(|row| row.connections),
        sum(|row| row.resent),
        slowest.fold(0.0, f64::max)
    ))
}

fn unended(runtime: &Runtime<'_>) -> f64 {
    count(runtime, |route| route.counts.unended)
}

fn sent(runtime: &Runtime<'_>) -> f64 {
    count(runtime, |route| route.counts.count)
}
