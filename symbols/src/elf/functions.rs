//! `.symtab` and `.dynsym` to a symbol table.

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::pod::slice_from_bytes;
use object::read::elf::{FileHeader, Sym};

use super::headers::{Headers, Section};
use super::source::Source;
use super::{ElfError, check_size, plt};
use crate::binding::{Aliases, Binding};
use crate::table::{Entry, Extent, MAX_NAME_BYTES, MAX_SYMBOLS, SymbolTable, SymbolTableBuilder};

/// Most bytes of a string table: what a symbol table takes.
const MAX_STRINGS_BYTES: u64 = MAX_NAME_BYTES as u64;
/// Longest name; C++ reaches 20 KB. A longer one is cut: without it, the symbol before could reach over its code.
const MAX_SYMBOL_NAME_BYTES: usize = 64 << 10;

pub(super) fn table(
    source: Source<'_>,
    headers: &Headers,
    aliases: Aliases,
) -> Result<SymbolTable, ElfError> {
    let mut builder = SymbolTableBuilder::new();
    let mut budget = Budget {
        aliases,
        symbols: MAX_SYMBOLS,
        name_bytes: MAX_NAME_BYTES,
    };
    for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        let found = headers
            .sections
            .iter()
            .position(|section| section.kind == kind);
        let Some(mut raw) = found
            .map(|index| RawSymbols::read(source, headers, index))
            .transpose()?
        else {
            continue;
        };
        if headers.is_64 {
            add::<FileHeader64<Endianness>>(&mut builder, &mut budget, headers, &mut raw)?;
        } else {
            add::<FileHeader32<Endianness>>(&mut builder, &mut budget, headers, &mut raw)?;
        }
    }
    plt::add_stubs(&mut builder, source, headers)?;
    Ok(builder.finish())
}

/// The bytes of a symbol section and of its string section.
pub(super) struct RawSymbols {
    pub(super) symbols: Vec<u8>,
    pub(super) strings: Vec<u8>,
    /// Section indices of the symbols that have `SHN_XINDEX`.
    extended: Vec<u8>,
}

impl RawSymbols {
    pub(super) fn read(
        source: Source<'_>,
        headers: &Headers,
        index: usize,
    ) -> Result<Self, ElfError> {
        let max_symbols_bytes = (MAX_SYMBOLS * size_of::<elf::Sym64<Endianness>>()) as u64;
        let data = |section: &Section, what, max| match section.has_data() {
            true => super::section_data(source, headers, section, what, max),
            false => Ok(Vec::new()),
        };
        let Some(section) = headers.sections.get(index) else {
            return Ok(Self {
                symbols: Vec::new(),
                strings: Vec::new(),
                extended: Vec::new(),
            });
        };
        let strings = headers.sections.get(section.link as usize);
        let is_extension =
            |other: &&Section| other.kind == elf::SHT_SYMTAB_SHNDX && other.link as usize == index;
        let extended = headers.sections.iter().find(is_extension);
        Ok(Self {
            symbols: data(section, "symbols", max_symbols_bytes)?,
            strings: strings
                .map(|section| data(section, "symbol names", MAX_STRINGS_BYTES))
                .transpose()?
                .unwrap_or_default(),
            extended: extended
                .map(|section| data(section, "symbol sections", max_symbols_bytes))
                .transpose()?
                .unwrap_or_default(),
        })
    }

    /// The symbols as records; a cut last one is left out.
    pub(super) fn records<Elf: FileHeader<Endian = Endianness>>(&self) -> &[Elf::Sym] {
        let count = self.symbols.len() / size_of::<Elf::Sym>();
        slice_from_bytes(&self.symbols, count).map_or(&[], |(symbols, _)| symbols)
    }

    /// A name, without the version that some linkers append to it (`memcpy@@GLIBC_2.14`), unless perf's is wanted.
    pub(super) fn name(&self, offset: u32, aliases: Aliases) -> Option<&[u8]> {
        let from = self.strings.get(offset as usize..).unwrap_or_default();
        let from = from.get(..MAX_SYMBOL_NAME_BYTES).unwrap_or(from);
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

/// What both sections together may still take, and which names are wanted.
struct Budget {
    aliases: Aliases,
    symbols: usize,
    name_bytes: usize,
}

impl Budget {
    fn spend_name(&mut self, bytes: usize) -> Result<(), ElfError> {
        let limit = MAX_NAME_BYTES as u64;
        let too_much = ElfError::TooLarge {
            what: "symbol names",
            size: limit.saturating_add(1),
            limit,
        };
        self.name_bytes = self.name_bytes.checked_sub(bytes).ok_or(too_much)?;
        Ok(())
    }
}

fn add<Elf: FileHeader<Endian = Endianness>>(
    builder: &mut SymbolTableBuilder,
    budget: &mut Budget,
    headers: &Headers,
    raw: &mut RawSymbols,
) -> Result<(), ElfError> {
    let endian = headers.endian;
    let is_first = builder.is_empty();
    let records = raw.records::<Elf>();
    check_size("symbols", records.len() as u64, budget.symbols as u64)?;
    budget.symbols -= records.len();
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
        let Some(name) = raw.name(symbol.st_name(endian), budget.aliases) else {
            continue;
        };
        if is_mapping_symbol(name, headers.machine) {
            continue;
        }
        budget.spend_name(name.len())?;
        let extent = match symbol.st_size(endian).into() {
            0 => Extent::Until(section.end()),
            size => Extent::Size(size.min(section.end().saturating_sub(start))),
        };
        let rank = binding(symbol.st_bind()).rank(name, budget.aliases);
        let entry = Entry {
            start,
            extent,
            name,
            rank,
            tag: 0,
        };
        match is_first {
            true => builder.add_named_at(symbol.st_name(endian) as usize, entry)?,
            false => builder.add(entry)?,
        }
    }
    if is_first && !builder.is_empty() {
        builder.set_names(std::mem::take(&mut raw.strings));
    }
    Ok(())
}

/// On 32-bit ARM bit 0 of a function's value says "Thumb" and is not part of the address.
fn code_address<Elf: FileHeader<Endian = Endianness>>(symbol: &Elf::Sym, headers: &Headers) -> u64 {
    let value: u64 = symbol.st_value(headers.endian).into();
    if headers.machine == elf::EM_ARM && symbol.st_type() == elf::STT_FUNC {
        value & !1
    } else {
        value
    }
}

/// `$a`, `$d`, `$t`, `$x`, `$x.12`: on ARM and RISC-V these mark code and data, they name nothing.
fn is_mapping_symbol(name: &[u8], machine: elf::Machine) -> bool {
    let has_them = matches!(machine, elf::EM_ARM | elf::EM_AARCH64 | elf::EM_RISCV);
    has_them
        && matches!(name, [b'$', b'a' | b'd' | b't' | b'x', rest @ ..] if rest.is_empty() || rest.starts_with(b".") || machine == elf::EM_RISCV)
}

fn binding(bind: elf::SymbolBind) -> Binding {
    match bind {
        elf::STB_LOCAL => Binding::Local,
        elf::STB_WEAK => Binding::Weak,
        _ => Binding::Global, // STB_GLOBAL, STB_GNU_UNIQUE
    }
}
