//! Symbols for PLT stubs, through which a file calls other files: `malloc@plt`.
//!
//! A stub jumps to the address in its slot of the global offset table. A relocation declares which
//! symbol's address the loader stores in the slot. The slot is decoded from the instructions of
//! the stub, so the order of stubs does not matter: `.plt`, `.plt.sec` and `.plt.got` are read
//! alike. Only x86-64 is supported; other architectures get no symbols for stubs.

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::pod::slice_from_bytes;
use object::read::elf::{Rela, Sym};

use super::functions::RawSymbols;
use super::headers::{Headers, Section};
use super::source::Source;
use super::{ElfError, check_size, section_data};
use crate::binding::Aliases;
use crate::demangle::PLT_SUFFIX;
use crate::table::{Extent, SymbolEntry, SymbolTableBuilder};

/// Limit of a PLT section, in bytes. The largest programs have some 10 000 stubs of 16 bytes.
const MAX_PLT_BYTES: u64 = 4 << 20;
/// Limit of relocations, in bytes. libcoreclr.so has 1 MB, Chromium 23 MB.
const MAX_RELOCATIONS_BYTES: u64 = 64 << 20;
const RELOCATIONS: &str = "relocations";
/// Size of the pieces in which relocations are read.
///
/// Few relocations are kept: allocating memory for all would cost more than reading them.
const PIECE_BYTES: usize = 2048 * size_of::<Relocation>();
/// Size of a stub in `.plt` and `.plt.sec` (x86-64 psABI). Stubs in `.plt.got` have 8 bytes.
const STUB_BYTES: usize = 16;
/// Rank of the names of stubs, below the rank of every symbol.
const RANK: u32 = u32::MAX;
/// Limit of the name of a stub. It bounds the memory of many stubs that share one long name.
const MAX_STUB_NAME_BYTES: usize = 4096;

type Relocation = elf::Rela64<Endianness>;

pub(super) fn add_stubs(
    builder: &mut SymbolTableBuilder,
    source: &Source,
    headers: &Headers,
) -> Result<(), ElfError> {
    if headers.machine != elf::EM_X86_64 || !headers.is_64 {
        return Ok(());
    }
    let is_plt = |section: &&Section| {
        section.has_data() && section.is_executable() && stub_bytes(section).is_some()
    };
    let mut plts = headers.sections.iter().filter(is_plt).peekable();
    let Some(dynsym) = headers
        .sections
        .iter()
        .position(|section| section.kind == elf::SHT_DYNSYM)
    else {
        return Ok(());
    };
    if plts.peek().is_none() {
        return Ok(());
    }
    let symbols = RawSymbols::read(source, headers, dynsym)?;
    let symbol_of_slot = slots(source, headers, dynsym)?;
    let records = symbols.records::<FileHeader64<Endianness>>();
    let mut stub_name = Vec::new();
    // A file has at most three such sections; a malformed one may declare thousands of the same
    // bytes.
    for plt in plts.take(3) {
        let code = section_data(source, headers, plt, "PLT", MAX_PLT_BYTES)?;
        let size = stub_bytes(plt).unwrap_or(STUB_BYTES);
        for (index, stub) in code.chunks_exact(size).enumerate() {
            let Some(start) = plt.address.checked_add((index * size) as u64) else {
                break;
            };
            let symbol = slot(stub, start)
                .and_then(|slot| {
                    symbol_of_slot
                        .binary_search_by_key(&slot, |(address, _)| *address)
                        .ok()
                })
                .and_then(|index| records.get(symbol_of_slot.get(index)?.1 as usize));
            let Some(name) = symbol
                .and_then(|symbol| symbols.name(symbol.st_name(headers.endian), Aliases::Plain))
            else {
                continue;
            };
            if name.len() <= MAX_STUB_NAME_BYTES {
                stub_name.clear();
                stub_name.extend_from_slice(name);
                stub_name.extend_from_slice(PLT_SUFFIX.as_bytes());
                builder.add(SymbolEntry {
                    start,
                    extent: Extent::Size(size as u64),
                    name: &stub_name,
                    rank: RANK,
                    tag: 0,
                })?;
            }
        }
    }
    Ok(())
}

/// A PLT section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PltSection {
    /// Address of the first stub.
    pub address: u64,
    /// Code of the stubs.
    pub code: Vec<u8>,
    /// Size of each stub, in bytes.
    pub stub_bytes: usize,
}

