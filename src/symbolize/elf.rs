//! Functions of mapped files: ELF files and ReadyToRun images.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use perfcollect_symbols::Aliases;
use perfcollect_symbols::symbolizer::{
    self, Evidence, FileContent, FileSource, FileSymbolizer, Frame, Symbolizer, Unresolved,
};
use rustc_hash::FxHashMap;
use rustix::process::geteuid;

use super::cancel::CancelCheck;
use super::functions::{SymbolizedGroup, lossy, unsymbolized};
use super::identity::Identity;
use super::{Options, problems};
use crate::download::{Module, Sources};
use crate::machine::{CodeFile, Content};
use crate::trace::{CodeAddress, Function, FunctionId, FunctionKind, Notice, NoticeKind};
use crate::unwind::FunctionStarts;

/// Limit of the demangled names from debug information or a Go function table, by file, in bytes.
const MAX_NAMES_BYTES: usize = 128 << 20;
/// Tier of ReadyToRun methods, as the runtime calls it.
pub(super) const READY_TO_RUN: &str = "ReadyToRun";

/// Creates the symbolizer of all files of a trace.
pub(crate) fn symbolizer(options: &Options, aliases: Aliases) -> Symbolizer {
    Symbolizer::new(symbolizer_options(options, aliases))
}

/// Creates a symbolizer that searches unwind information in debug files. Those of others than root
/// and the owner of a file could change the stacks of its processes.
pub(crate) fn unwind_symbolizer(options: &Options) -> Symbolizer {
    Symbolizer::new(symbolizer::Options {
        of_owner_only: true,
        ..symbolizer_options(options, Aliases::Plain)
    })
}

fn symbolizer_options(options: &Options, aliases: Aliases) -> symbolizer::Options {
    symbolizer::Options {
        inlined: options.inlined,
        lines: false,
        aliases,
        directories: options.symbol_directories.clone(),
        perf_cache: perf_cache(),
        of_owner_only: false,
        more: Some(Arc::new(|identity| {
            let module = Module::new(identity);
            module.map_or_else(Vec::new, |module| Sources::new(&[]).cache_paths(&module))
        })),
    }
}

/// Returns the build-id cache of perf, if it has files of this user's processes only.
///
/// That of root has files and debug files of all users, by the build ids that they claim.
fn perf_cache() -> Option<PathBuf> {
    let home = std::env::home_dir().filter(|_| !geteuid().is_root());
    home.map(|home| home.join(".debug"))
}

/// Opens a file, or returns `None` if its content is unavailable.
pub(crate) fn open(symbolizer: &Symbolizer, file: &CodeFile) -> Option<FileSymbolizer> {
    let content = match &file.content {
        Content::File(file) => FileContent::File(file.clone()),
        Content::Vdso(image) => FileContent::Image(image.clone()),
        Content::Unavailable(_) => return None,
    };
    Some(symbolizer.file(FileSource {
        content,
        path: file.clean_path().to_owned(),
        roots: file.debug_roots(),
    }))
}

pub(super) fn name(
    codes: &[CodeAddress],
    file: &CodeFile,
    symbolizer: &Symbolizer,
    options: &Options,
    cancel: CancelCheck<'_>,
) -> SymbolizedGroup {
    // Dropped after the contents of the file.
    let _memory;
    let symbols = match cancel() {
        true => None,
        false => open(symbolizer, file),
    };
    _memory = symbols.as_ref().map(FileSymbolizer::hold_memory);
    let mut names = Names::new(module_name(file), kind(file));
    let mut group = SymbolizedGroup::default();
    // Few functions are inlined, each in many places.
    let mut inlined_rows: FxHashMap<Cow<'_, [u8]>, FunctionId> = FxHashMap::default();
    let mut starts = Starts::default();
    for (index, &code) in codes.iter().enumerate() {
        let frames = match (&symbols, code) {
            _ if cancel() => None,
            (Some(symbols), CodeAddress::Elf(_, address)) => {
                Some(match starts.beyond_symbol(symbols, address, file) {
                    Some(start) => Err(Unresolved::NoSymbol { start: Some(start) }),
                    None => symbols.frames(address),
                })
            }
            (Some(symbols), CodeAddress::File(_, offset)) => {
                Some(symbols.method(offset).map(|method| vec![method]))
            }
            _ => None,
        };
        let frames = match frames {
            Some(Ok(frames)) => frames,
            Some(Err(why)) => {
                let why = starts.complete(why, code, file);
                group.push(names.unresolved(code, &why));
                continue;
            }
            None => {
                group.push(names.plain(code));
                continue;
            }
        };
        let mut outermost_first = frames.into_iter().rev();
        if let Some(function) = outermost_first.next() {
            group.push(names.function(code, function));
        }
        let inlined = outermost_first.filter_map(|frame| {
            if let Some(id) = inlined_rows.get(&frame.symbol) {
                return Some(*id);
            }
            let symbol = frame.symbol.clone();
            let function = names.function(code, frame);
            function.name.as_ref()?;
            let id = group.functions.intern(function);
            inlined_rows.insert(symbol, id);
            Some(id)
        });
        let inlined: Vec<_> = inlined.collect();
        if !inlined.is_empty() {
            group.inlined.push((index, inlined));
        }
    }
    if names.is_truncated {
        let path = file.clean_path().display();
        let what = format!("functions of {path} do not all have names: their names are too long");
        group
            .notices
            .push(Notice::new(NoticeKind::SymbolsIncomplete, what, "").about(path));
    }
    if let Some(symbols) = &symbols {
        let problems = problems::take(symbols, file.clean_path(), options.inlined);
        group.notices.extend(problems.notices);
        group.gaps.extend(problems.gaps);
        group.identity = (!cancel()).then(|| Identity::new(file, symbols)).flatten();
    }
    group.gaps.extend(problems::unavailable(file));
    group
}

