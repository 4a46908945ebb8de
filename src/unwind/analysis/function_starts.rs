//! Starts of functions that no symbol and no unwind information names.

use perfcollect_symbols::elf::ElfFile;

use super::Analysis;
use crate::machine::Content;

/// The functions of one file, found on demand.
pub struct FunctionStarts(Analysis);

impl FunctionStarts {
    /// Reads the code of an x86-64 file. Returns `None` if it is unreadable or for another machine.
    #[must_use]
    pub fn read(content: &Content) -> Option<Self> {
        let Content::File(file) = content else {
            return None;
        };
        let elf = ElfFile::open_mapped(file.clone()).ok()?;
        let ranges = elf.function_ranges().ok();
        Some(Self(Analysis::new(&elf, ranges.as_ref())?))
    }

    /// Returns the start of the function that contains an address.
    ///
    /// Returns `None` if not all paths of the function could be checked.
    pub fn of(&mut self, address: u64) -> Option<u64> {
        self.0.function_at(address)
    }

    /// Returns the start of the function that contains an address, if it is after another start: that of
    /// a symbol without a size, which may end before.
    ///
    /// Returns the last address up to `address` that code calls, that a pointer to code has, or
    /// where unwind information begins.
    #[must_use]
    pub fn after(&self, symbol: u64, address: u64) -> Option<u64> {
        let start = self.0.start_before(address);
        start.filter(|start| *start > symbol)
    }
}
