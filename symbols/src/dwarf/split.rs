//! Split units, whose functions are in separate files (`-gsplit-dwarf`).
//!
//! The program has a skeleton of each split unit, with the addresses. A file is verified by the id
//! of its unit. A package (`FILE.dwp`) has many split units by id.
//!
//! Format: DWARF 5, sections 3.1.2, 3.1.3 and 7.3.2; GNU extension of DWARF 4
//! (`DW_AT_GNU_dwo_name`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use gimli::{DwarfPackage, DwarfPackageSections, DwoId, Reader, RunTimeEndian, Section, SectionId};

use super::DwarfError;
use super::sections::{DwarfSections, run_time_endian};
use super::step_budget::{BudgetedReader, StepBudget};
use super::unit::Unit;
use super::units::{UNIT_COST, Units};
use crate::memory_budget::MemoryUse;

/// Cost of opening a file, in steps. It limits a program to some ten thousand files.
pub(super) const OPEN_COST: u64 = 1 << 12;
/// Bytes of a file per step. All files together have the size limit of the program.
const BYTES_PER_READ: u64 = 4;
/// Limit of a path: the limit of the kernel.
const MAX_PATH_BYTES: usize = 4096;

/// A split unit, as its skeleton in the program describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitUnit {
    /// Id of the unit, which its file has, too.
    pub id: u64,
    /// Compilation directory (`DW_AT_comp_dir`).
    pub directory: Option<PathBuf>,
    /// Path of the file, absolute or relative to `directory` (`DW_AT_dwo_name`).
    pub name: PathBuf,
}

impl SplitUnit {
    /// Reads the path from a skeleton. Returns `None` if the skeleton has none.
    pub(super) fn from_skeleton<'a>(
        skeleton: &Unit<'a>,
        id: DwoId,
        units: &Units<'a>,
    ) -> Result<Option<Self>, DwarfError> {
        let path = |value: &Option<_>| {
            let bytes = value.as_ref().map(|value| units.string(skeleton, value));
            let bytes = bytes.transpose()?.flatten();
            let bytes = bytes.filter(|bytes| (1..=MAX_PATH_BYTES).contains(&bytes.len()));
            Ok::<_, DwarfError>(bytes.map(|bytes| PathBuf::from(OsStr::from_bytes(&bytes))))
        };
        let directory = path(&skeleton.directory)?;
        Ok(path(&skeleton.split_name)?.map(|name| Self {
            id: id.0,
            directory,
            name,
        }))
    }
}

/// The sections of a split unit's file, in memory.
#[derive(Debug)]
pub struct SplitSections {
    pub(super) sections: DwarfSections,
    size_bytes: u64,
}

impl SplitSections {
    /// Creates sections in memory.
    ///
    /// `section` returns one by name, such as `.debug_info.dwo`, or an empty one if it is missing.
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
        let mut size_bytes = 0;
        let sections = DwarfSections::load_charged(is_big_endian, memory, |name| {
            let bytes = match name {
                ".debug_abbrev" => section(".debug_abbrev.dwo")?,
                ".debug_info" => section(".debug_info.dwo")?,
                ".debug_rnglists" => section(".debug_rnglists.dwo")?,
                ".debug_str" => section(".debug_str.dwo")?,
                ".debug_str_offsets" => section(".debug_str_offsets.dwo")?,
                _ => Vec::new(),
            };
            size_bytes += bytes.len() as u64;
            Ok(bytes)
        })?;
        Ok(Self {
            sections,
            size_bytes,
        })
    }

    /// Returns the id of the unit, or `None` if it has none or is corrupt.
    fn unit_id(&self) -> Option<u64> {
        let units = Units::new(&self.sections).ok()?;
        let unit = units.first_with_code()?.ok()?;
        unit.unit.dwo_id.map(|id| id.0)
    }

    /// Returns whether the file has this unit.
    #[must_use]
    pub fn belongs_to(&self, unit: &SplitUnit) -> bool {
        self.unit_id() == Some(unit.id)
    }

    /// Returns the cost of keeping the sections and the list of units, in steps.
    pub(super) fn cost(&self) -> u64 {
        let units = self.sections.units.get().map_or(0, Vec::len) as u64;
        self.size_bytes / BYTES_PER_READ + units.saturating_mul(UNIT_COST)
    }
}

