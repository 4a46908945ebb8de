//! Functions of mapped files, by the symbols of the file and of its separate debug file, or by the tables of precompiled
//! .NET code.

use std::cell::LazyCell;
use std::fs::File;

use perfcollect_symbols::debug_file::Wanted;
use perfcollect_symbols::demangle::demangle;
use perfcollect_symbols::elf::{ElfError, ElfFile, FunctionRanges};
use perfcollect_symbols::table::SymbolTable;

use super::gap::Gap;
use super::ready_to_run::Images;
use super::{Named, lossy, nameless};
use rustix::io::Errno;

use crate::machine::{CodeFile, Content, Root};
use crate::trace::{CodeAddress, Function, FunctionKind, Notice};

pub(super) fn name(codes: &[CodeAddress], file: &CodeFile) -> Named {
    let module = module_name(file);
    let (tables, notices) = symbols(file).unwrap_or_default();
    let kind = kind(file);
    let mut images = Images::of(file);
    let ranges = LazyCell::new(|| function_ranges(file).unwrap_or_default());
    let functions = codes.iter().map(|&code| {
        if let CodeAddress::File(_, offset) = code
            && let Some(function) = images.function(offset, &module)
        {
            return function;
        }
        let function = Function {
            module: module.clone(),
            kind,
            ..nameless(code)
        };
        let CodeAddress::Elf(_, address) = code else {
            return function;
        };
        match tables.iter().find_map(|table| table.lookup(address)) {
            Some(symbol) => Function {
                name: Some(demangle(symbol.name).into()),
                ..function
            },
            None => Function {
                start: ranges.around(address).map(|range| range.start),
                ..function
            },
        }
    });
    Named {
        functions: functions.collect(),
        notices,
        gap: unavailable(file),
    }
}

/// A file that could not be opened takes its names and its unwind information along.
fn unavailable(file: &CodeFile) -> Option<Gap> {
    let Content::Unavailable(error) = &file.content else {
        return None;
    };
    let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM) => "run as root, or with CAP_SYS_PTRACE",
        Some(Errno::MFILE | Errno::NFILE) => "raise the limit of open files (ulimit -n)",
        _ => "",
    };
    Some(Gap {
        kind: "code of",
        who: file.clean_path().display().to_string(),
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

/// `None`: there is nothing to read.
fn elf_file(file: &CodeFile) -> Result<Option<ElfFile<'_>>, ElfError> {
    match &file.content {
        Content::File(content) => ElfFile::open(content).map(Some),
        Content::Vdso(image) => ElfFile::parse(image).map(Some),
        Content::Unavailable(_) => Ok(None),
    }
}

fn function_ranges(file: &CodeFile) -> Result<FunctionRanges, ElfError> {
    match elf_file(file)? {
        Some(own) => own.function_ranges(),
        None => Ok(FunctionRanges::default()),
    }
}

/// Symbol tables of a file in the order to ask them: its debug file knows more, but lacks the stubs of `.plt`.
fn symbols(file: &CodeFile) -> Result<(Vec<SymbolTable>, Vec<Notice>), ElfError> {
    let Some(own) = elf_file(file)? else {
        return Ok(Default::default());
    };
    let (debug, notices) = if own.has_symtab() {
        (None, Vec::new())
    } else {
        debug_file(&own, file)
    };
    let debug =
        debug.and_then(|debug| ElfFile::open(&debug).and_then(|debug| debug.symbols()).ok());
    Ok((
        debug.into_iter().chain(own.symbols().ok()).collect(),
        notices,
    ))
}

/// The separate debug file: in the root directory of a process that has the file mapped, else in ours.
fn debug_file(own: &ElfFile<'_>, file: &CodeFile) -> (Option<File>, Vec<Notice>) {
    let build_id = own.build_id();
    let debug_link = own.debug_link();
    let wanted = Wanted {
        path: file.clean_path(),
        build_id: build_id.as_deref(),
        debug_link: debug_link.as_ref(),
    };
    let mut notices = Vec::new();
    for root in [Root::of(file.pid), Root::host()].into_iter().flatten() {
        let search = wanted.find(|path| root.open(path));
        if let Some((_, debug)) = search.found {
            return (Some(debug), notices);
        }
        notices.extend(search.rejected.iter().map(|(candidate, why)| {
            let path = candidate.path.display();
            Notice::new(format!("{path} was not used: {why}"), "")
        }));
    }
    notices.dedup();
    (None, notices)
}
