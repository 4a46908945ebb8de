//! Conversion of `.symtab` and `.dynsym` to a [`SymbolTable`].

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::pod::slice_from_bytes;
use object::read::elf::{FileHeader, Sym};

use super::headers::{Headers, Section};
use super::source::Source;
use super::{ElfError, check_size, mini_debug_info, plt, runtime_calls, section_data};
use crate::binding::{Aliases, Binding};
use crate::demangle::KEPT_NAME_BYTES;
use crate::table::{
    Extent, MAX_NAME_BYTES, MAX_SYMBOLS, SymbolEntry, SymbolTable, SymbolTableBuilder,
};

/// Limit of a string table: the limit of names in a [`SymbolTable`].
const MAX_STRINGS_BYTES: u64 = MAX_NAME_BYTES as u64;

/// Reads the functions of all symbol tables of a file, and its PLT stubs.
pub(super) fn table(
    source: &Source,
    headers: &Headers,
    aliases: Aliases,
) -> Result<SymbolTable, ElfError> {
    let mut symbols = Symbols::new(aliases);
    if !has_symtab(headers)
        && let Some(inner) = mini_debug_info::read(source, headers)?
    {
        symbols.add(&inner, &Headers::read(&inner)?, elf::SHT_SYMTAB)?;
    }
    symbols.add(source, headers, elf::SHT_SYMTAB)?;
    symbols.add(source, headers, elf::SHT_DYNSYM)?;
    runtime_calls::add_functions(&mut symbols.builder, source, headers, aliases)?;
    symbols.finish(source, headers)
}

/// Reads the functions of `.dynsym`, and the PLT stubs.
pub(super) fn dynamic_table(
    source: &Source,
    headers: &Headers,
    aliases: Aliases,
) -> Result<SymbolTable, ElfError> {
    let mut symbols = Symbols::new(aliases);
    symbols.add(source, headers, elf::SHT_DYNSYM)?;
    symbols.finish(source, headers)
}

/// Returns whether the file has a `.symtab`.
pub(super) fn has_symtab(headers: &Headers) -> bool {
    position(headers, elf::SHT_SYMTAB).is_some()
}

/// Returns whether the file has a `.symtab`, its own or in `.gnu_debugdata`, and checks its range.
pub(super) fn has_all(source: &Source, headers: &Headers) -> Result<bool, ElfError> {
    if has_symtab(headers) {
        return check_symtab(source, headers);
    }
    let Some(inner) = mini_debug_info::read(source, headers)? else {
        return Ok(false);
    };
    check_symtab(&inner, &Headers::read(&inner)?)
}

/// Returns whether the file has a `.symtab`, and checks its range.
pub(super) fn check_symtab(source: &Source, headers: &Headers) -> Result<bool, ElfError> {
    let Some(index) = position(headers, elf::SHT_SYMTAB) else {
        return Ok(false);
    };
    for (section, what, limit) in parts(headers, index).into_iter().flatten() {
        check_size(what, section.size, limit)?;
        source.check(what, section.offset, section.size)?;
    }
    Ok(true)
}

fn position(headers: &Headers, kind: elf::SectionType) -> Option<usize> {
    let mut sections = headers.sections.iter();
    sections.position(|section| section.kind == kind)
}

