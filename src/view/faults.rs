//! Page faults by function.

use super::table::{Cell, Table};
use crate::output::sanitize::terminal;
use crate::output::summary::Summary;

/// Returns the page faults of each function.
pub(super) fn table(summary: &Summary) -> Table {
    let rows = summary.faults.iter().flat_map(|faults| {
        faults.methods.iter().map(|row| {
            [
                Cell::Number(row.faults as f64 * 100.0 / faults.faults.max(1) as f64),
                row.faults.into(),
                Cell::Number(faults.megabytes(row.faults)),
                if row.own { "own" } else { "" }.into(),
                row.pid.into(),
                (&*row.module).into(),
                (&*row.method).into(),
            ]
        })
    });
    let columns = ["percent", "faults", "mb", "code", "pid", "module", "method"];
    Table::new("faults", columns, rows)
}

/// Returns the page faults in one line, with the function that has most; `None` if none were sampled.
pub(super) fn in_short(summary: &Summary) -> Option<String> {
    let faults = summary.faults.as_ref()?;
    let all = faults.faults;
    let mut line = format!(
        "page faults: {all}, of about {:.0} MB",
        faults.megabytes(all)
    );
    if let Some(most) = faults.methods.iter().max_by_key(|row| row.faults)
        && !most.method.is_empty()
    {
        let percent = most.faults as f64 * 100.0 / all.max(1) as f64;
        let method = terminal(&most.method);
        line += &format!("; {percent:.0} % in {method}");
    }
    Some(line)
}
