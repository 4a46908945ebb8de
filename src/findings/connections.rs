//! TCP connections that fail, that take long to open, that lose data, or that are not accepted.

use std::collections::BTreeMap;

use super::scene::{Scene, percent, process_name, shown};
use crate::output::summary::{Finding, TRACE};
use crate::trace::ConnectionRow;

pub(super) const RULE: &str = "connections";

/// Part of the attempts to connect that fails, below which it is not remarkable.
const MIN_FAILED: f64 = 0.01;
/// Time below which an attempt fails at once: the peer refuses it.
const AT_ONCE_MS: f64 = 10.0;
/// Time that a connection takes to open (the slowest 1 %), and age of an attempt without an answer, below which it is
/// not remarkable, in milliseconds. The kernel repeats its request after a second.
const MIN_CONNECT_MS: f64 = 100.0;
const MIN_OLDEST_MS: f64 = 500.0;
/// Time without an acknowledgement, and bytes that were not read at the end, below which they are not remarkable.
const MIN_SILENT_MS: f64 = 500.0;
const MIN_UNREAD: u64 = 64_000;
/// Part of the segments that is sent again, and number of these, below which it is not remarkable.
const MIN_RESENT: f64 = 0.01;
const MIN_RESENT_SEGMENTS: u64 = 10;
/// Part of the connections that waited to be accepted at the end, below which it is not remarkable.
const MIN_UNACCEPTED: f64 = 0.1;
/// Part of the capture in which a peer has no room for data, below which it is not remarkable.
const MIN_PEER_FULL: f64 = 0.1;

/// Number of addresses of a process that have the same trouble, with a finding each.
const MAX_OF_KIND: usize = 3;
/// What a connection with trouble costs, beyond what is known: as much as some waiting.
const COST: f64 = 0.05;

/// Connections of a process with an address.
struct Subject<'a> {
    row: &'a ConnectionRow,
    /// Whether attempts to connect were followed.
    is_followed: bool,
    /// Length of the capture.
    seconds: f64,
}

/// A process and the first of its troubles with an address.
type Kind = (i32, usize);

/// Describes a trouble, and estimates its cost.
type Trouble = fn(&Subject<'_>) -> Option<(String, f64)>;

const TROUBLES: [Trouble; 10] = [
    failed, unanswered, aborted, silent, slow, dropped, unaccepted, resent, unread, peer_full,
];

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(connections) = &scene.summary.info.connections else {
        return Vec::new();
    };
    let rows = connections.rows.iter().map(|row| Subject {
        row,
        is_followed: connections.has_attempts,
        seconds: scene.seconds,
    });
    let mut all: Vec<(Kind, Finding)> = rows.filter_map(|subject| of(scene, &subject)).collect();
    all.sort_by(|(_, a), (_, b)| b.cost_cpus.total_cmp(&a.cost_cpus));
    let mut counts: BTreeMap<Kind, usize> = BTreeMap::new();
    for (kind, _) in &all {
        *counts.entry(*kind).or_default() += 1;
    }
    let mut kept: BTreeMap<Kind, usize> = BTreeMap::new();
    all.retain_mut(|(kind, finding)| {
        let kept = kept.entry(*kind).or_default();
        *kept += 1;
        let more = counts[kind].saturating_sub(MAX_OF_KIND);
        if *kept == MAX_OF_KIND && more > 0 {
            let addresses = if more == 1 { "address" } else { "addresses" };
            finding.text += &format!("; the same with {more} more {addresses}");
        }
        *kept <= MAX_OF_KIND
    });
    all.into_iter().map(|(_, finding)| finding).collect()
}

fn of(scene: &Scene<'_>, subject: &Subject<'_>) -> Option<(Kind, Finding)> {
    let row = subject.row;
    let troubles = TROUBLES.iter().enumerate();
    let mut troubles = troubles
        .filter_map(|(kind, trouble)| Some((kind, trouble(subject)?)))
        .peekable();
    let first = troubles.peek()?.0;
    let (texts, costs): (Vec<String>, Vec<f64>) = troubles.map(|(_, trouble)| trouble).unzip();
    let cost: f64 = costs.iter().sum();
    if !cost.is_finite() {
        return None;
    }
    let address = match &*row.address {
        "" => "other addresses".to_owned(),
        address => shown(address),
    };
    let way = if row.is_inbound { "at" } else { "to" };
    let program = scene.summary.program_named(row.pid, &row.process);
    let name = process_name(program, row.pid);
    let text = format!("{name}: connections {way} {address}: {}", texts.join("; "));
    let finding = Finding::new(RULE, text)
        .about(row.pid, &format!("{program} {way} {}", row.address))
        .from("info.connections")
        .figure("failed", row.failed as f64)
        .figure("connecting", row.connecting as f64)
        .figure("aborted", row.aborted as f64)
        .figure("silent", row.silent as f64)
        .figure("connect_p99_ms", row.connect_p99_ms)
        .figure("dropped", row.dropped as f64)
        .figure("unaccepted", row.unaccepted as f64)
        .figure("resent_percent", part(row.resent, row.segments) * 100.0)
        .figure("peer_full_ms", row.peer_full_ms)
        .more(&["report", TRACE, "-kind", "connections"])
        .costing(cost);
    Some(((row.pid, first), finding))
}

