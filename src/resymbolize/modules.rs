//! The modules of a trace whose debug files are here.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perfcollect_symbols::Aliases;
use perfcollect_symbols::build_id::BuildId;
use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::process::Root;
use perfcollect_symbols::symbolizer::{FileContent, FileSource, FileSymbolizer, Symbolizer};
use rustc_hash::FxHashMap;

use crate::download;
use crate::output::sanitize::perf_module;
use crate::output::summary::{ModuleSummary, Summary};
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

/// Modules with symbols.
pub(super) struct Modules {
    /// By their name in `perf.data.txt`.
    by_name: HashMap<String, Module>,
    /// Names of modules of several builds, which the text does not distinguish.
    pub(super) ambiguous: Vec<String>,
    /// Number of modules with unresolved frames and without symbols.
    pub(super) missing: usize,
}

struct Module {
    /// Rows in the summary.
    rows: Vec<usize>,
    path: String,
    symbols: FileSymbolizer,
}

impl Modules {
    /// Opens the debug files of the modules that have unresolved frames.
    pub(super) fn open(summary: &Summary, options: &Options) -> Self {
        let symbolizer = symbolizer(options, Aliases::Plain);
        let mut rows_by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (row, module) in summary.modules.iter().enumerate() {
            let name = perf_module(&module.path).map(|name| name.replace(' ', "_"));
            let rows = rows_by_name.entry(name.unwrap_or_default());
            rows.or_default().push(row);
        }
        let mut modules = Self {
            by_name: HashMap::new(),
            ambiguous: Vec::new(),
            missing: 0,
        };
        for (name, rows) in rows_by_name {
            let all = || rows.iter().filter_map(|&row| summary.modules.get(row));
            let (Some(first), true) = (all().next(), all().any(|row| row.frames.unnamed > 0))
            else {
                continue;
            };
            let Some(build_id) = &first.build_id else {
                modules.missing += 1;
                continue;
            };
            if all().any(|row| row.build_id.as_ref() != Some(build_id)) {
                modules.ambiguous.push(name);
                continue;
            }
            let symbols = open(&symbolizer, &first.path, build_id);
            if !symbols.has_symbols() {
                modules.missing += 1;
                continue;
            }
            let path = first.path.clone();
            let module = Module {
                rows,
                path,
                symbols,
            };
            modules.by_name.insert(name, module);
        }
        modules
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Symbolizes unresolved frames. Returns those that have symbols now.
    pub(super) fn rename(&self, trace: &mut Trace, cancel: CancelCheck<'_>) -> Vec<FrameId> {
        let mut rows: FxHashMap<Function, FunctionId> = FxHashMap::default();
        for (row, function) in trace.functions.iter().enumerate() {
            rows.insert(function.clone(), FunctionId(row as u32));
        }
        let mut names: FxHashMap<&str, Names<'_>> = FxHashMap::default();
        let mut renamed = Vec::new();
        for row in 0..trace.frames.len() {
            if cancel() {
                break;
            }
            let frame = FrameId(row as u32);
            let Some((name, module)) = self.unresolved(trace, frame) else {
                continue;
            };
            let offset = trace.frames[row].offset;
            let Ok(found) = module.symbols.frames(offset) else {
                continue;
            };
            let names = names
                .entry(name)
                .or_insert_with(|| Names::new(name.into(), FunctionKind::Native));
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
            renamed.push(frame);
        }
        renamed
    }

    /// Returns the module of a frame that is one unresolved function of a file.
    fn unresolved(&self, trace: &Trace, frame: FrameId) -> Option<(&str, &Module)> {
        let mut functions = trace.functions_leaf_first(frame);
        let (Some(function), None) = (functions.next(), functions.next()) else {
            return None;
        };
        let function = &trace.functions[function.index()];
        if function.name.is_some() || function.kind != FunctionKind::Native {
            return None;
        }
        let (name, module) = self.by_name.get_key_value(&*function.module)?;
        Some((name, module))
    }

    /// Updates the parts of a summary that depend on names.
    pub(super) fn describe(&self, trace: &Trace, samples: &[u64], summary: &mut Summary) {
        let new = Summary::new(trace);
        summary.methods = new.methods;
        summary.method_count = new.method_count;
        summary.quality.names = trace.quality.names;
        for (name, module) in &self.by_name {
            let mut total = NameCount::default();
            for (frame, &count) in samples.iter().enumerate() {
                let outermost = trace.functions_leaf_first(FrameId(frame as u32)).last();
                let function = outermost.map(|id| &trace.functions[id.index()]);
                if let Some(function) = function.filter(|function| *function.module == **name) {
                    total.count(function.name.is_some(), count);
                }
            }
            let all = (total.named + total.unnamed).max(1);
            for &row in &module.rows {
                let Some(row) = summary.modules.get_mut(row) else {
                    continue;
                };
                row.has_symbols = true;
                // Files of one build share a name, so each gets its part.
                let frames = row.frames.named + row.frames.unnamed;
                let unnamed = u128::from(frames) * u128::from(total.unnamed) / u128::from(all);
                row.frames.unnamed = unnamed as u64;
                row.frames.named = frames.saturating_sub(row.frames.unnamed);
            }
        }
        let by_frames = |row: &ModuleSummary| row.frames.named + row.frames.unnamed;
        summary
            .modules
            .sort_by_key(|row| std::cmp::Reverse(by_frames(row)));
    }

    /// Returns what was symbolized, the modules with most frames first.
    pub(super) fn named(
        &self,
        trace: &Trace,
        renamed: &[FrameId],
        samples: &[u64],
    ) -> Vec<NamedModule> {
        let mut counts: HashMap<&str, (usize, u64)> = HashMap::new();
        for &frame in renamed {
            if let Some(outermost) = trace.functions_leaf_first(frame).last() {
                let module = &*trace.functions[outermost.index()].module;
                let (addresses, total) = counts.entry(module).or_default();
                *addresses += 1;
                *total += samples[frame.index()];
            }
        }
        let named = self.by_name.iter().filter_map(|(name, module)| {
            let (addresses, frames) = *counts.get(&**name)?;
            Some(NamedModule {
                path: module.path.clone(),
                addresses,
                frames,
            })
        });
        let mut named: Vec<_> = named.collect();
        named.sort_by(|a, b| (b.frames, &a.path).cmp(&(a.frames, &b.path)));
        named
    }
}

/// Opens the file at a path of the trace if it has the right build id.
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

fn open(symbolizer: &Symbolizer, path: &str, build_id: &BuildId) -> FileSymbolizer {
    let path = PathBuf::from(path);
    symbolizer.file(FileSource {
        content: content(&path, build_id),
        path,
        roots: Root::host().ok().map(Arc::new).into_iter().collect(),
    })
}

/// Returns the path of a module's debug file, or of the module if it has symbols itself, if it is
/// on this host.
#[must_use]
pub fn find_symbols(module: &download::Module, options: &Options) -> Option<PathBuf> {
    let symbolizer = symbolizer(options, Aliases::Plain);
    let file = open(&symbolizer, &module.path, &module.build_id);
    match file.debug_file_path() {
        Some(path) => Some(path.to_owned()),
        None => file.has_symbols().then(|| PathBuf::from(&module.path)),
    }
}
