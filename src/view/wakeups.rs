//! Who wakes threads.

use super::count;
use super::table::{Cell, Table};
use crate::output::sanitize::terminal;
use crate::output::summary::{Summary, WakeupRow, WakeupSummary};

/// Columns that a narrow terminal may lack.
pub(super) const OPTIONAL_COLUMNS: [&str; 1] = ["module"];
/// Number of samples below which the numbers are off by more than a tenth.
const FEW: u64 = 100;

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

/// Says that the numbers are rough if few samples stand for them, each for several wake-ups.
pub(super) fn few_samples(summary: &Summary) -> Option<String> {
    let WakeupSummary {
        samples, wakeups, ..
    } = summary.wakeups.as_ref()?;
    (*samples < FEW && samples < wakeups).then(|| {
        let samples = count(*samples, "sample stands", "samples stand");
        format!(
            "the numbers are rough: {samples} for {wakeups} wake-ups; a longer capture has more"
        )
    })
}

/// Returns the wake-ups in one line, with those that are most; `None` if none were sampled.
pub(super) fn in_short(summary: &Summary) -> Option<String> {
    let wakeups = summary.wakeups.as_ref()?;
    let mut line = format!("wake-ups: {}", wakeups.wakeups);
    if let Some(most) = wakeups.rows.first() {
        let (woken, waker) = (terminal(&most.woken), terminal(&most.waker));
        let percent = percent(most, wakeups.wakeups);
        line += &format!("; most: {woken} woken by {waker}");
        if !most.method.is_empty() {
            line += &format!(" in {}", terminal(&most.method));
        }
        line += &format!(", {percent:.0} % of all");
    }
    Some(line)
}