/// Reads the PLT sections of an x86-64 file, and skips those that cannot be read.
pub(super) fn sections(source: &Source, headers: &Headers) -> Vec<PltSection> {
    let is_x86_64 = headers.machine == elf::EM_X86_64 && headers.is_64;
    let plts = headers
        .sections
        .iter()
        .filter(|section| is_x86_64 && section.has_data() && section.is_executable());
    let sections = plts.filter_map(|section| Some((section, stub_bytes(section)?)));
    sections
        .take(3)
        .filter_map(|(section, stub_bytes)| {
            let code = section_data(source, headers, section, "PLT", MAX_PLT_BYTES).ok()?;
            Some(PltSection {
                address: section.address,
                code,
                stub_bytes,
            })
        })
        .collect()
}

fn stub_bytes(section: &Section) -> Option<usize> {
    match section.name.as_slice() {
        b".plt" | b".plt.sec" => Some(STUB_BYTES),
        // With `-z ibtplt` these stubs start with endbr64, too, and have 16 bytes.
        b".plt.got" => Some(if section.alignment >= 16 { 16 } else { 8 }),
        _ => None,
    }
}

/// Returns the addresses of the slots that the loader fills, with their symbol indices, sorted.
fn slots(source: &Source, headers: &Headers, dynsym: usize) -> Result<Vec<(u64, u32)>, ElfError> {
    let mut slots = Vec::new();
    // `.rela.dyn` is needed for `.plt.got` only. Chromium has 23 MB of it, but no `.plt.got`.
    let has_got_stubs = headers
        .sections
        .iter()
        .any(|section| section.name == b".plt.got");
    let is_rela = |section: &&Section| {
        section.kind == elf::SHT_RELA
            && section.link as usize == dynsym
            && (section.name == b".rela.plt" || has_got_stubs && section.name == b".rela.dyn")
    };
    for section in headers.sections.iter().filter(is_rela).take(2) {
        check_size(RELOCATIONS, section.size, MAX_RELOCATIONS_BYTES)?;
        let end = section.offset.saturating_add(section.size);
        for at in (section.offset..end).step_by(PIECE_BYTES) {
            let size = (end - at).min(PIECE_BYTES as u64);
            let bytes = source.read_exact(RELOCATIONS, at, size)?;
            let count = bytes.len() / size_of::<Relocation>();
            let relocations: &[Relocation] =
                slice_from_bytes(&bytes, count).map_or(&[], |(all, _)| all);
            for relocation in relocations {
                let kind = relocation.r_type(headers.endian, false);
                if matches!(kind, elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT) {
                    slots.push((
                        relocation.r_offset(headers.endian),
                        relocation.r_sym(headers.endian, false),
                    ));
                }
            }
        }
    }
    slots.sort_unstable();
    Ok(slots)
}

/// Returns the address of the slot that a stub jumps through.
///
/// ```text
/// f3 0f 1e fa   endbr64                  only with -fcf-protection
/// f2            bnd                      only with MPX
/// ff 25 rel32   jmp *rel32(%rip)         relative to the next instruction
/// ```
fn slot(stub: &[u8], start: u64) -> Option<u64> {
    let code = stub.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(stub);
    let code = code.strip_prefix(&[0xf2]).unwrap_or(code);
    let rest = code.strip_prefix(&[0xff, 0x25])?;
    let (distance, after) = rest.split_first_chunk::<4>()?;
    let next = start.checked_add((stub.len() - after.len()) as u64)?;
    next.checked_add_signed(i64::from(i32::from_le_bytes(*distance)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_the_slot_relative_to_the_next_instruction() {
        let plain = [0xff, 0x25, 0x10, 0, 0, 0, 0x68, 0, 0, 0, 0];
        let with_prefixes = [
            0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xf0, 0xff, 0xff, 0xff, 0x0f,
        ];
        assert_eq!(slot(&plain, 0x1000), Some(0x1016));
        assert_eq!(slot(&with_prefixes, 0x1000), Some(0x100b - 0x10));
        assert_eq!(slot(&[0xff, 0x35, 0, 0, 0, 0], 0x1000), None);
        assert_eq!(slot(&[0xff, 0x25, 0], 0x1000), None);
    }
}
