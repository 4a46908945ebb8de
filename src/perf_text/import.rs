//! Converts the samples of a text to a trace.

use std::borrow::Cow;
use std::hash::Hash;
use std::io::BufRead;

use hashbrown::{HashMap, HashSet};

use super::error::OddLine;
use super::error::TextError;
use super::frame::Frame;
use super::function::{functions, text};
use super::header::Header;
use super::labels::Labels;
use super::lines::{self, Leftovers};
use super::run::Run;
use crate::output::perf_text::markers;
use crate::perf_data::{Attribute, EventGroup, EventSource, RecordingInfo};
use crate::trace::{
    Callers, CaptureInfo, Cpu, FrameId, Function, FunctionId, MAX_WEIGHT_NS, Nanos, Notice,
    NoticeKind, Pid, Process, ProcessId, Sample, StackId, Thread, ThreadId, Tid, Trace,
};

/// Weight of a sample whose event does not count time.
const NOMINAL_NS: u64 = 1_000_000;
/// Maximum number of different frames, processes or threads.
const MAX_ROWS: usize = 1 << 20;
/// Maximum number of different events, and the name of all others.
const MAX_EVENTS: usize = 4096;
const MORE_EVENTS: &str = "(more events)";
/// Maximum number of characters of a comment about the recorded machine.
const MAX_INFO_CHARS: usize = 4096;
/// Limit of the frame lines of a text that perfcollect wrote, in bytes.
const MAX_LINE_BYTES: usize = 256 << 20;
/// Maximum number of stack nodes.
const MAX_NODES: usize = 1 << 24;

/// Returns the events of a text in the order of their first sample, with the number of their
/// samples.
///
/// # Errors
/// See [`TextError`].
pub fn events(input: impl BufRead) -> Result<(RecordingInfo, Vec<u64>), TextError> {
    let mut info = RecordingInfo::default();
    let mut samples: Vec<u64> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::default();
    let mut more = 0;
    let count = |sample: &lines::Sample| {
        let Some(header) = sample.header().filter(|header| !header.is_time_zero()) else {
            return Ok(());
        };
        let name = event_name(&header);
        match known.get(&*name) {
            Some(&at) => samples[at] += 1,
            None if samples.len() < MAX_EVENTS => {
                info.events.push(Attribute::printed(&name));
                known.insert(name.into(), samples.len());
                samples.push(1);
            }
            None => more += 1,
        }
        Ok(())
    };
    lines::each(input, count, |_| {})?;
    if more > 0 {
        info.events.push(Attribute::printed(MORE_EVENTS));
        samples.push(more);
    }
    Ok((info, samples))
}

/// Returns the event of a sample, or a replacement if the text does not have it.
fn event_name<'a>(header: &Header<'a>) -> Cow<'a, str> {
    match header.event {
        [] => "samples".into(),
        event => String::from_utf8_lossy(event),
    }
}

/// Reads the samples of the events of `group`.
///
/// # Errors
/// See [`TextError`].
pub fn import(
    input: impl BufRead,
    info: &RecordingInfo,
    group: &EventGroup,
) -> Result<Trace, TextError> {
    let events = group.members.iter().map(|&at| &info.events[at]);
    let is_time = |event: &Attribute| event.source() == EventSource::Time;
    let mut import = Import {
        is_time: events.clone().all(is_time),
        has_ids: true,
        has_periods: true,
        has_times: true,
        ..Import::default()
    };
    let mut capture = CaptureInfo::default();
    let take = |sample: &lines::Sample| {
        if let Some(header) = sample.header()
            && !header.is_time_zero()
            && events
                .clone()
                .any(|event| event_name(&header) == event.name)
        {
            import.sample(&header, sample);
        }
        Ok(())
    };
    let left = lines::each(input, take, |comment| about_machine(comment, &mut capture))?;
    Ok(import.finish(&group.name, capture, &left))
}

/// A trace that was read from its own `perf.data.txt`.
pub struct WrittenTrace {
    /// The trace. Fields that the text does not have are empty: the machine, modules, losses,
    /// events.
    pub trace: Trace,
    /// The lines of each frame, innermost function first, without the last line end.
    pub lines: Vec<Box<[u8]>>,
}

