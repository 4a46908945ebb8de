//! Counted events of the CPU and the kernel.

use super::table::{Cell, Table};
use crate::output::summary::Summary;
use crate::trace::{CounterEvent, EventCount, ProcessCounters};

/// Why there are no counts.
pub(super) const NOT_COUNTED: &str =
    "nothing was counted: a capture with -hwevents or -system counts events";

/// Returns the counts of each process, or of the whole system.
pub(super) fn table(summary: &Summary) -> Table {
    let seconds = summary.info.seconds();
    let counters = summary.info.counters.as_ref();
    let processes = counters.map_or(&[][..], |counters| &counters.processes);
    let rows = processes.iter().flat_map(|process| {
        process.counts.iter().map(move |count| {
            [
                process.pid.map_or(Cell::None, Cell::from),
                (&*process.name).into(),
                count.event.name().into(),
                count.count.into(),
                Cell::Number(match seconds > 0.0 {
                    true => count.count as f64 / seconds,
                    false => 0.0,
                }),
                note(process, count).into(),
            ]
        })
    });
    let columns = ["pid", "process", "event", "count", "per_second", "note"];
    Table::new("counters", columns, rows)
}

/// Returns what a count says besides its number.
fn note(process: &ProcessCounters, count: &EventCount) -> String {
    let mut notes: Vec<String> = ratio(process, count.event).into_iter().collect();
    if count.counted_percent < 99.95 {
        notes.push(format!(
            "extrapolated from {:.1} % of the time",
            count.counted_percent
        ));
    }
    notes.join("; ")
}

/// Compares an event with the one that it is a part of.
fn ratio(process: &ProcessCounters, event: CounterEvent) -> Option<String> {
    let ratio = process.ratio(event)?;
    Some(match event {
        CounterEvent::Instructions => format!("{ratio:.2} per cycle"),
        _ => format!("{:.1} % of {}", ratio * 100.0, event.base()?.name()),
    })
}

/// Returns the counts in one line, all processes together; `None` if nothing was counted.
pub(super) fn in_short(summary: &Summary) -> Option<String> {
    let total = summary.info.counters.as_ref()?.total();
    let occurred = total.counts.iter().filter(|count| count.count > 0);
    let parts = occurred.filter_map(|count| {
        let event = count.event;
        match event {
            CounterEvent::Cycles | CounterEvent::Branches | CounterEvent::CacheReferences => None,
            CounterEvent::Instructions => {
                let ratio = total.ratio(event)?;
                Some(format!("{ratio:.2} instructions per cycle"))
            }
            CounterEvent::BranchMisses | CounterEvent::CacheMisses => Some(format!(
                "{:.1} % {}",
                total.ratio(event)? * 100.0,
                event.name()
            )),
            _ => Some(format!("{} {}", count.count, event.name())),
        }
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Counters, Trace};
    use crate::view::table::TableFormat;

    /// What a machine with counters counts: values of a CPU with two events too many.
    fn counted() -> Summary {
        let counts = [
            (CounterEvent::Cycles, 2_000_000_000, 100.0),
            (CounterEvent::Instructions, 2_500_000_000, 100.0),
            (CounterEvent::Branches, 400_000_000, 66.7),
            (CounterEvent::BranchMisses, 10_000_000, 66.7),
            (CounterEvent::CacheReferences, 0, 66.6),
            (CounterEvent::CacheMisses, 0, 66.6),
            (CounterEvent::MajorFaults, 3, 100.0),
        ];
        let counts = counts.map(|(event, count, counted_percent)| EventCount {
            event,
            count,
            counted_percent,
        });
        let mut summary = Summary::new(&Trace::default());
        summary.info.end_ns = 2_000_000_000;
        summary.info.counters = Some(Counters {
            processes: vec![ProcessCounters {
                pid: Some(7),
                name: "shop".into(),
                counts: counts.to_vec(),
            }],
            user_code_only: false,
        });
        summary
    }

    #[test]
    fn hardware_events_have_ratios_and_extrapolations() {
        let mut csv = Vec::new();
        table(&counted()).write(TableFormat::Csv, &mut csv).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        for line in [
            "7,shop,cycles,2000000000,1000000000.0,\n",
            "7,shop,instructions,2500000000,1250000000.0,1.25 per cycle\n",
            "7,shop,branch-misses,10000000,5000000.0,2.5 % of branches; extrapolated from 66.7 % of the time\n",
            "7,shop,cache-misses,0,0.0,extrapolated from 66.6 % of the time\n",
        ] {
            assert!(csv.contains(line), "{line}: {csv}");
        }
        assert_eq!(
            in_short(&counted()).unwrap(),
            "1.25 instructions per cycle, 2.5 % branch-misses, 3 major-faults"
        );
        assert_eq!(in_short(&Summary::new(&Trace::default())), None);
    }
}
