//! Bytes of JIT code, read from a process where they are needed.

use std::hash::BuildHasher;
use std::ops::Range;

use rustc_hash::FxBuildHasher;

use crate::dotnet::Memory;
use crate::machine::{Backing, Maps};

/// Longest instruction.
pub(super) const MAX_INSTRUCTION: usize = 15;
const PAGE: u64 = 4096;
/// Size of a part that is read at once. Few functions are longer.
const WINDOW: u64 = 2 * PAGE;
/// Maximum number of bytes that are read at once.
const MAX_BYTES: u64 = 16 << 10;
/// Maximum number of parts that are read for one address.
const MAX_WINDOWS: usize = 4;
/// Bytes before and from an address that identify its code.
const SIGNATURE: u64 = 16;

/// Code of one process. It reads nothing else: other memory may be that of a file that blocks.
pub(super) struct Code<'a, M> {
    memory: &'a M,
    maps: &'a Maps,
    /// Address and bytes of the parts.
    windows: Vec<(u64, Vec<u8>)>,
}

/// Returns whether an address is in JIT code, and the range of its mapping.
fn mapping(maps: &Maps, address: u64) -> Option<Range<u64>> {
    let mapping = maps.find(address)?;
    let is_jit = matches!(mapping.backing, Backing::Jit | Backing::DoubleMapped);
    is_jit.then_some(mapping.start..mapping.end)
}

/// Reads the JIT code from an address on, up to a limit.
fn read(memory: &impl Memory, maps: &Maps, range: Range<u64>) -> Vec<u8> {
    let mut end = range.start;
    while end < range.end
        && let Some(mapping) = mapping(maps, end)
    {
        end = mapping.end;
    }
    let length = end.min(range.end).saturating_sub(range.start);
    let mut bytes = vec![0; length.min(MAX_BYTES) as usize];
    let read = memory.read(range.start, &mut bytes);
    bytes.truncate(read);
    bytes
}

/// Returns a hash of the code around an address. Returns `None` if it cannot be read.
pub(super) fn signature(memory: &impl Memory, maps: &Maps, address: u64) -> Option<u32> {
    // The page before may be no code.
    let start = address.saturating_sub(SIGNATURE).max(address & !(PAGE - 1));
    let bytes = read(memory, maps, start..address.saturating_add(SIGNATURE));
    let hash = FxBuildHasher.hash_one(&bytes);
    (!bytes.is_empty()).then_some((hash >> 32) as u32)
}

impl<'a, M: Memory> Code<'a, M> {
    pub(super) fn new(memory: &'a M, maps: &'a Maps) -> Self {
        Self {
            memory,
            maps,
            windows: Vec::new(),
        }
    }

    /// Returns the code from an address on: at least one instruction.
    pub(super) fn at(&mut self, address: u64) -> Option<&[u8]> {
        let offset_in = |(start, bytes): &(u64, Vec<u8>)| {
            let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
            let rest = bytes.len().checked_sub(offset)?;
            (rest >= MAX_INSTRUCTION).then_some(offset)
        };
        let known = self
            .windows
            .iter()
            .position(|part| offset_in(part).is_some());
        let index = match known {
            Some(index) => index,
            None if self.windows.len() >= MAX_WINDOWS => return None,
            None => {
                let start = address & !(PAGE - 1);
                let limit = start.checked_add(WINDOW)?;
                let bytes = read(self.memory, self.maps, start..limit);
                self.windows.push((start, bytes));
                self.windows.len() - 1
            }
        };
        let (start, bytes) = self.windows.get(index)?;
        let rest = bytes.get(usize::try_from(address.checked_sub(*start)?).ok()?..)?;
        (!rest.is_empty()).then_some(rest)
    }

    /// Returns the code before an address: up to `length` bytes.
    pub(super) fn before(&self, address: u64, length: u64) -> Vec<u8> {
        let limit = address.saturating_sub(length);
        let mut start = address;
        while start > limit
            && let Some(mapping) = mapping(self.maps, start - 1)
        {
            start = mapping.start;
        }
        read(self.memory, self.maps, start.max(limit)..address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dotnet::Image;
    use crate::trace::ModuleId;

    #[test]
    fn reads_only_jit_code() {
        let bytes: Vec<u8> = (0..4 * PAGE).map(|byte| byte as u8).collect();
        let image = Image {
            start: 0x1000,
            bytes: &bytes,
        };
        let maps = Maps::of_pages(&[
            (0x1000, Backing::File(ModuleId(0))),
            (0x2000, Backing::Jit),
            (0x3000, Backing::Jit),
        ]);
        let mut code = Code::new(&image, &maps);
        assert_eq!(code.at(0x1800), None);
        assert_eq!(code.at(0x2ff8).map(<[u8]>::len), Some(0x1008));
        assert_eq!(code.at(0x3ff8).map(<[u8]>::len), Some(8));
        assert_eq!(code.at(0x4000), None);
        assert_eq!(code.before(0x2004, 16), [0, 1, 2, 3]);
        assert_eq!(code.before(0x3004, 16).len(), 16);
        assert!(code.before(0x1004, 16).is_empty());
    }

    #[test]
    fn replaced_code_has_another_signature() {
        let maps = Maps::of_pages(&[(0x1000, Backing::Jit)]);
        let signature_of = |bytes: &[u8], address| {
            let start = 0x1000;
            signature(&Image { start, bytes }, &maps, address)
        };
        let mut bytes = [0; 64];
        let before = signature_of(&bytes, 0x1020);
        assert!(before.is_some());
        bytes[0x2f] = 1;
        assert_ne!(signature_of(&bytes, 0x1020), before);
        bytes[0x2f] = 0;
        bytes[0] = 1;
        assert_eq!(signature_of(&bytes, 0x1020), before);
        assert_eq!(signature_of(&bytes, 0x3000), None);
    }
}