/// Reads a `perf.data.txt` that perfcollect wrote, with `samples` samples, and the texts of its page
/// faults and wake-ups, if there are any, each with the number of its samples. `labels`: those of the
/// same trace.
///
/// # Errors
/// See [`TextError`].
pub fn import_written(
    input: impl BufRead,
    texts: impl IntoIterator<Item = (impl BufRead, u64)>,
    labels: Labels,
    samples: u64,
) -> Result<WrittenTrace, TextError> {
    let mut import = Import {
        is_time: true,
        labels: Some(labels),
        ..Import::default()
    };
    let take = |sample: &lines::Sample| {
        if let Some(header) = sample.header()
            && !header.is_time_zero()
        {
            if header.event == markers::SWITCH.as_bytes() {
                import.wait(&header, sample);
            } else if (import.trace.samples.len() as u64) < samples {
                import.sample(&header, sample);
            } else {
                return Err(TextError::NotWritten);
            }
        }
        Ok(())
    };
    let mut left = vec![lines::each(input, take, |_| {})?];
    let mut is_complete = import.trace.samples.len() as u64 == samples;
    for (text, samples) in texts {
        let mut count = 0;
        let take = |sample: &lines::Sample| {
            count += 1;
            let header = sample.header().filter(|_| count <= samples);
            let known = header.and_then(|header| import.other(&header, sample));
            known.ok_or(TextError::NotWritten)
        };
        left.push(lines::each(text, take, |_| {})?);
        is_complete &= count == samples;
    }
    if import.left_out > 0 {
        return Err(TextError::TooManyStacks);
    }
    if !is_complete || left.iter().any(|left| *left != Leftovers::default()) {
        return Err(TextError::NotWritten);
    }
    if let Some(labels) = &import.labels {
        for process in &mut import.trace.processes {
            if let Some(name) = labels.process(process.pid, &process.name) {
                process.name = name.into();
            }
        }
    }
    let mut lines = vec![Box::default(); import.trace.frames.len()];
    for (line, id) in import.frames {
        if let Some(id) = id {
            lines[id.index()] = line;
        }
    }
    Ok(WrittenTrace {
        trace: import.trace,
        lines,
    })
}

/// The text chooses the keys of its tables, so their hashes have a random seed.
#[derive(Default)]
struct Import {
    trace: Trace,
    /// The labels, if perfcollect wrote the text. Consecutive lines with one address are then
    /// functions inlined into the last of them.
    labels: Option<Labels>,
    is_time: bool,
    /// Whether all samples have a process id, a period and a time.
    has_ids: bool,
    has_periods: bool,
    has_times: bool,
    /// The current process of each id.
    processes: HashMap<Pid, ProcessId>,
    /// Processes by id, if the text has it, and name of the main thread.
    by_name: HashMap<(Option<Pid>, Box<[u8]>), ProcessId>,
    /// Processes that have the name of their main thread.
    named: HashSet<ProcessId>,
    /// Threads by process, id and name. An exec renames a thread; its earlier samples keep the old
    /// name.
    threads: HashMap<(ProcessId, Tid, Box<[u8]>), ThreadId>,
    functions: HashMap<Function, FunctionId>,
    /// Frames by line.
    frames: HashMap<Box<[u8]>, Option<FrameId>>,
    /// Total length of the frame lines of a text that perfcollect wrote, in bytes.
    line_bytes: usize,
    begin: Option<Nanos>,
    end: Nanos,
    idle: u64,
    /// Samples dropped because a limit was reached.
    left_out: u64,
}

