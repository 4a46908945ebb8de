//! Requests of .NET processes, as text: by name, and the slowest single ones.

use std::io::{self, Write};

use super::fitted::with_ellipsis;
use super::report::{more, short};
use super::stacks::StackText;
use super::{OpenTrace, count};
use crate::output::summary::{
    RequestCounts, RequestDirection, RequestRoute, RequestSummary, RuntimeSummary, Summary,
};

/// Rows on a screen: names of requests, and single requests.
const SCREEN_ROUTES: usize = 9;
const SCREEN_SLOWEST: usize = 5;

/// What the events do not report.
const UNSEEN: &str = "requests that were open when the capture started are not seen";

/// Prints the requests of the processes. Returns false if there are none.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn print_requests(
    trace: &OpenTrace,
    StackText { screen, full, top }: StackText,
    out: &mut impl Write,
) -> io::Result<bool> {
    let of_each = |runtime: &'_ RuntimeSummary| runtime.requests.is_some();
    let runtimes = trace
        .summary
        .runtimes
        .iter()
        .filter(|runtime| of_each(runtime));
    let runtimes: Vec<&RuntimeSummary> = runtimes.collect();
    let (routes, slowest) = match screen.is_some() && !full && top == usize::MAX {
        true => (SCREEN_ROUTES, SCREEN_SLOWEST),
        false => (top, top),
    };
    let width = screen.map_or(usize::MAX, |screen| screen.size.width);
    for (number, runtime) in runtimes.iter().enumerate() {
        let Some(requests) = &runtime.requests else {
            continue;
        };
        if number > 0 {
            writeln!(out)?;
        }
        if runtimes.len() > 1 {
            writeln!(out, "{} (pid {})", short(&runtime.program), runtime.pid)?;
        }
        writeln!(out, "{}", totals(requests))?;
        print_routes(requests, routes, width, out)?;
        print_slowest(requests, slowest, width, out)?;
    }
    if !runtimes.is_empty() {
        writeln!(out, "{}", with_ellipsis(UNSEEN, width))?;
    }
    Ok(!runtimes.is_empty())
}

/// Describes all requests of a process.
pub(super) fn totals(requests: &RequestSummary) -> String {
    let incoming = &requests.incoming;
    let all = count(incoming.count, "request", "requests");
    let rate = format!("({:.1} per second)", incoming.per_second);
    let mut text = format!("{all} started {rate}, {} answered", answered(incoming));
    let parts = [
        (incoming.failed, "failed"),
        (incoming.unended, "not ended"),
        (requests.outgoing.count, "sent"),
        (requests.outgoing.failed, "of these failed"),
        (requests.outgoing.unended, "of these not ended"),
        (requests.unstarted, "without a start"),
        (requests.without_activity, "without an activity id"),
        (requests.omitted, "without times and a name: too many"),
    ];
    for (number, what) in parts.into_iter().filter(|(number, _)| *number > 0) {
        text += &format!(", {number} {what}");
    }
    text
}

/// Describes the requests of the process that answered most, and the slowest of them, in a line.
pub(super) fn in_short(summary: &Summary) -> Option<String> {
    let requests = summary.runtimes.iter();
    let requests = requests.filter_map(|runtime| runtime.requests.as_ref());
    let most = requests.max_by_key(|it| (it.incoming.count, it.outgoing.count))?;
    let unended = |counts: &RequestCounts| match counts.unended {
        0 => String::new(),
        unended => format!(", {unended} not ended"),
    };
    let all = match (&most.incoming, &most.outgoing) {
        (RequestCounts { count: 0, .. }, sent) => format!("{} sent{}", sent.count, unended(sent)),
        (incoming, _) => format!("{} answered{}", answered(incoming), unended(incoming)),
    };
    let slowest = most.routes.first().map_or_else(String::new, |route| {
        let (ms, what) = match route.unended_ms.filter(|ms| *ms > route.p99_ms) {
            Some(age) => (age, "without an end"),
            None => (route.p99_ms, "at p99"),
        };
        format!(
            "; slowest: {:.2} s {what}: {}",
            ms / 1e3,
            short(&route.name)
        )
    });
    Some(format!(" requests  {all}{slowest}"))
}

