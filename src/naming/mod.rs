//! From code addresses to functions: each unique address once, at the end, offline.

mod debug_files;
pub(crate) mod elf;
pub(crate) mod gap;
mod inlines;
mod jit;
mod kernel;
mod modules;
mod ready_to_run;
mod stop;
mod written;

pub(crate) use inlines::with_inlined;
pub(crate) use jit::function as function_of_jit;
pub use modules::without_symbols;
pub use stop::Stop;

use std::hash::BuildHasher;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};

use gap::Gap;

use perfcollect_symbols::in_turn;
use perfcollect_symbols::perf_map::PerfMap;

use crate::capture::Capture;
use crate::machine::Machine;
use crate::trace::{
    CodeAddress, Frame, FrameId, Function, FunctionId, FunctionKind, ModuleId, Names, Notice, Pid,
    ProcessId, Quality, StackId, Trace, Truncation,
};

/// How to name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether functions that were inlined are told, where debug information tells of them.
    pub inlined: bool,
    /// Directories of ours in which debug files are looked for before the usual places; absolute.
    pub symbol_directories: Vec<PathBuf>,
}

/// What naming one group of addresses gave: for each its function, and what the user should know.
#[derive(Default)]
struct Named {
    functions: Functions,
    of_codes: Vec<FunctionId>,
    /// The functions inlined there, outermost first, of the addresses that have such, in their order.
    inlined: Vec<(usize, Vec<FunctionId>)>,
    notices: Vec<Notice>,
    gaps: Vec<Gap>,
}

impl Named {
    /// Takes the function of each address.
    fn of(functions: impl Iterator<Item = Function>) -> Self {
        let mut rows = Functions::default();
        Self {
            of_codes: functions.map(|function| rows.intern(function)).collect(),
            functions: rows,
            ..Self::default()
        }
    }
}

/// Addresses that are named from one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Source {
    Kernel,
    Module(ModuleId),
    Jit(ProcessId),
    Nothing,
}

impl Source {
    fn of(code: CodeAddress) -> Self {
        match code {
            CodeAddress::Kernel(_) => Self::Kernel,
            CodeAddress::Elf(id, _) | CodeAddress::File(id, _) => Self::Module(id),
            CodeAddress::Jit(id, _) => Self::Jit(id),
            CodeAddress::Unmapped(..) | CodeAddress::Cut(_) => Self::Nothing,
        }
    }

    fn name(
        self,
        frames: &[FrameId],
        codes: &[CodeAddress],
        capture: &Capture,
        options: &Options,
        stop: Stop<'_>,
    ) -> Named {
        let machine = &capture.machine;
        match self {
            Self::Kernel => kernel::name(frames, codes, capture, stop),
            Self::Module(id) => {
                let file = machine.files().file(id);
                in_turn(|| elf::name(codes, file, options, stop))
            }
            Self::Jit(id) => {
                let process = &machine.process_rows()[id.index()];
                let methods = &capture.recording.methods;
                let until = capture.recording.end;
                jit::name(frames, codes, methods, process, until, stop)
            }
            Self::Nothing => Named::of(codes.iter().copied().map(nameless)),
        }
    }
}

/// The address in its module's terms.
fn offset(code: CodeAddress) -> u64 {
    match code {
        CodeAddress::Kernel(address)
        | CodeAddress::Elf(_, address)
        | CodeAddress::File(_, address)
        | CodeAddress::Jit(_, address)
        | CodeAddress::Unmapped(_, address) => address,
        CodeAddress::Cut(_) => 0,
    }
}

