//! Rules found before, by instruction.

use super::rule::UnwindRule;
use crate::trace::{ModuleId, Nanos, ProcessId};

/// Entries. A server has some 3 300 distinct instructions in its stacks (webapi --load).
const ENTRIES: usize = 1 << 14;
/// How long is believed what may change: rules of code that may be freed, and that there is none.
const TRANSIENT_TTL_NS: u64 = 100_000_000;

/// Whose addresses they are.
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

/// An instruction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) space: AddressSpaceId,
    /// Where the frame goes on.
    pub(super) ip: u64,
    /// It was stopped there; else it has called something.
    pub(super) interrupted: bool,
}

/// A stretch of time; 0 stands for all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(u16);

impl Epoch {
    pub(super) const ALWAYS: Self = Self(0);

    pub(super) fn of(time: Nanos) -> Self {
        Self((time.0 / TRANSIENT_TTL_NS % u64::from(u16::MAX) + 1) as u16)
    }

    /// Whether what is believed for this long is believed now.
    pub(super) fn holds(self, now: Self) -> bool {
        self == Self::ALWAYS || self == now
    }
}

#[derive(Clone, Copy)]
struct CachedRule {
    ip: u64,
    rule: Option<UnwindRule>,
    space: AddressSpaceId,
    period: Epoch,
    interrupted: bool,
}

const _: () = assert!(size_of::<CachedRule>() == 24);

/// A table that forgets: an instruction has one place, which it shares with others.
pub(super) struct RuleCache(Box<[CachedRule]>);

impl Default for RuleCache {
    fn default() -> Self {
        // No instruction is at the highest address.
        let empty = CachedRule {
            ip: u64::MAX,
            rule: None,
            space: AddressSpaceId(u32::MAX),
            period: Epoch(u16::MAX),
            interrupted: false,
        };
        Self(vec![empty; ENTRIES].into())
    }
}

impl RuleCache {
    fn index(key: &Key) -> usize {
        let mixed = (key.ip ^ u64::from(key.space.0) << 40 ^ u64::from(key.interrupted) << 63)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (u64::BITS - ENTRIES.trailing_zeros())) as usize
    }

    /// What is known of an instruction now: its rule, or that there is none; `None`: nothing.
    pub(super) fn get(&self, key: &Key, now: Epoch) -> Option<Option<UnwindRule>> {
        let entry = self.0.get(Self::index(key))?;
        let same = entry.ip == key.ip
            && entry.space == key.space
            && entry.interrupted == key.interrupted
            && entry.period.holds(now);
        same.then_some(entry.rule)
    }

    /// Keeps what was found out, for a period.
    pub(super) fn insert(&mut self, key: &Key, rule: Option<UnwindRule>, period: Epoch) {
        if let Some(entry) = self.0.get_mut(Self::index(key)) {
            *entry = CachedRule {
                ip: key.ip,
                rule,
                space: key.space,
                period,
                interrupted: key.interrupted,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_change_is_forgotten() {
        let mut cache = RuleCache::default();
        let key = Key {
            space: AddressSpaceId::process(ProcessId(7)),
            ip: 0x7f00_1234,
            interrupted: true,
        };
        let (now, later) = (Epoch::of(Nanos(0)), Epoch::of(Nanos(TRANSIENT_TTL_NS)));
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
        }
    }
}
