//! Requests and connections to others, of a capture that is for that (`-for networking`).

use super::scene::{Runtime, Scene, shown};
use super::symptoms::no_runtime;
use crate::output::summary::{
    Finding, NetworkStep, RequestDirection, RequestRoute, StepKind, TRACE,
};
use crate::trace::Symptom;

/// Duration from which requests (the slowest 1 %) and steps of a connection are slow, in milliseconds.
const MIN_MS: f64 = 100.0;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    if !scene.is_for(Symptom::Networking) {
        return Vec::new();
    }
    let found = scene.runtimes().filter_map(|runtime| of(scene, &runtime));
    found.collect()
}

fn of(scene: &Scene<'_>, runtime: &Runtime<'_>) -> Option<Finding> {
    let slow = outgoing(runtime).filter(|route| route.p99_ms >= MIN_MS);
    let slow = slow.max_by(|a, b| total_ms(a).total_cmp(&total_ms(b)));
    let failed = outgoing(runtime).filter(|route| route.counts.failed > 0);
    let failed = failed.max_by_key(|route| route.counts.failed);
    let failures = count(runtime, |route| route.counts.failed);
    let mut parts: Vec<String> = Vec::new();
    parts.extend(slow.map(|route| {
        format!(
            "requests to {} take {:.2} s at p50, {:.2} s at p99 ({} in all)",
            shown(&route.name),
            route.p50_ms / 1e3,
            route.p99_ms / 1e3,
            route.counts.count
        )
    }));
    parts.extend(failed.map(|route| {
        format!(
            "{failures} of {} requests failed, {} of them to {}",
            sent(runtime),
            route.counts.failed,
            shown(&route.name)
        )
    }));
    let mut steps: Vec<&NetworkStep> = runtime.summary.network.iter().collect();
    steps.retain(|step| step.failed > 0 || step.max_ms >= MIN_MS);
    parts.extend(steps.iter().map(|step| described(step)));
    if parts.is_empty() {
        return None;
    }
    let open_ms = slow.map_or(0.0, total_ms);
    let steps_ms = steps.iter().map(|step| step.mean_ms * step.count as f64);
    let waiting = (open_ms + steps_ms.sum::<f64>()) / 1e3 / scene.seconds;
    let waiting = if waiting.is_finite() {
        waiting.min(1.0)
    } else {
        0.0
    };
    let text = format!("{}: {}", runtime.name(), parts.join("; "));
    let failed_steps = runtime.summary.network.iter().map(|step| step.failed);
    let finding = runtime.finding("network", text);
    Some(
        finding
            .from("runtimes.requests.routes")
            .from("runtimes.network")
            .figure("failed_requests", failures)
            .figure(
                "failed_steps",
                failed_steps.fold(0, u64::saturating_add) as f64,
            )
            .figure("slowest_p99_ms", slow.map_or(0.0, |route| route.p99_ms))
            .more(&["report", TRACE, "-kind", "network"])
            .costing(waiting),
    )
}

fn described(step: &NetworkStep) -> String {
    let (what, each) = match step.kind {
        StepKind::Queue => ("waits for a connection of the pool", "the longest"),
        StepKind::Resolution => ("name resolutions", "the longest"),
        StepKind::Connect => ("connections", "the slowest"),
        StepKind::Handshake => ("TLS handshakes", "the slowest"),
    };
    let name = match &*step.slowest {
        "" => String::new(),
        name => format!(" ({})", shown(name)),
    };
    let failed = match step.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    format!(
        "{} {what}{failed}, {each} took {:.0} ms{name}",
        step.count, step.max_ms
    )
}

/// Returns the requests that a process sent.
fn outgoing<'a>(runtime: &Runtime<'a>) -> impl Iterator<Item = &'a RequestRoute> + use<'a> {
    let requests = runtime.summary.requests.iter();
    let routes = requests.flat_map(|requests| &requests.routes);
    routes.filter(|route| route.direction == RequestDirection::Out)
}

fn total_ms(route: &RequestRoute) -> f64 {
    route.mean_ms * route.counts.count.saturating_sub(route.counts.unended) as f64
}

fn count(runtime: &Runtime<'_>, of: impl Fn(&RequestRoute) -> u64) -> f64 {
    outgoing(runtime).map(of).fold(0, u64::saturating_add) as f64
}

/// Describes a network without trouble.
pub(super) fn measured(scene: &Scene<'_>) -> String {
    let Some(runtime) = scene.runtimes().max_by(|a, b| sent(a).total_cmp(&sent(b))) else {
        return no_runtime();
    };
    let slowest = outgoing(&runtime).map(|route| route.p99_ms);
    let slowest = slowest.fold(0.0, f64::max);
    match sent(&runtime) {
        0.0 => format!("HttpClient of {} sent no request", runtime.name()),
        sent => format!(
            "{} sent {sent} requests, none failed, and the slowest 1 % took {slowest:.0} ms or more",
            runtime.name()
        ),
    }
}

fn sent(runtime: &Runtime<'_>) -> f64 {
    count(runtime, |route| route.counts.count)
}
