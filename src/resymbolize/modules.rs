//! The modules of a trace that may be symbolized.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perfcollect_symbols::Aliases;
use perfcollect_symbols::build_id::BuildId;
use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::process::Root;
use perfcollect_symbols::symbolizer::{FileContent, FileSource, FileSymbolizer, Symbolizer};
use rustc_hash::FxHashMap;

use crate::download;
use crate::findings;
use crate::output::sanitize::perf_module;
use crate::output::summary::{MAX_MODULES, ModuleSummary, ProcessSummary, Summary};
use crate::symbolize::elf::{Names, symbolizer};
use crate::symbolize::{CancelCheck, Options};
use crate::trace::{
    CodeAddress, Frame, FrameId, Function, FunctionId, FunctionKind, ModuleId, NameCount, Trace,
};

/// A module of which frames were symbolized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedModule {
    /// Path in the trace. Untrusted.
    pub path: String,
    /// Addresses that have symbols now.
    pub addresses: usize,
    /// Frames that have symbols now, each counted once per sample that contains it.
    pub frames: u64,
}

/// Modules with unresolved frames.
pub(super) struct Modules {
    /// Those whose symbols are on this machine.
    found: Vec<Module>,
    /// Names of modules of several builds, which the text does not distinguish.
    pub(super) ambiguous: Vec<String>,
    /// Number of modules whose symbols were not found.
    pub(super) missing: usize,
}

struct Module {
    /// Name in `perf.data.txt`.
    name: String,
    /// Rows in the summary: files of one build.
    rows: Vec<usize>,
    path: String,
    build_id: BuildId,
}

/// Frames with new symbols.
#[derive(Default)]
pub(super) struct Symbolized {
    pub(super) frames: Vec<FrameId>,
    pub(super) modules: Vec<NamedModule>,
}

impl Modules {
    /// Finds the modules of a trace whose symbols are on this machine.
    ///
    /// Each debug file is opened and closed again: those of a large trace need much memory together.
    pub(super) fn find(summary: &Summary, options: &Options, cancel: CancelCheck<'_>) -> Self {
        let symbolizer = symbolizer(options, Aliases::Plain);
        let mut rows_by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (row, module) in summary.modules.iter().enumerate().take(MAX_MODULES) {
            let name = perf_module(&module.path).map(|name| name.replace(' ', "_"));
            let rows = rows_by_name.entry(name.unwrap_or_default());
            rows.or_default().push(row);
        }
        let mut modules = Self {
            found: Vec::new(),
            ambiguous: Vec::new(),
            missing: 0,
        };
        for (name, rows) in rows_by_name {
            let all = || rows.iter().filter_map(|&row| summary.modules.get(row));
            let is_unresolved = all().any(|row| row.frames.unresolved > 0);
            let Some(first) = all().next().filter(|_| is_unresolved && !cancel()) else {
                continue;
            };
            let Some(build_id) = first.build_id.clone() else {
                modules.missing += 1;
                continue;
            };
            if all().any(|row| row.build_id.as_ref() != Some(&build_id)) {
                modules.ambiguous.push(name);
            } else if open(&symbolizer, &first.path, &build_id).has_symbols() {
                modules.found.push(Module {
                    path: first.path.clone(),
                    name,
                    rows,
                    build_id,
                });
            } else {
                modules.missing += 1;
            }
        }
        modules
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Leaves out modules whose frames are not all of the files in the summary.
    ///
    /// The summary lacks files that could not be opened, and those beyond its limit.
    pub(super) fn check(&mut self, trace: &Trace, samples: &[u64], summary: &Summary) {
        let (found, ambiguous) = std::mem::take(&mut self.found)
            .into_iter()
            .partition(|module| {
                let rows = module.rows.iter();
                let listed = rows.filter_map(|&row| summary.modules.get(row));
                let listed = listed
                    .map(|row| all(row.frames))
                    .fold(0, u64::saturating_add);
                all(count(trace, samples, &module.name)) == listed
            });
        self.found = found;
        let ambiguous: Vec<Module> = ambiguous;
        self.ambiguous
            .extend(ambiguous.into_iter().map(|module| module.name));
    }

    /// Symbolizes unresolved frames. `samples`: how many samples each frame is in.
    pub(super) fn symbolize(
        &self,
        trace: &mut Trace,
        samples: &[u64],
        options: &Options,
        cancel: CancelCheck<'_>,
    ) -> Symbolized {
        let symbolizer = symbolizer(options, Aliases::Plain);
        let mut rows: FxHashMap<Function, FunctionId> = FxHashMap::default();
        for (row, function) in trace.functions.iter().enumerate() {
            rows.insert(function.clone(), FunctionId(row as u32));
        }
        let mut symbolized = Symbolized::default();
        for module in &self.found {
            let before = symbolized.frames.len();
            module.symbolize(
                trace,
                &symbolizer,
                &mut rows,
                &mut symbolized.frames,
                cancel,
            );
            let new = symbolized.frames.get(before..).unwrap_or_default();
            let counts = new.iter().filter_map(|frame| samples.get(frame.index()));
            if !new.is_empty() {
                symbolized.modules.push(NamedModule {
                    path: module.path.clone(),
                    addresses: new.len(),
                    frames: counts.copied().fold(0, u64::saturating_add),
                });
            }
        }
        let by_frames =
            |a: &NamedModule, b: &NamedModule| (b.frames, &a.path).cmp(&(a.frames, &b.path));
        symbolized.modules.sort_by(by_frames);
        symbolized
    }

    /// Updates the parts of a summary that depend on symbols.
    pub(super) fn describe(&self, trace: &Trace, samples: &[u64], summary: &mut Summary) {
        let new = Summary::with_modules(trace, summary.modules.clone());
        summary.methods = new.methods;
        summary.method_count = new.method_count;
        summary.unnamed = new.unnamed;
        summary.shares = new.shares;
        summary.thread_time = new.thread_time;
        summary.faults = new.faults;
        summary.wakeups = new.wakeups;
        for process in &mut summary.processes {
            let key = |row: &ProcessSummary| (row.pid, row.samples);
            let mut rows = new.processes.iter();
            if let Some(row) = rows.find(|row| key(row) == key(process)) {
                process.work = row.work;
            }
        }
        summary.quality.names = trace.quality.names;
        for module in &self.found {
            let total = count(trace, samples, &module.name);
            for &row in &module.rows {
                let Some(row) = summary.modules.get_mut(row) else {
                    continue;
                };
                row.has_symbols = true;
                // Files of one build share a name, so each gets its part.
                let frames = all(row.frames);
                let unresolved = u128::from(frames) * u128::from(total.unresolved);
                let unresolved = unresolved / u128::from(all(total).max(1));
                row.frames.unresolved = u64::try_from(unresolved).unwrap_or(frames).min(frames);
                row.frames.named = frames - row.frames.unresolved;
            }
        }
        let by_frames = |row: &ModuleSummary| all(row.frames);
        summary
            .modules
            .sort_by_key(|row| std::cmp::Reverse(by_frames(row)));
        summary.findings = findings::find(summary);
    }
}

impl Module {
    fn symbolize(
        &self,
        trace: &mut Trace,
        symbolizer: &Symbolizer,
        rows: &mut FxHashMap<Function, FunctionId>,
        symbolized: &mut Vec<FrameId>,
        cancel: CancelCheck<'_>,
    ) {
        // Dropped after the contents of the file.
        let _memory;
        let symbols = open(symbolizer, &self.path, &self.build_id);
        _memory = symbols.hold_memory();
        let mut names = Names::new(self.name.as_str().into(), FunctionKind::Native);
        for row in 0..trace.frames.len() {
            if cancel() {
                return;
            }
            let frame = FrameId(row as u32);
            if !self.has_unresolved(trace, frame) {
                continue;
            }
            let offset = trace.frames[row].offset;
            let Ok(found) = symbols.frames(offset) else {
                continue;
            };
            let start = trace.frame_functions.len() as u32;
            for frame in found.into_iter().rev() {
                let code = CodeAddress::Elf(ModuleId(0), offset);
                let function = names.function(code, frame);
                let functions = &mut trace.functions;
                let id = *rows.entry(function).or_insert_with_key(|function| {
                    functions.push(function.clone());
                    FunctionId(functions.len() as u32 - 1)
                });
                trace.frame_functions.push(id);
            }
            trace.frames[row] = Frame {
                offset,
                functions: start..trace.frame_functions.len() as u32,
            };
            symbolized.push(frame);
        }
    }

