//! Symbolizes code addresses at the end of a capture, each unique address once.

mod cancel;
mod counts;
pub(crate) mod elf;
mod functions;
mod identity;
mod jit;
mod jit_symbol_files;
mod kernel;
mod modules;
pub(crate) mod problems;
mod scripts;
mod time_budget;
pub(crate) mod unresolved;
mod wakers;

pub use cancel::CancelCheck;
pub(crate) use cancel::{CancellableReader, CancellableWriter};
pub(crate) use functions::unsymbolized;
pub(crate) use jit::{function as function_of_jit, function_of_method};
pub(crate) use jit_symbol_files::{JitSymbolError, read_all};
pub use modules::without_symbols;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashMap;

use functions::{Functions, SymbolizedGroup, is_blank, lossy};

use time_budget::TimeBudget;

use perfcollect_symbols::Aliases;
use perfcollect_symbols::symbolizer::Symbolizer;

use crate::capture::Capture;
use crate::trace::{
    CodeAddress, DoubtfulCode, Frame, FrameId, FunctionId, ModuleId, ProcessId, Quality, Trace,
};

/// Options of symbolization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to resolve inlined functions, if debug information has them.
    pub inlined: bool,
    /// Directories of the host in which debug files are searched for first; absolute.
    pub symbol_directories: Vec<PathBuf>,
    /// User who invoked perfcollect through `sudo`, whose files are read for as long as it takes.
    pub invoking_user: Option<u32>,
}

/// Maximum number of groups whose functions are in memory before they are merged.
///
/// Each process with JIT code is a group, and processes of one program have the same functions.
const GROUPS_AT_ONCE: usize = 256;

/// A source and the rows of its addresses.
type Group = (Source, Vec<usize>);

/// Addresses with one symbol source.
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
            CodeAddress::Unmapped(..)
            | CodeAddress::Truncated(_)
            | CodeAddress::Blocked(_)
            | CodeAddress::Waker(_) => Self::Nothing,
        }
    }

    fn name(
        self,
        frames: &[FrameId],
        codes: &[CodeAddress],
        capture: &Capture,
        tools: &Tools<'_>,
        cancel: CancelCheck<'_>,
    ) -> SymbolizedGroup {
        let machine = &capture.machine;
        let budget = &tools.budget;
        match self {
            Self::Kernel => kernel::name(frames, codes, capture, cancel),
            Self::Module(id) => {
                let file = machine.files().file(id);
                let reading = budget.read_file(file);
                let is_over = || cancel() || reading.is_over();
                let mut group = elf::name(codes, file, &tools.symbolizer, tools.options, &is_over);
                let overrun = reading.overrun();
                group
                    .gaps
                    .extend(overrun.map(|why| problems::overrun(file, why)));
                group
            }
            Self::Jit(id) => {
                let raw_trace = &capture.raw_trace;
                let (methods, until) = (&raw_trace.methods, raw_trace.end);
                let pid = raw_trace.processes[id.index()].pid;
                let host = machine.jit_processes().get(&id);
                let process = (id, pid, host);
                let reading = budget.read_of_process(host.and_then(|host| host.as_ref().ok()));
                jit::name(frames, codes, methods, process, until, (&reading, cancel))
            }
            Self::Nothing => SymbolizedGroup::of(codes.iter().copied().map(unsymbolized)),
        }
    }
}

/// What all groups are symbolized with.
struct Tools<'a> {
    symbolizer: Symbolizer,
    options: &'a Options,
    budget: TimeBudget,
}

/// Returns the address relative to its module.
fn offset(code: CodeAddress) -> u64 {
    match code {
        CodeAddress::Kernel(address)
        | CodeAddress::Elf(_, address)
        | CodeAddress::File(_, address)
        | CodeAddress::Jit(_, address)
        | CodeAddress::Unmapped(_, address) => address,
        CodeAddress::Truncated(_) | CodeAddress::Blocked(_) | CodeAddress::Waker(_) => 0,
    }
}

