//! A part of a trace: some of its time, processes, threads and stacks, with frames in groups.
//!
//! The patterns mean what they mean in PerfView (`src/TraceEvent/Stacks/FilterStacks.cs`): each frame
//! gets the name of its group, if it has one; then samples are left out and frames are folded by
//! these names.

mod frames;
mod group;
mod pattern;
mod roots;
mod rows;
mod stacks;
mod times;

use std::ops::Range;

use rustc_hash::FxHashSet;

pub use group::GroupPatterns;
pub use pattern::{PatternError, Patterns};
pub use times::Times;

use crate::output::own_code::OwnCode;
use crate::output::summary::is_program;
use crate::trace::{CaptureInfo, CpuPressure, Nanos, Sample, Samples, StackQuality, Trace};
use roots::Roots;
use rows::Rows;
use stacks::{SelectedStack, SelectedStacks};

/// The group of code that is not the user's.
const OTHER: &str = "OTHER";

/// Patterns for the frames of a stack.
#[derive(Clone, Debug, Default)]
pub struct CodePatterns {
    /// Groups of frames.
    pub group: GroupPatterns,
    /// Frames that become a part of their callers.
    pub fold: Patterns,
    /// A sample counts only if each of these patterns matches one of its frames.
    pub include: Patterns,
    /// A sample does not count if one of these patterns matches one of its frames.
    pub exclude: Patterns,
    /// Whether all code but the user's is one group, `OTHER`, by its entries.
    pub just_my_code: bool,
}

impl CodePatterns {
    fn is_empty(&self) -> bool {
        let Self {
            group,
            fold,
            include,
            exclude,
            just_my_code,
        } = self;
        let lists = [fold, include, exclude];
        !just_my_code && group.is_empty() && lists.iter().all(|list| list.is_empty())
    }
}

/// Which part of a trace counts.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Its part of the time.
    pub times: Times,
    /// Process id, name or program.
    pub process: Option<String>,
    /// Thread id or name, with or without the number at its end.
    pub thread: Option<String>,
    /// Patterns for frames.
    pub patterns: CodePatterns,
}

