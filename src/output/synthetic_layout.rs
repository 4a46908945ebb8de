//! Synthetic addresses for the functions of a trace.
//!
//! Some formats identify functions by address only. The recorded address of a frame is ambiguous:
//! several functions may be inlined at it, and freed code leaves its address to other code.
//! Therefore each function gets a unique address, in a synthetic mapping of its module:
//!
//! ```text
//! module A    | f     | g     | 0x1234 |          a function without a name has one slot per address
//!             base    + 16    + 32                frame addresses are in the middle: readers may subtract 1
//! module B, after an unused page
//! ```

use rustc_hash::FxHashMap;

use super::label::{self, Interner};
use super::sanitize::{perf_module, perf_symbol};
use crate::trace::{FrameId, FunctionKind, Trace};

/// First address, outside the address ranges of processes and of the kernel.
const BASE: u64 = 1 << 56;
/// First address of functions in the stacks of events.
const EVENTS_BASE: u64 = 1 << 57;
/// Name of root functions.
pub(super) const ROOT: &str = "root";
pub(super) const FUNCTION_BYTES: u64 = 16;
pub(super) const PAGE_BYTES: u64 = 4096;

/// A row of [`SyntheticLayout::modules`].
pub(super) type ModuleRow = usize;
/// A row of [`SyntheticLayout::functions`].
pub(super) type FunctionRow = usize;

#[derive(Debug)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) is_kernel: bool,
    pub(super) start: u64,
    /// Exclusive end.
    pub(super) end: u64,
}

#[derive(Debug)]
pub(super) struct SyntheticFunction {
    pub(super) module: ModuleRow,
    pub(super) name: String,
    pub(super) start: u64,
    pub(super) owner: CodeOwner,
}

/// Owner of the code of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum CodeOwner {
    User,
    Kernel,
    /// No owner: the function represents unknown callers.
    Marker,
}

impl CodeOwner {
    fn from_kind(kind: FunctionKind) -> Self {
        match kind {
            FunctionKind::Kernel => Self::Kernel,
            FunctionKind::Marker => Self::Marker,
            _ => Self::User,
        }
    }
}

impl SyntheticFunction {
    /// Returns the address of frames in the function.
    pub(super) fn address(&self) -> u64 {
        self.start + FUNCTION_BYTES / 2
    }

    /// Returns the address of the last byte.
    pub(super) fn last(&self) -> u64 {
        self.start + FUNCTION_BYTES - 1
    }
}

#[derive(Debug)]
pub(super) struct SyntheticLayout {
    pub(super) modules: Vec<Module>,
    pub(super) functions: Vec<SyntheticFunction>,
    /// Function of each row of [`Trace::frame_functions`].
    by_entry: Vec<u32>,
    /// Root functions, by process name.
    roots: FxHashMap<String, FunctionRow>,
    /// Represents the callers of a stack that is too deep.
    truncated: FunctionRow,
}

/// Module, name and owner.
type Key = (String, String, CodeOwner);

impl SyntheticLayout {
    /// Assigns addresses to the functions in the stacks of samples.
    pub(super) fn new(trace: &Trace) -> Self {
        let mut is_sampled = vec![false; trace.frames.len()];
        for (_, _, frame) in trace.stacks.nodes() {
            is_sampled[frame.index()] = true;
        }
        let frames = (0..).map(FrameId).zip(is_sampled);
        let sampled = frames.filter_map(|(frame, is_sampled)| is_sampled.then_some(frame));
        Self::of_frames(trace, sampled, BASE)
    }

    /// Assigns addresses to the functions in the stacks of events.
    ///
    /// They do not depend on the stacks of samples, and vice versa.
    pub(super) fn of_events(trace: &Trace) -> Self {
        Self::of_frames(trace, trace.event_code.frames(), EVENTS_BASE)
    }

