//! Cache of unwind rules by instruction.

use super::epoch::Epoch;
use crate::trace::{ModuleId, ProcessId};
use crate::unwind::rule::UnwindRule;

/// Number of slots. Stacks of a server contain about 3 300 distinct instructions (webapi --load).
const ENTRIES: usize = 1 << 14;

/// Address space of a key: a process or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressSpaceId(u32);

impl AddressSpaceId {
    const FILE: u32 = 1 << 31;

    pub(super) fn process(id: ProcessId) -> Self {
        Self(id.0 & !Self::FILE)
    }

    pub(super) fn file(id: ModuleId) -> Self {
        Self(id.0 | Self::FILE)
    }
}

/// Cache key: an instruction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) space: AddressSpaceId,
    /// Instruction pointer or return address of the frame.
    pub(super) ip: u64,
    /// Whether the frame was interrupted there. Otherwise it called another function.
    pub(super) interrupted: bool,
}

impl Key {
    /// Returns the key of a frame in JIT code.
    pub(super) fn of_jit(process: ProcessId, ip: u64, interrupted: bool) -> Self {
        Self {
            space: AddressSpaceId::process(process),
            ip,
            interrupted,
        }
    }
}

#[derive(Clone, Copy)]
struct CachedRule {
    ip: u64,
    rule: Option<UnwindRule>,
    space: AddressSpaceId,
    epoch: Epoch,
    interrupted: bool,
}

const _: () = assert!(size_of::<CachedRule>() == 24);

/// Direct-mapped cache: each instruction has one slot, which it shares with others.
pub(super) struct RuleCache(Box<[CachedRule]>);

impl CachedRule {
    /// Content of an unused slot. No instruction is at the highest address.
    const EMPTY: Self = Self {
        ip: u64::MAX,
        rule: None,
        space: AddressSpaceId(u32::MAX),
        epoch: Epoch::ALWAYS,
        interrupted: false,
    };

    fn is_of(&self, key: &Key) -> bool {
        self.ip == key.ip && self.space == key.space && self.interrupted == key.interrupted
    }
}

impl Default for RuleCache {
    fn default() -> Self {
        Self(vec![CachedRule::EMPTY; ENTRIES].into())
    }
}

impl RuleCache {
    fn index(key: &Key) -> usize {
        let mixed = (key.ip ^ u64::from(key.space.0) << 40 ^ u64::from(key.interrupted) << 63)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (u64::BITS - ENTRIES.trailing_zeros())) as usize
    }

    /// Returns the cached lookup of an instruction: its rule, or that it has none.
    pub(super) fn get(&self, key: &Key, now: Epoch) -> Option<Option<UnwindRule>> {
        let entry = self.0.get(Self::index(key))?;
        (entry.is_of(key) && entry.epoch.holds(now)).then_some(entry.rule)
    }

    /// Drops the cached lookup of an instruction.
    pub(super) fn remove(&mut self, key: &Key) {
        let entry = self.0.get_mut(Self::index(key));
        if let Some(entry) = entry.filter(|entry| entry.is_of(key)) {
            *entry = CachedRule::EMPTY;
        }
    }

    /// Stores the result of a lookup for an epoch.
    pub(super) fn insert(&mut self, key: &Key, rule: Option<UnwindRule>, epoch: Epoch) {
        if let Some(entry) = self.0.get_mut(Self::index(key)) {
            *entry = CachedRule {
                ip: key.ip,
                rule,
                space: key.space,
                epoch,
                interrupted: key.interrupted,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Nanos;

    #[test]
    fn expires_transient_entries() {
        let mut cache = RuleCache::default();
        let key = Key::of_jit(ProcessId(7), 0x7f00_1234, true);
        let (now, later) = (Epoch::of(Nanos(0)), Epoch::of(Nanos(1_000_000_000)));
        assert_eq!(cache.get(&key, now), None);
        cache.insert(&key, None, now);
        assert_eq!(cache.get(&key, now), Some(None));
        assert_eq!(cache.get(&key, later), None);
        cache.insert(&key, Some(UnwindRule::RETURN), Epoch::ALWAYS);
        assert_eq!(cache.get(&key, later), Some(Some(UnwindRule::RETURN)));
        for other in [
            Key {
                interrupted: false,
                ..key
            },
            Key {
                ip: 0x7f00_1235,
                ..key
            },
            Key {
                space: AddressSpaceId::file(ModuleId(7)),
                ..key
            },
        ] {
            assert_eq!(cache.get(&other, now), None, "{other:?}");
            cache.remove(&other);
        }
        assert_eq!(cache.get(&key, now), Some(Some(UnwindRule::RETURN)));
        cache.remove(&key);
        assert_eq!(cache.get(&key, now), None);
    }
}
