//! Where functions begin and end, by what a file says for unwinding: all that a stripped file has kept of them.

use std::collections::HashMap;
use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, UnwindSection};

use super::ElfError;
use super::headers::Headers;
use super::source::Source;
use super::unwind;

/// Most functions read of one file; Chromium has 600 000.
const MAX_RANGES: usize = 1 << 21;

/// Addresses to the functions they lie in, without names, by `.eh_frame` (LSB Core, "Exception Frames"). A function that the
/// compiler has split is several; one without unwind information is none.
#[derive(Debug, Default)]
pub struct FunctionRanges {
    /// By start.
    ranges: Vec<Range<u64>>,
}

impl FunctionRanges {
    /// All that can be read, up to the first damage.
    pub(super) fn read(source: Source<'_>, headers: &Headers) -> Result<Self, ElfError> {
        let sections = unwind::sections(source, headers)?;
        let Some(section) = sections.eh_frame else {
            return Ok(Self::default());
        };
        let mut bases = BaseAddresses::default().set_eh_frame(section.address);
        if let Some(text) = &sections.text_range {
            bases = bases.set_text(text.start);
        }
        if let Some(got) = &sections.got_range {
            bases = bases.set_got(got.start);
        }
        let mut eh_frame = EhFrame::new(&section.data, headers.run_time_endian());
        eh_frame.set_address_size(headers.address_bytes());
        let mut entries = eh_frame.entries(&bases);
        let mut common = HashMap::new();
        let mut ranges = Vec::new();
        while let Ok(Some(entry)) = entries.next()
            && ranges.len() < MAX_RANGES
        {
            let CieOrFde::Fde(entry) = entry else {
                continue;
            };
            // Nearly all share one.
            let entry = entry.parse(|section, bases, offset| {
                common
                    .entry(offset)
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
        Ok(Self { ranges })
    }

    /// The function that an address lies in.
    #[must_use]
    pub fn around(&self, address: u64) -> Option<Range<u64>> {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        range.contains(&address).then(|| range.clone())
    }

    /// All of them, by start.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().cloned()
    }
}
