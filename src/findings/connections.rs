//! TCP connections that fail, that take long to open, that lose data, or that are not accepted.

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
/// Part of the capture in which a peer has no room for data, below which it is not remarkable.
const MIN_PEER_FULL: f64 = 0.1;

/// What a connection with trouble costs, beyond what is known: as much as some waiting.
const COST: f64 = 0.05;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let connections = scene.summary.info.connections.as_ref();
    let rows = connections
        .into_iter()
        .flat_map(|connections| &connections.rows);
    let followed = connections.is_some_and(|connections| connections.has_attempts);
    rows.filter_map(|row| of(scene, row, followed)).collect()
}

fn of(scene: &Scene<'_>, row: &ConnectionRow, followed: bool) -> Option<Finding> {
    let seconds = scene.seconds;
    // Those that were open before do not count.
    let opened = match followed {
        true => row.connects,
        false => row.connections,
    };
    let attempts = row.failed.saturating_add(opened);
    let failed = part(row.failed, attempts);
    let resent = part(row.resent, row.segments);
    let peer_full = row.peer_full_ms / 1e3 / seconds;
    let mut parts = Vec::new();
    let mut cost = 0.0_f64;
    if failed >= MIN_FAILED {
        let after = match row.failed_after_ms {
            ms if ms < AT_ONCE_MS && followed => " at once: the peer refuses them".to_owned(),
            ms if ms < AT_ONCE_MS => String::new(),
            ms => format!(" or were given up, after {:.2} s on average", ms / 1e3),
        };
        parts.push(format!(
            "{} of {attempts} attempts to connect failed{after}",
            row.failed
        ));
        cost += COST * (1.0 + failed) + row.failed_after_ms * row.failed as f64 / 1e3 / seconds;
    }
    if row.connecting > 0 && row.oldest_ms >= MIN_OLDEST_MS {
        let have = match row.connecting {
            1 => "attempt has",
            _ => "attempts have",
        };
        parts.push(format!(
            "{} {have} no answer, the oldest for at least {:.2} s",
            row.connecting,
            row.oldest_ms / 1e3
        ));
        cost += (row.oldest_ms / 1e3 / seconds).min(1.0);
    }
    let aborted = part(row.aborted, row.connections);
    if aborted >= MIN_FAILED {
        parts.push(format!(
            "{} of {} connections were reset by the peer, or timed out",
            row.aborted, row.connections
        ));
        cost += COST * (1.0 + aborted);
    }
    if row.silent > 0 && row.silent_ms >= MIN_SILENT_MS {
        parts.push(format!(
            "the peer of {} has acknowledged nothing for up to {:.1} s: it, or the way to it, is gone",
            if row.silent == 1 { "1 connection".to_owned() } else { format!("{} connections", row.silent) },
            row.silent_ms / 1e3
        ));
        cost += (row.silent_ms / 1e3 / seconds).min(1.0);
    }
    if row.unread_bytes >= MIN_UNREAD {
        parts.push(format!(
            "{:.1} MB wait to be read by the process",
            row.unread_bytes as f64 / 1e6
        ));
        cost += COST;
    }
    if row.connects > 0 && row.connect_p99_ms >= MIN_CONNECT_MS {
        parts.push(format!(
            "connections take {:.0} ms at p50, {:.0} ms at p99 to open ({} in all)",
            row.connect_p50_ms, row.connect_p99_ms, row.connects
        ));
        cost += row.connect_p50_ms * row.connects as f64 / 1e3 / seconds;
    }
    if row.dropped > 0 {
        parts.push(format!(
            "{} requests for a connection were dropped: the process did not accept fast enough, or listens with too \
             short a queue (its backlog, net.core.somaxconn)",
            row.dropped
        ));
        cost += COST;
    }
    if resent >= MIN_RESENT && row.resent >= MIN_RESENT_SEGMENTS {
        parts.push(format!(
            "{} of the segments ({}) were sent again: the network or the peer loses them",
            percent(resent),
            row.resent
        ));
        cost += COST;
    }
    if peer_full >= MIN_PEER_FULL && peer_full.is_finite() {
        parts.push(format!(
            "the peer had no room for data for {:.1} s: it reads too slowly",
            row.peer_full_ms / 1e3
        ));
        cost += peer_full.min(1.0);
    }
    if parts.is_empty() || !cost.is_finite() {
        return None;
    }
    let address = match &*row.address {
        "" => "other addresses".to_owned(),
        address => shown(address),
    };
    let way = if row.is_inbound { "at" } else { "to" };
    let program = scene.summary.program_named(row.pid, &row.process);
    let name = process_name(program, row.pid);
    let text = format!("{name}: connections {way} {address}: {}", parts.join("; "));
    Some(
        Finding::new(RULE, text)
            .about(row.pid, &format!("{program} {way} {}", row.address))
            .from("info.connections")
            .figure("failed", row.failed as f64)
            .figure("connecting", row.connecting as f64)
            .figure("aborted", row.aborted as f64)
            .figure("silent", row.silent as f64)
            .figure("connect_p99_ms", row.connect_p99_ms)
            .figure("dropped", row.dropped as f64)
            .figure("resent_percent", resent * 100.0)
            .figure("peer_full_ms", row.peer_full_ms)
            .more(&["report", TRACE, "-kind", "connections"])
            .costing(cost),
    )
}

fn part(count: u64, all: u64) -> f64 {
    count as f64 / all.max(1) as f64
}
