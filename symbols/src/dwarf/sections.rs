//! The sections of DWARF: what is needed of them, read when it is.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;

use gimli::RunTimeEndian;

use super::DwarfError;
use super::split::PackageSections;
use super::step_budget::{BudgetedReader, StepBudget};
use crate::demangle::KEPT_NAME_BYTES;
use crate::elf::{ElfError, LazySection};

/// Most bytes taken of all sections together, decompressed: what libcoreclr has, six times.
pub const MAX_DWARF_BYTES: u64 = 256 << 20;
/// What is read to find the end of a string; if it is longer, all that one may have.
const STRING_BYTES: u64 = 256;

/// The sections that tell of functions and lines. What is not compressed is read in parts: a unit, a string.
#[derive(Debug)]
pub struct DwarfSections<'a> {
    pub(super) abbrev: Section<'a>,
    pub(super) addr: Section<'a>,
    pub(super) aranges: Section<'a>,
    pub(super) info: Section<'a>,
    pub(super) line: Section<'a>,
    pub(super) line_str: Section<'a>,
    pub(super) ranges: Section<'a>,
    pub(super) rnglists: Section<'a>,
    pub(super) str: Section<'a>,
    pub(super) str_offsets: Section<'a>,
    pub(super) endian: RunTimeEndian,
    /// One for the file and for what is in others.
    pub(super) budget: Rc<StepBudget>,
    pub(super) units: OnceCell<Vec<super::units::UnitSlice>>,
    pub(super) supplementary: Option<Box<DwarfSections<'static>>>,
    pub(super) package: Option<PackageSections>,
    left_bytes: Cell<u64>,
}

