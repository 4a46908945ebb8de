//! `/proc/kallsyms`: the kernel's names, its modules' and those of BPF programs.
//!
//! One symbol a line, `ADDRESS TYPE NAME[\t[MODULE]]` (kernel/kallsyms.c, `s_show`), without sizes. The
//! kernel proper comes sorted, a module's symbols do not. BPF programs have the module `bpf`.

use std::collections::HashMap;
use std::io::{self, BufRead};

use thiserror::Error;

mod nearest;

use crate::binding::{Aliases, Binding};
use crate::lines::{Lines, hex, word};
use crate::table::{Extent, Symbol, SymbolEntry, SymbolTable, SymbolTableBuilder, TableError};
use nearest::Nearest;

/// Most bytes read. A distribution kernel with its modules has 12 MB.
const MAX_BYTES: u64 = 256 << 20;
/// A symbol without size reaches no further, so that an address in a hole between two BPF programs, or
/// between the kernel and its modules, is not given the name before the hole. The largest function of a
/// distribution kernel has 60 KB; a BPF program of a million instructions, the verifier's limit, rarely 1 MB.
const MAX_REACH_BYTES: u64 = 1 << 20;
/// What the last symbol of a module gets: its page and the next, as in perf (`symbols__fixup_end`).
const PAGE_BYTES: u64 = 4096;

/// Why there are no kernel names.
#[derive(Debug, Error)]
pub enum KallsymsError {
    /// Reading failed.
    #[error("kallsyms: reading: {0}")]
    Read(#[from] io::Error),
    /// Every function is at address 0: the reader lacks CAP_SYSLOG, or `kernel.kptr_restrict` is 2.
    #[error(
        "kallsyms: all {functions} functions are at address 0 (hidden for want of CAP_SYSLOG, or by kernel.kptr_restrict)"
    )]
    Restricted {
        /// Function lines seen.
        functions: u64,
    },
    /// Too many symbols.
    #[error("kallsyms: {0}")]
    Table(#[from] TableError),
}

/// A kernel function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// Its range and name.
    pub symbol: Symbol<'a>,
    /// The module without brackets, `bpf` for BPF programs, `None` for the kernel proper.
    pub module: Option<&'a [u8]>,
}

/// The functions (types t, T, w, W) of a running kernel.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    table: SymbolTable,
    modules: Vec<Vec<u8>>,
    skipped: u64,
}

impl KernelSymbols {
    /// Reads the text of `/proc/kallsyms`. An empty one gives an empty table: a kernel without KALLSYMS.
    ///
    /// # Errors
    /// Reading failed, the addresses are hidden, or there are more symbols than a table takes.
    pub fn read(input: impl BufRead) -> Result<Self, KallsymsError> {
        Self::read_lines(Reader::default(), input)
    }

    /// The same with another choice of names.
    ///
    /// # Errors
    /// As [`KernelSymbols::read`].
    pub fn read_with(input: impl BufRead, aliases: Aliases) -> Result<Self, KallsymsError> {
        let reader = Reader {
            aliases,
            ..Reader::default()
        };
        Self::read_lines(reader, input)
    }

    /// Reads only what names these addresses; other addresses must not be looked up. A capture has a few hundred
    /// kernel addresses, the kernel a hundred thousand functions.
    ///
    /// # Errors
    /// As [`KernelSymbols::read`].
    pub fn read_for(input: impl BufRead, addresses: &[u64]) -> Result<Self, KallsymsError> {
        let reader = Reader {
            nearest: Some(Nearest::new(addresses)),
            ..Reader::default()
        };
        Self::read_lines(reader, input)
    }

    fn read_lines(mut reader: Reader, input: impl BufRead) -> Result<Self, KallsymsError> {
        let mut lines = Lines::new(input, MAX_BYTES);
        while let Some(text) = lines.next()? {
            match parse_line(text) {
                Some(line) => reader.add(line)?,
                None => reader.skipped += 1,
            }
        }
        reader.skipped += u64::from(lines.is_truncated());
        reader.finish()
    }

    /// The function at an address.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<KernelSymbol<'_>> {
        self.table
            .lookup(address)
            .map(|symbol| self.with_module(symbol))
    }

    /// All functions by start.
    pub fn iter(&self) -> impl Iterator<Item = KernelSymbol<'_>> {
        self.table.iter().map(|symbol| self.with_module(symbol))
    }

    /// Number of functions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no function at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Lines that were not understood.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn with_module<'a>(&'a self, symbol: Symbol<'a>) -> KernelSymbol<'a> {
        // Tag 0 is the kernel proper, n is modules[n - 1].
        let index = (symbol.tag as usize).checked_sub(1);
        KernelSymbol {
            symbol,
            module: index
                .and_then(|index| self.modules.get(index))
                .map(Vec::as_slice),
        }
    }
}