impl Import {
    fn sample(&mut self, header: &Header<'_>, sample: &lines::Sample) {
        // Times that go back are replaced by the latest; without times, samples are equally spaced.
        let next = Nanos(self.end.0 + NOMINAL_NS);
        self.end = header.time.unwrap_or(next).max(self.end);
        self.begin.get_or_insert(self.end);
        let is_idle = match header.pid {
            Some(pid) => pid.0 == 0,
            None => header.tid.0 == 0,
        };
        if is_idle {
            self.idle += 1;
            return;
        }
        self.has_ids &= header.pid.is_some() || header.tid.0 < 0;
        self.has_periods &= header.period.is_some();
        self.has_times &= header.time.is_some();
        let Some(frames) = self.frames_of(header, sample) else {
            self.left_out += 1;
            return;
        };
        let thread = self.thread(header);
        let quality = &mut self.trace.quality.stacks;
        let stack = match frames.is_empty() {
            true => {
                quality.empty += 1;
                StackId::EMPTY
            }
            false => {
                quality.count(None, Callers::AsPrinted);
                self.trace.stacks.intern(frames)
            }
        };
        let weight = header.period.filter(|_| self.is_time);
        let weight = weight.unwrap_or(NOMINAL_NS).min(MAX_WEIGHT_NS);
        let cpu = header.cpu.unwrap_or_default();
        self.trace.samples.push(Sample {
            time: self.end,
            weight: Nanos(weight),
            thread,
            cpu,
            stack,
        });
    }

    /// Adds a time without a CPU, of a text that perfcollect wrote.
    fn wait(&mut self, header: &Header<'_>, sample: &lines::Sample) {
        if let Some(wait) = self.other_sample(header, sample) {
            self.trace.blocked.push(Sample {
                time: Nanos(wait.time.0.saturating_add(wait.weight.0)),
                cpu: Cpu::default(),
                ..wait
            });
        }
    }

    /// Adds a sample of page faults or wake-ups, of a text that perfcollect wrote. Returns `None` if it is of
    /// another event.
    fn other(&mut self, header: &Header<'_>, sample: &lines::Sample) -> Option<()> {
        let is_of = |event: &str| header.event == event.as_bytes();
        let is_fault = is_of(markers::FAULTS);
        if !is_fault && !is_of(markers::WAKEUPS) {
            return None;
        }
        if let Some(sample) = self.other_sample(header, sample) {
            match is_fault {
                true => self.trace.faults.push(sample),
                false => self.trace.wakeups.push(sample),
            }
        }
        Some(())
    }

    /// Returns a record that is no CPU sample, with its period as the weight, unless there are too many.
    fn other_sample(&mut self, header: &Header<'_>, sample: &lines::Sample) -> Option<Sample> {
        let Some(frames) = self.frames_of(header, sample) else {
            self.left_out += 1;
            return None;
        };
        Some(Sample {
            time: header.time.unwrap_or_default(),
            weight: Nanos(header.period.unwrap_or_default().min(MAX_WEIGHT_NS)),
            thread: self.thread(header),
            cpu: header.cpu.unwrap_or_default(),
            stack: match frames.is_empty() {
                true => StackId::EMPTY,
                false => self.trace.stacks.intern(frames),
            },
        })
    }

    /// Returns the frames of a record, the root first, or `None` if there are too many.
    fn frames_of(&mut self, header: &Header<'_>, sample: &lines::Sample) -> Option<Vec<FrameId>> {
        let own = Some(header.rest)
            .filter(|rest| Frame::parse(rest).is_some() && sample.frames().next().is_none());
        let lines = own.into_iter().chain(sample.frames());
        let lines: Vec<&[u8]> = lines
            .filter(|line| line.trim_ascii() != markers::NO_STACK.as_bytes())
            .collect();
        let is_full = self.frames.len() + lines.len() > MAX_ROWS
            || self.line_bytes > MAX_LINE_BYTES
            || self.threads.len() >= MAX_ROWS
            || self.trace.stacks.len() >= MAX_NODES;
        if is_full {
            return None;
        }
        let mut frames = Vec::with_capacity(lines.len());
        match self.labels.is_some() {
            true => {
                let mut rest = &lines[..];
                while let Some(run) = Run::first(rest, self.labels.as_ref()) {
                    for unit in run.units() {
                        frames.extend(self.inlined_frame(unit));
                    }
                    rest = &rest[run.lines.len()..];
                }
                frames.reverse();
            }
            false => frames.extend(lines.iter().rev().filter_map(|line| self.frame(line))),
        }
        Some(frames)
    }

