//! speedscope. It shows one profile at a time: first all threads, then each process, then each thread.
//!
//! Profiles of several threads have no time axis. Those of a thread have one if the file stays small
//! enough for a browser; a gap is a sample without a stack.

use std::io::{self, Write};
use std::iter::Peekable;

use super::calls::{Calls, Code, NONE, count};
use super::json;
use super::quality;
use super::tracks::{Track, TrackSamples, Tracks};
use super::weights::Weights;
use crate::output::short_name::NameStyle;
use crate::trace::{Sample, Trace};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Maximum number of processes, and of threads.
const MAX_PROFILES: usize = 200;

/// Size of the stacks in order of time, about, that browsers still open.
const MAX_TIME_BYTES: usize = 50 << 20;

/// Size of a frame and of a sample in the file, about.
const FRAME_BYTES: usize = 5;
const SAMPLE_BYTES: usize = 12;

/// What the profiles show.
struct Profiles<'a> {
    trace: &'a Trace,
    calls: &'a Calls,
    order: Vec<u32>,
    weights: Weights,
}

pub(super) fn write(
    trace: &Trace,
    names: NameStyle,
    title: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let calls = Calls::new(trace, names);
    let quality = quality::lines(trace);
    write!(out, "{{\"$schema\":\"{SCHEMA}\",\"exporter\":")?;
    json::string(out, &format!("perfcollect@{}", trace.info.version))?;
    out.write_all(b",\"activeProfileIndex\":0,\"name\":")?;
    json::string(out, &format!("{title}: {}", quality.join("; ")))?;
    out.write_all(b",\"shared\":{\"frames\":")?;
    let codes = calls.codes.iter().map(Code::full_name);
    json::each(out, codes.chain(quality.iter().cloned()), |out, name| {
        out.write_all(b"{\"name\":")?;
        json::string(out, &name)?;
        out.write_all(b"}")
    })?;
    out.write_all(b"},\"profiles\":[")?;
    let profiles = Profiles {
        trace,
        calls: &calls,
        order: calls.order(),
        weights: Weights::new(trace),
    };
    profiles.write(out)?;
    out.write_all(b",")?;
    head(out, "QUALITY", "none", quality.len() as u64)?;
    let lines = calls.codes.len()..calls.codes.len() + quality.len();
    json::each(out, lines, |out, line| write!(out, "[{line}]"))?;
    out.write_all(b",\"weights\":")?;
    json::repeat(out, "1", quality.len())?;
    out.write_all(b"}]}")
}

/// Writes the start of a profile, up to its samples.
fn head(out: &mut impl Write, name: &str, unit: &str, end: u64) -> io::Result<()> {
    out.write_all(b"{\"type\":\"sampled\",\"name\":")?;
    json::string(out, name)?;
    write!(
        out,
        ",\"unit\":\"{unit}\",\"startValue\":0,\"endValue\":{end},\"samples\":"
    )
}