    /// Assigns addresses from `base` on to the functions of frames.
    fn of_frames(trace: &Trace, frames: impl Iterator<Item = FrameId>, base: u64) -> Self {
        let mut rows: Interner<Key> = Interner::new(trace);
        let mut by_entry = vec![0; trace.frame_functions.len()];
        for frame_id in frames {
            for entry in trace.frames[frame_id.index()].functions.clone() {
                by_entry[entry as usize] = rows.row(trace, entry, |id| {
                    let function = &trace.functions[id.index()];
                    let module = perf_module(&function.module)
                        .unwrap_or_else(|| label::module_of_kind(function.kind).to_owned());
                    let name = match label::known_name(function) {
                        Some(name) => perf_symbol(name),
                        None => label::name(trace, frame_id, id).into_owned(),
                    };
                    (module, name, CodeOwner::from_kind(function.kind))
                });
            }
        }
        let module = label::module_of_kind(FunctionKind::Marker).to_owned();
        let marker = (module, "{truncated}".to_owned(), CodeOwner::Marker);
        let truncated = rows.intern(marker) as FunctionRow;
        let (modules, functions) = lay_out(rows.into_rows(), base);
        Self {
            modules,
            functions,
            by_entry,
            roots: FxHashMap::default(),
            truncated,
        }
    }

    /// Returns the functions of a frame, innermost first.
    pub(super) fn frame_functions<'a>(
        &'a self,
        trace: &'a Trace,
        frame: FrameId,
    ) -> impl Iterator<Item = FunctionRow> + 'a {
        let range = &trace.frames[frame.index()].functions;
        let entries = range.start as usize..range.end as usize;
        self.by_entry[entries].iter().rev().map(|&row| row as usize)
    }

    /// Returns the root function for stacks of processes with this name, in a module with this
    /// name.
    pub(super) fn root(&mut self, process: &str) -> FunctionRow {
        if let Some(&root) = self.roots.get(process) {
            return root;
        }
        let start = self.modules.last().map_or(BASE, |last| next_page(last.end));
        self.modules.push(Module {
            name: process.to_owned(),
            is_kernel: false,
            start,
            end: start + FUNCTION_BYTES,
        });
        self.functions.push(SyntheticFunction {
            module: self.modules.len() - 1,
            name: ROOT.to_owned(),
            start,
            owner: CodeOwner::User,
        });
        let root = self.functions.len() - 1;
        self.roots.insert(process.to_owned(), root);
        root
    }

    /// Returns the function that represents the callers of a stack that is too deep.
    pub(super) fn truncated(&self) -> FunctionRow {
        self.truncated
    }
}

/// Returns the start of the next module after `address`, with an unused page in between.
fn next_page(address: u64) -> u64 {
    (address + PAGE_BYTES).next_multiple_of(PAGE_BYTES)
}

/// Assigns an address to each function. The functions of a module are consecutive.
///
/// The addresses depend on the set of functions only, not on their order in the trace.
fn lay_out(rows: Vec<Key>, base: u64) -> (Vec<Module>, Vec<SyntheticFunction>) {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let module_of = |row: usize| (&rows[row].0, rows[row].2 == CodeOwner::Kernel);
    order.sort_unstable_by_key(|&row| (module_of(row), &rows[row]));
    let mut modules: Vec<Module> = Vec::new();
    let mut positions = vec![(0, 0); rows.len()];
    let mut next = base;
    for row in order {
        let (name, is_kernel) = module_of(row);
        let is_it = |module: &Module| module.name == *name && module.is_kernel == is_kernel;
        if !modules.last().is_some_and(is_it) {
            next = next_page(next);
            modules.push(Module {
                name: name.clone(),
                is_kernel,
                start: next,
                end: next,
            });
        }
        positions[row] = (modules.len() - 1, next);
        next += FUNCTION_BYTES;
        if let Some(module) = modules.last_mut() {
            module.end = next;
        }
    }
    let functions = rows
        .into_iter()
        .zip(positions)
        .map(|((_, name, owner), (module, start))| SyntheticFunction {
            module,
            name,
            start,
            owner,
        })
        .collect();
    (modules, functions)
}