/// Starts of functions that neither symbols nor unwind information have.
#[derive(Default)]
struct Starts {
    of_file: Option<Option<FunctionStarts>>,
    /// Whether it has a full symbol table, which takes a while to find.
    has_symbols: Option<bool>,
}

impl Starts {
    fn of(&mut self, file: &CodeFile) -> Option<&mut FunctionStarts> {
        let starts = self
            .of_file
            .get_or_insert_with(|| FunctionStarts::read(&file.content));
        starts.as_mut()
    }

    /// Returns the start of a function that hides behind an exported one without a size, which it
    /// follows: the file has no symbols of local functions.
    fn beyond_symbol(
        &mut self,
        symbols: &FileSymbolizer,
        address: u64,
        file: &CodeFile,
    ) -> Option<u64> {
        let symbol = symbols.symbol(address).filter(|symbol| !symbol.is_sized)?;
        if symbols.has_unwind_info(address) {
            return None;
        }
        let has_symbols = self
            .has_symbols
            .get_or_insert_with(|| symbols.has_symbols());
        match has_symbols {
            true => None,
            false => self.of(file)?.after(symbol.start, address),
        }
    }

    /// Adds the start of the function to the reason why it has no name.
    fn complete(&mut self, why: Unresolved, code: CodeAddress, file: &CodeFile) -> Unresolved {
        match (why, code) {
            (Unresolved::NoSymbol { start: None }, CodeAddress::Elf(_, address)) => {
                let start = self.of(file).and_then(|starts| starts.of(address));
                Unresolved::NoSymbol { start }
            }
            (why, _) => why,
        }
    }
}

/// The functions of one file, with each name demangled once.
pub(crate) struct Names<'a> {
    module: Box<str>,
    kind: FunctionKind,
    demangled: FxHashMap<Cow<'a, [u8]>, Box<str>>,
    left_bytes: usize,
    /// Whether a name was dropped.
    is_truncated: bool,
}

impl<'a> Names<'a> {
    pub(crate) fn new(module: Box<str>, kind: FunctionKind) -> Self {
        Self {
            module,
            kind,
            demangled: FxHashMap::default(),
            left_bytes: MAX_NAMES_BYTES,
            is_truncated: false,
        }
    }

    fn plain(&self, code: CodeAddress) -> Function {
        Function {
            module: self.module.clone(),
            kind: self.kind,
            ..unsymbolized(code)
        }
    }

    fn unresolved(&self, code: CodeAddress, why: &Unresolved) -> Function {
        let plain = self.plain(code);
        match why {
            Unresolved::NoSymbol { start } => Function {
                start: *start,
                ..plain
            },
            Unresolved::NoMethod(_) => Function {
                kind: FunctionKind::ReadyToRun,
                tier: Some(READY_TO_RUN.into()),
                ..plain
            },
            _ => plain,
        }
    }

    /// Returns the function of a frame.
    pub(crate) fn function(&mut self, code: CodeAddress, frame: Frame<'a>) -> Function {
        let plain = self.plain(code);
        if frame.evidence == Evidence::ReadyToRun {
            return Function {
                name: Some(lossy(&frame.symbol)),
                module: frame.module.map_or(plain.module, Into::into),
                tier: Some(READY_TO_RUN.into()),
                kind: FunctionKind::ReadyToRun,
                start: None,
                inlined: false,
            };
        }
        let name = self.name(&frame);
        Function {
            start: match name {
                Some(_) => None,
                None => frame.start,
            },
            name,
            inlined: frame.is_inlined,
            ..plain
        }
    }

    fn name(&mut self, frame: &Frame<'a>) -> Option<Box<str>> {
        if frame.symbol.is_empty() {
            return None;
        }
        if let Some(name) = self.demangled.get(&frame.symbol) {
            return Some(name.clone());
        }
        let name: Box<str> = frame.name().into();
        if matches!(frame.evidence, Evidence::Dwarf | Evidence::GoTable) {
            let Some(left) = self.left_bytes.checked_sub(name.len()) else {
                self.is_truncated = true;
                return None;
            };
            self.left_bytes = left;
        }
        self.demangled.insert(frame.symbol.clone(), name.clone());
        Some(name)
    }
}

/// Returns the file's name without its directory; `vdso` for the vDSO.
fn module_name(file: &CodeFile) -> Box<str> {
    match file.content {
        Content::Vdso(_) => "vdso".into(),
        _ => file
            .clean_path()
            .file_name()
            .map_or_else(|| lossy(&file.path), |name| lossy(name.as_encoded_bytes())),
    }
}

/// Executable code in a DLL is ReadyToRun code.
fn kind(file: &CodeFile) -> FunctionKind {
    let is_dll = file
        .clean_path()
        .extension()
        .is_some_and(|suffix| suffix.eq_ignore_ascii_case("dll"));
    if is_dll {
        FunctionKind::ReadyToRun
    } else {
        FunctionKind::Native
    }
}