impl Profiles<'_> {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let trace = self.trace;
        let event = match self.weights.is_time {
            true => "CPU",
            false => trace.info.event.as_str(),
        };
        let total = trace.samples.iter().map(|sample| self.weights.of(&sample));
        let total = total.fold(0, u64::saturating_add);
        let name = format!("{event}, all threads");
        self.merged(out, &name, total, trace.samples.iter())?;
        let processes = Tracks::processes(trace, MAX_PROFILES);
        if processes.rows().len() > 1 {
            processes.for_each(|track, samples| {
                let name = match track.pid {
                    0 => track.name.clone(),
                    pid => format!("{} ({pid}), all threads", track.name),
                };
                out.write_all(b",")?;
                self.merged(out, &name, track.weight, samples.iter())
            })?;
        }
        let has_times = self.has_times();
        Tracks::threads(trace, MAX_PROFILES).for_each(|track, samples| {
            out.write_all(b",")?;
            let Track {
                name, process, pid, ..
            } = track;
            let name = match track.tid {
                0 => name.clone(),
                tid => format!("{process} ({pid}) {name} ({tid})"),
            };
            match has_times && track.tid != 0 {
                true => self.timed(out, &name, track, samples),
                false => self.merged(out, &name, track.weight, samples.iter()),
            }
        })
    }

    /// Returns whether threads have a time axis.
    fn has_times(&self) -> bool {
        let mut last = vec![NONE; self.trace.threads.len()];
        let mut bytes = 0;
        for sample in self.trace.samples.iter() {
            let node = self.calls.node(sample.stack);
            let last = &mut last[sample.thread.index()];
            if *last != node {
                *last = node;
                bytes += SAMPLE_BYTES + FRAME_BYTES * self.calls.depth(node) as usize;
            }
        }
        self.weights.is_time && bytes <= MAX_TIME_BYTES
    }

    /// Writes a profile with one sample for each distinct stack.
    fn merged(
        &self,
        out: &mut impl Write,
        name: &str,
        total: u64,
        samples: impl Iterator<Item = Sample>,
    ) -> io::Result<()> {
        let unit = match self.weights.is_time {
            true => "nanoseconds",
            false => "none",
        };
        head(out, &format!("{name} (no time axis)"), unit, total)?;
        let counts = count(self.calls, self.weights, samples, &self.order);
        self.stacks(out, || {
            counts.iter().map(|(node, counts)| (*node, counts.weight))
        })
    }

    /// Writes a profile of a thread in order of time.
    fn timed(
        &self,
        out: &mut impl Write,
        name: &str,
        track: &Track,
        samples: &TrackSamples<'_>,
    ) -> io::Result<()> {
        let duration = self.trace.info.duration_ns();
        head(out, name, "nanoseconds", duration.max(track.weight))?;
        self.stacks(out, || Runs {
            profiles: self,
            samples: samples.iter().peekable(),
            at: 0,
            run: None,
        })
    }

    /// Writes the stacks of nodes, then their weights.
    fn stacks<I: Iterator<Item = (u32, u64)>>(
        &self,
        out: &mut impl Write,
        rows: impl Fn() -> I,
    ) -> io::Result<()> {
        let mut path = Vec::new();
        json::each(out, rows(), |out, (node, _)| {
            self.calls.path(node, &mut path);
            let codes = path.iter().map(|&node| self.calls.nodes()[node as usize].1);
            json::list(out, codes)
        })?;
        out.write_all(b",\"weights\":")?;
        json::list(out, rows().map(|(_, weight)| weight))?;
        out.write_all(b"}")
    }
}

/// The samples of a thread as nodes and times, equal neighbours as one. A gap has no node.
struct Runs<'a, I: Iterator<Item = Sample>> {
    profiles: &'a Profiles<'a>,
    samples: Peekable<I>,
    /// End of what was returned, after the start of the trace.
    at: u64,
    run: Option<(u32, u64)>,
}

impl<I: Iterator<Item = Sample>> Iterator for Runs<'_, I> {
    type Item = (u32, u64);

    fn next(&mut self) -> Option<(u32, u64)> {
        let start = self.profiles.trace.info.start_ns;
        while let Some(sample) = self.samples.peek() {
            let weight = sample.weight.0;
            let begin = sample.time.0.saturating_sub(start).saturating_sub(weight);
            let gap = begin.saturating_sub(self.at);
            let node = self.profiles.calls.node(sample.stack);
            // Less is jitter of the timer.
            let is_gap = gap > weight / 2;
            if self.run.is_some_and(|(last, _)| is_gap || last != node) {
                return self.run.take();
            }
            if is_gap {
                self.at += gap;
                return Some((NONE, gap));
            }
            let (_, total) = self.run.get_or_insert((node, 0));
            *total = total.saturating_add(weight);
            self.at = self.at.saturating_add(weight);
            self.samples.next();
        }
        self.run.take()
    }
}