    /// Returns whether a frame is one unresolved function of this module.
    fn has_unresolved(&self, trace: &Trace, frame: FrameId) -> bool {
        let mut functions = trace.functions_leaf_first(frame);
        let (Some(function), None) = (functions.next(), functions.next()) else {
            return false;
        };
        let function = &trace.functions[function.index()];
        function.name.is_none()
            && function.kind == FunctionKind::Native
            && *function.module == *self.name
    }
}

fn all(frames: NameCount) -> u64 {
    frames.named.saturating_add(frames.unresolved)
}

/// Counts the frames whose outermost function is native code of a module.
fn count(trace: &Trace, samples: &[u64], name: &str) -> NameCount {
    let mut total = NameCount::default();
    for (frame, &count) in samples.iter().enumerate() {
        let outermost = trace.functions_leaf_first(FrameId(frame as u32)).last();
        let function = outermost.map(|id| &trace.functions[id.index()]);
        let is_of_module = |function: &&Function| {
            function.kind == FunctionKind::Native && *function.module == *name
        };
        if let Some(function) = function.filter(is_of_module) {
            total.count(function.name.is_some(), count);
        }
    }
    total
}

/// Opens the file at a path of the trace if it has the right build id, else only its debug file.
fn open(symbolizer: &Symbolizer, path: &str, build_id: &BuildId) -> FileSymbolizer {
    let path = PathBuf::from(path);
    symbolizer.file(FileSource {
        content: content(&path, build_id),
        path,
        roots: Root::host().ok().map(Arc::new).into_iter().collect(),
    })
}

fn content(path: &Path, build_id: &BuildId) -> FileContent {
    let open = || {
        let file = Arc::new(Root::host().ok()?.open(path).ok()?);
        let found = ElfFile::open_mapped(file.clone()).ok()?.build_id()?;
        (found == *build_id).then_some(file)
    };
    match open() {
        Some(file) => FileContent::File(file),
        None => FileContent::Missing(build_id.clone()),
    }
}

/// Returns the path of a module's debug file, or of the module if it has symbols itself, if it is
/// on this machine.
#[must_use]
pub fn find_symbols(module: &download::Module, options: &Options) -> Option<PathBuf> {
    let symbolizer = symbolizer(options, Aliases::Plain);
    let file = open(&symbolizer, &module.path, &module.build_id);
    match file.debug_file_path() {
        Some(path) => Some(path.to_owned()),
        None => file.has_symbols().then(|| PathBuf::from(&module.path)),
    }
}
