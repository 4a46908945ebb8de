//! The tables of what the events of .NET processes report.

use super::table::{Cell, Table};
use crate::output::short_name;
use crate::output::summary::{MethodName, MethodPair, RuntimeSummary, Summary};
use crate::output::variant_name;

/// Name of the row of the events without a row.
const OTHER_EVENTS: &str = "(other kinds)";

/// Returns the events by process and kind.
pub(super) fn events(summary: &Summary) -> Table {
    let rows = summary.runtimes.iter().flat_map(|runtime| {
        let pid = runtime.pid;
        let others = (runtime.other_events > 0).then(|| {
            let count = runtime.other_events.into();
            [
                pid.into(),
                count,
                Cell::None,
                "".into(),
                OTHER_EVENTS.into(),
            ]
        });
        let rows = runtime.events.iter().map(move |row| {
            let [provider, name] = [&row.provider, &row.name].map(|text| Cell::from(&**text));
            let count = row.count.into();
            [pid.into(), count, row.per_second.into(), provider, name]
        });
        rows.chain(others)
    });
    let columns = ["pid", "count", "per_second", "provider", "event"];
    Table::new("events", columns, rows)
}

/// Returns one row per process with collections.
pub(super) fn gc(summary: &Summary) -> Table {
    let rows = of_each(summary, |runtime| runtime.gc.as_ref());
    let rows = rows.map(|(pid, gc)| {
        let [gen0, gen1, gen2] = gc.generations;
        [
            pid.into(),
            gc.count.into(),
            gen0.into(),
            gen1.into(),
            gen2.into(),
            gc.induced.into(),
            gc.pause_ms.into(),
            gc.max_pause_ms.into(),
            gc.max_pause_at_ms.into(),
            gc.paused_percent.into(),
            gc.cpu_percent.map_or(Cell::None, Cell::from),
            gc.allocated_mb_per_second.into(),
        ]
    });
    let columns = [
        "pid",
        "collections",
        "gen0",
        "gen1",
        "gen2",
        "induced",
        "pause_ms",
        "max_pause_ms",
        "max_pause_at_ms",
        "paused_percent",
        "cpu_percent",
        "allocated_mb_per_s",
    ];
    Table::new("gc", columns, rows)
}

/// Returns the compilations by process and tier.
pub(super) fn jit(summary: &Summary) -> Table {
    let rows = of_each(summary, |runtime| runtime.jit.as_ref());
    let rows = rows.flat_map(|(pid, jit)| {
        let tiers = jit.tiers.iter();
        tiers.map(move |tier| {
            let name: Cell = (&*tier.tier).into();
            [pid.into(), tier.count.into(), tier.ms.into(), name]
        })
    });
    Table::new("jit", ["pid", "methods", "ms", "tier"], rows)
}

/// Returns the exceptions by process, type and method.
pub(super) fn exceptions(summary: &Summary) -> Table {
    let rows = of_each(summary, |runtime| runtime.exceptions.as_ref());
    let rows = rows.flat_map(|(pid, exceptions)| {
        exceptions.rows.iter().map(move |row| {
            let [leaf, own] = methods(&row.methods);
            let name: Cell = (&*row.type_name).into();
            [pid.into(), row.count.into(), name, leaf, own]
        })
    });
    let columns = ["pid", "exceptions", "type", "method", "own_method"];
    Table::new("exceptions", columns, rows)
}

/// Returns the waits for locks by process and method.
pub(super) fn contention(summary: &Summary) -> Table {
    let rows = of_each(summary, |runtime| runtime.contention.as_ref());
    let rows = rows.flat_map(|(pid, waits)| {
        waits.rows.iter().map(move |row| {
            let [leaf, own] = methods(&row.methods);
            let ms = row.ms + row.unended_ms;
            let count = row.count.saturating_add(row.unended);
            [
                pid.into(),
                count.into(),
                ms.into(),
                row.max_ms.into(),
                row.threads.into(),
                leaf,
                own,
            ]
        })
    });
    let columns = [
        "pid",
        "waits",
        "waiting_ms",
        "max_ms",
        "threads",
        "method",
        "own_method",
    ];
    Table::new("contention", columns, rows)
}

