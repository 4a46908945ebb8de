//! Finds the method at an address, by the runtime's own tables (contract `ExecutionManager`).
//!
//! ```text
//! g_dacTable[0] -> RangeSectionMap: 5 levels of 256 pointers, 8 bits of the address each, the last level for 128 KiB
//!               -> list of RangeSectionFragment -> RangeSection: a code heap, a range of stubs, or a ReadyToRun image
//! code heap     -> nibble map: 4 bits for each 32 bytes of code; k > 0: a method starts at 32*i + 4*(k-1)
//! ```
//! Pointers of the map have a tag in bit 0. A method may cover all 256 bytes of a word of the
//! nibble map. Since .NET 10 such a word is a pointer to the start of the method. Its lowest nibble
//! is above 8. Before .NET 10 the word is 0, and the search continues in earlier words.

use super::contract::{Contract, Heap};
use super::memory::{Memory, Structure};
use super::runtime_error::CodeLookupError;
use super::stub_kind::StubKind;

/// Low bits of an address that select no entry of the last level.
const GRANULE_BITS: u32 = 17;
const LEVELS: u32 = 5;
/// Limit on the fragments of one list. A list has the sections that share 128 KiB.
const MAX_FRAGMENTS: usize = 256;
/// Flags of a range section: collectible code, a code heap, a range of stubs.
const COLLECTIBLE: u32 = 1;
const CODE_HEAP: u32 = 2;
const STUBS: u32 = 4;
/// Offset of the stub kind in a range list (`CodeRangeMapRangeList`).
const RANGE_LIST_KIND: u64 = 0x120;
/// Bytes of code that one word of the nibble map covers.
const WORD_COVERS: u64 = 256;
/// Bytes of code that one nibble covers.
const NIBBLE_COVERS: u64 = 32;
/// Size limit of a method, which bounds the backward search.
pub(super) const MAX_METHOD_BYTES: u64 = 16 << 20;
/// Number of nibble map words per read of the backward search.
const WORDS_PER_READ: u64 = 64;

/// An address range with code of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RangeSection {
    pub(super) start: u64,
    /// The exclusive end address.
    pub(super) end: u64,
    pub(super) kind: SectionKind,
    /// Whether the runtime may free the code and reuse its address.
    pub(super) collectible: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SectionKind {
    CodeHeap(CodeHeap),
    Stubs(StubKind),
    /// A ReadyToRun image, or an unknown kind.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeHeap {
    start: u64,
    map_base: u64,
    nibble_map: u64,
}

/// Finds the section that contains an address. `section_map` is the address of the map.
///
/// # Errors
/// No section contains the address, or it is not readable or inconsistent.
pub(super) fn section_at(
    memory: &impl Memory,
    contract: &Contract,
    section_map: u64,
    address: u64,
) -> Result<RangeSection, CodeLookupError> {
    let mut table = section_map;
    for level in (0..LEVELS).rev() {
        let index = address >> (GRANULE_BITS + 8 * level) & 0xff;
        table = Structure::new(memory, table).u64(index * 8)? & !1;
        if table == 0 {
            return Err(CodeLookupError::NoSection(address));
        }
    }
    let fields = &contract.fragment;
    let mut next = table;
    for _ in 0..MAX_FRAGMENTS {
        let fragment = Structure::new(memory, next);
        if (fragment.u64(fields.start)?..fragment.u64(fields.end)?).contains(&address) {
            let section = section(memory, contract, fragment.u64(fields.section)?)?;
            if (section.start..section.end).contains(&address) {
                return Ok(section);
            }
            break;
        }
        next = fragment.u64(fields.next)? & !1;
        if next == 0 {
            break;
        }
    }
    Err(CodeLookupError::NoSection(address))
}

fn section(
    memory: &impl Memory,
    contract: &Contract,
    at: u64,
) -> Result<RangeSection, CodeLookupError> {
    let fields = &contract.section;
    let section = Structure::new(memory, at);
    // The flags have 32 bits. Uninitialized padding follows them.
    let flags = section.u64(fields.flags)? as u32;
    let kind = if flags & STUBS != 0 {
        SectionKind::Stubs(stub_kind(memory, section.u64(fields.range_list)?))
    } else if flags & CODE_HEAP != 0 && section.u64(fields.ready_to_run_module)? == 0 {
        SectionKind::CodeHeap(heap(memory, &contract.heap, section.u64(fields.heap)?)?)
    } else {
        SectionKind::Other
    };
    Ok(RangeSection {
        start: section.u64(fields.start)?,
        end: section.u64(fields.end)?,
        kind,
        collectible: flags & COLLECTIBLE != 0,
    })
}

