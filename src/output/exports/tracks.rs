//! The samples of a trace by thread or process, in order of time.
//!
//! Samples are stored in order of time, so those of a thread are everywhere. Each pass takes as many
//! threads as fit into memory; a thread with more samples takes a pass for each column.

use std::cmp::Reverse;
use std::io;

use rustc_hash::FxHashMap;

use super::weights::Weights;
use crate::output::sanitize::terminal;
use crate::output::summary::program_of;
use crate::trace::{Process, Sample, ThreadId, Trace};

/// Maximum number of samples in memory: 16 MiB.
pub(super) const MAX_BATCH: usize = 1 << 19;

/// A thread, process, or several of them in one row of a viewer.
pub(super) struct Track {
    pub(super) name: String,
    pub(super) process: String,
    /// 0 for several processes.
    pub(super) pid: i32,
    /// 0 for several threads.
    pub(super) tid: i32,
    pub(super) samples: usize,
    pub(super) weight: u64,
    /// Times of the first and last sample.
    pub(super) first: u64,
    pub(super) last: u64,
}

/// Returns the name of the program that a process executes.
fn program(process: &Process) -> &str {
    program_of(&process.name, &process.command_line)
}

/// Tracks with samples, most weight first.
pub(super) struct Tracks<'a> {
    trace: &'a Trace,
    /// Row of each thread in `rows`.
    of_thread: Vec<u32>,
    rows: Vec<Track>,
}

impl<'a> Tracks<'a> {
    /// One for each thread. Beyond `max`, those with least weight share the last one.
    pub(super) fn threads(trace: &'a Trace, max: usize) -> Self {
        let rows = trace.threads.iter().map(|thread| {
            let process = &trace.processes[thread.process.index()];
            track(&thread.name, program(process), process.pid.0, thread.tid.0)
        });
        let of_thread = (0..trace.threads.len() as u32).collect();
        Self::new(trace, of_thread, rows.collect(), (max, "threads"))
    }

    /// One for each process.
    pub(super) fn processes(trace: &'a Trace, max: usize) -> Self {
        let processes = trace.processes.iter();
        let rows =
            processes.map(|process| track(&process.name, program(process), process.pid.0, 0));
        let of_thread = trace.threads.iter().map(|thread| thread.process.0);
        Self::new(
            trace,
            of_thread.collect(),
            rows.collect(),
            (max, "processes"),
        )
    }

    /// One for each name of threads in a process.
    pub(super) fn thread_names(trace: &'a Trace) -> Self {
        let mut known: FxHashMap<(&str, &str, i32), u32> = FxHashMap::default();
        let mut rows = Vec::new();
        let threads = trace.threads.iter().map(|thread| {
            let process = &trace.processes[thread.process.index()];
            let (name, process, pid) = (&*thread.name, program(process), process.pid.0);
            *known.entry((name, process, pid)).or_insert_with(|| {
                rows.push(track(name, process, pid, 0));
                rows.len() as u32 - 1
            })
        });
        let of_thread = threads.collect();
        Self::new(trace, of_thread, rows, (usize::MAX, ""))
    }

    fn new(
        trace: &'a Trace,
        of_thread: Vec<u32>,
        mut rows: Vec<Track>,
        (max, kind): (usize, &str),
    ) -> Self {
        let weights = Weights::new(trace);
        for sample in trace.samples.iter() {
            let row = &mut rows[of_thread[sample.thread.index()] as usize];
            row.add(1, weights.of(&sample), sample.time.0, sample.time.0);
        }
        let mut order: Vec<u32> = (0..rows.len() as u32).collect();
        order.retain(|&row| rows[row as usize].samples > 0);
        order.sort_by_key(|&row| Reverse(rows[row as usize].weight));
        let mut places = vec![u32::MAX; rows.len()];
        for (place, &row) in order.iter().enumerate() {
            places[row as usize] = place.min(max) as u32;
        }
        let mut sorted: Vec<Track> = Vec::with_capacity(order.len().min(max));
        let more = order.len().saturating_sub(max);
        let mut rows: Vec<Option<Track>> = rows.into_iter().map(Some).collect();
        for row in order {
            let Some(row) = rows[row as usize].take() else {
                continue;
            };
            if sorted.len() < max {
                sorted.push(row);
                continue;
            }
            if sorted.len() == max {
                let name = format!("{more} other {kind}");
                sorted.push(track(&name, "several processes", 0, 0));
            }
            if let Some(others) = sorted.last_mut() {
                others.add(row.samples, row.weight, row.first, row.last);
            }
        }
        let of_thread = of_thread.into_iter().map(|row| places[row as usize]);
        Self {
            trace,
            of_thread: of_thread.collect(),
            rows: sorted,
        }
    }

    pub(super) fn rows(&self) -> &[Track] {
        &self.rows
    }

    /// Returns the row of a thread.
    pub(super) fn row_of(&self, thread: ThreadId) -> usize {
        self.of_thread[thread.index()] as usize
    }

    /// Calls `each` with every track and its samples.
    pub(super) fn for_each(
        &self,
        mut each: impl FnMut(&Track, &TrackSamples<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut first = 0;
        while first < self.rows.len() {
            let mut end = first;
            let mut total = 0;
            while let Some(row) = self.rows.get(end)
                && (end == first || total + row.samples <= MAX_BATCH)
            {
                total += row.samples;
                end += 1;
            }
            if total > MAX_BATCH {
                each(&self.rows[first], &TrackSamples::OnePass(self, first))?;
            } else {
                let batch = self.batch(first..end, total);
                let mut at = 0;
                for row in &self.rows[first..end] {
                    let samples = &batch[at..at + row.samples];
                    each(row, &TrackSamples::Batch(samples))?;
                    at += row.samples;
                }
            }
            first = end;
        }
        Ok(())
    }

    /// Returns the samples of some rows, by row.
    fn batch(&self, rows: std::ops::Range<usize>, total: usize) -> Vec<Sample> {
        let mut batch = vec![Sample::default(); total];
        let mut end = 0;
        let mut places: Vec<usize> = Vec::with_capacity(rows.len());
        for row in &self.rows[rows.clone()] {
            places.push(end);
            end += row.samples;
        }
        for sample in self.trace.samples.iter() {
            let row = self.row_of(sample.thread);
            if rows.contains(&row) {
                let place = &mut places[row - rows.start];
                batch[*place] = sample;
                *place += 1;
            }
        }
        batch
    }
}

/// The samples of a track.
pub(super) enum TrackSamples<'a> {
    Batch(&'a [Sample]),
    /// Too many for memory.
    OnePass(&'a Tracks<'a>, usize),
}

impl TrackSamples<'_> {
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = Sample> + '_> {
        match *self {
            Self::Batch(samples) => Box::new(samples.iter().copied()),
            Self::OnePass(tracks, row) => {
                let samples = tracks.trace.samples.iter();
                Box::new(samples.filter(move |sample| tracks.row_of(sample.thread) == row))
            }
        }
    }
}

fn track(name: &str, process: &str, pid: i32, tid: i32) -> Track {
    Track {
        name: terminal(name).into_owned(),
        process: terminal(process).into_owned(),
        pid,
        tid,
        samples: 0,
        weight: 0,
        first: u64::MAX,
        last: 0,
    }
}

impl Track {
    fn add(&mut self, samples: usize, weight: u64, first: u64, last: u64) {
        self.samples += samples;
        self.weight = self.weight.saturating_add(weight);
        self.first = self.first.min(first);
        self.last = self.last.max(last);
    }
}
