//! Functions that were inlined, by debug information, and those that have no symbol: linkers and NativeAOT leave some out.

use std::cell::RefCell;
use std::collections::HashMap;

use perfcollect_symbols::demangle::{demangle, demangle_bare};
use perfcollect_symbols::dwarf::{
    DebugInfo, Detail, DwarfError, DwarfSections, SplitSections, SplitUnit,
};
use thiserror::Error;

use super::cancel::CancelCheck;
use super::debug_files::{DebugFile, DebugFiles};
use super::{Options, elf};
use crate::machine::CodeFile;
use crate::trace::{CodeAddress, Notice};

/// Most bytes of the names of a file, each counted once.
const MAX_NAMES_BYTES: usize = 128 << 20;

/// The function at an address, if it has no symbol, and those inlined there, outermost first, by their place among the names.
type Chain = (Option<usize>, Vec<usize>);

/// What the debug information of a file tells.
#[derive(Default)]
pub(super) struct Inlines {
    /// Each once.
    pub(super) names: Vec<Box<str>>,
    /// The functions inlined at addresses that have such, by the index of the address, outermost first.
    pub(super) inlined: Vec<(usize, Vec<usize>)>,
    /// The function that is not inlined, by the index of its address, where there is no symbol.
    functions: HashMap<usize, usize>,
}

#[derive(Debug, Error)]
enum InlineError {
    #[error(transparent)]
    Dwarf(#[from] DwarfError),
    #[error("{0}")]
    Missing(String),
}

/// An address that debug information is asked about.
pub(super) struct Asked {
    /// Of the code.
    index: usize,
    address: u64,
    has_symbol: bool,
}

/// All addresses, if inlined functions are wanted; else those that have no symbol.
pub(super) fn asked(
    codes: &[CodeAddress],
    options: &Options,
    has_symbol: impl Fn(u64) -> bool,
) -> Vec<Asked> {
    let of = |(index, code): (usize, &CodeAddress)| match *code {
        CodeAddress::Elf(_, address) => Some(Asked {
            index,
            address,
            has_symbol: has_symbol(address),
        }),
        _ => None,
    };
    let all = codes.iter().enumerate().filter_map(of);
    all.filter(|asked| options.inlined || !asked.has_symbol)
        .collect()
}

/// The functions inlined at these addresses of a file, and those they are in where there is no symbol. What could not be read is among
/// the notices of `files`.
pub(super) fn find(
    asked: &[Asked],
    dwarf: Option<&DwarfSections<'_>>,
    files: &mut DebugFiles<'_>,
    stop: CancelCheck<'_>,
) -> Inlines {
    let Some(dwarf) = dwarf else {
        return Inlines::default();
    };
    let inlined = files.options.inlined;
    let split = RefCell::new(SplitUnits::of(files));
    let open = |unit: &SplitUnit| split.borrow_mut().open(unit);
    let mut inlines = Inlines::default();
    let fault = inlines.read(asked, dwarf, &open, stop);
    if !inlined {
        inlines.inlined.clear();
    }
    let SplitUnits { files, missing } = split.into_inner();
    files.notices.extend(fault.or(missing).map(|fault| {
        let what = files.incomplete();
        Notice::new(format!("{what}: {fault}"), "")
    }));
    inlines
}

/// Lets `ask` look up the functions inlined at addresses of a file, innermost first, or why they are not known; does nothing if it has no
/// debug information.
pub(crate) fn with_inlined(
    file: &CodeFile,
    ask: impl FnOnce(&dyn Fn(u64) -> Result<Vec<String>, String>),
) {
    let options = Options {
        inlined: true,
        ..Options::default()
    };
    let own = elf::elf_file(file).ok().flatten();
    let mut search = DebugFiles::new(file, &options);
    let found = own.as_ref().and_then(|own| elf::separate(own, &mut search));
    let debug = found.as_ref().and_then(DebugFile::elf);
    let mut both = debug.iter().chain(&own);
    let Some(sections) = both.find_map(|elf| search.sections(elf, found.as_ref())) else {
        return;
    };
    let incomplete = search.incomplete();
    let split = RefCell::new(SplitUnits::of(&mut search));
    let open = |unit: &SplitUnit| split.borrow_mut().open(unit);
    let told = |fault: InlineError| format!("{incomplete}: {fault}");
    let debug_info = match sections.debug_info_with(open) {
        Ok(debug_info) => debug_info,
        Err(error) => return ask(&|_| Err(told(error.clone().into()))),
    };
    ask(&|address| {
        let frames = debug_info.frames(address, Detail::Functions);
        if let Some(fault) = split.borrow_mut().missing.take() {
            return Err(told(fault));
        }
        let frames = frames.map_err(|error| told(error.into()))?;
        let inlined = frames.split_last().map_or(&[][..], |(_, inlined)| inlined);
        let names = inlined.iter().filter_map(|frame| frame.name);
        Ok(names.map(|name| demangle_bare(name).into()).collect())
    });
}

/// The files of split units.
struct SplitUnits<'s, 'a> {
    files: &'s mut DebugFiles<'a>,
    /// The first that is not to be had.
    missing: Option<InlineError>,
}

impl<'s, 'a> SplitUnits<'s, 'a> {
    fn of(files: &'s mut DebugFiles<'a>) -> Self {
        Self {
            files,
            missing: None,
        }
    }