/// Returns symbols, names and extended section indices, each with its description and size limit.
fn parts(headers: &Headers, index: usize) -> [Option<(&Section, &'static str, u64)>; 3] {
    const MAX_BYTES: u64 = (MAX_SYMBOLS * size_of::<elf::Sym64<Endianness>>()) as u64;
    let sections = &headers.sections;
    let symbols = sections.get(index);
    let strings = symbols.and_then(|section| sections.get(section.link as usize));
    let is_extension =
        |other: &&Section| other.kind == elf::SHT_SYMTAB_SHNDX && other.link as usize == index;
    let extended = sections.iter().find(is_extension);
    [
        symbols.map(|section| (section, "symbols", MAX_BYTES)),
        strings.map(|section| (section, "symbol names", MAX_STRINGS_BYTES)),
        extended.map(|section| (section, "symbol sections", MAX_BYTES)),
    ]
    .map(|part| part.filter(|(section, ..)| section.has_data()))
}

/// The bytes of a symbol section and of its linked sections.
pub(super) struct RawSymbols {
    pub(super) symbols: Vec<u8>,
    pub(super) strings: Vec<u8>,
    /// Section indices of the symbols that have `SHN_XINDEX`.
    extended: Vec<u8>,
}

impl RawSymbols {
    pub(super) fn read(source: &Source, headers: &Headers, index: usize) -> Result<Self, ElfError> {
        let read = |part: Option<(&Section, _, _)>| match part {
            Some((section, what, limit)) => section_data(source, headers, section, what, limit),
            None => Ok(Vec::new()),
        };
        let [symbols, strings, extended] = parts(headers, index).map(read);
        Ok(Self {
            symbols: symbols?,
            strings: strings?,
            extended: extended?,
        })
    }

    /// Returns the symbols as records, without a truncated last one.
    pub(super) fn records<Elf: FileHeader<Endian = Endianness>>(&self) -> &[Elf::Sym] {
        let count = self.symbols.len() / size_of::<Elf::Sym>();
        slice_from_bytes(&self.symbols, count).map_or(&[], |(symbols, _)| symbols)
    }

    /// Returns the name at an offset, or `None` if it is empty.
    ///
    /// With [`Aliases::Plain`] the name has no version (`memcpy@@GLIBC_2.14`), which some linkers
    /// append.
    pub(super) fn name(&self, offset: u32, aliases: Aliases) -> Option<&[u8]> {
        let from = self.strings.get(offset as usize..).unwrap_or_default();
        let from = from.get(..KEPT_NAME_BYTES).unwrap_or(from);
        let end = match aliases {
            Aliases::Plain => memchr::memchr2(0, b'@', from),
            Aliases::AsPerf => memchr::memchr(0, from),
        };
        from.get(..end.unwrap_or(from.len()))
            .filter(|name| !name.is_empty())
    }

    fn section_index(
        &self,
        symbol: usize,
        section: elf::SymbolSection,
        endian: Endianness,
    ) -> Option<usize> {
        if section != elf::SHN_XINDEX {
            return section.index().map(usize::from);
        }
        let word: [u8; 4] = self
            .extended
            .get(symbol.checked_mul(4)?..)?
            .get(..4)?
            .try_into()
            .ok()?;
        let index = match endian {
            Endianness::Little => u32::from_le_bytes(word),
            Endianness::Big => u32::from_be_bytes(word),
        };
        usize::try_from(index).ok()
    }
}

/// Builds a table from several symbol sections.
struct Symbols {
    builder: SymbolTableBuilder,
    aliases: Aliases,
    /// Symbols that the sections may still have in total.
    left_symbols: usize,
    /// Bytes of names that the symbols may still have in total.
    left_name_bytes: usize,
}

impl Symbols {
    fn new(aliases: Aliases) -> Self {
        Self {
            builder: SymbolTableBuilder::new(),
            aliases,
            left_symbols: MAX_SYMBOLS,
            left_name_bytes: MAX_NAME_BYTES,
        }
    }

    /// Adds the functions of the first section of a type, if the file has one.
    fn add(
        &mut self,
        source: &Source,
        headers: &Headers,
        kind: elf::SectionType,
    ) -> Result<(), ElfError> {
        let Some(index) = position(headers, kind) else {
            return Ok(());
        };
        let raw = RawSymbols::read(source, headers, index)?;
        match headers.is_64 {
            true => self.add_records::<FileHeader64<Endianness>>(headers, raw),
            false => self.add_records::<FileHeader32<Endianness>>(headers, raw),
        }
    }

    fn finish(mut self, source: &Source, headers: &Headers) -> Result<SymbolTable, ElfError> {
        plt::add_stubs(&mut self.builder, source, headers)?;
        Ok(self.builder.finish())
    }

    fn spend_name(&mut self, bytes: usize) -> Result<(), ElfError> {
        let limit = MAX_NAME_BYTES as u64;
        let too_much = ElfError::TooLarge {
            what: "symbol names",
            size: limit.saturating_add(1),
            limit,
        };
        self.left_name_bytes = self.left_name_bytes.checked_sub(bytes).ok_or(too_much)?;
        Ok(())
    }

    fn add_records<Elf: FileHeader<Endian = Endianness>>(
        &mut self,
        headers: &Headers,
        mut raw: RawSymbols,
    ) -> Result<(), ElfError> {
        let endian = headers.endian;
        let is_first = self.builder.is_empty();
        let records = raw.records::<Elf>();
        check_size("symbols", records.len() as u64, self.left_symbols as u64)?;
        self.left_symbols -= records.len();
        for (index, symbol) in records.iter().enumerate() {
            let section = raw
                .section_index(index, symbol.st_shndx(endian), endian)
                .and_then(|index| headers.sections.get(index));
            let Some(section) = section.filter(|section| section.is_executable()) else {
                continue;
            };
            let start = code_address::<Elf>(symbol, headers);
            let is_function = matches!(
                symbol.st_type(),
                elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE
            );
            if !is_function || !(section.address..section.end()).contains(&start) {
                continue;
            }
            let Some(name) = raw.name(symbol.st_name(endian), self.aliases) else {
                continue;
            };
            if is_mapping_symbol(name, headers.machine) {
                continue;
            }
            self.spend_name(name.len())?;
            let extent = match symbol.st_size(endian).into() {
                0 => Extent::Until(section.end()),
                size => Extent::Size(size.min(section.end().saturating_sub(start))),
            };
            let rank = binding(symbol.st_bind()).rank(name, self.aliases);
            let entry = SymbolEntry {
                start,
                extent,
                name,
                rank,
                tag: 0,
            };
            match is_first {
                true => self
                    .builder
                    .add_named_at(symbol.st_name(endian) as usize, entry)?,
                false => self.builder.add(entry)?,
            }
        }
        if is_first && !self.builder.is_empty() {
            self.builder.set_names(std::mem::take(&mut raw.strings));
        }
        Ok(())
    }
}

/// Returns the address of a symbol. On 32-bit ARM, bit 0 of a function is the Thumb flag.
fn code_address<Elf: FileHeader<Endian = Endianness>>(symbol: &Elf::Sym, headers: &Headers) -> u64 {
    let value: u64 = symbol.st_value(headers.endian).into();
    if headers.machine == elf::EM_ARM && symbol.st_type() == elf::STT_FUNC {
        value & !1
    } else {
        value
    }
}

/// Returns whether a name is a mapping symbol of ARM or RISC-V: `$a`, `$d`, `$t`, `$x`, `$x.12`.
///
/// Mapping symbols separate code from data. They are not names of functions.
fn is_mapping_symbol(name: &[u8], machine: elf::Machine) -> bool {
    let has_mapping_symbols = matches!(machine, elf::EM_ARM | elf::EM_AARCH64 | elf::EM_RISCV);
    has_mapping_symbols
        && matches!(name, [b'$', b'a' | b'd' | b't' | b'x', rest @ ..] if rest.is_empty() || rest.starts_with(b".") || machine == elf::EM_RISCV)
}

fn binding(bind: elf::SymbolBind) -> Binding {
    match bind {
        elf::STB_LOCAL => Binding::Local,
        elf::STB_WEAK => Binding::Weak,
        _ => Binding::Global, // STB_GLOBAL, STB_GNU_UNIQUE
    }
}