/// Returns the waits of asynchronous methods by process, method and request.
pub(super) fn awaits(summary: &Summary) -> Table {
    let rows = of_each(summary, |runtime| runtime.awaits.as_ref());
    let rows = rows.flat_map(|(pid, awaits)| {
        awaits.rows.iter().map(move |row| {
            let mean = match row.count {
                0 => Cell::None,
                count => Cell::Number(row.ms / count as f64),
            };
            [
                pid.into(),
                row.count.into(),
                mean,
                row.max_ms.into(),
                row.unended.into(),
                (row.ms + row.unended_ms).into(),
                if row.is_own { "own" } else { "library" }.into(),
                (&*short_name::awaiting(&row.method.name)).into(),
                (&*row.request).into(),
            ]
        })
    });
    let columns = [
        "pid",
        "awaits",
        "mean_ms",
        "max_ms",
        "unended",
        "waiting_ms",
        "code",
        "method",
        "request",
    ];
    Table::new("awaits", columns, rows)
}

/// Columns of awaits that a terminal may have no room for.
pub(super) const OPTIONAL_AWAIT_COLUMNS: [&str; 3] = ["pid", "code", "max_ms"];

/// Returns the allocations by process, type and method.
pub(super) fn allocations(summary: &Summary) -> Table {
    let rows = of_each(summary, |runtime| runtime.allocations.as_ref());
    let rows = rows.flat_map(|(pid, allocations)| {
        allocations.rows.iter().map(move |row| {
            let [leaf, own] = methods(&row.methods);
            let name: Cell = (&*row.type_name).into();
            [
                pid.into(),
                (row.bytes as f64 / 1e6).into(),
                (row.large_bytes as f64 / 1e6).into(),
                name,
                leaf,
                own,
            ]
        })
    });
    let columns = ["pid", "mb", "large_mb", "type", "method", "own_method"];
    Table::new("alloc", columns, rows)
}

/// Returns the thread pool of each process.
pub(super) fn thread_pool(summary: &Summary) -> Table {
    let rows = of_each(summary, |runtime| {
        Some((runtime.thread_pool.as_ref()?, runtime.waits.as_ref()))
    });
    let rows = rows.map(|(pid, (pool, waits))| {
        let longest = waits.and_then(|waits| waits.rows.first());
        let method = longest.map_or(Cell::None, |row| {
            let [leaf, own] = methods(&row.methods);
            if own == Cell::None { leaf } else { own }
        });
        [
            pid.into(),
            u64::from(pool.max_threads).into(),
            pool.started.into(),
            pool.stopped.into(),
            pool.starvations.into(),
            pool.blocking.into(),
            pool.max_throughput.into(),
            waits.map_or(Cell::None, |waits| (waits.ms + waits.unended_ms).into()),
            method,
        ]
    });
    let columns = [
        "pid",
        "max_threads",
        "started",
        "stopped",
        "starvations",
        "blocking",
        "max_items_per_s",
        "waiting_ms",
        "longest_waits_in",
    ];
    Table::new("thread-pool", columns, rows)
}

/// Returns the steps of connections by process and kind.
pub(super) fn network(summary: &Summary) -> Table {
    let rows = summary.runtimes.iter().flat_map(|runtime| {
        runtime.network.iter().map(|row| {
            let kind = variant_name(row.kind);
            [
                runtime.pid.into(),
                (&*kind).into(),
                row.count.into(),
                row.failed.into(),
                row.unended.into(),
                row.mean_ms.into(),
                row.max_ms.into(),
                (&*row.slowest).into(),
                row.unended_ms.map_or(Cell::None, Cell::from),
                (&*row.oldest).into(),
            ]
        })
    });
    let columns = [
        "pid",
        "step",
        "count",
        "failed",
        "unended",
        "mean_ms",
        "max_ms",
        "slowest",
        "unended_ms",
        "oldest",
    ];
    Table::new("network", columns, rows)
}

