//! Targets of jumps through tables, which `switch` compiles to.

use iced_x86::{Instruction, OpKind};

use super::module::Module;
use super::state::{State, Value};
use super::transfer::table_of;

/// Limit of the entries of a table.
const MAX_ENTRIES: usize = 4096;

/// A table of the addresses that an indirect jump leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JumpTable {
    /// 32-bit offsets from a base.
    Offsets { table: u64, base: u64 },
    /// 64-bit addresses.
    Addresses(u64),
}

impl JumpTable {
    /// Returns the table that an indirect jump reads, if it does.
    pub(super) fn of(jump: &Instruction, state: &State) -> Option<Self> {
        match jump.op0_kind() {
            OpKind::Register => match state.of(jump.op0_register()) {
                Value::Sum(table, base) => Some(Self::Offsets { table, base }),
                Value::Target(table) => Some(Self::Addresses(table)),
                _ => None,
            },
            OpKind::Memory => table_of(jump, state, 8).map(Self::Addresses),
            _ => None,
        }
    }

    /// Returns the targets.
    ///
    /// Without a bound, the table ends at the first entry that is no instruction of the function.
    /// With one, some may be in parts of the function that the compiler moved elsewhere.
    pub(super) fn targets(
        self,
        module: &Module,
        function: &std::ops::Range<u64>,
        bound: Option<u64>,
    ) -> Vec<u64> {
        let count = bound
            .and_then(|bound| usize::try_from(bound).ok()?.checked_add(1))
            .filter(|count| *count <= MAX_ENTRIES);
        let mut targets = Vec::new();
        for entry in 0..count.unwrap_or(MAX_ENTRIES) as u64 {
            let Some(target) = self.entry(module, entry) else {
                break;
            };
            let is_part =
                function.contains(&target) || count.is_some() && !module.starts.has(target);
            if !is_part || !module.sweep.is_instruction(target) {
                break;
            }
            targets.push(target);
        }
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    fn entry(self, module: &Module, index: u64) -> Option<u64> {
        match self {
            Self::Offsets { table, base } => {
                let bytes = module.image.bytes_at(table.checked_add(index * 4)?)?;
                let offset = i32::from_le_bytes(*bytes.first_chunk()?);
                Some(base.wrapping_add_signed(offset.into()))
            }
            Self::Addresses(table) => {
                let bytes = module.image.bytes_at(table.checked_add(index * 8)?)?;
                Some(u64::from_le_bytes(*bytes.first_chunk()?))
            }
        }
    }
}
