//! Functions in the order they were made, in memory that is used again: the newest of those that overlap counts.

use std::collections::BTreeMap;

use crate::table::{Extent, SymbolEntry, SymbolTable, SymbolTableBuilder, TableError};

/// Most functions kept at a time, and bytes of their names: ten times what the largest services have. Ours to choose, so
/// that a hostile file costs less than 500 MB.
const MAX_FUNCTIONS: usize = 1 << 20;
const MAX_NAMES_BYTES: usize = 128 << 20;

/// Ranges that do not overlap.
pub(crate) struct LatestWins {
    /// By start: the end, and the name's place in `names`.
    ranges: BTreeMap<u64, (u64, usize, usize)>,
    names: Vec<u8>,
    max_names_bytes: usize,
    /// Sorted. A function that covers none of them still replaces those it overlaps, but is not kept.
    addresses: Option<Vec<u64>>,
}

impl Default for LatestWins {
    fn default() -> Self {
        Self::with_limit(MAX_NAMES_BYTES)
    }
}

impl LatestWins {
    /// Keeps only what covers one of these addresses.
    pub(crate) fn for_addresses(addresses: &[u64]) -> Self {
        let mut wanted = addresses.to_vec();
        wanted.sort_unstable();
        Self {
            addresses: Some(wanted),
            ..Self::default()
        }
    }

    fn with_limit(max_names_bytes: usize) -> Self {
        Self {
            ranges: BTreeMap::new(),
            names: Vec::new(),
            max_names_bytes,
            addresses: None,
        }
    }

    /// Takes a function that was made after all others, or says that there is no room.
    pub(crate) fn insert(&mut self, start: u64, end: u64, name: &[u8]) -> bool {
        while let Some((&older, _)) = self
            .ranges
            .range(..end)
            .next_back()
            .filter(|(_, range)| range.0 > start)
        {
            self.ranges.remove(&older);
        }
        if let Some(wanted) = &self.addresses {
            let first = wanted.partition_point(|&address| address < start);
            if wanted.get(first).is_none_or(|&address| address >= end) {
                return true;
            }
        }
        if self.names.len().saturating_add(name.len()) > self.max_names_bytes {
            self.drop_replaced_names();
            // Fuller, and soon every function would copy all names.
            if self.names.len() > self.max_names_bytes / 2 {
                return false;
            }
        }
        if self.ranges.len() >= MAX_FUNCTIONS {
            return false;
        }
        self.ranges
            .insert(start, (end, self.names.len(), name.len()));
        self.names.extend_from_slice(name);
        true
    }

    /// The name of the function that starts at an address.
    pub(crate) fn name_at(&self, start: u64) -> Option<&[u8]> {
        let (_, at, len) = self.ranges.get(&start)?;
        self.names.get(*at..)?.get(..*len)
    }

    /// A process that generates code for days replaces most of what it wrote.
    fn drop_replaced_names(&mut self) {
        let mut kept = Vec::new();
        for (_, name_start, name_len) in self.ranges.values_mut() {
            let name = self
                .names
                .get(*name_start..)
                .and_then(|from| from.get(..*name_len));
            *name_start = kept.len();
            kept.extend_from_slice(name.unwrap_or_default());
        }
        self.names = kept;
    }

    pub(crate) fn into_table(self) -> Result<SymbolTable, TableError> {
        let mut builder = SymbolTableBuilder::new();
        for (&start, &(end, name_start, name_len)) in &self.ranges {
            let name = self.names.get(name_start..);
            let name = name.and_then(|from| from.get(..name_len));
            builder.add(SymbolEntry {
                start,
                extent: Extent::Size(end.saturating_sub(start)),
                name: name.unwrap_or_default(),
                rank: 0,
                tag: 0,
            })?;
        }
        Ok(builder.finish())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_of_replaced_functions_make_room_until_too_many_live() {
        let mut newest = LatestWins::with_limit(100);
        assert!((0..1000).all(|_| newest.insert(0x1000, 0x1010, b"0123456789")));
        let taken = (0..1000u64)
            .take_while(|at| newest.insert(0x2000 + at, 0x2001 + at, b"0123456789"))
            .count();
        assert!((5..10).contains(&taken), "{taken}");
        assert_eq!(newest.into_table().unwrap().len(), taken + 1);
    }
}
