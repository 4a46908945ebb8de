//! Units whose functions are in a file of their own (`-gsplit-dwarf`): the program has a skeleton of each, with the addresses.
//!
//! Format: DWARF 5, 3.1.2, 3.1.3 and 7.3.2; of DWARF 4 the extension of GNU (`DW_AT_GNU_dwo_name`). The file of a unit proves by the
//! unit's id that it belongs. A package (`FILE.dwp`) has those of many, by id.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use gimli::{DwarfPackage, DwarfPackageSections, DwoId, Reader, RunTimeEndian, Section, SectionId};

use super::DwarfError;
use super::sections::{DwarfSections, run_time_endian};
use super::step_budget::{BudgetedReader, StepBudget};
use super::unit::Unit;
use super::units::Units;

/// What opening a file counts as: some ten thousand may be asked for.
pub(super) const OPEN_COST: u64 = 1 << 12;
/// Bytes of a file that count as much as a read: all files together have no more than the program may have itself.
const BYTES_PER_READ: u64 = 4;
/// Longest path taken, as the kernel's.
const MAX_PATH_BYTES: usize = 4096;

/// A unit of which the program has the skeleton.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitUnit {
    /// The unit's id, which its file has too.
    pub id: u64,
    /// Where the compiler ran (`DW_AT_comp_dir`).
    pub directory: Option<PathBuf>,
    /// The unit's file, absolute or relative to that directory (`DW_AT_dwo_name`).
    pub name: PathBuf,
}

impl SplitUnit {
    /// `None`: the skeleton names no file.
    pub(super) fn from_skeleton<'a>(
        skeleton: &Unit<'a>,
        id: DwoId,
        units: &Units<'a>,
    ) -> Result<Option<Self>, DwarfError> {
        let path = |text: &Option<_>| {
            let bytes = text.as_ref().map(|text| units.string(skeleton, text));
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

/// Copies of the sections of the file of one split unit.
#[derive(Debug)]
pub struct SplitSections {
    pub(super) sections: DwarfSections<'static>,
    size_bytes: u64,
}

impl SplitSections {
    /// Takes the sections by their names such as `.debug_info.dwo`; one that is not there is empty.
    ///
    /// # Errors
    /// Those of `section`.
    pub fn load<E>(
        is_big_endian: bool,
        mut section: impl FnMut(&'static str) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        let mut size_bytes = 0;
        let sections = DwarfSections::load(is_big_endian, |name| {
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

    /// The id of its unit; `None`: it has none, or is damaged.
    #[must_use]
    pub fn unit_id(&self) -> Option<u64> {
        let units = Units::new(&self.sections).ok()?;
        let unit = units.first_with_code()?.ok()?;
        unit.unit.dwo_id.map(|id| id.0)
    }

    /// Whether it is the file of this unit.
    #[must_use]
    pub fn belongs_to(&self, unit: &SplitUnit) -> bool {
        self.unit_id() == Some(unit.id)
    }

    /// What having them counts as.
    pub(super) fn cost(&self) -> u64 {
        self.size_bytes / BYTES_PER_READ
    }
}

/// Copies of the sections of a package of split units.
#[derive(Debug)]
pub struct PackageSections {
    sections: DwarfPackageSections<Vec<u8>>,
    /// Of all units together.
    strings: Rc<Vec<u8>>,
    endian: RunTimeEndian,
}

impl PackageSections {
    /// Takes the sections by their names such as `.debug_cu_index` and `.debug_info.dwo`; one that is not there is empty.
    ///
    /// # Errors
    /// Those of `section`.
    pub fn load<E>(
        is_big_endian: bool,
        mut section: impl FnMut(&'static str) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        let mut load = |id: SectionId| id.dwo_name().map_or(Ok(Vec::new()), &mut section);
        Ok(Self {
            // Each that a row of the index may have a part of, for the others' sake.
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
            strings: Rc::new(load(SectionId::DebugStr)?),
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

/// A package whose index was read.
pub(super) struct Package<'a> {
    parts: DwarfPackage<BudgetedReader<'a>>,
    sections: &'a PackageSections,
    budget: &'a StepBudget,
}

impl<'a> Package<'a> {
    /// Copies of the parts that are one unit's; `None`: it is not in the package.
    pub(super) fn unit(
        &self,
        id: DwoId,
        parent: &gimli::Dwarf<BudgetedReader<'a>>,
    ) -> Result<Option<DwarfSections<'static>>, DwarfError> {
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