    fn thread(&mut self, header: &Header<'_>) -> ThreadId {
        let (process, tid) = match (header.pid, header.tid) {
            (Some(Pid(..0)) | None, Tid(..0)) => {
                let nobody = Tid(Pid::UNKNOWN.0);
                (self.process(Pid::UNKNOWN, true, header.comm), nobody)
            }
            (None, tid) => (self.process_of_name(tid, header.comm), tid),
            (Some(pid), tid) => {
                // In a text that perfcollect wrote, each line has the name of the process.
                let is_main = pid.0 == tid.0 || self.labels.is_some();
                let pid = if pid.0 < 0 { Pid::UNKNOWN } else { pid };
                let process = self.process(pid, is_main, header.comm);
                (process, Tid(tid.0.max(0)))
            }
        };
        let threads = &mut self.trace.threads;
        let thread = self.threads.entry((process, tid, header.comm.into()));
        *thread.or_insert_with(|| {
            threads.push(Thread {
                process,
                tid,
                name: text(header.comm),
            });
            ThreadId(threads.len() as u32 - 1)
        })
    }

    /// Returns the process of a text that shows threads only. Threads of one name are one process,
    /// as in folded stacks.
    fn process_of_name(&mut self, tid: Tid, comm: &[u8]) -> ProcessId {
        let name = (None, comm.into());
        if let Some(&id) = self.by_name.get(&name) {
            return id;
        }
        let id = self.push_process(Pid(tid.0), comm);
        self.by_name.insert(name, id);
        id
    }

    fn push_process(&mut self, pid: Pid, comm: &[u8]) -> ProcessId {
        let processes = &mut self.trace.processes;
        processes.push(Process {
            pid,
            name: text(comm),
            command_line: Box::default(),
            ended: None,
        });
        ProcessId(processes.len() as u32 - 1)
    }

    /// Returns the current process of an id. It has the name of its main thread; a new name starts
    /// a new process.
    fn process(&mut self, pid: Pid, is_main: bool, comm: &[u8]) -> ProcessId {
        let processes = &mut self.trace.processes;
        let known = self.processes.get(&pid).copied();
        if let Some(id) = known {
            let process = &mut processes[id.index()];
            if !is_main || *process.name == *String::from_utf8_lossy(comm) {
                return id;
            }
            if self.named.insert(id) {
                process.name = text(comm);
                self.by_name.insert((Some(pid), comm.into()), id);
                return id;
            }
        }
        // It may have had this name earlier.
        let name = (Some(pid), comm.into());
        let id = match self.by_name.get(&name).filter(|_| is_main) {
            Some(&id) => id,
            None => self.push_process(pid, comm),
        };
        self.processes.insert(pid, id);
        if is_main {
            self.named.insert(id);
            self.by_name.insert(name, id);
        }
        id
    }

    /// Returns the frame of a line, or `None` if it is not a frame.
    fn frame(&mut self, line: &[u8]) -> Option<FrameId> {
        if let Some(known) = self.frames.get(line) {
            return *known;
        }
        let frame = Frame::indented(line).map(|frame| {
            let functions = functions(&frame);
            self.push(functions, frame.address)
        });
        self.frames.insert(line.into(), frame);
        frame
    }

    /// Returns the frame of the functions at one address, from the innermost to the outermost.
    fn inlined_frame(&mut self, lines: &[&[u8]]) -> Option<FrameId> {
        let key = match lines {
            [line] => Cow::Borrowed(*line),
            lines => Cow::Owned(lines.join(&b'\n')),
        };
        if let Some(known) = self.frames.get(&*key) {
            return *known;
        }
        let mut all = Vec::with_capacity(lines.len());
        let mut address = 0;
        for line in lines.iter().rev() {
            let Some(frame) = Frame::indented(line) else {
                continue;
            };
            address = frame.address;
            for mut function in functions(&frame) {
                if let Some(labels) = &self.labels {
                    labels.restore(&mut function, address);
                }
                function.inlined = !all.is_empty();
                all.push(function);
            }
        }
        let frame = (!all.is_empty()).then(|| self.push(all, address));
        self.line_bytes += key.len();
        self.frames.insert(key.into(), frame);
        frame
    }