/// Returns the number of requests that ended.
fn answered(counts: &RequestCounts) -> u64 {
    counts.count.saturating_sub(counts.unended)
}

/// Prints rows by name. Outgoing requests follow the incoming ones that sent them.
fn print_routes(
    requests: &RequestSummary,
    top: usize,
    width: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let is_out = |route: &&RequestRoute| route.direction == RequestDirection::Out;
    let incoming = requests.routes.iter().filter(|route| !is_out(route));
    let outgoing = || requests.routes.iter().filter(is_out);
    let names: Vec<&str> = incoming.clone().map(|route| &*route.name).collect();
    let has_caller = |route: &&RequestRoute| {
        let caller = route.caller.as_deref();
        caller.is_some_and(|caller| names.contains(&caller))
    };
    let sent_by = |caller: &RequestRoute| {
        let name = caller.name.clone();
        outgoing().filter(move |route| route.caller.as_deref() == Some(&name))
    };
    let with_calls = incoming.flat_map(|route| {
        let calls = sent_by(route).map(|call| (call, "  -> "));
        [(route, "")].into_iter().chain(calls)
    });
    let others = outgoing().filter(|route| !has_caller(route));
    let rows: Vec<_> = with_calls
        .chain(others.map(|route| (route, "-> ")))
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "  p50 ms   p99 ms   max ms  count  CPU % wait %   GC %  out %  slowest first"
    )?;
    for (route, indent) in rows.iter().take(top) {
        let [cpu, waits] = [route.cpu_percent, route.waiting_percent]
            .map(|part| part.map_or("-".to_owned(), whole));
        let has_ended = route.counts.count > route.counts.unended;
        let [p50, p99] = [route.p50_ms, route.p99_ms].map(|ms| match has_ended {
            true => format!("{ms:.1}"),
            false => "-".to_owned(),
        });
        let max = match route.unended_ms.filter(|ms| *ms > route.max_ms) {
            Some(age) => format!(">{age:.1}"),
            None => format!("{:.1}", route.max_ms),
        };
        let line = format!(
            "{p50:>8} {p99:>8} {max:>8} {:>6} {cpu:>6} {waits:>6} {:>6} {:>6}  {indent}{}{}",
            route.counts.count,
            whole(route.gc_percent),
            whole(route.calls_percent),
            short(without_scheme(route)),
            remarks(route),
        );
        writeln!(out, "{}", with_ellipsis(&line, width))?;
    }
    let all = (rows.len() as u64).saturating_add(requests.other_routes);
    more(all, rows.len().min(top), out)
}

/// Returns the name of requests in few letters: the arrow says that it is a URL.
fn without_scheme(route: &RequestRoute) -> &str {
    let url = route.name.split_once("://");
    url.map_or(&*route.name, |(_, rest)| rest)
}

/// Returns how many requests are unusual.
fn remarks(route: &RequestRoute) -> String {
    let counts = route.counts;
    let parts = [(counts.failed, "failed"), (counts.unended, "not ended")];
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!(" ({})", parts.join(", ")),
    }
}

fn print_slowest(
    requests: &RequestSummary,
    top: usize,
    width: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    if requests.slowest.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n    at s       ms   CPU ms  wait ms    GC ms   out ms  slowest single requests"
    )?;
    for request in requests.slowest.iter().take(top) {
        let [cpu, waits] = [request.cpu_ms, request.waiting_ms]
            .map(|ms| ms.map_or("-".to_owned(), |ms| format!("{ms:.1}")));
        let state = match (request.ended, request.failed) {
            (false, _) => " (not ended)",
            (_, true) => " (failed)",
            _ => "",
        };
        let line = format!(
            "{:>8.3} {:>8.1} {cpu:>8} {waits:>8} {:>8.1} {:>8.1}  {}{state}",
            request.start_ms / 1e3,
            request.ms,
            request.gc_ms,
            request.calls_ms,
            short(&request.name),
        );
        writeln!(out, "{}", with_ellipsis(&line, width))?;
    }
    match &*requests.lacks_cpu {
        "" => Ok(()),
        reason => writeln!(out, "no CPU time of requests: {}", short(reason)),
    }
}

fn whole(percent: f64) -> String {
    format!("{percent:.0}")
}