fn part(count: u64, all: u64) -> f64 {
    count as f64 / all.max(1) as f64
}

fn failed(subject: &Subject<'_>) -> Option<(String, f64)> {
    let Subject {
        row, is_followed, ..
    } = *subject;
    // Those that were open before do not count.
    let opened = match is_followed {
        true => row.connects,
        false => row.connections,
    };
    let attempts = row.failed.saturating_add(opened);
    let failed = part(row.failed, attempts);
    let after = match row.failed_after_ms {
        ms if ms >= AT_ONCE_MS => format!(" or were given up, after {:.2} s on average", ms / 1e3),
        _ if is_followed => " at once: the peer refuses them".to_owned(),
        _ => String::new(),
    };
    let text = format!(
        "{} of {attempts} attempts to connect failed{after}",
        row.failed
    );
    let waited = row.failed_after_ms * row.failed as f64 / 1e3 / subject.seconds;
    (failed >= MIN_FAILED).then_some((text, COST * (1.0 + failed) + waited))
}

fn unanswered(subject: &Subject<'_>) -> Option<(String, f64)> {
    let row = subject.row;
    let have = match row.connecting {
        1 => "attempt has",
        _ => "attempts have",
    };
    let seconds = row.oldest_ms / 1e3;
    let text = format!(
        "{} {have} no answer, the oldest for at least {seconds:.2} s",
        row.connecting
    );
    let is_old = row.connecting > 0 && row.oldest_ms >= MIN_OLDEST_MS;
    is_old.then_some((text, (seconds / subject.seconds).min(1.0)))
}

fn aborted(subject: &Subject<'_>) -> Option<(String, f64)> {
    let row = subject.row;
    let aborted = part(row.aborted, row.connections);
    let text = format!(
        "{} of {} connections were reset by the peer, or timed out",
        row.aborted, row.connections
    );
    (aborted >= MIN_FAILED).then_some((text, COST * (1.0 + aborted)))
}

fn silent(subject: &Subject<'_>) -> Option<(String, f64)> {
    let row = subject.row;
    let connections = match row.silent {
        1 => "1 connection".to_owned(),
        several => format!("{several} connections"),
    };
    let seconds = row.silent_ms / 1e3;
    let text = format!(
        "the peer of {connections} has acknowledged nothing for up to {seconds:.1} s: it, or the way to it, is gone"
    );
    let is_long = row.silent > 0 && row.silent_ms >= MIN_SILENT_MS;
    is_long.then_some((text, (seconds / subject.seconds).min(1.0)))
}

fn slow(subject: &Subject<'_>) -> Option<(String, f64)> {
    let row = subject.row;
    let text = format!(
        "connections take {:.0} ms at p50, {:.0} ms at p99 to open ({} in all)",
        row.connect_p50_ms, row.connect_p99_ms, row.connects
    );
    let waited = row.connect_p50_ms * row.connects as f64 / 1e3 / subject.seconds;
    (row.connects > 0 && row.connect_p99_ms >= MIN_CONNECT_MS).then_some((text, waited))
}

fn dropped(subject: &Subject<'_>) -> Option<(String, f64)> {
    let text = format!(
        "{} requests for a connection were dropped: the process did not accept fast enough, or listens with too short a \
         queue (its backlog, net.core.somaxconn)",
        subject.row.dropped
    );
    (subject.row.dropped > 0).then_some((text, COST))
}

fn unaccepted(subject: &Subject<'_>) -> Option<(String, f64)> {
    let row = subject.row;
    let wait = match row.unaccepted {
        1 => "1 connection waited".to_owned(),
        several => format!("{several} connections waited"),
    };
    let text = format!("{wait} at the end for the process to accept: its clients get no answer");
    let waiting = part(row.unaccepted, row.connections);
    (waiting >= MIN_UNACCEPTED).then_some((text, COST * (1.0 + waiting.min(1.0))))
}

fn resent(subject: &Subject<'_>) -> Option<(String, f64)> {
    let row = subject.row;
    let resent = part(row.resent, row.segments);
    let text = format!(
        "{} of the segments ({}) were sent again: the network or the peer loses them",
        percent(resent),
        row.resent
    );
    let is_much = resent >= MIN_RESENT && row.resent >= MIN_RESENT_SEGMENTS;
    is_much.then_some((text, COST))
}

fn unread(subject: &Subject<'_>) -> Option<(String, f64)> {
    let bytes = subject.row.unread_bytes;
    let text = format!(
        "{:.1} MB wait to be read by the process",
        bytes as f64 / 1e6
    );
    (bytes >= MIN_UNREAD).then_some((text, COST))
}

fn peer_full(subject: &Subject<'_>) -> Option<(String, f64)> {
    let seconds = subject.row.peer_full_ms / 1e3;
    let full = seconds / subject.seconds;
    let text = format!("the peer had no room for data for {seconds:.1} s: it reads too slowly");
    (full >= MIN_PEER_FULL).then_some((text, full.min(1.0)))
}
