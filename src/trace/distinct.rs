//! Values that are stored once, by row.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

/// Values in the order of their first use.
///
/// The default hash has a random seed, for values that a target chooses.
#[derive(Debug)]
pub(crate) struct Distinct<T, S = DefaultHashBuilder> {
    rows: Vec<T>,
    known: HashTable<u32>,
    hasher: S,
}

impl<T, S: Default> Default for Distinct<T, S> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            known: HashTable::new(),
            hasher: S::default(),
        }
    }
}

impl<T: Eq + Hash, S: BuildHasher> Distinct<T, S> {
    /// Returns the row of a value. Adds it if it is new.
    pub(crate) fn intern(&mut self, value: T) -> u32 {
        let Self {
            rows,
            known,
            hasher,
        } = self;
        let hash = hasher.hash_one(&value);
        if let Some(&row) = known.find(hash, |&row| rows[row as usize] == value) {
            return row;
        }
        let row = rows.len() as u32;
        rows.push(value);
        known.insert_unique(hash, row, |&row| hasher.hash_one(&rows[row as usize]));
        row
    }
}

impl<T, S> Distinct<T, S> {
    pub(crate) fn rows(&self) -> &[T] {
        &self.rows
    }

    pub(crate) fn into_rows(self) -> Vec<T> {
        self.rows
    }

    /// Drops the index for [`Self::intern`], as no more values follow.
    pub(crate) fn seal(&mut self) {
        self.rows.shrink_to_fit();
        self.known = HashTable::new();
    }
}
