//! Executable mappings of one process: sorted ranges that never overlap.

use std::ops::Range;

use perfcollect_symbols::process::is_memory;

use crate::trace::ModuleId;

/// Backing of executable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A file.
    File(ModuleId),
    /// JIT memory: anonymous memory, or memory that only has a name.
    Jit,
    /// JIT memory of a .NET runtime, which maps it twice (W^X).
    DoubleMapped,
}

impl Backing {
    /// Returns the backing of a path that names memory, or `None` for a file.
    ///
    /// .NET keeps JIT code in `/memfd:doublemapper (deleted)`, which only looks like a file.
    #[must_use]
    pub(crate) fn of_memory(path: &[u8]) -> Option<Self> {
        if path.starts_with(b"/memfd:doublemapper") {
            return Some(Self::DoubleMapped);
        }
        is_memory(path).then_some(Self::Jit)
    }
}

/// A range of executable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Start address.
    pub start: u64,
    /// Exclusive end address.
    pub end: u64,
    /// File offset of `start`.
    pub file_offset: u64,
    /// File or memory that is mapped.
    pub backing: Backing,
    /// Row of the file. In a recording, memory with a name has one too.
    pub object: Option<ModuleId>,
}

impl Mapping {
    /// Returns the file offset of an address in this mapping.
    #[must_use]
    pub fn file_offset_of(&self, address: u64) -> u64 {
        self.file_offset
            .wrapping_add(address.wrapping_sub(self.start))
    }

    fn clipped_to(&self, start: u64, end: u64) -> Option<Self> {
        (start < end).then(|| Self {
            start,
            end,
            file_offset: self.file_offset_of(start),
            backing: self.backing,
            object: self.object,
        })
    }
}

/// The executable mappings of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    sorted: Vec<Mapping>,
}

impl Maps {
    /// Adds a mapping, which replaces the parts of older mappings within its range.
    ///
    /// ```text
    /// before   [ a            ][ b    ]
    /// new             [ n        ]
    /// after    [ a   ][ n        ][ b ]
    /// ```
    /// An mprotect of one page reports that page only, so the rest of the old mapping must stay.
    pub fn insert(&mut self, new: Mapping) {
        if new.start >= new.end {
            return;
        }
        let within = self.within(new.start, new.end);
        let overlapped = &self.sorted[within.clone()];
        let left = overlapped
            .first()
            .and_then(|m| m.clipped_to(m.start, new.start));
        let right = overlapped.last().and_then(|m| m.clipped_to(new.end, m.end));
        let replacement = left.into_iter().chain([new]).chain(right);
        self.sorted.splice(within, replacement);
    }

    /// Returns the indices of the mappings that overlap a non-empty range.
    fn within(&self, start: u64, end: u64) -> Range<usize> {
        let first = self.sorted.partition_point(|m| m.end <= start);
        let after = self.sorted.partition_point(|m| m.start < end);
        first..after.max(first)
    }

    /// Returns whether all mappings in a range have this backing.
    #[must_use]
    pub fn has_only(&self, backing: Backing, start: u64, end: u64) -> bool {
        let within = self.within(start, end);
        self.sorted[within].iter().all(|m| m.backing == backing)
    }

    /// Returns the mapping that contains an address.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let index = self.sorted.partition_point(|m| m.end <= address);
        self.sorted.get(index).filter(|m| m.start <= address)
    }

    /// Returns all mappings in order of address.
    pub fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.sorted.iter()
    }
}

/// Mappings of a process, for many lookups.
#[derive(Clone, Copy, Debug)]
pub struct AddressSpace<'a> {
    maps: Option<&'a Maps>,
    /// Fallback: the mappings from before an exec.
    before: Option<&'a Maps>,
    /// Last result, which often contains the next address too.
    last: Option<&'a Mapping>,
}

impl<'a> AddressSpace<'a> {
    pub(super) fn new(maps: Option<&'a Maps>, before: Option<&'a Maps>) -> Self {
        Self {
            maps,
            before,
            last: None,
        }
    }

    /// Returns the mapping that contains an address.
    pub fn find(&mut self, address: u64) -> Option<&'a Mapping> {
        let contains = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&address);
        if self.last.as_ref().is_some_and(contains) {
            return self.last;
        }
        match self.maps.and_then(|maps| maps.find(address)) {
            None => self.before?.find(address),
            mapping => {
                self.last = mapping;
                mapping
            }
        }
    }
}

#[cfg(test)]
impl Maps {
    /// Creates mappings of one page each, by start address, which map their files from the start.
    pub(crate) fn of_pages(pages: &[(u64, Backing)]) -> Self {
        let pages = pages.iter().map(|&(start, backing)| Mapping {
            start,
            end: start + 4096,
            file_offset: 0,
            backing,
            object: None,
        });
        pages.collect()
    }
}

#[cfg(test)]
impl FromIterator<Mapping> for Maps {
    fn from_iter<I: IntoIterator<Item = Mapping>>(mappings: I) -> Self {
        let mut maps = Self::default();
        mappings
            .into_iter()
            .for_each(|mapping| maps.insert(mapping));
        maps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every byte belongs to the newest mapping that covered it, at the same file offset.
        #[test]
        fn newest_mapping_of_a_byte_wins(
            mappings in proptest::collection::vec((0u64..64, 1u64..24, 0u64..4), 1..40))
        {
            let mut maps = Maps::default();
            let mut bytes = [None; 96];
            for &(start, len, module) in &mappings {
                let file_offset = module * 1000 + start;
                let backing = Backing::File(ModuleId(module as u32));
                let end = start + len;
                maps.insert(Mapping { start, end, file_offset, backing, object: None });
                for byte in start..end {
                    bytes[byte as usize] = Some((file_offset + byte - start, backing));
                }
            }
            for (address, expected) in bytes.iter().enumerate() {
                let address = address as u64;
                let found = maps.find(address).map(|m| (m.file_offset_of(address), m.backing));
                prop_assert_eq!(found, *expected);
            }
            let sorted: Vec<_> = maps.iter().collect();
            for start in 0..96 {
                let end = (start + 5).min(96);
                let backing = Backing::File(ModuleId(1));
                let mut mapped = bytes[start..end].iter().flatten();
                let only = mapped.all(|(_, mapped)| *mapped == backing);
                prop_assert_eq!(maps.has_only(backing, start as u64, end as u64), only);
            }
            prop_assert!(sorted.windows(2).all(|w| w[0].end <= w[1].start));
        }
    }
}
