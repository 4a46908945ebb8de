//! The user stack bytes of a sample.

/// Copied stack memory, readable by address.
#[derive(Clone, Copy)]
pub(super) struct StackCopy<'a> {
    base: u64,
    bytes: &'a [u8],
}

impl<'a> StackCopy<'a> {
    /// Wraps `bytes`, which the kernel copied from address `base` upwards.
    pub(super) fn new(base: u64, bytes: &'a [u8]) -> Self {
        Self { base, bytes }
    }

    /// Returns the u64 at an address if the copy contains all of it.
    pub(super) fn read(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let (value, _) = self.bytes.get(offset..)?.split_first_chunk()?;
        Some(u64::from_le_bytes(*value))
    }

    /// Returns the number of bytes from the start of the copy to an address.
    pub(super) fn bytes_to(&self, address: u64) -> u64 {
        address.saturating_sub(self.base)
    }

    /// Returns whether the copy has no bytes.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns whether the copy ends before the u64 at `address`. More stack may follow there.
    pub(super) fn ends_before(&self, address: u64) -> bool {
        address
            .checked_sub(self.base)
            .is_some_and(|offset| offset.saturating_add(8) > self.bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_only_copied_bytes() {
        let bytes: Vec<u8> = (0..16).collect();
        let copy = StackCopy::new(0x1000, &bytes);
        assert_eq!(copy.read(0x1000), Some(0x0706_0504_0302_0100));
        assert_eq!(copy.read(0x1008), Some(0x0f0e_0d0c_0b0a_0908));
        for outside in [0, 0xfff, 0x1009, 0x1010, u64::MAX] {
            assert_eq!(copy.read(outside), None, "{outside:#x}");
        }
        assert!(copy.ends_before(0x1009) && !copy.ends_before(0xff8));
    }
}