    fn open(&mut self, unit: &SplitUnit) -> Option<SplitSections> {
        let sections = self.files.split_unit(unit);
        sections
            .map_err(|why| self.missing.get_or_insert(InlineError::Missing(why)))
            .ok()
    }
}

impl Inlines {
    /// The function that is not inlined, at an address that has no symbol.
    pub(super) fn function(&self, index: usize) -> Option<&str> {
        let place = self.functions.get(&index)?;
        self.names.get(*place).map(|name| &**name)
    }

    /// Takes what can be read; returns the first fault.
    fn read(
        &mut self,
        asked: &[Asked],
        sections: &DwarfSections<'_>,
        open: &dyn Fn(&SplitUnit) -> Option<SplitSections>,
        stop: CancelCheck<'_>,
    ) -> Option<InlineError> {
        let debug_info = match sections.debug_info_with(open) {
            Ok(debug_info) => debug_info,
            Err(error) => return Some(error.into()),
        };
        let mut names = NamePool {
            debug_info: &debug_info,
            known: HashMap::new(),
            texts: &mut self.names,
            left_bytes: MAX_NAMES_BYTES,
        };
        let mut fault = None;
        for asked in asked {
            if stop() {
                break;
            }
            match names.at(asked.address, asked.has_symbol) {
                Ok((function, inlined)) => {
                    let function = function.map(|name| (asked.index, name));
                    self.functions.extend(function);
                    if !inlined.is_empty() {
                        self.inlined.push((asked.index, inlined));
                    }
                }
                Err(error) => fault = fault.or(Some(error.into())),
            }
        }
        fault
    }
}

struct NamePool<'n, 's> {
    debug_info: &'n DebugInfo<'s>,
    /// Few functions are inlined in many places.
    known: HashMap<&'n [u8], usize>,
    texts: &'n mut Vec<Box<str>>,
    left_bytes: usize,
}

impl<'n> NamePool<'n, '_> {
    fn at(&mut self, address: u64, has_symbol: bool) -> Result<Chain, DwarfError> {
        let frames = self.debug_info.frames(address, Detail::Functions)?;
        let Some((function, inlined)) = frames.split_last() else {
            return Ok((None, Vec::new()));
        };
        let function = function.name.filter(|_| !has_symbol);
        let function = function.map(|name| self.place(name)).transpose()?;
        let inlined = inlined.iter().rev().filter_map(|frame| frame.name);
        let inlined = inlined.map(|name| self.place(name));
        Ok((function, inlined.collect::<Result<_, _>>()?))
    }

    /// Where a name is among the texts.
    fn place(&mut self, name: &'n [u8]) -> Result<usize, DwarfError> {
        if let Some(place) = self.known.get(name) {
            return Ok(*place);
        }
        let text: Box<str> = demangle(name).into();
        let left = self.left_bytes.checked_sub(text.len());
        self.left_bytes = left.ok_or(DwarfError::BudgetExceeded)?;
        let place = self.texts.len();
        self.texts.push(text);
        self.known.insert(name, place);
        Ok(place)
    }
}
