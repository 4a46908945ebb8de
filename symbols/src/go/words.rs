//! Integers of a table, in the byte order and with the word size of the file.

/// Byte order and word size of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) is_big_endian: bool,
    /// Size of a word in bytes: 4 or 8.
    pub(super) word_bytes: u8,
}

impl Words {
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self.is_big_endian {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        })
    }

    pub(super) fn word(self, bytes: &[u8], at: usize) -> Option<u64> {
        if self.word_bytes == 4 {
            return self.u32(bytes, at).map(u64::from);
        }
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self.is_big_endian {
            true => u64::from_be_bytes(bytes),
            false => u64::from_le_bytes(bytes),
        })
    }

    /// Returns a word that is an offset of a byte or of the end.
    pub(super) fn offset(self, bytes: &[u8], at: usize, end: u64) -> Option<usize> {
        let offset = self.word(bytes, at).filter(|&offset| offset <= end)?;
        usize::try_from(offset).ok()
    }
}
