//! Addresses for the functions of a trace.
//!
//! For formats that tell functions by address alone. A frame's own address would not do: several functions may be inlined at
//! one, and code that is freed leaves its address to other code. So each function gets one of its own, in a mapping of its
//! module that no process has:
//!
//! ```text
//! module A    | f     | g     | 0x1234 |          a function without a name is one for each of its addresses
//!             base    + 16    + 32                a frame's address is in the middle: readers may take 1 off
//! module B, at the next page
//! ```

use rustc_hash::FxHashMap;

use super::label::{self, Interner};
use super::sanitize::{perf_module, perf_symbol};
use crate::trace::{FrameId, FunctionKind, Trace};

/// No address of a process, and none of the kernel.
const BASE: u64 = 1 << 56;
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
    /// Behind its last byte.
    pub(super) end: u64,
}

#[derive(Debug)]
pub(super) struct SyntheticFunction {
    pub(super) module: ModuleRow,
    pub(super) name: String,
    pub(super) start: u64,
    pub(super) realm: CodeOwner,
}

/// Whose code a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum CodeOwner {
    User,
    Kernel,
    /// Nobody's: it stands for callers that are not known.
    Marker,
}

impl CodeOwner {
    fn of(kind: FunctionKind) -> Self {
        match kind {
            FunctionKind::Kernel => Self::Kernel,
            FunctionKind::Marker => Self::Marker,
            _ => Self::User,
        }
    }
}

impl SyntheticFunction {
    /// The address of frames in it.
    pub(super) fn address(&self) -> u64 {
        self.start + FUNCTION_BYTES / 2
    }

    /// Its last byte.
    pub(super) fn last(&self) -> u64 {
        self.start + FUNCTION_BYTES - 1
    }
}

#[derive(Debug)]
pub(super) struct SyntheticLayout {
    pub(super) modules: Vec<Module>,
    pub(super) functions: Vec<SyntheticFunction>,
    /// For each row of [`Trace::frame_functions`].
    of_entry: Vec<u32>,
    /// By name of process.
    roots: FxHashMap<String, FunctionRow>,
    /// Stands for the callers of a stack that is too deep.
    cut: FunctionRow,
}

/// Module, name, whose.
type Key = (String, String, CodeOwner);

impl SyntheticLayout {
    /// A map of the functions of a trace.
    pub(super) fn new(trace: &Trace) -> Self {
        let mut rows: Interner<Key> = Interner::new(trace);
        let mut of_entry = vec![0; trace.frame_functions.len()];
        for (row, frame) in trace.frames.iter().enumerate() {
            let frame_id = FrameId(row as u32);
            for entry in frame.functions.clone() {
                of_entry[entry as usize] = rows.row(trace, entry, |id| {
                    let function = &trace.functions[id.index()];
                    let module = perf_module(&function.module)
                        .unwrap_or_else(|| label::module_of_kind(function.kind).to_owned());
                    let name = match label::known_name(function) {
                        Some(name) => perf_symbol(name),
                        None => label::name(trace, frame_id, id).into_owned(),
                    };
                    (module, name, CodeOwner::of(function.kind))
                });
            }
        }
        let module = label::module_of_kind(FunctionKind::Marker).to_owned();
        let cut = rows.intern((module, "{truncated}".to_owned(), CodeOwner::Marker)) as FunctionRow;
        let (modules, functions) = lay_out(rows.rows);
        Self {
            modules,
            functions,
            of_entry,
            roots: FxHashMap::default(),
            cut,
        }
    }

    /// The functions of a frame, the innermost first.
    pub(super) fn of_frame<'a>(
        &'a self,
        trace: &'a Trace,
        frame: FrameId,
    ) -> impl Iterator<Item = FunctionRow> + 'a {
        let range = &trace.frames[frame.index()].functions;
        let entries = range.start as usize..range.end as usize;
        self.of_entry[entries].iter().rev().map(|&row| row as usize)
    }

    /// A root for the stacks of processes of this name, in a module of this name.
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
            name: "root".to_owned(),
            start,
            realm: CodeOwner::User,
        });
        let root = self.functions.len() - 1;
        self.roots.insert(process.to_owned(), root);
        root
    }

    pub(super) fn cut(&self) -> FunctionRow {
        self.cut
    }
}

/// The page after the next: one lies between modules.
fn next_page(address: u64) -> u64 {
    (address + PAGE_BYTES).next_multiple_of(PAGE_BYTES)
}

/// Gives each its address: those of a module one after the other.
fn lay_out(rows: Vec<Key>) -> (Vec<Module>, Vec<SyntheticFunction>) {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let module_of = |row: usize| (&rows[row].0, rows[row].2 == CodeOwner::Kernel);
    order.sort_by(|a, b| module_of(*a).cmp(&module_of(*b)));
    let mut modules: Vec<Module> = Vec::new();
    let mut places = vec![(0, 0); rows.len()];
    let mut next = BASE;
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
        places[row] = (modules.len() - 1, next);
        next += FUNCTION_BYTES;
        if let Some(module) = modules.last_mut() {
            module.end = next;
        }
    }
    let functions = rows
        .into_iter()
        .zip(places)
        .map(|((_, name, realm), (module, start))| SyntheticFunction {
            module,
            name,
            start,
            realm,
        })
        .collect();
    (modules, functions)
}
