//! Names of functions of a stripped .NET runtime, from the tables by which its managed code calls it.
//!
//! ```text
//! struct { const char *name; void *function; } table[];     in .data.rel.ro, filled by relocations
//! ```
//! `DllImportEntry` in the runtime's src/coreclr/vm/qcallentrypoints.cpp, .NET 7 or newer.

use std::ops::Range;

use object::Endianness;
use object::elf;

use super::code::is_x86_64;
use super::functions::{RawSymbols, has_symtab};
use super::headers::{Headers, Section};
use super::relative::relative;
use super::source::Source;
use super::{ElfError, check_size, section_data};
use crate::binding::Aliases;
use crate::table::{Extent, SymbolEntry, SymbolTableBuilder};

/// A function that only the runtime exports, with the NULs around its name.
const EXPORT: &[u8] = b"\0coreclr_initialize\0";
/// Minimum number of successive entries. The tables have 36 or more.
const MIN_ENTRIES: usize = 32;
/// Maximum number of entries. .NET 10 has 405.
const MAX_ENTRIES: usize = 1 << 14;
/// Size limits of sections, in bytes. .NET 10 has 1 MB.
const MAX_RELOCATIONS_BYTES: u64 = 32 << 20;
const MAX_STRINGS_BYTES: u64 = 32 << 20;
/// Limit of the pointers that are looked at. .NET 10 has 43 000 relocations.
const MAX_POINTERS: usize = 1 << 18;
/// Lengths of a name.
const NAME_BYTES: std::ops::RangeInclusive<usize> = 3..=200;
/// Rank of the names, below the rank of every symbol but those of stubs.
const RANK: u32 = u32::MAX - 1;

/// Adds the functions of the tables, if the file is a runtime without symbols. perf does not.
pub(super) fn add_functions(
    builder: &mut SymbolTableBuilder,
    source: &Source,
    headers: &Headers,
    aliases: Aliases,
) -> Result<(), ElfError> {
    let has_names = has_symtab(headers) || matches!(aliases, Aliases::AsPerf);
    if has_names || !is_x86_64(headers) || !is_runtime(source, headers)? {
        return Ok(());
    }
    let named = |name: &[u8]| headers.sections.iter().find(|section| section.name == name);
    let (Some(tables), Some(strings)) = (named(b".data.rel.ro"), named(b".rodata")) else {
        return Ok(());
    };
    let text = section_data(source, headers, strings, "strings", MAX_STRINGS_BYTES)?;
    let pointers = pointers(source, headers, tables)?;
    let sections = CodeSections::new(&headers.sections);
    let mut entries: Vec<(u64, &[u8], u64, u64)> = Vec::new();
    let mut next = 0;
    while let Some(&[(at, name), (after, function)]) = pointers.get(next..next + 2) {
        let is_next = after == at.wrapping_add(8)
            && entries
                .last()
                .is_none_or(|&(last, ..)| at == last.wrapping_add(16));
        let entry = is_next.then(|| {
            let name = name_at(&text, name.checked_sub(strings.address)?)?;
            Some((at, name, function, sections.end_at(function)?))
        });
        match entry.flatten() {
            Some(entry) => {
                entries.push(entry);
                next += 2;
            }
            None => {
                add(builder, &entries)?;
                // The pair that ends a table may start another one.
                next += usize::from(entries.is_empty());
                entries.clear();
            }
        }
    }
    add(builder, &entries)
}

/// The addresses of code, sorted: a file may have any number of sections, and of pointers into them.
struct CodeSections(Vec<Range<u64>>);

impl CodeSections {
    fn new(sections: &[Section]) -> Self {
        let code = sections.iter().filter(|section| section.is_executable());
        let mut code: Vec<_> = code.map(|section| section.address..section.end()).collect();
        code.sort_unstable_by_key(|section| section.start);
        Self(code)
    }

    /// Returns the end of the section that an address is in. Sections do not overlap.
    fn end_at(&self, address: u64) -> Option<u64> {
        let after = self.0.partition_point(|section| section.start <= address);
        let section = self.0.get(after.checked_sub(1)?)?;
        section.contains(&address).then_some(section.end)
    }
}

/// Adds the entries of a table: address, name, function and end of its section.
fn add(
    builder: &mut SymbolTableBuilder,
    entries: &[(u64, &[u8], u64, u64)],
) -> Result<(), ElfError> {
    if !(MIN_ENTRIES..=MAX_ENTRIES).contains(&entries.len()) {
        return Ok(());
    }
    for &(_, name, start, end) in entries {
        builder.add(SymbolEntry {
            start,
            extent: Extent::Until(end),
            name,
            rank: RANK,
            tag: 0,
        })?;
    }
    Ok(())
}

