//! Page faults by function.

use super::table::{Cell, Table};
use super::{ReportKind, count, quality, refusals};
use crate::output::sanitize::terminal;
use crate::output::summary::Summary;
use crate::trace::CounterEvent;

/// Number of samples below which the numbers are off by more than a tenth.
const FEW: u64 = 100;

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

/// Says that the numbers are rough if few samples stand for them.
pub(super) fn few_samples(summary: &Summary) -> Option<String> {
    let faults = summary.faults.as_ref()?;
    (faults.samples < FEW).then(|| {
        let samples = count(faults.samples, "sample stands", "samples stand");
        format!(
            "the numbers are rough: {samples} for {} page faults; a higher -freq takes more",
            faults.faults
        )
    })
}

/// Says that page faults are missing because the kernel dropped records, and how many there were if they were
/// counted.
pub(super) fn losses(summary: &Summary) -> Option<String> {
    // Those of single threads are in the ring buffers of CPU samples.
    let missing = refusals::of(summary, ReportKind::Faults);
    let missing = missing.or_else(|| quality::dropped(&summary.quality.losses))?;
    let events = [CounterEvent::MinorFaults, CounterEvent::MajorFaults];
    let counters = summary.info.counters.iter();
    let counts = counters.flat_map(|counters| &counters.processes);
    let counts = counts.flat_map(|process| &process.counts);
    let counts = counts.filter(|count| events.contains(&count.event));
    let exact = counts.map(|count| count.count).reduce(u64::saturating_add);
    let exact = exact.map_or_else(String::new, |exact| {
        format!("; -system counted {exact} page faults")
    });
    Some(missing + &exact)
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
