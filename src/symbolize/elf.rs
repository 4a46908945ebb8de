//! Functions of mapped files, by the symbols of the file and of its separate debug file, or by the tables of precompiled
//! .NET code.

use std::cell::{LazyCell, RefCell};
use std::io;

use perfcollect_symbols::Aliases;
use perfcollect_symbols::demangle::demangle;
use perfcollect_symbols::elf::{ElfError, ElfFile};
use perfcollect_symbols::table::SymbolTable;

use super::cancel::CancelCheck;
use super::debug_files::{DebugFile, DebugFiles};
use super::ready_to_run::Images;
use super::unresolved::{NO_NAMES, Unresolved};
use super::{Options, SymbolizedGroup, inlines, is_blank, lossy, unsymbolized};
use rustc_hash::FxHashMap;
use rustix::io::Errno;

use crate::download::Module;
use crate::machine::{CodeFile, Content};
use crate::trace::{CodeAddress, Function, FunctionKind, Notice};

pub(super) fn name(
    codes: &[CodeAddress],
    file: &CodeFile,
    options: &Options,
    stop: CancelCheck<'_>,
) -> SymbolizedGroup {
    let module = module_name(file);
    let unreadable = RefCell::new(Vec::new());
    let tell = |error: &ElfError| {
        let path = file.clean_path().display();
        let what = format!("functions of {path} do not all have names: {error}");
        unreadable.borrow_mut().push(Notice::new(what, ""));
    };
    let own = elf_file(file).inspect_err(tell).ok().flatten();
    own.iter().filter_map(ElfFile::section_error).for_each(tell);
    let mut search = DebugFiles::new(file, options);
    let found = own.as_ref().and_then(|own| separate(own, &mut search));
    let debug = found.as_ref().and_then(DebugFile::elf);
    let tables = tables(own.as_ref(), debug.as_ref(), Aliases::Plain, tell);
    let ranges = LazyCell::new(|| {
        let ranges = own.as_ref().map(ElfFile::function_ranges);
        ranges.and_then(Result::ok).unwrap_or_default()
    });
    let symbol = |address| {
        let mut found = tables.iter().filter_map(|table| table.lookup(address));
        found.find(|symbol| symbol.is_sized || !ranges.is_in_later_function(symbol.start, address))
    };
    let asked = inlines::asked(codes, options, |address| symbol(address).is_some());
    let mut both = debug.iter().chain(&own);
    let dwarf = match asked[..] {
        [] => None,
        _ => both.find_map(|elf| search.sections(elf, found.as_ref())),
    };
    let kind = kind(file);
    let mut images = Images::of(file);
    let inlines = inlines::find(&asked, dwarf.as_ref(), &mut search, stop);
    let plain = |code| Function {
        module: module.clone(),
        kind,
        ..unsymbolized(code)
    };
    let mut demangled: FxHashMap<&[u8], Box<str>> = FxHashMap::default();
    let functions = codes.iter().enumerate().map(|(index, &code)| {
        if let CodeAddress::File(_, offset) = code
            && let Some(function) = images.function(offset, &module)
        {
            return function;
        }
        let CodeAddress::Elf(_, address) = code else {
            return plain(code);
        };
        let symbol = symbol(address);
        let name = match symbol {
            Some(symbol) if is_blank(symbol.name) => None,
            // A function has many addresses.
            Some(symbol) => {
                let name = demangled.entry(symbol.name);
                let name = name.or_insert_with(|| Box::from(demangle(symbol.name)));
                Some(name.clone())
            }
            None => inlines.function(index).map(Box::from),
        };
        Function {
            start: match name {
                Some(_) => None,
                None => symbol
                    .map(|symbol| symbol.start)
                    .or_else(|| ranges.lookup(address).map(|range| range.start)),
            },
            name,
            ..plain(code)
        }
    });
    let mut named = SymbolizedGroup::of(functions);
    let mut ids = vec![None; inlines.names.len()];
    for (index, places) in &inlines.inlined {
        let rows = places.iter().map(|&place| {
            let function = || Function {
                name: Some(inlines.names[place].clone()),
                inlined: true,
                ..plain(codes[*index])
            };
            *ids[place].get_or_insert_with(|| named.functions.intern(function()))
        });
        named.inlined.push((*index, rows.collect()));
    }
    let mut notices = unreadable.into_inner();
    notices.extend(search.notices);
    SymbolizedGroup {
        notices,
        gaps: search.gaps.into_iter().chain(unavailable(file)).collect(),
        ..named
    }
}

