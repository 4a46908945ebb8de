//! The executable memory of one process as sorted ranges that never overlap.

use std::ops::Range;

use crate::trace::ModuleId;

/// What lies behind executable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A file.
    File(ModuleId),
    /// No file: anonymous memory, or memory with a name only. Code that was made while the process runs.
    Jit,
    /// The same, in the memory in which a .NET runtime has its code, as it maps it twice (W^X).
    DoubleMapped,
}

impl Backing {
    /// Whether a path names memory rather than a file.
    ///
    /// .NET keeps JIT code in `/memfd:doublemapper (deleted)`, which looks like a file and is none worth opening.
    #[must_use]
    pub(crate) fn of_memory(path: &[u8]) -> Option<Self> {
        if path.starts_with(b"/memfd:doublemapper") {
            return Some(Self::DoubleMapped);
        }
        Self::is_memory(path).then_some(Self::Jit)
    }

    fn is_memory(path: &[u8]) -> bool {
        const NAMES: [&[u8]; 5] = [
            b"//anon",
            b"/memfd:",
            b"/dev/zero",
            b"/anon_hugepage",
            b"/SYSV",
        ];
        !path.starts_with(b"/") || NAMES.iter().any(|name| path.starts_with(name))
    }
}

/// A range of executable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where `start` is in the file, in bytes.
    pub file_offset: u64,
    /// What lies behind it.
    pub backing: Backing,
    /// The file, or in a recording also what stands for the name of the memory.
    pub object: Option<ModuleId>,
}

impl Mapping {
    /// Where an address of this mapping is in the file, in bytes.
    #[must_use]
    pub fn file_offset_of(&self, address: u64) -> u64 {
        self.file_offset
            .wrapping_add(address.wrapping_sub(self.start))
    }

    fn cut_to(&self, start: u64, end: u64) -> Option<Self> {
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
    /// Puts a mapping in place of whatever was in its range: what it covers goes, what it overlaps keeps the rest.
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
            .and_then(|m| m.cut_to(m.start, new.start));
        let right = overlapped.last().and_then(|m| m.cut_to(new.end, m.end));
        let replacement = left.into_iter().chain([new]).chain(right);
        self.sorted.splice(within, replacement);
    }

    /// Which mappings have a part in a range that is not empty.
    fn within(&self, start: u64, end: u64) -> Range<usize> {
        let first = self.sorted.partition_point(|m| m.end <= start);
        let behind = self.sorted.partition_point(|m| m.start < end);
        first..behind.max(first)
    }

    /// Whether nothing is mapped in a range but what has this behind it.
    #[must_use]
    pub fn has_only(&self, backing: Backing, start: u64, end: u64) -> bool {
        let within = self.within(start, end);
        self.sorted[within].iter().all(|m| m.backing == backing)
    }

    /// The mapping an address lies in.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let index = self.sorted.partition_point(|m| m.end <= address);
        self.sorted.get(index).filter(|m| m.start <= address)
    }

    /// All mappings by address.
    pub fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.sorted.iter()
    }
}

/// What a process has mapped, for looking up many addresses.
#[derive(Clone, Copy, Debug)]
pub struct AddressSpace<'a> {
    maps: Option<&'a Maps>,
    /// Asked where nothing is mapped now.
    before: Option<&'a Maps>,
    /// What was found last, in which the next address may be, too.
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

    /// The mapping an address lies in.
    pub fn find(&mut self, address: u64) -> Option<&'a Mapping> {
        let is_there = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&address);
        if self.last.as_ref().is_some_and(is_there) {
            return self.last;
        }
        match self.maps.and_then(|maps| maps.find(address)) {
            None => self.before?.find(address),
            found => {
                self.last = found;
                found
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_names_are_no_files() {
        for memory in [
            "",
            "//anon",
            "/memfd:doublemapper (deleted)",
            "/memfd:x",
            "[heap]",
            "/dev/zero (deleted)",
        ] {
            assert!(Backing::is_memory(memory.as_bytes()), "{memory}");
        }
        for file in ["/usr/lib/libc.so.6", "/tmp/gone.so (deleted)"] {
            assert!(!Backing::is_memory(file.as_bytes()), "{file}");
        }
    }

    proptest! {
        /// Every byte belongs to the newest mapping that covered it, at the same place in the file.
        #[test]
        fn the_newest_mapping_of_a_byte_wins(
            news in proptest::collection::vec((0u64..64, 1u64..24, 0u64..4), 1..40))
        {
            let mut maps = Maps::default();
            let mut bytes = [None; 96];
            for &(start, len, module) in &news {
                let file_offset = module * 1000 + start;
                let backing = Backing::File(ModuleId(module as u32));
                let end = start + len;
                maps.insert(Mapping { start, end, file_offset, backing, object: None });
                for byte in start..end {
                    bytes[byte as usize] = Some((file_offset + byte - start, backing));
                }
            }
            for (address, want) in bytes.iter().enumerate() {
                let address = address as u64;
                let got = maps.find(address).map(|m| (m.file_offset_of(address), m.backing));
                prop_assert_eq!(got, *want);
            }
            let sorted: Vec<_> = maps.iter().collect();
            for start in 0..96 {
                let end = (start + 5).min(96);
                let backing = Backing::File(ModuleId(1));
                let mut mapped = bytes[start..end].iter().flatten();
                let only = mapped.all(|(_, of)| *of == backing);
                prop_assert_eq!(maps.has_only(backing, start as u64, end as u64), only);
            }
            prop_assert!(sorted.windows(2).all(|w| w[0].end <= w[1].start));
        }
    }
}