/// The address of the first symbol of this name, of whatever kind, in the text of `/proc/kallsyms`. Reads no further.
///
/// # Errors
/// What reading returns.
pub fn address_of(name: &[u8], input: impl BufRead) -> io::Result<Option<u64>> {
    let mut lines = Lines::new(input, MAX_BYTES);
    while let Some(line) = lines.next()? {
        if let Some(line) = parse_line(line)
            && line.name == name
        {
            return Ok(Some(line.address));
        }
    }
    Ok(None)
}

struct KallsymsLine<'a> {
    address: u64,
    kind: u8,
    name: &'a [u8],
    module: Option<&'a [u8]>,
}

fn parse_line(text: &[u8]) -> Option<KallsymsLine<'_>> {
    let (address, rest) = word(text)?;
    let (&[kind], rest) = word(rest)? else {
        return None;
    };
    let (name, module) = match word(rest) {
        Some((name, module)) => (name, Some(module.strip_prefix(b"[")?.strip_suffix(b"]")?)),
        None => (rest, None),
    };
    if name.is_empty() || module.is_some_and(<[u8]>::is_empty) {
        return None;
    }
    Some(KallsymsLine {
        address: hex(address)?,
        kind,
        name,
        module,
    })
}

#[derive(Default)]
struct Pending {
    start: u64,
    name_start: usize,
    name_len: usize,
    rank: u32,
    tag: u32,
}

#[derive(Default)]
struct Reader {
    pending: Vec<Pending>,
    names: Vec<u8>,
    modules: Vec<Vec<u8>>,
    tags: HashMap<Vec<u8>, u32>,
    last_starts: HashMap<u32, u64>,
    nearest: Option<Nearest>,
    aliases: Aliases,
    functions: u64,
    at_zero: u64,
    skipped: u64,
}

impl Reader {
    fn add(&mut self, line: KallsymsLine<'_>) -> Result<(), KallsymsError> {
        let binding = match line.kind {
            b'T' => Binding::Global,
            b't' => Binding::Local,
            b'w' | b'W' => Binding::Weak,
            _ => return Ok(()),
        };
        if line.address == 0 {
            self.at_zero += 1;
            return Ok(());
        }
        if self.pending.len() >= crate::table::MAX_SYMBOLS {
            return Err(TableError::TooManySymbols.into());
        }
        let tag = line.module.map_or(0, |module| self.tag(module));
        let last = self.last_starts.entry(tag).or_default();
        *last = line.address.max(*last);
        self.functions += 1;
        let rank = match self.aliases {
            Aliases::Plain => binding.rank(line.name, self.aliases),
            // All but the last of one address have no size when perf chooses.
            Aliases::AsPerf => (crate::table::MAX_SYMBOLS - self.pending.len()) as u32,
        };
        match &mut self.nearest {
            Some(nearest) => nearest.offer(line.address, line.name, rank, tag),
            None => self.push(line.address, line.name, rank, tag),
        }
        Ok(())
    }

    fn push(&mut self, start: u64, name: &[u8], rank: u32, tag: u32) {
        self.pending.push(Pending {
            start,
            name_start: self.names.len(),
            name_len: name.len(),
            rank,
            tag,
        });
        self.names.extend_from_slice(name); // at most MAX_BYTES of them
    }

    fn tag(&mut self, module: &[u8]) -> u32 {
        if let Some(&tag) = self.tags.get(module) {
            return tag;
        }
        self.modules.push(module.to_vec());
        let tag = self.modules.len() as u32; // at most MAX_SYMBOLS of them
        self.tags.insert(module.to_vec(), tag);
        tag
    }

    fn finish(mut self) -> Result<KernelSymbols, KallsymsError> {
        if self.functions == 0 && self.at_zero > 0 {
            return Err(KallsymsError::Restricted {
                functions: self.at_zero,
            });
        }
        let nearest = self.nearest.take().map(Nearest::into_symbols);
        for found in nearest.into_iter().flatten() {
            self.push(found.start, &found.name, found.rank, found.tag);
        }
        let mut builder = SymbolTableBuilder::new();
        for pending in &self.pending {
            let is_last = self.last_starts.get(&pending.tag) == Some(&pending.start);
            let reach = if is_last {
                2 * PAGE_BYTES - pending.start % PAGE_BYTES
            } else {
                MAX_REACH_BYTES
            };
            let name = self
                .names
                .get(pending.name_start..)
                .and_then(|from| from.get(..pending.name_len));
            builder.add(SymbolEntry {
                start: pending.start,
                extent: Extent::Until(pending.start.saturating_add(reach)),
                name: name.unwrap_or_default(),
                rank: pending.rank,
                tag: pending.tag,
            })?;
        }
        Ok(KernelSymbols {
            table: builder.finish(),
            modules: self.modules,
            skipped: self.skipped,
        })
    }
}

#[cfg(test)]
mod tests;
