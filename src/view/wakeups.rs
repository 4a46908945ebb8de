//! Who wakes threads.

use super::table::{Cell, Table};
use crate::output::sanitize::terminal;
use crate::output::summary::{Summary, WakeupRow};

/// Returns who wakes whom.
pub(super) fn table(summary: &Summary) -> Table {
    let rows = summary.wakeups.iter().flat_map(|wakeups| {
        wakeups.rows.iter().map(|row| {
            [
                Cell::Number(percent(row, wakeups.wakeups)),
                row.wakeups.into(),
                row.pid.into(),
                (&*row.woken).into(),
                (&*row.waker).into(),
                (&*row.module).into(),
                (&*row.method).into(),
            ]
        })
    });
    let columns = [
        "percent", "wakeups", "pid", "woken", "by", "module", "method",
    ];
    Table::new("wakeups", columns, rows)
}

fn percent(row: &WakeupRow, all: u64) -> f64 {
    row.wakeups as f64 * 100.0 / all.max(1) as f64
}

/// Returns the wake-ups in one line, with those that are most; `None` if none were sampled.
pub(super) fn in_short(summary: &Summary) -> Option<String> {
    let wakeups = summary.wakeups.as_ref()?;
    let mut line = format!("wake-ups: {}", wakeups.wakeups);
    if let Some(most) = wakeups.rows.first() {
        let (woken, waker) = (terminal(&most.woken), terminal(&most.waker));
        let percent = percent(most, wakeups.wakeups);
        line += &format!("; {percent:.0} % of {woken} by {waker}");
        if !most.method.is_empty() {
            line += &format!(" in {}", terminal(&most.method));
        }
    }
    Some(line)
}
