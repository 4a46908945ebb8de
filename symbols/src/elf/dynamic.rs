//! Lookup of a dynamic symbol by name.

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, Sym};

use super::ElfError;
use super::functions::RawSymbols;
use super::headers::Headers;
use super::source::Source;
use crate::binding::Aliases;

pub(super) fn address_of(
    source: &Source,
    headers: &Headers,
    name: &[u8],
) -> Result<Option<u64>, ElfError> {
    let dynsym = headers
        .sections
        .iter()
        .position(|section| section.kind == elf::SHT_DYNSYM);
    let Some(dynsym) = dynsym else {
        return Ok(None);
    };
    let raw = RawSymbols::read(source, headers, dynsym)?;
    Ok(if headers.is_64 {
        find::<FileHeader64<Endianness>>(&raw, headers, name)
    } else {
        find::<FileHeader32<Endianness>>(&raw, headers, name)
    })
}

fn find<Elf: FileHeader<Endian = Endianness>>(
    raw: &RawSymbols,
    headers: &Headers,
    name: &[u8],
) -> Option<u64> {
    let endian = headers.endian;
    let defined = |symbol: &&Elf::Sym| symbol.st_shndx(endian) != elf::SHN_UNDEF;
    let has_name = |symbol: &&Elf::Sym| {
        // The cheap test precedes the full one: most names differ in their first byte.
        let strings = raw.strings.get(symbol.st_name(endian) as usize..);
        strings.is_some_and(|strings| strings.starts_with(name))
            && raw.name(symbol.st_name(endian), Aliases::Plain) == Some(name)
    };
    let symbol = (raw.records::<Elf>().iter())
        .filter(defined)
        .find(has_name)?;
    Some(symbol.st_value(endian).into())
}
