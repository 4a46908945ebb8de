//! Sizes of CIEs, the part of unwind information that functions share.
//!
//! A parser reads the CIE again for each function, and its strings byte by byte. So a large one is
//! not parsed.

use gimli::{Endianity, RunTimeEndian};

/// Limit of a CIE, in bytes. That of a signal frame has some 150, most others 24.
const MAX_CIE_BYTES: u32 = 512;
/// Id of a CIE in `.debug_frame` (DWARF 5, section 6.4.1).
const CIE_ID: u32 = u32::MAX;

/// Returns whether the CIE of the function at an offset of `.eh_frame` is small.
///
/// ```text
/// u32 length of what follows   u32 distance from here back to the CIE   ...
/// ```
pub(super) fn has_small_cie(eh_frame: &[u8], endian: RunTimeEndian, offset: usize) -> bool {
    let pointer = offset.checked_add(4);
    let cie = pointer.and_then(|at| {
        let distance = word(eh_frame, endian, at)?;
        at.checked_sub(usize::try_from(distance).ok()?)
    });
    cie.is_some_and(|cie| is_small_cie(eh_frame, endian, cie))
}

/// Returns whether the CIE at an offset is small.
pub(super) fn is_small_cie(section: &[u8], endian: RunTimeEndian, offset: usize) -> bool {
    word(section, endian, offset).is_some_and(|length| length <= MAX_CIE_BYTES)
}

/// Returns whether all CIEs of `.eh_frame` or `.debug_frame` are small, up to the first corrupt entry.
pub(super) fn has_small_cies(section: &[u8], endian: RunTimeEndian, is_debug: bool) -> bool {
    let id = if is_debug { CIE_ID } else { 0 };
    let mut at = 0_usize;
    while let Some(length) = word(section, endian, at) {
        let is_cie = word(section, endian, at.saturating_add(4)) == Some(id);
        // The longest length announces one of 64 bits.
        if length > MAX_CIE_BYTES && (is_cie || length == u32::MAX) {
            return false;
        }
        at = at.saturating_add(4).saturating_add(length as usize);
    }
    true
}

fn word(bytes: &[u8], endian: RunTimeEndian, at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(endian.read_u32(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_large_cies() {
        let little = RunTimeEndian::Little;
        let section = |cie_bytes: u32, id: u32| {
            let mut bytes = cie_bytes.to_le_bytes().to_vec();
            bytes.extend(id.to_le_bytes());
            bytes.resize(cie_bytes as usize + 4, 0);
            let function = bytes.len();
            bytes.extend(8_u32.to_le_bytes());
            bytes.extend((function as u32 + 4).to_le_bytes());
            bytes.extend([0; 4]);
            (bytes, function)
        };
        for (cie_bytes, is_small) in [
            (24, true),
            (MAX_CIE_BYTES, true),
            (MAX_CIE_BYTES + 1, false),
        ] {
            let (bytes, function) = section(cie_bytes, 0);
            assert_eq!(has_small_cie(&bytes, little, function), is_small);
            assert_eq!(has_small_cies(&bytes, little, false), is_small);
            let (bytes, _) = section(cie_bytes, CIE_ID);
            assert_eq!(has_small_cies(&bytes, little, true), is_small);
        }
        assert!(!has_small_cie(&[], little, 0));
        assert!(!has_small_cie(&[0; 8], little, usize::MAX));
        assert!(!has_small_cies(&[0xff; 16], little, false));
    }
}