impl<'a> DwarfSections<'a> {
    /// Takes the sections from memory, by their names such as `.debug_info`; one that is not there is empty.
    ///
    /// # Errors
    /// Those of `section`.
    pub fn load<E>(
        is_big_endian: bool,
        mut section: impl FnMut(&'static str) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        Self::new(is_big_endian, |name| section(name).map(Section::loaded))
    }

    /// Takes sections that are read later.
    pub(crate) fn lazy(
        is_big_endian: bool,
        section: impl Fn(&'static str) -> Option<LazySection<'a>>,
    ) -> Self {
        let section = |name| match section(name) {
            Some(origin) => Section {
                origin: Some(origin),
                whole: OnceCell::new(),
            },
            None => Section::loaded(Vec::new()),
        };
        let never: Result<_, std::convert::Infallible> =
            Self::new(is_big_endian, |name| Ok(section(name)));
        match never {
            Ok(sections) => sections,
        }
    }

    fn new<E>(
        is_big_endian: bool,
        mut section: impl FnMut(&'static str) -> Result<Section<'a>, E>,
    ) -> Result<Self, E> {
        Ok(Self {
            abbrev: section(".debug_abbrev")?,
            addr: section(".debug_addr")?,
            aranges: section(".debug_aranges")?,
            info: section(".debug_info")?,
            line: section(".debug_line")?,
            line_str: section(".debug_line_str")?,
            ranges: section(".debug_ranges")?,
            rnglists: section(".debug_rnglists")?,
            str: section(".debug_str")?,
            str_offsets: section(".debug_str_offsets")?,
            endian: run_time_endian(is_big_endian),
            budget: Rc::default(),
            units: OnceCell::new(),
            supplementary: None,
            package: None,
            left_bytes: Cell::new(MAX_DWARF_BYTES),
        })
    }

    /// Adds what several files have in common, as `dwz` moves it to a file of its own: the one that
    /// [`ElfFile::alt_link`](crate::elf::ElfFile::alt_link) names.
    pub fn set_supplementary(&mut self, mut common: DwarfSections<'static>) {
        common.budget = self.budget.clone();
        self.supplementary = Some(Box::new(common));
    }

    /// Adds the package of split units, `FILE.dwp`.
    pub fn set_package(&mut self, package: PackageSections) {
        self.package = Some(package);
    }

    /// The same with another `.debug_str`.
    pub(super) fn with_strings(mut self, strings: Rc<Vec<u8>>) -> Self {
        self.str.whole = OnceCell::from(strings);
        self
    }

    /// All of a section.
    pub(super) fn whole<'s>(
        &'s self,
        section: &'s Section<'_>,
    ) -> Result<BudgetedReader<'s>, DwarfError> {
        self.bytes(section).map(|bytes| self.reader(bytes))
    }

    fn bytes<'s>(&self, section: &'s Section<'_>) -> Result<&'s [u8], DwarfError> {
        match (section.whole.get(), &section.origin) {
            (Some(bytes), _) => Ok(bytes),
            (None, Some(origin)) => {
                let left = self.left_bytes.get();
                let bytes = origin.whole(left).map_err(unreadable)?;
                self.left_bytes.set(left.saturating_sub(bytes.len() as u64));
                Ok(section.whole.get_or_init(|| Rc::new(bytes)))
            }
            (None, None) => Ok(&[]),
        }
    }

    /// The bytes of a section, in the file or decompressed.
    pub(super) fn size(&self, section: &Section<'_>) -> Result<u64, DwarfError> {
        match section.in_file() {
            Some((_, size)) => Ok(size),
            None => Ok(self.bytes(section)?.len() as u64),
        }
    }

    /// A part of a section, kept in `place` if the section is not all here. What is not there is left out.
    pub(super) fn part<'s>(
        &'s self,
        section: &'s Section<'_>,
        offset: u64,
        size: u64,
        place: &'s OnceCell<Vec<u8>>,
    ) -> Result<BudgetedReader<'s>, DwarfError> {
        if let Some(bytes) = place.get() {
            return Ok(self.reader(bytes));
        }
        let Some(bytes) = self.read(section, offset, size)? else {
            let whole = self.bytes(section)?;
            return Ok(self.reader(range(whole, offset, size)));
        };
        let left = self.left_bytes.get().checked_sub(bytes.len() as u64);
        let too_large = || ElfError::TooLarge {
            what: "debug information",
            size: MAX_DWARF_BYTES.saturating_add(1),
            limit: MAX_DWARF_BYTES,
        };
        self.left_bytes
            .set(left.ok_or_else(too_large).map_err(unreadable)?);
        Ok(self.reader(place.get_or_init(|| bytes)))
    }

    /// The first bytes of a part, to know how long it is.
    pub(super) fn start<const N: usize>(
        &self,
        section: &Section<'_>,
        offset: u64,
    ) -> Result<([u8; N], usize), DwarfError> {
        let read = self.read(section, offset, N as u64)?;
        let bytes = match &read {
            Some(bytes) => bytes,
            None => range(self.bytes(section)?, offset, N as u64),
        };
        let mut start = [0; N];
        start
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        Ok((start, bytes.len()))
    }

    /// A string, without its NUL; of one that is longer than any name its first [`KEPT_NAME_BYTES`]. `None`: it has no end.
    pub(super) fn string(
        &self,
        section: &Section<'_>,
        offset: usize,
    ) -> Result<Option<Box<[u8]>>, DwarfError> {
        let offset = offset as u64;
        for size in [STRING_BYTES, KEPT_NAME_BYTES as u64] {
            let read = self.read(section, offset, size)?;
            let bytes = match &read {
                Some(bytes) => bytes,
                None => range(self.bytes(section)?, offset, size),
            };
            let end = memchr::memchr(0, bytes);
            if let Some(text) = bytes.get(..end.unwrap_or(KEPT_NAME_BYTES)) {
                self.budget.charge_bytes(text.len())?;
                return Ok(Some(text.into()));
            }
        }
        self.budget.charge_bytes(KEPT_NAME_BYTES)?;
        Ok(None)
    }

    /// A part of a section that is in the file and not compressed.
    fn read(
        &self,
        section: &Section<'_>,
        offset: u64,
        size: u64,
    ) -> Result<Option<Vec<u8>>, DwarfError> {
        let Some((origin, all)) = section.in_file() else {
            return Ok(None);
        };
        self.budget.charge(READ_COST)?;
        let size = size.min(all.saturating_sub(offset));
        origin.part(offset, size).map_err(unreadable).map(Some)
    }

    pub(super) fn reader<'s>(&'s self, bytes: &'s [u8]) -> BudgetedReader<'s> {
        BudgetedReader::new(bytes, self.endian, &self.budget)
    }
}

/// What a call of the kernel counts.
const READ_COST: u64 = 32;

pub(super) fn run_time_endian(is_big_endian: bool) -> RunTimeEndian {
    match is_big_endian {
        false => RunTimeEndian::Little,
        true => RunTimeEndian::Big,
    }
}

fn range(bytes: &[u8], offset: u64, size: u64) -> &[u8] {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let from = bytes.get(offset..).unwrap_or_default();
    from.get(..size).unwrap_or(from)
}

fn unreadable(error: ElfError) -> DwarfError {
    DwarfError::Unreadable(Arc::new(error))
}

/// A section.
#[derive(Debug)]
pub(super) struct Section<'a> {
    /// Where it is read from, unless it was here from the start.
    origin: Option<LazySection<'a>>,
    whole: OnceCell<Rc<Vec<u8>>>,
}

impl<'a> Section<'a> {
    fn loaded(bytes: Vec<u8>) -> Self {
        Self {
            origin: None,
            whole: OnceCell::from(Rc::new(bytes)),
        }
    }

    /// Where parts of it can be read, and its size.
    fn in_file(&self) -> Option<(&LazySection<'a>, u64)> {
        let origin = self.origin.as_ref()?;
        Some((origin, origin.size()?))
    }
}