/// It was time to give up before everything had its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// Names everything a capture holds, unless `stop` says to give up.
pub fn name(capture: Capture, options: &Options, stop: Stop<'_>) -> Result<Trace, Stopped> {
    let recording = &capture.recording;
    let mut groups: FxHashMap<Source, Vec<usize>> = FxHashMap::default();
    for (row, &code) in recording.frames.iter().enumerate() {
        groups.entry(Source::of(code)).or_default().push(row);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(source, _)| *source);

    let named = name_groups(&groups, &capture, options, stop);
    if stop() {
        return Err(Stopped);
    }
    let Capture {
        recording,
        machine,
        info,
        mut notices,
        events,
        ..
    } = capture;
    notices.extend(events.notices());
    let mut functions = Functions::default();
    let mut of_row = vec![FunctionId(0); recording.frames.len()];
    let mut inlined_in: FxHashMap<usize, Vec<FunctionId>> = FxHashMap::default();
    let mut gaps = Vec::new();
    for ((_, rows), named) in groups.iter().zip(named) {
        let ids = named.functions.rows.into_iter();
        let ids: Vec<_> = ids.map(|function| functions.intern(function)).collect();
        let of_all = |id: FunctionId| ids[id.index()];
        for (&row, id) in rows.iter().zip(named.of_codes) {
            of_row[row] = of_all(id);
        }
        for (index, inlined) in named.inlined {
            inlined_in.insert(rows[index], inlined.into_iter().map(of_all).collect());
        }
        notices.extend(named.notices);
        gaps.extend(named.gaps);
    }
    notices.extend(gap::notices(gaps));

    let mut frame_functions = Vec::with_capacity(of_row.len());
    let mut frames = Vec::with_capacity(of_row.len());
    for (row, &code) in recording.frames.iter().enumerate() {
        let start = frame_functions.len() as u32;
        frame_functions.push(of_row[row]);
        frame_functions.extend(inlined_in.remove(&row).unwrap_or_default());
        frames.push(Frame {
            offset: offset(code),
            functions: start..frame_functions.len() as u32,
        });
    }
    let mut trace = Trace {
        info,
        processes: recording.processes,
        threads: recording.threads,
        functions: functions.rows,
        frames,
        frame_functions,
        stacks: recording.stacks,
        samples: recording.samples,
        modules: Vec::new(),
        quality: Quality {
            stacks: recording.quality,
            losses: recording.losses,
            events: events.qualities(),
            notices,
            ..Default::default()
        },
        events,
    };
    let samples = count(&mut trace);
    trace.modules = modules::rows(
        &count_modules(&trace, &recording.frames, &samples),
        machine.files(),
        options,
    );
    Ok(trace)
}

/// Counts the named frames of a trace. Returns how many samples each frame is in.
pub(crate) fn count(trace: &mut Trace) -> Vec<u64> {
    let samples = samples_of_frames(trace);
    trace.quality.names = count_names(trace, &samples);
    samples
}

/// What stands for the callers that a cut stack lacks.
pub(crate) fn cut(why: Truncation) -> Function {
    nameless(CodeAddress::Cut(why))
}

/// Names all groups, on all CPUs; fewer, if it is told to stop.
fn name_groups(
    groups: &[(Source, Vec<usize>)],
    capture: &Capture,
    options: &Options,
    stop: Stop<'_>,
) -> Vec<Named> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((source, rows)) = groups.get(index).filter(|_| !stop()) else {
                return done;
            };
            let frames: Vec<_> = rows.iter().map(|&row| FrameId(row as u32)).collect();
            let codes: Vec<_> = rows
                .iter()
                .map(|&row| capture.recording.frames[row])
                .collect();
            done.push((index, source.name(&frames, &codes, capture, options, stop)));
        }
    };
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(groups.len());
    let mut named: Vec<(usize, Named)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
        let mut named = work();
        for handle in handles {
            match handle.join() {
                Ok(more) => named.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        named
    });
    named.sort_by_key(|(index, _)| *index);
    named.into_iter().map(|(_, named)| named).collect()
}

/// Equal functions are one row.
#[derive(Default)]
struct Functions {
    rows: Vec<Function>,
    known: HashTable<u32>,
}

