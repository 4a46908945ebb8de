//! Names of types, each stored once.

use hashbrown::HashMap;

use crate::bytes::{Bytes, utf16};

/// Maximum number of names of a process, and maximum length of a name in bytes of UTF-16.
const MAX_NAMES: usize = 1 << 11;
const MAX_NAME_BYTES: usize = 1 << 9;

/// Row of a type's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TypeId(u32);

/// The names of the types of a process.
#[derive(Debug, Default)]
pub(crate) struct TypeNames {
    /// Rows by the name in UTF-16, as events contain it.
    rows: HashMap<Box<[u8]>, TypeId>,
}

impl TypeNames {
    /// Reads a NUL-terminated name. Returns `None` if there are too many names.
    pub(crate) fn read(&mut self, payload: &mut Bytes<'_>) -> Option<TypeId> {
        let (units, _) = payload.0.as_chunks::<2>();
        let units = units
            .iter()
            .position(|unit| *unit == [0, 0])
            .unwrap_or(units.len());
        let name = payload.take(2 * units)?;
        // The terminator.
        payload.take(2);
        let name = &name[..name.len().min(MAX_NAME_BYTES)];
        if let Some(row) = self.rows.get(name) {
            return Some(*row);
        }
        let row = TypeId(self.rows.len() as u32);
        (self.rows.len() < MAX_NAMES).then(|| {
            self.rows.insert(name.into(), row);
            row
        })
    }

    /// Returns the names by row.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = vec![String::new(); self.rows.len()];
        for (name, row) in &self.rows {
            names[row.index()] = utf16(name);
        }
        names
    }
}

impl TypeId {
    /// Returns the index in [`TypeNames::names`].
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_of_any_length() {
        let mut names = TypeNames::default();
        let mut payload = Bytes(b"A\0b\0\0\0C\0");
        let rows = [(); 3].map(|()| names.read(&mut payload));
        assert_eq!(rows, [0, 1, 2].map(|row| Some(TypeId(row))));
        assert_eq!(names.read(&mut Bytes(b"A\0b\0\0\0")), Some(TypeId(0)));
        let long = [b'x', 0].repeat(MAX_NAME_BYTES);
        assert_eq!(names.read(&mut Bytes(&long)), Some(TypeId(3)));
        let mut lengths = names.names().into_iter().map(|name| name.len());
        assert!(lengths.by_ref().eq([2, 1, 0, MAX_NAME_BYTES / 2]));
        for name in 0..2 * MAX_NAMES as u32 {
            names.read(&mut Bytes(&name.to_le_bytes()));
        }
        assert_eq!(names.names().len(), MAX_NAMES);
        assert_eq!(names.read(&mut Bytes(&[1])), Some(TypeId(2)));
    }
}
