//! The DWARF sections, which are read on demand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use gimli::RunTimeEndian;

use super::DwarfError;
use super::split::PackageSections;
use super::step_budget::{BudgetedReader, StepBudget};
use crate::demangle::KEPT_NAME_BYTES;
use crate::elf::{ElfError, LazySection};
use crate::memory_budget::MemoryUse;

/// Limit of all sections of a file, decompressed, in bytes: six times what libcoreclr.so has.
pub const MAX_DWARF_BYTES: u64 = 256 << 20;
/// Bytes that are read first to find the end of a string.
const STRING_BYTES: u64 = 256;

/// The DWARF sections for functions and lines.
///
/// Uncompressed sections are read in parts: a unit, a string.
#[derive(Debug)]
pub struct DwarfSections {
    pub(super) abbrev: Section,
    pub(super) addr: Section,
    pub(super) aranges: Section,
    pub(super) info: Section,
    pub(super) line: Section,
    pub(super) line_str: Section,
    pub(super) ranges: Section,
    pub(super) rnglists: Section,
    pub(super) str: Section,
    pub(super) str_offsets: Section,
    pub(super) endian: RunTimeEndian,
    /// The step budget of the file, shared with its supplementary file and split units.
    pub(super) budget: Arc<StepBudget>,
    pub(super) units: OnceLock<Vec<super::units::UnitSlice>>,
    pub(super) supplementary: Option<Box<Self>>,
    pub(super) package: Option<PackageSections>,
    left_bytes: AtomicU64,
}

impl DwarfSections {
    /// Creates sections in memory. `section` returns one by name, or an empty one if it is missing.
    ///
    /// ```
    /// use perfcollect_symbols::dwarf::DwarfSections;
    ///
    /// let load = |name| match name {
    ///     ".debug_info" => Ok::<_, std::io::Error>(vec![]),
    ///     _ => Ok(Vec::new()),
    /// };
    /// let sections = DwarfSections::load(false, load)?;
    /// assert!(sections.into_debug_info().is_ok());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `section` fails.
    pub fn load<E>(
        is_big_endian: bool,
        section: impl FnMut(&'static str) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        Self::load_charged(is_big_endian, Arc::default(), section)
    }

    pub(crate) fn load_charged<E>(
        is_big_endian: bool,
        memory: Arc<MemoryUse>,
        mut section: impl FnMut(&'static str) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        Self::new(is_big_endian, memory, |name| {
            section(name).map(Section::loaded)
        })
    }

    /// Creates sections that are read on demand.
    pub(crate) fn lazy(
        is_big_endian: bool,
        memory: &Arc<MemoryUse>,
        section: impl Fn(&'static str) -> Option<LazySection>,
    ) -> Self {
        let section = |name| match section(name) {
            Some(origin) => Section {
                origin: Some(origin),
                whole: OnceLock::new(),
            },
            None => Section::loaded(Vec::new()),
        };
        let never: Result<_, std::convert::Infallible> =
            Self::new(is_big_endian, memory.clone(), |name| Ok(section(name)));
        match never {
            Ok(sections) => sections,
        }
    }

    fn new<E>(
        is_big_endian: bool,
        memory: Arc<MemoryUse>,
        mut section: impl FnMut(&'static str) -> Result<Section, E>,
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
            budget: Arc::new(StepBudget::new(memory)),
            units: OnceLock::new(),
            supplementary: None,
            package: None,
            left_bytes: AtomicU64::new(MAX_DWARF_BYTES),
        })
    }

    /// Sets the supplementary file, to which `dwz` moves what several files have in common.
    ///
    /// [`ElfFile::alt_link`](crate::elf::ElfFile::alt_link) returns its path.
    pub fn set_supplementary(&mut self, mut supplementary: Self) {
        supplementary.budget = self.budget.clone();
        self.supplementary = Some(Box::new(supplementary));
    }

    /// Sets the package of split units, `FILE.dwp`.
    pub fn set_package(&mut self, package: PackageSections) {
        self.package = Some(package);
    }