    fn push(&mut self, functions: Vec<Function>, offset: u64) -> FrameId {
        let trace = &mut self.trace;
        let start = trace.frame_functions.len() as u32;
        for function in functions {
            let id = intern(&mut self.functions, &mut trace.functions, function);
            trace.frame_functions.push(id);
        }
        trace.frames.push(crate::trace::Frame {
            offset,
            functions: start..trace.frame_functions.len() as u32,
        });
        FrameId(trace.frames.len() as u32 - 1)
    }

    /// Returns one notice per field that the text does not have.
    fn missing_fields(&self) -> Vec<Notice> {
        let stacks = &self.trace.quality.stacks;
        let without = |is_missing: bool, what: &str, fields: &str| {
            let remedy = format!("print them: `perf script -F {fields}`");
            is_missing.then(|| Notice::new(NoticeKind::TextIncomplete, what, remedy))
        };
        let lines = [
            without(
                stacks.empty > 0 && stacks.as_recorded == 0,
                "no sample of the text shows an address, so there is nothing but processes and times",
                "+ip,+sym,+dso",
            ),
            without(
                !self.has_ids,
                "the text shows no process ids: threads of one name are shown as one process",
                "+pid",
            ),
            without(
                !self.has_times,
                "the text shows no times: samples follow each other at 1 ms",
                "+time",
            ),
            without(
                self.is_time && !self.has_periods,
                "the text does not show how much time samples stand for: each counts as 1 ms",
                "+period",
            ),
        ];
        lines.into_iter().flatten().collect()
    }

    fn finish(mut self, event: &str, info: CaptureInfo, left: &Leftovers) -> Trace {
        let missing = self.missing_fields();
        let notices = &mut self.trace.quality.notices;
        notices.extend(missing);
        let mut add = |kind, count: u64, what: String| {
            notices.push(Notice::new(kind, what, "").counting(count));
        };
        if let Some(OddLine { number, text }) = &left.first_odd_frame {
            add(
                NoticeKind::TextIncomplete,
                left.odd_frames,
                format!(
                    "lines among the frames of samples that are no frames were left out: {}, the first is line {number}: {text}",
                    left.odd_frames
                ),
            );
        }
        if let Some(OddLine { number, text }) = &left.ends_within {
            add(
                NoticeKind::TextIncomplete,
                1,
                format!("the text ends within its line {number}: {text}"),
            );
        }
        if left.messages > 0 {
            add(
                NoticeKind::TextIncomplete,
                left.messages,
                format!(
                    "lines of the text that are messages of perf, or records that are no samples: {}",
                    left.messages
                ),
            );
        }
        if self.idle > 0 {
            add(
                NoticeKind::IdleOmitted,
                self.idle,
                format!("{} samples of idle CPUs were left out", self.idle),
            );
        }
        if self.left_out > 0 {
            add(
                NoticeKind::TextIncomplete,
                self.left_out,
                format!(
                    "{} samples were left out: there are too many different stacks",
                    self.left_out
                ),
            );
        }
        self.trace.info = CaptureInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            event: event.into(),
            period_ns: NOMINAL_NS,
            start_ns: self.begin.unwrap_or_default().0,
            end_ns: self.end.0,
            callers: Callers::AsPrinted,
            counts_time: (!self.has_periods).then_some(false),
            ..info
        };
        self.trace.count_names();
        self.trace
    }
}

/// Reads a comment about the recorded machine (`perf script --header`).
fn about_machine(comment: &[u8], info: &mut CaptureInfo) {
    let comment = String::from_utf8_lossy(comment);
    let Some((key, value)) = comment.trim_start_matches('#').split_once(':') else {
        return;
    };
    let value = value.trim();
    let kept = || value.chars().take(MAX_INFO_CHARS).collect();
    match key.trim() {
        "hostname" => info.host = kept(),
        "os release" => info.kernel = kept(),
        "arch" => info.arch = kept(),
        "nrcpus online" => info.cpus = value.parse().unwrap_or(0),
        "cmdline" => info.target = kept(),
        _ => {}
    }
}

fn intern<K: Clone + Eq + Hash>(
    known: &mut HashMap<K, FunctionId>,
    rows: &mut Vec<K>,
    key: K,
) -> FunctionId {
    *known.entry(key).or_insert_with_key(|key| {
        rows.push(key.clone());
        FunctionId(rows.len() as u32 - 1)
    })
}
