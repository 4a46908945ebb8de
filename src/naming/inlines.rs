//! Functions that were inlined, by debug information, and those that have no symbol: linkers and NativeAOT leave some out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;

use perfcollect_symbols::demangle::demangle;
use perfcollect_symbols::dwarf::{
    DebugInfo, Detail, DwarfError, DwarfSections, SplitSections, SplitUnit,
};
use thiserror::Error;

use super::Options;
use super::debug_files::DebugFiles;
use super::stop::Stop;
use crate::machine::CodeFile;
use crate::trace::{CodeAddress, Notice};

/// Names by the index of their address, outermost first.
type NamesByAddress = Vec<(usize, Vec<Box<str>>)>;

/// The function at an address, if it has no symbol, and those inlined there, outermost first.
type Chain = (Option<Box<str>>, Vec<Box<str>>);

/// What the debug information of a file tells.
#[derive(Default)]
pub(super) struct Inlines {
    /// Of the addresses that have some.
    pub(super) names: NamesByAddress,
    /// The function that is not inlined, by the index of its address, where there is no symbol.
    pub(super) functions: HashMap<usize, Box<str>>,
    /// What could not be read.
    pub(super) notices: Vec<Notice>,
}

#[derive(Debug, Error)]
enum Fault {
    #[error(transparent)]
    Dwarf(#[from] DwarfError),
    #[error("{} is not there", .0.display())]
    Missing(PathBuf),
}

/// The functions inlined at these addresses of a file, and those they are in where `has_symbol` says no.
pub(super) fn find(
    codes: &[CodeAddress],
    dwarf: Option<&DwarfSections<'_>>,
    file: &CodeFile,
    options: &Options,
    has_symbol: &dyn Fn(u64) -> bool,
    stop: Stop<'_>,
) -> Inlines {
    let Some(dwarf) = dwarf else {
        return Inlines::default();
    };
    let split = RefCell::new(SplitUnits::new(file, options));
    let open = |unit: &SplitUnit| split.borrow_mut().open(unit);
    let mut inlines = Inlines::default();
    let fault = inlines.read(codes, dwarf, &open, has_symbol, stop);
    let mut split = split.into_inner();
    let fault = fault.or(split.missing.take());
    inlines.notices = split.files.notices;
    inlines.notices.extend(fault.map(|fault| {
        let path = file.clean_path().display();
        Notice::new(
            format!("inlined functions of {path} are not all shown: {fault}"),
            "",
        )
    }));
    inlines
}

/// The files of split units.
struct SplitUnits<'a> {
    files: DebugFiles<'a>,
    /// The first that is not there.
    missing: Option<Fault>,
}

impl<'a> SplitUnits<'a> {
    fn new(file: &'a CodeFile, options: &'a Options) -> Self {
        Self {
            files: DebugFiles::new(file, options),
            missing: None,
        }
    }

    fn open(&mut self, unit: &SplitUnit) -> Option<SplitSections> {
        let sections = self.files.split_unit(unit);
        if sections.is_none() && self.missing.is_none() {
            self.missing = Some(Fault::Missing(unit.name.clone()));
        }
        sections
    }
}

impl Inlines {
    /// Takes what can be read; returns the first fault.
    fn read(
        &mut self,
        codes: &[CodeAddress],
        sections: &DwarfSections<'_>,
        open: &dyn Fn(&SplitUnit) -> Option<SplitSections>,
        has_symbol: &dyn Fn(u64) -> bool,
        stop: Stop<'_>,
    ) -> Option<Fault> {
        let debug_info = match sections.debug_info_with(open) {
            Ok(debug_info) => debug_info,
            Err(error) => return Some(error.into()),
        };
        let mut names = Names {
            debug_info: &debug_info,
            known: HashMap::new(),
        };
        let mut fault = None;
        for (index, code) in codes.iter().enumerate() {
            let CodeAddress::Elf(_, address) = *code else {
                continue;
            };
            if stop() {
                break;
            }
            match names.at(address, has_symbol(address)) {
                Ok((function, inlined)) => {
                    self.functions.extend(function.map(|name| (index, name)));
                    if !inlined.is_empty() {
                        self.names.push((index, inlined));
                    }
                }
                Err(error) => fault = fault.or(Some(error.into())),
            }
        }
        fault
    }
}

struct Names<'n, 's> {
    debug_info: &'n DebugInfo<'s>,
    /// Few functions are inlined in many places.
    known: HashMap<&'n [u8], Box<str>>,
}

impl Names<'_, '_> {
    fn at(&mut self, address: u64, has_symbol: bool) -> Result<Chain, DwarfError> {
        let frames = self.debug_info.frames(address, Detail::Functions)?;
        let Some((function, inlined)) = frames.split_last() else {
            return Ok((None, Vec::new()));
        };
        let mut text = |name| {
            let known = self.known.entry(name);
            known.or_insert_with(|| demangle(name).into()).clone()
        };
        let function = function.name.filter(|_| !has_symbol).map(&mut text);
        let inlined = inlined.iter().rev().filter_map(|frame| frame.name);
        Ok((function, inlined.map(text).collect()))
    }
}