/// A file that could not be opened takes its names and its unwind information along.
pub(crate) fn unavailable(file: &CodeFile) -> Option<Unresolved> {
    let Content::Unavailable(error) = &file.content else {
        return None;
    };
    let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE) => "raise the limit of open files (ulimit -n)",
        _ if error.kind() == io::ErrorKind::PermissionDenied => {
            "run as root, or with CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE and CAP_DAC_READ_SEARCH"
        }
        _ => "",
    };
    Some(Unresolved {
        kind: "code of",
        who: file.clean_path().display().to_string(),
        fault: NO_NAMES,
        why: error.to_string(),
        remedy,
    })
}

/// The file's name without its directory; `vdso` for the vDSO.
pub(super) fn module_name(file: &CodeFile) -> Box<str> {
    match file.content {
        Content::Vdso(_) => "vdso".into(),
        _ => file
            .clean_path()
            .file_name()
            .map_or_else(|| lossy(&file.path), |name| lossy(name.as_encoded_bytes())),
    }
}

/// Executable code in a DLL is what ReadyToRun precompiled.
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

/// `None`: there is nothing to read, or it is no ELF file.
pub(super) fn elf_file(file: &CodeFile) -> Result<Option<ElfFile<'_>>, ElfError> {
    let elf = match &file.content {
        Content::File(content) => ElfFile::open_mapped(content),
        Content::Vdso(image) => ElfFile::parse(image),
        Content::Unavailable(_) => return Ok(None),
    };
    match elf {
        Err(ElfError::NotElf) => Ok(None),
        elf => elf.map(Some),
    }
}

/// The separate debug file, if it may add something.
pub(super) fn separate(own: &ElfFile<'_>, search: &mut DebugFiles<'_>) -> Option<DebugFile> {
    let is_whole = own.has_debug_info() && own.check_symtab().unwrap_or(false);
    if is_whole { None } else { search.separate(own) }
}

/// In the order to ask them: the debug file knows more, but lacks the stubs of `.plt`.
fn tables(
    own: Option<&ElfFile<'_>>,
    debug: Option<&ElfFile<'_>>,
    aliases: Aliases,
    unreadable: impl Fn(&ElfError),
) -> Vec<SymbolTable> {
    let table = |elf: &ElfFile<'_>| {
        let table = elf.symbols_with(aliases).inspect_err(&unreadable);
        table.or_else(|_| elf.dynamic_symbols_with(aliases)).ok()
    };
    debug.into_iter().chain(own).filter_map(table).collect()
}

/// Symbol tables of a file, in the order to ask them, and what was not used for them.
#[derive(Default)]
pub(crate) struct Symbols {
    pub(crate) tables: Vec<SymbolTable>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) gaps: Vec<Unresolved>,
}

pub(crate) fn symbols(file: &CodeFile, aliases: Aliases) -> Symbols {
    let options = Options::default();
    let own = elf_file(file).ok().flatten();
    let mut search = DebugFiles::new(file, &options);
    let found = own.as_ref().and_then(|own| separate(own, &mut search));
    let debug = found.as_ref().and_then(DebugFile::elf);
    Symbols {
        tables: tables(own.as_ref(), debug.as_ref(), aliases, |_| ()),
        notices: search.notices,
        gaps: search.gaps,
    }
}

/// Who an ELF file is, as far as servers know it, and whether its symbols are here. `None` for other files.
pub(super) fn identity(file: &CodeFile, options: &Options) -> Option<(Option<Module>, bool)> {
    if let Content::Vdso(_) = file.content {
        return None;
    }
    let Some(own) = elf_file(file).transpose()?.ok() else {
        return Some((None, false));
    };
    let has_symbols = own.has_all_symbols().unwrap_or(false)
        || DebugFiles::new(file, options).separate(&own).is_some();
    Some((Module::of(file.clean_path(), &own), has_symbols))
}
