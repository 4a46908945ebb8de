//! Totals by key, of a bounded number of keys.

use std::hash::Hash;

use hashbrown::HashMap;

/// Totals by key. The first keys have a row each; all others share one.
///
/// The hash has a random seed, as a target chooses the keys.
#[derive(Debug)]
pub(crate) struct Tally<K, V> {
    rows: HashMap<K, V>,
    others: V,
    max_rows: usize,
}

impl<K: Eq + Hash, V: Default> Tally<K, V> {
    /// Creates an empty table.
    pub(crate) fn new(max_rows: usize) -> Self {
        Self {
            rows: HashMap::new(),
            others: V::default(),
            max_rows,
        }
    }

    /// Returns the totals of a key, or those of all other keys.
    pub(crate) fn row(&mut self, key: K) -> &mut V {
        if self.rows.len() >= self.max_rows && !self.rows.contains_key(&key) {
            return &mut self.others;
        }
        self.rows.entry(key).or_default()
    }

    /// Returns whether a key has a row.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.rows.contains_key(key)
    }

    /// Returns the rows, in no order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter()
    }

    /// Returns the totals of the keys without a row.
    pub(crate) fn others(&self) -> &V {
        &self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_beyond_the_limit_share_a_row() {
        let mut tally: Tally<u32, u64> = Tally::new(2);
        for key in [1, 2, 3, 1, 4] {
            *tally.row(key) += 1;
        }
        let mut rows: Vec<_> = tally.rows().map(|(key, count)| (*key, *count)).collect();
        rows.sort_unstable();
        assert_eq!((rows, *tally.others()), (vec![(1, 2), (2, 1)], 2));
    }
}
