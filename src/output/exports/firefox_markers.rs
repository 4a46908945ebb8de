//! Garbage collections as markers of the Firefox Profiler, on the busiest thread of each process.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::json::{self, Scaled};
use crate::history::{GarbageCollection, RuntimeHistory, histories};
use crate::trace::{Pid, Trace};

/// Names of the markers. Perfetto's viewer drops markers of one name that overlap.
pub(super) const NAMES: [&str; 2] = ["GC", "GC (background)"];

/// The kind of the markers and their fields.
pub(super) const SCHEMA: &str = r#"[{"name":"GC","display":["marker-chart","marker-table","timeline-overview"],"tooltipLabel":"GC {marker.data.number}, generation {marker.data.generation}","tableLabel":"generation {marker.data.generation}, pause {marker.data.pause}","chartLabel":"gen {marker.data.generation}","fields":[{"key":"number","label":"Number","format":"integer"},{"key":"generation","label":"Generation","format":"integer"},{"key":"pause","label":"Pause","format":"milliseconds"},{"key":"promoted","label":"Promoted","format":"bytes"}]}]"#;

/// A marker of an interval.
const INTERVAL: &str = "1";

/// The collections of the processes whose markers are not written yet.
pub(super) struct Markers {
    by_process: BTreeMap<Pid, RuntimeHistory>,
    start: u64,
    /// Index of the first of [`NAMES`] in the strings of the profile.
    first_name: usize,
}

/// A marker.
struct Marker {
    name: usize,
    start: i64,
    end: i64,
    data: String,
}

impl Markers {
    pub(super) fn new(trace: &Trace, first_name: usize) -> Self {
        Self {
            by_process: histories(trace, &|_| false),
            start: trace.info.start_ns,
            first_name,
        }
    }

    /// Writes the table of a thread's markers: those of its process, if it is the first one.
    pub(super) fn write(&mut self, pid: i32, out: &mut impl Write) -> io::Result<()> {
        let history = self.by_process.remove(&Pid(pid));
        let markers: Vec<Marker> = history.map_or_else(Vec::new, |history| self.rows(&history));
        let ms = |ns| Scaled { ns, digits: 6 };
        out.write_all(b"{\"data\":")?;
        json::list(out, markers.iter().map(|marker| &marker.data))?;
        out.write_all(b",\"name\":")?;
        json::list(out, markers.iter().map(|marker| marker.name))?;
        out.write_all(b",\"startTime\":")?;
        json::list(out, markers.iter().map(|marker| ms(marker.start)))?;
        out.write_all(b",\"endTime\":")?;
        json::list(out, markers.iter().map(|marker| ms(marker.end)))?;
        for (column, text) in [("phase", INTERVAL), ("category", "0")] {
            write!(out, ",\"{column}\":")?;
            json::repeat(out, text, markers.len())?;
        }
        write!(out, ",\"length\":{}}}", markers.len())
    }

    fn rows(&self, history: &RuntimeHistory) -> Vec<Marker> {
        let since = |ns: u64| i64::try_from(ns.saturating_sub(self.start)).unwrap_or(i64::MAX);
        let row = |row: &GarbageCollection| {
            let background = row.is_background();
            let (begin, length) = match background {
                true => (row.start.0, row.duration_ns.unwrap_or(row.pause_ns)),
                false => (row.pause_start.0, row.pause_ns),
            };
            let promoted = row.heap_stats.map_or(0, |stats| stats.promoted);
            let pause = Scaled {
                ns: i64::try_from(row.pause_ns).unwrap_or(i64::MAX),
                digits: 6,
            };
            Marker {
                name: self.first_name + usize::from(background),
                start: since(begin),
                end: since(begin.saturating_add(length)),
                data: format!(
                    "{{\"type\":\"GC\",\"number\":{},\"generation\":{},\"pause\":{pause},\"promoted\":{promoted}}}",
                    row.number, row.generation
                ),
            }
        };
        history.gc.complete().map(row).collect()
    }
}