/// The sections of a package of split units, in memory.
#[derive(Debug)]
pub struct PackageSections {
    sections: DwarfPackageSections<Vec<u8>>,
    /// `.debug_str.dwo`, which all units share.
    strings: Arc<Vec<u8>>,
    endian: RunTimeEndian,
}

impl PackageSections {
    /// Creates sections in memory.
    ///
    /// `section` returns one by name, such as `.debug_cu_index` or `.debug_info.dwo`, or an empty
    /// one if it is missing.
    ///
    /// # Errors
    /// `section` fails.
    pub fn load<E>(
        is_big_endian: bool,
        mut section: impl FnMut(&'static str) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        let mut load = |id: SectionId| id.dwo_name().map_or(Ok(Vec::new()), &mut section);
        Ok(Self {
            // gimli checks the ranges of all sections in a row of the index, also of unused ones.
            sections: DwarfPackageSections {
                cu_index: load(SectionId::DebugCuIndex)?.into(),
                debug_abbrev: load(SectionId::DebugAbbrev)?.into(),
                debug_info: load(SectionId::DebugInfo)?.into(),
                debug_line: load(SectionId::DebugLine)?.into(),
                debug_loc: load(SectionId::DebugLoc)?.into(),
                debug_loclists: load(SectionId::DebugLocLists)?.into(),
                debug_macinfo: load(SectionId::DebugMacinfo)?.into(),
                debug_macro: load(SectionId::DebugMacro)?.into(),
                debug_rnglists: load(SectionId::DebugRngLists)?.into(),
                debug_str_offsets: load(SectionId::DebugStrOffsets)?.into(),
                debug_types: load(SectionId::DebugTypes)?.into(),
                ..Default::default()
            },
            strings: Arc::new(load(SectionId::DebugStr)?),
            endian: run_time_endian(is_big_endian),
        })
    }

    pub(super) fn borrow<'a>(&'a self, budget: &'a StepBudget) -> gimli::Result<Package<'a>> {
        let budgeted = |bytes| BudgetedReader::new(bytes, self.endian, budget);
        let parts = self
            .sections
            .borrow(|bytes: &'a Vec<u8>| budgeted(bytes), budgeted(&[]))?;
        Ok(Package {
            parts,
            sections: self,
            budget,
        })
    }
}

/// A package whose index is parsed.
pub(super) struct Package<'a> {
    parts: DwarfPackage<BudgetedReader<'a>>,
    sections: &'a PackageSections,
    budget: &'a StepBudget,
}

impl<'a> Package<'a> {
    /// Copies the sections of one unit. Returns `None` if the package does not have the unit.
    pub(super) fn unit(
        &self,
        id: DwoId,
        parent: &gimli::Dwarf<BudgetedReader<'a>>,
    ) -> Result<Option<DwarfSections>, DwarfError> {
        let Some(unit) = self.parts.find_cu(id, parent)? else {
            return Ok(None);
        };
        let sections = DwarfSections::load(self.sections.endian == RunTimeEndian::Big, |name| {
            let part = match name {
                ".debug_abbrev" => unit.debug_abbrev.reader(),
                ".debug_info" => unit.debug_info.reader(),
                ".debug_rnglists" => unit.ranges.debug_rnglists().reader(),
                ".debug_str_offsets" => unit.debug_str_offsets.reader(),
                _ => return Ok(Vec::new()),
            };
            self.budget.charge(part.len() as u64 / BYTES_PER_READ)?;
            Ok::<_, DwarfError>(part.bytes()?.to_vec())
        });
        Ok(Some(sections?.with_strings(self.sections.strings.clone())))
    }
}