impl Functions {
    fn intern(&mut self, function: Function) -> FunctionId {
        let Self { rows, known } = self;
        let hash = |function: &Function| FxBuildHasher.hash_one(function);
        let is_it = |&row: &u32| rows[row as usize] == function;
        if let Some(&row) = known.find(hash(&function), is_it) {
            return FunctionId(row);
        }
        let row = rows.len() as u32;
        let hashed = hash(&function);
        rows.push(function);
        known.insert_unique(hashed, row, |&row| hash(&rows[row as usize]));
        FunctionId(row)
    }
}

/// What is shown where no name can be: the address with what it lies in.
fn nameless(code: CodeAddress) -> Function {
    let (module, kind, name) = match code {
        CodeAddress::Kernel(_) => (kernel::PROPER, FunctionKind::Kernel, None),
        CodeAddress::Elf(..) | CodeAddress::File(..) => ("", FunctionKind::Native, None),
        CodeAddress::Jit(..) => (jit::MODULE, FunctionKind::Jit, None),
        CodeAddress::Unmapped(..) => ("unmapped", FunctionKind::Unmapped, None),
        CodeAddress::Cut(why) => ("perfcollect", FunctionKind::Marker, Some(cut_name(why))),
    };
    Function {
        name: name.map(Into::into),
        start: None,
        module: module.into(),
        tier: None,
        kind,
        inlined: false,
    }
}

fn cut_name(why: Truncation) -> &'static str {
    match why {
        Truncation::StackCopyEnded => "[truncated: stack copy ended]",
        Truncation::TooDeep => "[truncated: too deep]",
        Truncation::LostTrack => "[truncated: lost track]",
        Truncation::NoRegisters => "[truncated: no registers]",
    }
}

/// What a process of a recording has written of the code it made; nothing, if it has not or it cannot be found.
pub(crate) fn perf_map(machine: &Machine, pid: Pid) -> PerfMap {
    let host = machine
        .files()
        .recorded()
        .and_then(|recorded| recorded.jit_host(pid, None).ok());
    host.and_then(|host| written::whole_map(&host))
        .unwrap_or_default()
}

/// Whether a name tells nothing: its function is known by where it starts.
fn is_blank(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_whitespace)
}

fn lossy(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(bytes).into()
}

/// How many samples each frame is in, counted as often as it is in their stacks: sums go from the leaves to the roots,
/// children before parents.
fn samples_of_frames(trace: &Trace) -> Vec<u64> {
    let mut samples = vec![0_u64; trace.stacks.len()];
    for sample in trace.samples.iter().filter(|s| s.stack != StackId::EMPTY) {
        samples[sample.stack.index()] += 1;
    }
    let mut of_frames = vec![0; trace.frames.len()];
    for (stack, caller, frame) in trace.stacks.nodes().rev() {
        let count = samples[stack.index()];
        if caller != StackId::EMPTY {
            samples[caller.index()] += count;
        }
        of_frames[frame.index()] += count;
    }
    of_frames
}

fn count_names(trace: &Trace, samples_of_frames: &[u64]) -> Names {
    let mut names = Names::default();
    for (row, &count) in samples_of_frames.iter().enumerate() {
        for function in trace.functions_leaf_first(FrameId(row as u32)) {
            let function = &trace.functions[function.index()];
            if let Some(of_kind) = names.of_kind(function.kind) {
                of_kind.count(function.name.is_some(), count);
            }
        }
    }
    names
}

fn count_modules(
    trace: &Trace,
    codes: &[CodeAddress],
    samples_of_frames: &[u64],
) -> modules::Counts {
    let mut counts = modules::Counts::new();
    for (row, (&code, &count)) in codes.iter().zip(samples_of_frames).enumerate() {
        let outermost = trace.functions_leaf_first(FrameId(row as u32)).last();
        if let (Some(id), Some(function)) = (modules::of(code), outermost) {
            let is_named = trace.functions[function.index()].name.is_some();
            counts.entry(id).or_default().count(is_named, count);
        }
    }
    counts
}