/// Reads the kind of the stubs in a range list.
fn stub_kind(memory: &impl Memory, list: u64) -> StubKind {
    let kind = Structure::new(memory, list).u32(RANGE_LIST_KIND);
    kind.map_or(StubKind::Unknown, StubKind::from_code)
}

fn heap(memory: &impl Memory, fields: &Heap, at: u64) -> Result<CodeHeap, CodeLookupError> {
    let node = Structure::new(memory, at);
    let heap = CodeHeap {
        start: node.u64(fields.start)?,
        map_base: node.u64(fields.map_base)?,
        nibble_map: node.u64(fields.nibble_map)?,
    };
    match heap.map_base <= heap.start && heap.start < node.u64(fields.end)? {
        true => Ok(heap),
        false => Err(CodeLookupError::Heap(at)),
    }
}

impl CodeHeap {
    /// Finds the last method or block of stubs that starts at or before an address.
    ///
    /// The method may end before the address.
    ///
    /// # Errors
    /// No method starts there, or the nibble map is not readable.
    pub(super) fn method_start(
        &self,
        memory: &impl Memory,
        address: u64,
    ) -> Result<u64, CodeLookupError> {
        let none = CodeLookupError::NoMethod(address);
        let distance = address.checked_sub(self.map_base);
        let distance = distance.filter(|_| address >= self.start);
        let Some(distance) = distance else {
            return Err(none);
        };
        let map = Structure::new(memory, self.nibble_map);
        let address_word = distance / WORD_COVERS;
        let lowest = address_word.saturating_sub(MAX_METHOD_BYTES / WORD_COVERS);
        // The first read is small: most methods start within one or two words of the address.
        let mut first = address_word.saturating_sub(1);
        let mut end = address_word + 1;
        loop {
            let mut bytes = [0; WORDS_PER_READ as usize * 4];
            let Some(bytes) = bytes.get_mut(..(end - first) as usize * 4) else {
                return Err(none);
            };
            map.read_exact(first * 4, bytes)?;
            let (words, _) = bytes.as_chunks::<4>();
            for (word, index) in words.iter().rev().zip((first..end).rev()) {
                let max_start = if index == address_word {
                    distance
                } else {
                    u64::MAX
                };
                if let Some(start) = start_in(u32::from_le_bytes(*word), index, max_start) {
                    return self.map_base.checked_add(start).ok_or(none);
                }
            }
            if first <= lowest {
                return Err(none);
            }
            end = first;
            first = first.saturating_sub(WORDS_PER_READ).max(lowest);
        }
    }
}