/// Symbolization was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// Symbolizes all addresses of a capture, until `cancel` returns true.
pub fn symbolize(
    capture: Capture,
    options: &Options,
    cancel: CancelCheck<'_>,
) -> Result<Trace, Cancelled> {
    let raw_trace = &capture.raw_trace;
    let mut groups: FxHashMap<Source, Vec<usize>> = FxHashMap::default();
    for (row, &code) in raw_trace.frames.iter().enumerate() {
        groups.entry(Source::of(code)).or_default().push(row);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(source, _)| *source);

    let mut found = Vec::new();
    let mut functions = Functions::default();
    let mut of_row = vec![FunctionId(0); raw_trace.frames.len()];
    let mut inlined_in: FxHashMap<usize, Vec<FunctionId>> = FxHashMap::default();
    let mut gaps = Vec::new();
    let mut identities = modules::Identities::new();
    for_each_group(
        &groups,
        &capture,
        options,
        cancel,
        |(source, rows), named| {
            let ids = named.functions.into_rows().into_iter();
            let ids: Vec<_> = ids.map(|function| functions.intern(function)).collect();
            let of_all = |id: FunctionId| ids[id.index()];
            for (&row, id) in rows.iter().zip(named.of_codes) {
                of_row[row] = of_all(id);
            }
            for (index, inlined) in named.inlined {
                inlined_in.insert(rows[index], inlined.into_iter().map(of_all).collect());
            }
            found.extend(named.notices);
            gaps.extend(named.gaps);
            if let (Source::Module(id), Some(identity)) = (source, named.identity) {
                identities.insert(*id, identity);
            }
        },
    );
    if cancel() {
        return Err(Cancelled);
    }
    let Capture {
        raw_trace,
        machine,
        info,
        mut notices,
        events,
        ..
    } = capture;
    notices.extend(events.notices());
    notices.extend(found);

    let mut frame_functions = Vec::with_capacity(of_row.len());
    let mut frames = Vec::with_capacity(of_row.len());
    for (row, &code) in raw_trace.frames.iter().enumerate() {
        let start = frame_functions.len() as u32;
        frame_functions.push(of_row[row]);
        frame_functions.extend(inlined_in.remove(&row).unwrap_or_default());
        frames.push(Frame {
            offset: offset(code),
            functions: start..frame_functions.len() as u32,
        });
    }
    let places = (0..).zip(&raw_trace.frames);
    let places = places.filter_map(|(row, code)| match code {
        CodeAddress::Blocked(place) => Some((FrameId(row), *place)),
        _ => None,
    });
    let places = places.collect();
    let mut trace = Trace {
        info,
        processes: raw_trace.processes,
        threads: raw_trace.threads,
        functions: functions.into_rows(),
        frames,
        frame_functions,
        stacks: raw_trace.stacks,
        samples: raw_trace.samples,
        blocked: raw_trace.blocked,
        faults: raw_trace.faults,
        wakeups: raw_trace.wakeups,
        places,
        event_code: raw_trace.event_code,
        modules: Vec::new(),
        quality: Quality {
            stacks: raw_trace.quality,
            losses: raw_trace.losses,
            doubtful: most_doubtful(raw_trace.doubtful),
            events: events.qualities(),
            notices,
            ..Default::default()
        },
        events,
    };
    wakers::name_roots(&mut trace, &raw_trace.frames, &raw_trace.outsiders);
    let scripts = scripts::notices(&trace, &mut gaps);
    let unresolved = unresolved::notices(gaps);
    trace
        .quality
        .notices
        .extend(scripts.into_iter().chain(unresolved));
    let samples = trace.count_names();
    trace.modules = modules::rows(
        &counts::count_modules(&trace, &raw_trace.frames, &samples),
        machine.files(),
        identities,
    );
    Ok(trace)
}

/// Maximum number of rows of [`Quality::doubtful`].
const MAX_DOUBTFUL: usize = 8;

/// Returns the code with the most doubtful stacks. Files of the same name are one.
fn most_doubtful(mut all: Vec<DoubtfulCode>) -> Vec<DoubtfulCode> {
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.dedup_by(|same, first| {
        let is_same = same.name == first.name;
        if is_same {
            first.likely = first.likely.saturating_add(same.likely);
            first.guessed = first.guessed.saturating_add(same.guessed);
        }
        is_same
    });
    all.sort_by_key(|code| std::cmp::Reverse(code.likely.saturating_add(code.guessed)));
    all.truncate(MAX_DOUBTFUL);
    all
}

/// Symbolizes all groups in their order, unless it is cancelled.
fn for_each_group(
    groups: &[Group],
    capture: &Capture,
    options: &Options,
    cancel: CancelCheck<'_>,
    mut each: impl FnMut(&Group, SymbolizedGroup),
) {
    let tools = Tools {
        symbolizer: elf::symbolizer(options, Aliases::Plain),
        options,
        budget: TimeBudget::new(options.invoking_user),
    };
    for groups in groups.chunks(GROUPS_AT_ONCE) {
        let named = name_groups(groups, capture, &tools, cancel);
        for (group, named) in groups.iter().zip(named) {
            each(group, named);
        }
    }
}

/// Symbolizes groups on all CPUs, unless it is cancelled.
fn name_groups(
    groups: &[Group],
    capture: &Capture,
    tools: &Tools<'_>,
    cancel: CancelCheck<'_>,
) -> Vec<SymbolizedGroup> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((source, rows)) = groups.get(index).filter(|_| !cancel()) else {
                return done;
            };
            let frames: Vec<_> = rows.iter().map(|&row| FrameId(row as u32)).collect();
            let codes: Vec<_> = rows
                .iter()
                .map(|&row| capture.raw_trace.frames[row])
                .collect();
            done.push((index, source.name(&frames, &codes, capture, tools, cancel)));
        }
    };
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(groups.len());
    let mut named: Vec<(usize, SymbolizedGroup)> = std::thread::scope(|scope| {
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
