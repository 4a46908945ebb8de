//! Totals of the compilations of a process, and the methods that are compiled again.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use super::{Compilation, Compilations, Trigger};
use crate::history::fields::{prefix, sum};
use crate::history::tally::Tally;
use crate::trace::RuntimeEvent;

/// Maximum number of methods that are distinguished.
const MAX_METHODS: usize = 1 << 16;
/// Maximum number of methods that are compiled again and have a name, and its maximum length.
const MAX_NAMED: usize = 1 << 11;
const MAX_NAME_BYTES: usize = 512;
/// Type of the methods that a program creates as it runs. Each has another id, in spite of an
/// equal name.
const DYNAMIC: &str = "dynamicClass";

/// Compilations of several methods, or of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JitTotal {
    /// Number of compilations.
    pub(crate) count: u64,
    /// Their time.
    pub(crate) ns: u64,
}

/// A method that was compiled again for a tier that it had been compiled for before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recompiled {
    /// Name with type and parameters.
    pub(crate) name: String,
    /// File name of its module; empty if it is unknown.
    pub(crate) module: String,
    /// Compilations after the first one for each tier.
    pub(crate) again: JitTotal,
}

/// The compilations of a process.
#[derive(Debug)]
pub(crate) struct JitCounts {
    compilations: Compilations,
    hasher: RandomState,
    /// Compilations by the hash of method and tier.
    methods: Tally<u64, u64>,
    /// By the hash of the method.
    recompiled: Tally<u64, Recompiled>,
    /// All compilations.
    pub(crate) all: JitTotal,
    /// Those for which a thread of the program waited.
    pub(crate) foreground: JitTotal,
    /// Compilations after the first one of a method for a tier.
    pub(crate) again: JitTotal,
    /// By tier.
    pub(crate) tiers: BTreeMap<&'static str, JitTotal>,
    /// Bytes of the methods in IL, and of the code.
    pub(crate) il_bytes: u64,
    pub(crate) native_bytes: u64,
}

impl Default for JitCounts {
    fn default() -> Self {
        Self {
            compilations: Compilations::default(),
            hasher: RandomState::new(),
            methods: Tally::new(MAX_METHODS),
            recompiled: Tally::new(MAX_NAMED),
            all: JitTotal::default(),
            foreground: JitTotal::default(),
            again: JitTotal::default(),
            tiers: BTreeMap::new(),
            il_bytes: 0,
            native_bytes: 0,
        }
    }
}

impl JitCounts {
    /// Takes an event about code.
    pub(crate) fn take(&mut self, event: &RuntimeEvent) {
        let Some(method) = self.compilations.take(event) else {
            return;
        };
        self.all.add(method.ns);
        self.tiers.entry(method.tier).or_default().add(method.ns);
        if method.trigger == Trigger::Foreground {
            self.foreground.add(method.ns);
        }
        self.il_bytes = sum([self.il_bytes, method.il_bytes]);
        self.native_bytes = sum([self.native_bytes, method.native_bytes]);
        let is_dynamic = method.name.starts_with(DYNAMIC);
        let id = if is_dynamic { 0 } else { method.id };
        let key = self.hasher.hash_one((id, &method.name));
        let of_tier = self.hasher.hash_one((key, method.tier));
        let is_known = self.methods.contains(&of_tier);
        *self.methods.row(of_tier) += 1;
        // Each loop of a method may get code of this tier.
        if is_known && !method.is_on_stack_replacement() {
            self.again.add(method.ns);
            self.add_again(key, &method);
        }
    }

    fn add_again(&mut self, key: u64, method: &Compilation) {
        let row = self.recompiled.row(key);
        row.again.add(method.ns);
        if row.name.is_empty() {
            let module = self.compilations.known_module(method);
            row.module = module.unwrap_or_default().to_owned();
            row.name = prefix(&method.name, MAX_NAME_BYTES).to_owned();
        }
    }

    /// Returns the methods that were compiled again, in no order.
    pub(crate) fn recompiled(&self) -> impl Iterator<Item = &Recompiled> {
        self.recompiled.rows().map(|(_, row)| row)
    }
}

impl JitTotal {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns = sum([self.ns, ns]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::put_utf16z;
    use crate::history::test_events::event;

    /// Compiles a method for a tier by its number in the flags, in 10 µs.
    fn compile(counts: &mut JitCounts, time: u64, id: u64, tier: u32, namespace: &str) {
        let mut started = [id, 5].map(u64::to_le_bytes).concat();
        started.extend([1_u32, 20].map(u32::to_le_bytes).concat());
        let mut loaded = [id, 5, 0x1000].map(u64::to_le_bytes).concat();
        loaded.extend([100, 1, 8 | tier << 7].map(u32::to_le_bytes).concat());
        for text in [namespace, "Run", "void (int)"] {
            put_utf16z(&mut started, text);
            put_utf16z(&mut loaded, text);
        }
        counts.take(&event(145, time, 1, started));
        counts.take(&event(143, time + 10, 1, loaded));
    }

    #[test]
    fn only_the_same_tier_is_again() {
        let mut counts = JitCounts::default();
        for (time, (id, tier, namespace)) in (0..).zip([
            (1, 3, "A"),
            (1, 4, "A"),
            (1, 4, "A"),
            // Another instantiation of the same method.
            (2, 3, "A"),
            (3, 5, "B"),
            (3, 5, "B"),
            (4, 2, DYNAMIC),
            (5, 2, DYNAMIC),
            (6, 2, DYNAMIC),
        ]) {
            compile(&mut counts, 100 * time, id, tier, namespace);
        }
        let total = |count| JitTotal {
            count,
            ns: 10_000 * count,
        };
        assert_eq!((counts.all, counts.again), (total(9), total(3)));
        let mut again: Vec<_> = counts.recompiled().collect();
        again.sort_by_key(|row| row.again.count);
        let again: Vec<_> = again.iter().map(|row| (&*row.name, row.again)).collect();
        let dynamic = "dynamicClass.Run(int)";
        assert_eq!(again, [("A.Run(int)", total(1)), (dynamic, total(2))]);
        assert_eq!((counts.il_bytes, counts.native_bytes), (180, 900));
        // A stub has no start event.
        let loaded = event(143, 1, 9, vec![0; 60]);
        counts.take(&loaded);
        assert_eq!(counts.all, total(9));
    }
}
