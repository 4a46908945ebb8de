//! The optimization tier of a method's code. A method without a known tier still has a name.
//!
//! ```text
//! 9..     MethodDesc.CodeData -> +0 state of versions -> +16 first version
//! 8       AppDomain + 0x9d8: table of the states, an open-addressing hash by address of the MethodDesc:
//!         pointer, u32 slots, u32 entries, u32 slots ever used; a state is MethodDesc, u8, u32, +16 first version
//! version +0 code, +8 MethodDesc, +24 next, +36 u32 tier
//! ```
//! A method without recorded versions has the code of its first compilation. The runtime compiles an assembly that
//! asks for it without optimization, once.

use perfcollect_symbols::dotnet_name::TIERS;

use super::memory::{Image, Memory, Structure};
use super::method::MethodKey;
use super::type_system::{TypeSystem, VersionFields, Versions};

pub(super) const MIN_OPT: &str = TIERS[1];
pub(super) const OPTIMIZED: &str = TIERS[2];
const QUICK: &str = TIERS[3];
const OPTIMIZED_TIER_1: &str = TIERS[4];
/// Tiers by the number in a code version.
const BY_NUMBER: [&str; 6] = [
    QUICK,
    OPTIMIZED_TIER_1,
    TIERS[5],
    OPTIMIZED,
    TIERS[6],
    TIERS[7],
];
/// Limit on the versions of one method.
const MAX_VERSIONS: usize = 64;
/// Size limit of a version.
const MAX_VERSION_BYTES: usize = 128;
/// Flag in a MethodDesc's token: the method is eligible for tiered compilation.
const ELIGIBLE: u16 = 0x8000;
/// Flag of a method in metadata: `AggressiveOptimization`.
const AGGRESSIVE: u16 = 0x200;
/// Index of the application domain in the DAC table of .NET 8.
const DOMAIN_ENTRY: u64 = 21;
/// Offset of the table of states in the application domain of .NET 8.0.
const STATES: u64 = 0x9d8;
const MAX_SLOTS: u32 = 4 << 20;
/// Limit on the probes for one method. Usually one or two are enough.
const MAX_PROBES: u32 = 64;
/// Number of slots read to verify the table.
const VERIFIED_SLOTS: u64 = 256;

/// Reader of the tiers of one process.
#[derive(Debug)]
pub(super) struct Tiers {
    dac_table: u64,
    /// Whether the table of states of .NET 8 has been verified.
    verified: bool,
}

impl Tiers {
    pub(super) fn new(dac_table: u64) -> Self {
        Self {
            dac_table,
            verified: false,
        }
    }

    /// Returns the tier of a method that belongs to an assembly.
    pub(super) fn tier(
        &mut self,
        memory: &impl Memory,
        types: &TypeSystem,
        method: MethodKey,
        impl_flags: u16,
    ) -> Option<&'static str> {
        let desc = method.method_desc;
        match types.method.versions {
            Versions::CodeData(offset) => {
                let desc = Structure::new(memory, desc);
                let states = match desc.u64(offset).ok()? {
                    0 => 0,
                    at => {
                        let data = Structure::new(memory, at);
                        data.u64(types.version.state).ok()?
                    }
                };
                if let Some(tier) = version(memory, &types.version, states, method) {
                    return tier;
                }
                let token = desc.u16(types.method.token_remainder).ok()?;
                Some(match token & ELIGIBLE {
                    0 => OPTIMIZED,
                    _ => QUICK,
                })
            }
            Versions::AppDomain => {
                let states = self.states(memory)?;
                let state = states.find(memory, desc);
                let find = |state| version(memory, &types.version, state, method);
                if let Some(tier) = state.and_then(find) {
                    return tier;
                }
                Some(match impl_flags & AGGRESSIVE {
                    0 => QUICK,
                    _ => OPTIMIZED_TIER_1,
                })
            }
        }
    }

    fn states(&mut self, memory: &impl Memory) -> Option<States> {
        let entry = Structure::new(memory, self.dac_table).u64(8 * DOMAIN_ENTRY);
        let domain = memory.u64(entry.ok()?).ok()?;
        let states = States::read(memory, domain.checked_add(STATES)?)?;
        if !self.verified {
            self.verified = states.is_consistent(memory);
        }
        self.verified.then_some(states)
    }
}

/// Finds the version of a method's code. Returns its tier, which is `None` if it is unknown.
fn version(
    memory: &impl Memory,
    fields: &VersionFields,
    states: u64,
    method: MethodKey,
) -> Option<Option<&'static str>> {
    if states == 0 {
        return None;
    }
    let mut next = Structure::new(memory, states).u64(fields.first).ok()?;
    for _ in 0..MAX_VERSIONS {
        if next == 0 {
            return None;
        }
        let mut bytes = [0; MAX_VERSION_BYTES];
        let bytes = bytes.get_mut(..fields.bytes())?;
        memory.read_exact(next, bytes).ok()?;
        let version = Image { start: 0, bytes };
        let code = (
            version.u64(fields.code).ok()?,
            version.u64(fields.method).ok()?,
        );
        if code == (method.start, method.method_desc) {
            let tier = version.u32(fields.tier).ok()?;
            return Some(BY_NUMBER.get(tier as usize).copied());
        }
        next = version.u64(fields.next).ok()?;
    }
    None
}

/// The table of states of .NET 8.
#[derive(Clone, Copy, Debug)]
struct States {
    slots: u64,
    size: u32,
}

impl States {
    fn read(memory: &impl Memory, at: u64) -> Option<Self> {
        let field = |offset| Structure::new(memory, at).u32(offset).ok();
        let (size, entries, used) = (field(8)?, field(12)?, field(16)?);
        let is_valid = entries <= used && used <= size && size < MAX_SLOTS && entries > 0;
        is_valid.then_some(Self {
            slots: memory.u64(at).ok()?,
            size,
        })
    }

    /// Returns whether a lookup by key finds the first entry.
    fn is_consistent(&self, memory: &impl Memory) -> bool {
        let slots = memory.vec(
            self.slots,
            8 * VERIFIED_SLOTS.min(self.size.into()),
            8 * VERIFIED_SLOTS as usize,
        );
        let slots = slots.unwrap_or_default();
        let (slots, _) = slots.as_chunks();
        let mut entries = slots
            .iter()
            .map(|slot| u64::from_le_bytes(*slot))
            .filter(|entry| *entry > 1);
        entries.next().is_some_and(|entry| {
            let desc = memory.u64(entry).ok().filter(|desc| desc % 8 == 0);
            desc.and_then(|desc| self.find(memory, desc)) == Some(entry)
        })
    }

    fn find(&self, memory: &impl Memory, desc: u64) -> Option<u64> {
        let hash = desc as u32;
        let mut index = hash.checked_rem(self.size)?;
        let step = hash
            .checked_rem(self.size.checked_sub(1)?)?
            .checked_add(1)?;
        for _ in 0..MAX_PROBES.min(self.size) {
            let slots = Structure::new(memory, self.slots);
            match slots.u64(u64::from(index) * 8).ok()? {
                0 => return None,
                // A deleted entry.
                u64::MAX => {}
                entry if memory.u64(entry) == Ok(desc) => return Some(entry),
                _ => {}
            }
            index = (index + step) % self.size;
        }
        None
    }
}