/// Returns the last method start in a word, at most `max_start`, relative to the heap's base.
fn start_in(word: u32, index: u64, max_start: u64) -> Option<u64> {
    let lowest = u64::from(word & 0xf);
    if lowest > 8 {
        return Some(u64::from(word & !0xf) + (lowest - 9) * 4);
    }
    (0..8_u64).rev().find_map(|nibble| {
        let value = u64::from(word >> (28 - 4 * nibble) & 0xf);
        let offset = value.checked_sub(1)? * 4;
        let start = index * WORD_COVERS + nibble * NIBBLE_COVERS + offset;
        (start <= max_start).then_some(start)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::dotnet::contract::DOTNET_8;
    use crate::dotnet::memory::Image;
    use proptest::prelude::*;

    /// Builder of a memory image.
    pub(crate) struct Bytes(pub(crate) Vec<u8>);

    impl Bytes {
        pub(crate) fn put(&mut self, at: u64, value: u64) {
            self.put_bytes(at, &value.to_le_bytes());
        }

        pub(crate) fn put_bytes(&mut self, at: u64, bytes: &[u8]) {
            let at = at as usize;
            if self.0.len() < at + bytes.len() {
                self.0.resize(at + bytes.len(), 0);
            }
            self.0[at..at + bytes.len()].copy_from_slice(bytes);
        }

        pub(crate) fn memory(&self) -> Image<'_> {
            Image {
                start: 0,
                bytes: &self.0,
            }
        }
    }

    pub(crate) const SECTION_MAP: u64 = 0x100;
    pub(crate) const NIBBLE_MAP: u64 = 0x8000;

    /// Builds a range section map with one code heap of 64 KiB at `start`.
    pub(crate) fn code_heap(start: u64, flags: u64) -> Bytes {
        let mut bytes = Bytes(Vec::new());
        let mut table = SECTION_MAP;
        for (level, next) in (0..5).rev().zip([0x1000, 0x2000, 0x3000, 0x4000, 0x5000]) {
            bytes.put(table + (start >> (17 + 8 * level) & 0xff) * 8, next | 1);
            table = next;
        }
        // The first fragment belongs to another section.
        for (at, value) in [
            (0, 0x5100 | 1),
            (8, 1),
            (16, 2),
            (24, 0x5200),
            (0x108, start),
            (0x110, start + 0x1_0000),
            (0x118, 0x5200),
            (0x200, start),
            (0x208, start + 0x1_0000),
            (0x210, flags),
            (0x228, 0x5300),
            (0x310, start + 0x40),
            (0x318, start + 0x8000),
            (0x320, start),
            (0x328, NIBBLE_MAP),
        ] {
            bytes.put(0x5000 + at, value);
        }
        bytes
    }

    #[test]
    fn finds_section_of_an_address() {
        let start = 0x7f12_3456_0000;
        let bytes = code_heap(start, 0x7f00_0000_0003);
        let at = |address| section_at(&bytes.memory(), &DOTNET_8, SECTION_MAP, address);
        let section = at(start + 5).unwrap();
        assert!(section.collectible && matches!(section.kind, SectionKind::CodeHeap(_)));
        assert_eq!((section.start, section.end), (start, start + 0x1_0000));
        for outside in [start - 1, start + 0x1_0000, 0, u64::MAX] {
            assert!(at(outside).is_err(), "{outside:#x}");
        }
        for (code, kind) in [
            (4, StubKind::StubPrecode),
            (7, StubKind::VsdResolve),
            (77, StubKind::Unknown),
        ] {
            let mut stubs = code_heap(start, 4);
            stubs.put(0x5000 + 0x200 + 48, 0x7000);
            stubs.put(0x7000 + RANGE_LIST_KIND, code);
            let section = section_at(&stubs.memory(), &DOTNET_8, SECTION_MAP, start).unwrap();
            assert_eq!(section.kind, SectionKind::Stubs(kind));
        }
    }

    #[test]
    fn bounds_search_in_a_circular_list_of_fragments() {
        let start = 0x7f12_3456_0000;
        let mut bytes = code_heap(start, 2);
        bytes.put(0x5100, 0x5000);
        bytes.put(0x5108, start + 0x100);
        let section = section_at(&bytes.memory(), &DOTNET_8, SECTION_MAP, start);
        assert!(matches!(section, Err(CodeLookupError::NoSection(at)) if at == start));
    }

    #[test]
    fn finds_method_starts_in_both_forms_of_the_nibble_map() {
        let heap = CodeHeap {
            start: 0x7f00_0000_0000,
            map_base: 0x7f00_0000_0000,
            nibble_map: 0x10,
        };
        let mut bytes = Bytes(vec![0; 0x2000]);
        let mut word =
            |index: u64, word: u32| bytes.put_bytes(0x10 + index * 4, &word.to_le_bytes());
        // Methods start at 0x24 and 0xe0. The method at 0x1bc covers words without pointers. Word
        // 10 is a pointer to 0x108.
        word(0, 0x0200_0001);
        word(1, 0x0000_0800);
        word(10, 0x0000_0100 | 11);
        let start = |distance| {
            let start = heap.method_start(&bytes.memory(), heap.map_base + distance);
            start.ok().map(|start| start - heap.map_base)
        };
        assert_eq!(start(0x23), None);
        assert_eq!(start(0x24), Some(0x24));
        assert_eq!(start(0xdf), Some(0x24));
        assert_eq!(start(0xe0), Some(0xe0));
        assert_eq!(start(0x1bb), Some(0xe0));
        assert_eq!(start(0x1bc), Some(0x1bc));
        assert_eq!(start(0x7ff), Some(0x1bc));
        assert_eq!(start(0xa20), Some(0x108));
        assert!(heap.method_start(&bytes.memory(), 5).is_err());
    }

    proptest! {
        #[test]
        fn terminates_on_arbitrary_memory(
            bytes in proptest::collection::vec(any::<u64>().prop_map(|v| v & 0x1fff), 512),
            address in any::<u64>())
        {
            let bytes: Vec<u8> = bytes.iter().flat_map(|value| value.to_le_bytes()).collect();
            let memory = Image { start: 0, bytes: &bytes };
            for address in [address, address & 0xfff] {
                if let Ok(section) = section_at(&memory, &DOTNET_8, 0, address)
                    && let SectionKind::CodeHeap(heap) = section.kind
                {
                    let _ = heap.method_start(&memory, address);
                }
            }
        }
    }
}
