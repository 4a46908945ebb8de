//! The threads of a profile of the Firefox Profiler.

use std::io::{self, Write};
use std::iter::Peekable;

use super::calls::{Calls, NONE};
use super::firefox_markers::Markers;
use super::json::{self, Scaled};
use super::tracks::{Track, TrackSamples};
use super::weights::Weights;
use crate::trace::{Sample, Trace};

/// Writes a thread.
pub(super) fn write(
    trace: &Trace,
    calls: &Calls,
    (track, samples): (&Track, &TrackSamples<'_>),
    markers: &mut Markers,
    out: &mut impl Write,
) -> io::Result<()> {
    let weights = Weights::new(trace);
    let start = trace.info.start_ns;
    let ms = |ns: i64| Scaled { ns, digits: 6 };
    let since = |time: u64| ms(signed(time) - signed(start));
    let rows = || Rows {
        samples: samples.iter().peekable(),
        weights,
        at: start,
    };
    out.write_all(b"{\"processType\":\"default\",\"name\":")?;
    json::string(out, &track.name)?;
    out.write_all(b",\"processName\":")?;
    json::string(out, &track.process)?;
    let Track { pid, tid, .. } = track;
    write!(
        out,
        ",\"pid\":\"{pid}\",\"tid\":{tid},\"isMainThread\":{},\"processStartupTime\":0,\
         \"processShutdownTime\":null,\"registerTime\":{},\"unregisterTime\":null,\"pausedRanges\":[],\
         \"showMarkersInTimeline\":true,\"markers\":",
        pid == tid,
        since(track.first.min(track.last)),
    )?;
    markers.write(*pid, out)?;
    out.write_all(b",\"samples\":{\"weightType\":\"samples\",\"weight\":null,\"stack\":")?;
    json::each(out, rows(), |out, row| {
        match row.sample.map(|sample| calls.node(sample.stack)) {
            None | Some(NONE) => out.write_all(b"null"),
            Some(node) => write!(out, "{node}"),
        }
    })?;
    out.write_all(b",\"time\":")?;
    json::list(out, rows().map(|row| since(row.time)))?;
    if weights.is_time {
        out.write_all(b",\"threadCPUDelta\":")?;
        let cpu = |row: Row| row.sample.map_or(0, |sample| sample.weight.0);
        json::list(out, rows().map(cpu))?;
    }
    write!(out, ",\"length\":{}}}}}", rows().count())
}

fn signed(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// A row of samples.
struct Row {
    time: u64,
    /// `None` where the thread starts to use CPU time again.
    sample: Option<Sample>,
}

/// Samples, with a row before those that follow a pause: the viewer would draw a slope otherwise.
struct Rows<I: Iterator<Item = Sample>> {
    samples: Peekable<I>,
    weights: Weights,
    /// Time of the last row.
    at: u64,
}

impl<I: Iterator<Item = Sample>> Iterator for Rows<I> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let next = self.samples.peek()?;
        let begin = next.time.0.saturating_sub(next.weight.0);
        let is_paused = begin.saturating_sub(self.at) > next.weight.0 / 2;
        if self.weights.is_time && is_paused {
            self.at = begin;
            let time = begin;
            return Some(Row { time, sample: None });
        }
        let sample = self.samples.next()?;
        self.at = self.at.max(sample.time.0);
        Some(Row {
            time: sample.time.0,
            sample: Some(sample),
        })
    }
}
