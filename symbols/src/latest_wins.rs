//! JIT-compiled functions in memory that the runtime reuses: a later function replaces older ones.

use std::collections::BTreeMap;

use crate::table::{Extent, SymbolEntry, SymbolTable, SymbolTableBuilder, TableError};

/// Limit of functions at one time: ten times what the largest services have.
///
/// With [`MAX_NAMES_BYTES`] it bounds the memory of a malformed file to 500 MB.
const MAX_FUNCTIONS: usize = 1 << 20;
/// Limit of the names of all functions, in bytes.
const MAX_NAMES_BYTES: usize = 128 << 20;

/// Functions whose ranges do not overlap.
pub(crate) struct LatestWins {
    /// End of the range, and offset and length of the name in `names`, by start of the range.
    ranges: BTreeMap<u64, (u64, usize, usize)>,
    names: Vec<u8>,
    max_names_bytes: usize,
    /// Sorted addresses that will be looked up, or `None` for all.
    ///
    /// A function without such an address replaces those that it overlaps, but is not kept.
    addresses: Option<Vec<u64>>,
}

impl Default for LatestWins {
    fn default() -> Self {
        Self::with_limit(MAX_NAMES_BYTES)
    }
}

impl LatestWins {
    /// Creates an empty map that keeps only functions at these addresses.
    pub(crate) fn for_addresses(addresses: &[u64]) -> Self {
        let mut addresses = addresses.to_vec();
        addresses.sort_unstable();
        Self {
            addresses: Some(addresses),
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

    /// Adds a function that is newer than all others. Returns `false` if a limit is exceeded.
    pub(crate) fn insert(&mut self, start: u64, end: u64, name: &[u8]) -> bool {
        while let Some((&older, _)) = self
            .ranges
            .range(..end)
            .next_back()
            .filter(|(_, range)| range.0 > start)
        {
            self.ranges.remove(&older);
        }
        if let Some(addresses) = &self.addresses {
            let first = addresses.partition_point(|&address| address < start);
            if addresses.get(first).is_none_or(|&address| address >= end) {
                return true;
            }
        }
        if self.names.len().saturating_add(name.len()) > self.max_names_bytes {
            self.drop_replaced_names();
            // Above one half, soon every insertion would copy all names.
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

    /// Returns the name of the function that starts at an address.
    pub(crate) fn name_at(&self, start: u64) -> Option<&[u8]> {
        let (_, name_start, name_len) = self.ranges.get(&start)?;
        self.names.get(*name_start..)?.get(..*name_len)
    }

    /// Frees the names of replaced functions, which accumulate in a long-running JIT process.
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
    fn frees_names_of_replaced_functions_until_the_limit() {
        let mut functions = LatestWins::with_limit(100);
        assert!((0..1000).all(|_| functions.insert(0x1000, 0x1010, b"0123456789")));
        let added = (0..1000u64)
            .take_while(|offset| functions.insert(0x2000 + offset, 0x2001 + offset, b"0123456789"))
            .count();
        assert!((5..10).contains(&added), "{added}");
        assert_eq!(functions.into_table().unwrap().len(), added + 1);
    }
}
