//! Address ranges of functions, from the unwind information, which a stripped file still has.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EhFrameOffset, EndianSlice, RunTimeEndian, UnwindSection,
};

use super::ElfError;
use super::cie::has_small_cie;
use super::eh_frame_hdr::SearchTable;
use super::headers::Headers;
use super::source::Source;
use super::unwind::{self, Section};

/// Limit of functions per file. Chromium has 600 000.
const MAX_RANGES: usize = 1 << 21;

/// Address ranges of functions, without names, from `.eh_frame` (LSB Core, "Exception Frames").
///
/// A function that the compiler has split has several ranges. A function without unwind
/// information has none.
#[derive(Debug, Default)]
pub struct FunctionRanges {
    fdes: Option<FdeIndex>,
    table: Option<SearchTable>,
    /// Sorted by start.
    all: OnceLock<Vec<Range<u64>>>,
}

impl FunctionRanges {
    pub(super) fn read(source: &Source, headers: &Headers) -> Result<Self, ElfError> {
        let limit = unwind::MAX_RANGES_BYTES;
        let eh_frame = unwind::mapped(source, headers, ".eh_frame", limit)?;
        let table = match &eh_frame {
            Some(_) => unwind::eh_frame_hdr(source, headers)?,
            None => None,
        };
        Ok(Self::new(eh_frame, table, headers))
    }

    pub(super) fn new(
        eh_frame: Option<Section>,
        table: Option<Section>,
        headers: &Headers,
    ) -> Self {
        Self {
            fdes: eh_frame.map(|section| FdeIndex::new(section, headers)),
            table: table.and_then(|section| SearchTable::new(section, headers)),
            all: OnceLock::new(),
        }
    }

    /// Returns the range of the function that contains an address.
    ///
    /// The search uses the table of `.eh_frame_hdr` if the file has one, else all of `.eh_frame`.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<Range<u64>> {
        if let (Some(frames), Some(table)) = (&self.fdes, &self.table) {
            let range = frames.range_at(table.fde_address(address)?)?;
            return range.contains(&address).then_some(range);
        }
        let all = self.all();
        let after = all.partition_point(|range| range.start <= address);
        let range = all.get(after.checked_sub(1)?)?;
        range.contains(&address).then(|| range.clone())
    }

    /// Returns whether the function that contains `address` starts after `start`.
    ///
    /// If so, an unsized symbol at `start` is not the symbol of `address`. Such a symbol extends to
    /// the next symbol, in a stripped file over all functions between that are not exported.
    #[must_use]
    pub fn is_in_later_function(&self, start: u64, address: u64) -> bool {
        self.lookup(address)
            .is_some_and(|range| range.start > start)
    }

    /// Returns all ranges up to the first corrupt entry, sorted by start.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.all().iter().cloned()
    }

    fn all(&self) -> &[Range<u64>] {
        self.all
            .get_or_init(|| self.fdes.as_ref().map_or_else(Vec::new, FdeIndex::all))
    }
}

/// The section `.eh_frame` and the base addresses of its pointers.
#[derive(Debug)]
struct FdeIndex {
    section: Section,
    bases: BaseAddresses,
    endian: RunTimeEndian,
    address_bytes: u8,
}

impl FdeIndex {
    fn new(section: Section, headers: &Headers) -> Self {
        let mut bases = BaseAddresses::default().set_eh_frame(section.address);
        if let Some(text) = unwind::range(headers, b".text") {
            bases = bases.set_text(text.start);
        }
        if let Some(got) = unwind::range(headers, b".got") {
            bases = bases.set_got(got.start);
        }
        Self {
            section,
            bases,
            endian: headers.run_time_endian(),
            address_bytes: headers.address_bytes(),
        }
    }

    fn eh_frame(&self) -> EhFrame<EndianSlice<'_, RunTimeEndian>> {
        let mut eh_frame = EhFrame::new(&self.section.data, self.endian);
        eh_frame.set_address_size(self.address_bytes);
        eh_frame
    }

    /// Returns the range of the function whose FDE is at an address of the section.
    fn range_at(&self, address: u64) -> Option<Range<u64>> {
        let offset = usize::try_from(address.checked_sub(self.section.address)?).ok()?;
        if !has_small_cie(&self.section.data, self.endian, offset) {
            return None;
        }
        let fde = self.eh_frame().fde_from_offset(
            &self.bases,
            EhFrameOffset(offset),
            EhFrame::cie_from_offset,
        );
        let fde = fde.ok()?;
        let start = fde.initial_address();
        Some(start..start.checked_add(fde.len())?)
    }

    fn all(&self) -> Vec<Range<u64>> {
        let eh_frame = self.eh_frame();
        let mut entries = eh_frame.entries(&self.bases);
        let mut cies = HashMap::new();
        let mut ranges = Vec::new();
        while let Ok(Some(entry)) = entries.next()
            && ranges.len() < MAX_RANGES
        {
            let CieOrFde::Fde(entry) = entry else {
                continue;
            };
            // Nearly all FDEs share one CIE.
            let entry = entry.parse(|section, bases, offset| {
                cies.entry(offset)
                    .or_insert_with(|| section.cie_from_offset(bases, offset))
                    .clone()
            });
            let Ok(entry) = entry else {
                continue;
            };
            let start = entry.initial_address();
            ranges.extend(start.checked_add(entry.len()).map(|end| start..end));
        }
        ranges.sort_unstable_by_key(|range| range.start);
        ranges
    }
}
