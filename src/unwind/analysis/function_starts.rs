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
}
