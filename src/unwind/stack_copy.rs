//! The user stack bytes of a sample.

use super::live_stack::LiveStack;
use crate::perf::SampleRecord;

/// Size of the pages of a stack, and a multiple of it for larger pages.
const PAGE_BYTES: u64 = 4096;

/// Copied stack memory, readable by address.
#[derive(Clone, Copy)]
pub(super) struct StackCopy<'a> {
    base: u64,
    bytes: &'a [u8],
    /// Whether a page that is not in memory ended the copy.
    is_cut: bool,
    /// Memory of the process above that page.
    live: Option<&'a LiveStack>,
}

impl<'a> StackCopy<'a> {
    /// Wraps the bytes of a sample, which the kernel copied from the stack pointer upwards.
    pub(super) fn of(sample: &SampleRecord<'a>) -> Self {
        let base = sample.registers.map_or(0, |registers| registers.sp);
        Self::new(base, sample.stack, sample.requested_stack)
    }

    fn new(base: u64, bytes: &'a [u8], requested: u64) -> Self {
        let length = bytes.len() as u64;
        let end = base.wrapping_add(length);
        Self {
            base,
            bytes,
            is_cut: length < requested && (length == 0 || end.is_multiple_of(PAGE_BYTES)),
            live: None,
        }
    }

    /// Returns the address of the absent page that ended the copy.
    pub(super) fn absent_page(&self) -> Option<u64> {
        let end = self.base.checked_add(self.bytes.len() as u64)?;
        self.is_cut.then_some(end - end % PAGE_BYTES)
    }

    /// Continues the copy with the memory above the absent page.
    pub(super) fn continue_with(&mut self, live: &'a LiveStack) {
        self.live = Some(live);
    }

    /// Returns whether a word above the absent page was null since the last call.
    pub(super) fn take_null(&self) -> bool {
        self.live.is_some_and(LiveStack::take_null)
    }

    /// Ends the stack where the copy ends, whatever ended that.
    pub(super) fn end_at_copy(&mut self) {
        self.is_cut = false;
        self.live = None;
    }

    /// Returns the memory above the absent page if the u64 at an address is read from there.
    pub(super) fn live_at(&self, address: u64) -> Option<&'a LiveStack> {
        self.live.filter(|_| self.copied(address).is_none())
    }

    /// Returns the u64 at an address if the copy contains all of it.
    pub(super) fn read(&self, address: u64) -> Option<u64> {
        self.copied(address)
            .or_else(|| self.live.and_then(|live| live.word(address)))
    }

    /// Returns the u64 at an address in the copied bytes.
    pub(super) fn copied(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let (value, _) = self.bytes.get(offset..)?.split_first_chunk()?;
        Some(u64::from_le_bytes(*value))
    }

    /// Returns the number of bytes from the start of the copy to an address.
    ///
    /// A longer copy would also end at an absent page.
    pub(super) fn bytes_to(&self, address: u64) -> u64 {
        let bytes = address.saturating_sub(self.base);
        match self.is_cut {
            true => bytes.min(self.bytes.len() as u64),
            false => bytes,
        }
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
        let copy = StackCopy::new(0x1000, &bytes, 16);
        assert_eq!(copy.read(0x1000), Some(0x0706_0504_0302_0100));
        assert_eq!(copy.read(0x1008), Some(0x0f0e_0d0c_0b0a_0908));
        for outside in [0, 0xfff, 0x1009, 0x1010, u64::MAX] {
            assert_eq!(copy.read(outside), None, "{outside:#x}");
        }
        assert!(copy.ends_before(0x1009) && !copy.ends_before(0xff8));
    }

    #[test]
    fn absent_page_ends_a_copy_at_its_start() {
        let bytes = [0; 16];
        let absent = |base, length, requested| {
            StackCopy::new(base, &bytes[..length], requested).absent_page()
        };
        assert_eq!(absent(0x1ff0, 16, 64), Some(0x2000));
        assert_eq!(absent(0x1ff8, 0, 64), Some(0x1000));
        // All was copied, or another limit ended the copy.
        assert_eq!(absent(0x1ff0, 16, 16), None);
        assert_eq!(absent(0x1fe8, 16, 64), None);
        assert_eq!(absent(u64::MAX - 15, 16, 64), None);
        // A longer copy would not help.
        assert_eq!(StackCopy::new(0x1ff0, &bytes, 64).bytes_to(0x4000), 16);
        assert_eq!(StackCopy::new(0x1ff0, &bytes, 16).bytes_to(0x4000), 0x2010);
    }
}