    /// Replaces `.debug_str`.
    pub(super) fn with_strings(mut self, strings: Arc<Vec<u8>>) -> Self {
        self.str.whole = OnceLock::from(Ok(strings));
        self
    }

    /// Returns a reader of a section.
    pub(super) fn whole<'s>(
        &'s self,
        section: &'s Section,
    ) -> Result<BudgetedReader<'s>, DwarfError> {
        self.bytes(section).map(|bytes| self.reader(bytes))
    }

    fn bytes<'s>(&self, section: &'s Section) -> Result<&'s [u8], DwarfError> {
        let whole = section.whole.get_or_init(|| {
            let Some(origin) = &section.origin else {
                return Ok(Arc::default());
            };
            let left = self.left_bytes.load(Ordering::Relaxed);
            let bytes = origin.whole(left).map_err(unreadable)?;
            self.spend_bytes(bytes.len())?;
            Ok(Arc::new(bytes))
        });
        whole.as_ref().map(|bytes| &***bytes).map_err(Clone::clone)
    }

    /// Subtracts bytes that are kept in memory from [`MAX_DWARF_BYTES`].
    fn spend_bytes(&self, bytes: usize) -> Result<(), DwarfError> {
        let spend = |left: u64| left.checked_sub(bytes as u64);
        let left = &self.left_bytes;
        match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend) {
            Ok(_) => Ok(()),
            Err(_) => Err(unreadable(ElfError::TooLarge {
                what: "debug information",
                size: MAX_DWARF_BYTES.saturating_add(1),
                limit: MAX_DWARF_BYTES,
            })),
        }
    }

    /// Returns the size of a section, decompressed.
    pub(super) fn size(&self, section: &Section) -> Result<u64, DwarfError> {
        match section.in_file() {
            Some((_, size)) => Ok(size),
            None => Ok(self.bytes(section)?.len() as u64),
        }
    }

    /// Returns a reader of a part of a section, truncated at the end of the section.
    ///
    /// The bytes are stored in `cache`, unless the section is in memory.
    pub(super) fn part<'s>(
        &'s self,
        section: &'s Section,
        offset: u64,
        size: u64,
        cache: &'s OnceLock<Vec<u8>>,
    ) -> Result<BudgetedReader<'s>, DwarfError> {
        if let Some(bytes) = cache.get() {
            return Ok(self.reader(bytes));
        }
        let Some(bytes) = self.read(section, offset, size)? else {
            let whole = self.bytes(section)?;
            return Ok(self.reader(range(whole, offset, size)));
        };
        self.spend_bytes(bytes.len())?;
        Ok(self.reader(cache.get_or_init(|| bytes)))
    }

    /// Returns the first bytes of a part, which have its length, and their number.
    pub(super) fn start<const N: usize>(
        &self,
        section: &Section,
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

    /// Returns a string without its NUL, truncated to [`KEPT_NAME_BYTES`].
    ///
    /// Returns `None` if the section ends before the string does.
    pub(super) fn string(
        &self,
        section: &Section,
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
            if let Some(string) = bytes.get(..end.unwrap_or(KEPT_NAME_BYTES)) {
                self.budget.charge_bytes(string.len())?;
                return Ok(Some(string.into()));
            }
        }
        self.budget.charge_bytes(KEPT_NAME_BYTES)?;
        Ok(None)
    }

    /// Reads a part of a section, or returns `None` if the section is in memory or compressed.
    fn read(
        &self,
        section: &Section,
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

/// Cost of a system call, in steps.
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

/// A section, in memory or in the file.
#[derive(Debug)]
pub(super) struct Section {
    /// The section in the file, or `None` if it was created in memory.
    origin: Option<LazySection>,
    whole: OnceLock<Result<Arc<Vec<u8>>, DwarfError>>,
}

impl Section {
    fn loaded(bytes: Vec<u8>) -> Self {
        Self {
            origin: None,
            whole: OnceLock::from(Ok(Arc::new(bytes))),
        }
    }

    /// Returns the section in the file and its size, if its parts can be read.
    fn in_file(&self) -> Option<(&LazySection, u64)> {
        let origin = self.origin.as_ref()?;
        Some((origin, origin.size()?))
    }
}
