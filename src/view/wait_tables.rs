//! Tables of the time without a CPU, and of what threads waited for at the end.

use std::collections::HashMap;

use super::table::{Cell, Table};
use crate::output::summary::Summary;

/// Returns the places where threads had no CPU.
pub(super) fn places(summary: &Summary) -> Table {
    let all = summary.thread_time.as_ref().map_or(0.0, |times| times.ms);
    let places = summary.thread_time.iter().flat_map(|times| &times.places);
    let rows = places.map(|place| {
        [
            Cell::Number(place.ms * 100.0 / all),
            Cell::Number(place.ms),
            (&*place.reason).into(),
            place.threads.into(),
            place.pid.into(),
            (&*place.module).into(),
            (&*place.method).into(),
        ]
    });
    let columns = [
        "percent", "ms", "reason", "threads", "pid", "module", "method",
    ];
    Table::new("threadtime", columns, rows)
}

/// Returns where the time of each thread went.
pub(super) fn thread_times(summary: &Summary) -> Table {
    let threads = summary.thread_time.iter().flat_map(|times| &times.threads);
    let rows = threads.map(|thread| {
        let reasons = thread.reasons.iter();
        let reasons = reasons.map(|row| format!("{} {:.0} ms", row.reason, row.ms));
        let reasons: Vec<String> = reasons.collect();
        [
            Cell::Number(thread.cpu_ms),
            Cell::Number(thread.ms),
            thread.pid.into(),
            thread.tid.into(),
            (&*thread.name).into(),
            (&*reasons.join(", ")).into(),
        ]
    });
    let columns = ["cpu_ms", "waiting_ms", "pid", "tid", "name", "reasons"];
    Table::new("threadtime", columns, rows)
}

/// Returns the groups of threads when the capture ended.
pub(super) fn blocked(summary: &Summary) -> Table {
    let processes = summary
        .blocked
        .iter()
        .flat_map(|blocked| &blocked.processes);
    let processes: HashMap<i32, &str> = processes.map(|row| (row.pid, &*row.name)).collect();
    let groups = summary.blocked.iter().flat_map(|blocked| &blocked.groups);
    let rows = groups.map(|group| {
        let [least, most] = match group.since_s {
            Some(times) => times.map(Cell::Number),
            None => [Cell::None, Cell::None],
        };
        let text = |text: &str| Cell::from(text);
        let tids: Vec<String> = group.tids.iter().map(ToString::to_string).collect();
        let process = processes.get(&group.pid).copied().unwrap_or_default();
        [
            group.threads.into(),
            text(&group.reason),
            least,
            most,
            group.pid.into(),
            text(process),
            text(&tids.join(" ")),
            group.owner.map_or(Cell::None, Cell::from),
            text(&group.name),
            text(&group.waits_for),
            text(&group.module),
            text(&group.method),
        ]
    });
    let columns = [
        "threads",
        "reason",
        "least_s",
        "most_s",
        "pid",
        "process",
        "tids",
        "owner",
        "name",
        "waits_for",
        "module",
        "method",
    ];
    Table::new("blocked", columns, rows)
}