fn is_runtime(source: &Source, headers: &Headers) -> Result<bool, ElfError> {
    let mut sections = headers.sections.iter();
    let Some(dynsym) = sections.position(|section| section.kind == elf::SHT_DYNSYM) else {
        return Ok(false);
    };
    let symbols = RawSymbols::read(source, headers, dynsym)?;
    Ok(memchr::memmem::find(&symbols.strings, EXPORT).is_some())
}

/// Returns the words of a section that the loader sets to an address of the file, sorted: the first
/// ones of the file, if there are too many.
fn pointers(
    source: &Source,
    headers: &Headers,
    section: &Section,
) -> Result<Vec<(u64, u64)>, ElfError> {
    let mut pointers = Vec::new();
    let mut left = MAX_RELOCATIONS_BYTES;
    let kinds = [elf::R_X86_64_RELATIVE.0];
    for rela in &headers.sections {
        if rela.kind == elf::SHT_RELA && pointers.len() < MAX_POINTERS {
            check_size("relocations", rela.size, left)?;
            left -= rela.size;
            let bytes = source.read_exact("relocations", rela.offset, rela.size)?;
            let inside = section.address..section.end();
            let relocations = relative(&bytes, Endianness::Little, &kinds);
            let relocations = relocations.filter(|(address, _)| inside.contains(address));
            pointers.extend(relocations.take(MAX_POINTERS - pointers.len()));
        }
    }
    pointers.sort_unstable();
    Ok(pointers)
}

/// Returns the name at an offset of a section of strings: a whole one, and an identifier of C.
fn name_at(text: &[u8], offset: u64) -> Option<&[u8]> {
    let offset = usize::try_from(offset).ok()?;
    let starts = offset == 0 || text.get(offset - 1) == Some(&0);
    let from = text.get(offset..)?;
    let from = from.get(..=*NAME_BYTES.end()).unwrap_or(from);
    let name = from.get(..memchr::memchr(0, from)?)?;
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    (starts && NAME_BYTES.contains(&name.len()) && name.iter().all(is_word)).then_some(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;

    fn section(address: u64, size: u64) -> Section {
        Section {
            name: Vec::new(),
            kind: elf::SHT_PROGBITS,
            flags: elf::SHF_ALLOC | elf::SHF_EXECINSTR,
            address,
            offset: 0,
            size,
            link: 0,
            alignment: 1,
        }
    }

    #[test]
    fn finds_the_section_of_code_among_any_number() {
        let data = Section {
            flags: elf::SHF_ALLOC,
            ..section(5, 10)
        };
        let code = (1..60_000).rev().map(|at| section(at * 32, 16));
        let sections: Vec<Section> = code.chain([data]).collect();
        let sections = CodeSections::new(&sections);
        for (address, expected) in [
            (5, None),
            (31, None),
            (32, Some(48)),
            (48, None),
            (59_999 * 32 + 15, Some(59_999 * 32 + 16)),
            (60_000 * 32, None),
        ] {
            assert_eq!(sections.end_at(address), expected, "{address}");
        }
    }

    #[test]
    fn the_number_of_pointers_is_bounded() {
        let mut bytes = Vec::new();
        for index in 0..=MAX_POINTERS as u64 {
            for word in [index * 8, elf::R_X86_64_RELATIVE.0.into(), 1] {
                bytes.extend(word.to_le_bytes());
            }
        }
        let relocations = Section {
            kind: elf::SHT_RELA,
            ..section(0, bytes.len() as u64)
        };
        let headers = Headers {
            is_64: true,
            endian: Endianness::Little,
            machine: elf::EM_X86_64,
            segments: Vec::new(),
            sections: vec![relocations.clone(), relocations],
        };
        let source = Source::from_bytes(bytes, Arc::default());
        let found = pointers(&source, &headers, &section(0, u64::MAX)).unwrap();
        assert_eq!(found.len(), MAX_POINTERS);
    }

    #[test]
    fn a_name_is_a_whole_identifier() {
        let text = b"abc\0Thread_Spin\0a b c\0ab\0";
        for (offset, expected) in [
            (0, Some(&b"abc"[..])),
            (4, Some(b"Thread_Spin")),
            (5, None),
            (16, None),
            (22, None),
            (25, None),
            (u64::MAX, None),
        ] {
            assert_eq!(name_at(text, offset), expected, "{offset}");
        }
    }
}