impl Selection {
    /// Returns whether all of a trace counts, unchanged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.process.is_none() && !self.selects_samples_only()
    }

    /// Returns the options of the command line that select the same, each with its value if it has one.
    #[must_use]
    pub(crate) fn options(&self) -> Vec<Vec<String>> {
        let Self {
            times,
            process,
            thread,
            patterns,
        } = self;
        let seconds = |seconds: Option<f64>| seconds.map(|seconds| seconds.to_string());
        let text = |patterns: &Patterns| (!patterns.is_empty()).then(|| patterns.text().to_owned());
        let group = &patterns.group;
        let group = (!group.is_empty()).then(|| group.text().to_owned());
        let values = [
            ("-from", seconds(times.from)),
            ("-to", seconds(times.to)),
            ("-process", process.clone()),
            ("-thread", thread.clone()),
            ("-include", text(&patterns.include)),
            ("-exclude", text(&patterns.exclude)),
            ("-fold", text(&patterns.fold)),
            ("-group", group),
        ];
        let given = values.into_iter();
        let given = given.filter_map(|(name, value)| Some(vec![name.to_owned(), value?]));
        let own_code = patterns.just_my_code;
        let own_code = own_code.then(|| vec!["-justmycode".to_owned()]);
        given.chain(own_code).collect()
    }

    /// Returns whether it selects a part of what a process does at a time.
    #[must_use]
    pub fn selects_code(&self) -> bool {
        self.thread.is_some() || !self.patterns.is_empty()
    }

    /// Returns whether it selects by more than the process, which events do not have or have otherwise.
    #[must_use]
    pub fn selects_samples_only(&self) -> bool {
        !self.times.is_all() || self.selects_code()
    }

    /// Returns whether it selects a process.
    #[must_use]
    pub fn selects_process(&self, pid: i32, name: &str, command_line: &str) -> bool {
        self.process
            .as_ref()
            .is_none_or(|selector| match selector.parse::<i32>() {
                Ok(id) => pid == id,
                Err(_) => is_program(name, command_line, selector),
            })
    }

    /// Drops what does not count from a trace. `paths` are those of its ELF files.
    pub fn apply<'a>(&self, trace: &mut Trace, paths: impl Iterator<Item = &'a str>) {
        let own_code = self.patterns.just_my_code;
        let own_code = own_code.then(|| OwnCode::new(trace, paths));
        let mut rows = Rows::new(self, trace);
        let all = self.patterns.include.all();
        let times = self.times.range(trace.info.start_ns);
        let patterns = (!self.patterns.is_empty()).then_some(&self.patterns);
        let stacks = patterns.map(|patterns| SelectedStacks::new(trace, patterns, own_code));
        let roots = Roots::new(trace);
        let mut quality = StackQuality::default();
        let mut select = |sample: Sample| {
            let included = rows.included(sample.thread)?;
            let stack = match &stacks {
                Some(stacks) => stacks.of(sample.stack)?,
                None => SelectedStack::unchanged(sample.stack),
            };
            ((stack.included | included) == all).then(|| Sample {
                thread: rows.select(sample.thread),
                stack: stack.stack,
                ..sample
            })
        };
        let in_time = trace
            .samples
            .iter()
            .filter(|sample| times.contains(&sample.time));
        let samples = in_time.filter_map(|sample| {
            let selected = select(sample)?;
            roots.count(sample.stack, &mut quality);
            Some(selected)
        });
        let samples: Samples = samples.collect();
        let others = [&trace.faults, &trace.wakeups].map(|samples| {
            let in_time = samples.iter().filter(|sample| times.contains(&sample.time));
            in_time.filter_map(&mut select).collect::<Samples>()
        });
        let within = trace.blocked.iter().filter_map(|wait| within(wait, &times));
        let blocked: Samples = within.filter_map(select).collect();
        let rows = rows.finish();
        if let Some(stacks) = stacks {
            stacks.apply(trace);
        }
        trace.samples = samples;
        trace.blocked = blocked;
        [trace.faults, trace.wakeups] = others;
        rows.apply(trace);
        // Which of them have doubtful callers is unknown.
        trace.quality.stacks = quality;
        trace.count_names();
        let pids: FxHashSet<i32> = trace.processes.iter().map(|row| row.pid.0).collect();
        if let Some(pressure) = &mut trace.info.cpu_pressure {
            keep_waits(pressure, &pids);
        }
        if let Some(counters) = &mut trace.info.counters {
            counters.keep(|pid| pids.contains(&pid));
        }
        // One that has requests or connections may have no samples. A worker of the kernel has its kind before a slash.
        let is_named = |pid, name: &str| {
            let kind = name.split_once('/').map_or(name, |(kind, _)| kind);
            let mut names = [name, kind].into_iter();
            self.process.is_some() && names.any(|name| self.selects_process(pid, name, ""))
        };
        let is_kept = |pid, name: &str| pids.contains(&pid) || is_named(pid, name);
        if let Some(block_io) = &mut trace.info.block_io {
            block_io.keep(is_kept);
        }
        if let Some(connections) = &mut trace.info.connections {
            connections.keep(is_kept);
        }
        self.describe(&mut trace.info, &times);
    }

    /// Makes `info` that of the selection.
    fn describe(&self, info: &mut CaptureInfo, times: &Range<Nanos>) {
        let mut parts = vec![std::mem::take(&mut info.target)];
        if !self.times.is_all() {
            // A file may say that it ends before it starts.
            let last = info.end_ns.max(info.start_ns);
            let start = times.start.0.clamp(info.start_ns, last);
            let end = times.end.0.clamp(start, last);
            let second = |ns: u64| (ns - info.start_ns) as f64 / 1e9;
            parts.push(format!("{:.3} s to {:.3} s", second(start), second(end)));
            info.start_unix_ns = info.start_unix_ns.saturating_add(start - info.start_ns);
            (info.start_ns, info.end_ns) = (start, end);
            // They are of the whole capture.
            info.cpu_pressure = None;
            info.counters = None;
            info.block_io = None;
            info.connections = None;
        }
        let process = self.process.iter().map(|name| format!("process {name}"));
        let thread = self.thread.iter().map(|name| format!("thread {name}"));
        parts.extend(process.chain(thread));
        if !self.patterns.is_empty() {
            parts.push("selected stacks".to_owned());
        }
        info.target = parts.join(", ");
    }
}

/// Returns the part of a time without a CPU that is within a range.
fn within(wait: Sample, range: &Range<Nanos>) -> Option<Sample> {
    let start = wait.time.0.saturating_sub(wait.weight.0).max(range.start.0);
    let end = wait.time.0.min(range.end.0);
    (start < end).then(|| Sample {
        time: Nanos(end),
        weight: Nanos(end - start),
        ..wait
    })
}

/// Keeps the waits of these processes only. The others are of the machine, or of all targets.
fn keep_waits(pressure: &mut CpuPressure, pids: &FxHashSet<i32>) {
    let processes = std::mem::take(&mut pressure.processes).into_iter();
    *pressure = CpuPressure {
        processes: processes.filter(|row| pids.contains(&row.pid)).collect(),
        threads_omitted: pressure.threads_omitted,
        ..CpuPressure::default()
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_times_are_accepted() {
        for (start_ns, end_ns) in [(0, 0), (5, 3), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
            for (from, to) in [(None, Some(0.0)), (Some(1e9), Some(0.0)), (Some(0.5), None)] {
                let mut trace = Trace::default();
                trace.info.start_ns = start_ns;
                trace.info.end_ns = end_ns;
                trace.info.start_unix_ns = u64::MAX;
                let part = Selection {
                    times: Times { from, to },
                    ..Selection::default()
                };
                part.apply(&mut trace, std::iter::empty());
                assert!(trace.info.start_ns <= trace.info.end_ns);
            }
        }
    }
}
