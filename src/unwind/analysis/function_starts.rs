//! Starts of functions that no symbol and no unwind information names.

use std::collections::BTreeMap;

use perfcollect_symbols::elf::ElfFile;

use super::function::Function;
use super::is_checked;
use super::module::Module;
use crate::machine::Content;

/// The functions of one file, found on demand.
pub struct FunctionStarts {
    module: Module,
    /// Checked ranges of code, by start: exclusive end, and start of the function.
    ranges: BTreeMap<u64, (u64, u64)>,
    budget: usize,
}

impl FunctionStarts {
    /// Reads the code of an x86-64 file. Returns `None` if it is unreadable or for another machine.
    #[must_use]
    pub fn read(content: &Content) -> Option<Self> {
        let Content::File(file) = content else {
            return None;
        };
        let elf = ElfFile::open_mapped(file.clone()).ok()?;
        let ranges = elf.function_ranges().ok();
        let module = Module::read(&elf, ranges.as_ref())?;
        Some(Self {
            budget: module.work_limit(),
            module,
            ranges: BTreeMap::new(),
        })
    }

    /// Returns the start of the function that contains an address.
    ///
    /// Returns `None` if not all paths of the function could be checked.
    pub fn of(&mut self, address: u64) -> Option<u64> {
        if let Some(start) = self.found(address) {
            return Some(start);
        }
        let start = self.module.starts.before(address)?;
        if self.budget > 0 {
            let analyzed = Function::analyze(&self.module, start);
            self.budget = self.budget.saturating_sub(analyzed.work);
            let checked = analyzed.rows.iter().filter(|row| is_checked(&row.finding));
            self.ranges
                .extend(checked.map(|row| (row.start, (row.end, start))));
        }
        self.found(address)
    }

    fn found(&self, address: u64) -> Option<u64> {
        let (_, (end, start)) = self.ranges.range(..=address).next_back()?;
        (address < *end).then_some(*start)
    }
}
