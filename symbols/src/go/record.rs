//! The record of a function.
//!
//! ```text
//! entry      word; 1.18+: u32          |  line of the start  u32, 1.20+
//! name       u32 offset in names       |  function id        u8
//! arguments  u32 bytes                 |  flags              u8, 1.17+
//! deferred   u32                       |  0                  u8
//! stack      u32 offset in pc values   |  function data      u8 count
//! files      u32 the same              |  pc data            u32* offsets in pc values
//! lines      u32 the same              |  function data      word*; 1.18+: u32* offsets from the
//! pc data    u32 count                 |                     start of the function data
//! unit       u32 index in units        |
//! ```

use super::header::{Header, Version};

/// Index of the inlined function at an address, in the table of [`INLINE_TREE`].
const INLINE_INDEX: u32 = 2;
/// Index of the function data that lists the inlined functions.
const INLINE_TREE: usize = 3;

/// The record of a function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// Offset of the name.
    pub(super) name: u32,
    /// Offsets in pc values; 0 if the function has no such table.
    pub(super) stack: u32,
    pub(super) files: u32,
    pub(super) lines: u32,
    pub(super) inline_index: u32,
    /// Index of the first file of the unit.
    pub(super) unit: u32,
    pub(super) id: u8,
    pub(super) flags: u8,
    /// Address of the inlined functions, or since Go 1.18 its offset in the function data.
    pub(super) inline_tree: Option<u64>,
}

impl Record {
    /// Parses the record at an offset. Returns `None` if it is truncated.
    pub(super) fn parse(bytes: &[u8], at: usize, header: &Header) -> Option<Self> {
        let words = header.words;
        let record = bytes.get(at..)?;
        let entry_bytes = header.entry_bytes();
        let field = |index: usize| words.u32(record, entry_bytes + index * 4);
        let fields = match header.version {
            Version::Go1_16 | Version::Go1_18 => 8,
            Version::Go1_20 => 9,
        };
        let tail = entry_bytes + fields * 4;
        let &[id, flags, _, data_count] = record.get(tail..)?.first_chunk()?;
        let pc_data = tail + 4;
        let pc_data_count = field(6)?;
        let inline_index = match pc_data_count > INLINE_INDEX {
            true => words.u32(record, pc_data + INLINE_INDEX as usize * 4)?,
            false => 0,
        };
        let data = usize::try_from(pc_data_count).ok()?.checked_mul(4)?;
        let data = data.checked_add(pc_data)?;
        let inline_tree = match (usize::from(data_count) > INLINE_TREE, header.version) {
            (false, _) => None,
            (true, Version::Go1_16) => {
                let data = data.checked_next_multiple_of(entry_bytes)?;
                let address = data.checked_add(INLINE_TREE * entry_bytes)?;
                words.word(record, address).filter(|&address| address != 0)
            }
            (true, _) => {
                let offset = words.u32(record, data.checked_add(INLINE_TREE * 4)?);
                offset.filter(|&offset| offset != u32::MAX).map(u64::from)
            }
        };
        Some(Self {
            name: field(0)?,
            stack: field(3)?,
            files: field(4)?,
            lines: field(5)?,
            inline_index,
            unit: field(7)?,
            id,
            flags,
            inline_tree,
        })
    }
}