/// Returns the requests by process and name.
pub(super) fn requests(summary: &Summary) -> Table {
    let rows = of_each(summary, |runtime| runtime.requests.as_ref());
    let rows = rows.flat_map(|(pid, requests)| {
        requests.routes.iter().map(move |row| {
            let direction = variant_name(row.direction);
            let number = |number: Option<f64>| number.map_or(Cell::None, Cell::from);
            [
                pid.into(),
                (&*direction).into(),
                row.counts.count.into(),
                row.counts.failed.into(),
                row.counts.unended.into(),
                row.mean_ms.into(),
                row.p50_ms.into(),
                row.p95_ms.into(),
                row.p99_ms.into(),
                row.max_ms.into(),
                number(row.unended_ms),
                number(row.cpu_percent),
                number(row.waiting_percent),
                row.gc_percent.into(),
                row.calls_percent.into(),
                row.caller.as_deref().map_or(Cell::None, Cell::from),
                (&*row.name).into(),
            ]
        })
    });
    let columns = [
        "pid",
        "direction",
        "count",
        "failed",
        "unended",
        "mean_ms",
        "p50_ms",
        "p95_ms",
        "p99_ms",
        "max_ms",
        "unended_ms",
        "cpu_percent",
        "waiting_percent",
        "gc_percent",
        "calls_percent",
        "caller",
        "request",
    ];
    Table::new("requests", columns, rows)
}

/// Returns the slowest single requests of each process.
pub(super) fn slowest_requests(summary: &Summary) -> Table {
    let rows = of_each(summary, |runtime| runtime.requests.as_ref());
    let rows = rows.flat_map(|(pid, requests)| {
        requests.slowest.iter().map(move |row| {
            let state = match (row.ended, row.failed) {
                (false, _) => "unended",
                (_, true) => "failed",
                _ => "ended",
            };
            [
                pid.into(),
                row.start_ms.into(),
                row.ms.into(),
                row.cpu_ms.map_or(Cell::None, Cell::from),
                row.waiting_ms.map_or(Cell::None, Cell::from),
                row.gc_ms.into(),
                row.calls_ms.into(),
                state.into(),
                (&*row.name).into(),
            ]
        })
    });
    let columns = [
        "pid",
        "start_ms",
        "ms",
        "cpu_ms",
        "waiting_ms",
        "gc_ms",
        "calls_ms",
        "state",
        "request",
    ];
    Table::new("requests", columns, rows)
}

/// Returns the processes that have a part, with it.
fn of_each<'a, T: 'a>(
    summary: &'a Summary,
    part: impl Fn(&'a RuntimeSummary) -> Option<T>,
) -> impl Iterator<Item = (i32, T)> {
    let runtimes = summary.runtimes.iter();
    runtimes.filter_map(move |runtime| Some((runtime.pid, part(runtime)?)))
}

/// Returns the cells of the innermost method and of the user's.
fn methods(methods: &MethodPair) -> [Cell; 2] {
    let cell = |method: &Option<MethodName>| match method {
        Some(method) => format!("{}!{}", method.module, method.name).into(),
        None => Cell::None,
    };
    [cell(&methods.leaf), cell(&methods.own)]
}

/// Returns how many events of each process were received, and how many were lost.
pub(super) fn event_losses(summary: &Summary) -> Table {
    let rows = summary.quality.events.iter().map(|row| {
        let truncated = (&*row.truncated).into();
        [
            row.pid.into(),
            row.events.into(),
            row.dropped.into(),
            row.unknown.into(),
            row.without_stack.into(),
            truncated,
        ]
    });
    let columns = [
        "pid",
        "events",
        "dropped",
        "unreadable",
        "without_stack",
        "ends_early",
    ];
    Table::new("event-losses", columns, rows)
}
