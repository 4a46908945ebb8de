//! The binary search table of `.eh_frame_hdr`, which finds one FDE without reading the others.

use gimli::{DwEhPe, RunTimeEndian};

use super::headers::Headers;
use super::unwind::Section;

/// Size of a row: start of a function and address of its FDE, both relative to the section.
const ROW_BYTES: usize = 8;

/// Functions by start (LSB Core, "The .eh_frame_hdr section"), in the encoding that linkers write.
#[derive(Debug)]
pub(super) struct SearchTable {
    section: Section,
    endian: RunTimeEndian,
    row_count: usize,
}

impl SearchTable {
    /// ```text
    /// u8 version, 1   u8 pointer encoding   u8 count encoding: u32   u8 row encoding: relative i32
    /// 4 bytes: address of .eh_frame   u32 row count   rows: i32 start, i32 FDE
    /// ```
    ///
    /// Returns `None` if the table has another encoding, is truncated or is empty.
    pub(super) fn new(section: Section, headers: &Headers) -> Option<Self> {
        let endian = headers.run_time_endian();
        let &[1, pointer, count, rows, ..] = &section.data[..] else {
            return None;
        };
        let relative = DwEhPe(gimli::DW_EH_PE_datarel.0 | gimli::DW_EH_PE_sdata4.0);
        let has_four_bytes = matches!(
            DwEhPe(pointer).format(),
            gimli::DW_EH_PE_sdata4 | gimli::DW_EH_PE_udata4
        );
        if DwEhPe(count) != gimli::DW_EH_PE_udata4 || DwEhPe(rows) != relative || !has_four_bytes {
            return None;
        }
        let table = Self {
            row_count: usize::try_from(word(&section, endian, 8)?).ok()?,
            section,
            endian,
        };
        let bytes = table.row_count.checked_mul(ROW_BYTES)?.checked_add(12)?;
        (table.row_count > 0 && bytes <= table.section.data.len()).then_some(table)
    }

    /// Returns the address of the FDE of the last function that starts at or before an address.
    pub(super) fn fde_address(&self, address: u64) -> Option<u64> {
        let (mut from, mut to) = (0, self.row_count);
        while from < to {
            let middle = from + (to - from) / 2;
            match self.value(middle, 0)? <= address {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        self.value(from.checked_sub(1)?, 4)
    }

    fn value(&self, row: usize, offset: usize) -> Option<u64> {
        let distance = word(&self.section, self.endian, 12 + row * ROW_BYTES + offset)?;
        let distance = i64::from(distance.cast_signed());
        Some(self.section.address.wrapping_add_signed(distance))
    }
}

fn word(section: &Section, endian: RunTimeEndian, offset: usize) -> Option<u32> {
    let bytes = section.data.get(offset..)?.first_chunk::<4>()?;
    Some(match endian {
        RunTimeEndian::Little => u32::from_le_bytes(*bytes),
        RunTimeEndian::Big => u32::from_be_bytes(*bytes),
    })
}
