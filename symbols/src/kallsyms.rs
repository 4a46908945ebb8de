//! `/proc/kallsyms`: symbols of the kernel, its modules and BPF programs.
//!
//! Format: [`s_show` in kernel/kallsyms.c][source]. Each line is one symbol without a size,
//! `ADDRESS TYPE NAME[\t[MODULE]]`. The symbols of the kernel proper are sorted, those of a module
//! are not. BPF programs have the module `bpf`.
//!
//! ```
//! use perfcollect_symbols::kallsyms::KernelSymbols;
//!
//! let list = b"ffffffff81000000 T _stext\nffffffffc0201000 t nft_do_chain\t[nf_tables]\n";
//! let symbols = KernelSymbols::read(&list[..])?;
//! let function = symbols.lookup(0xffff_ffff_c020_1010).ok_or("no symbol")?;
//! assert_eq!(function.symbol.name, b"nft_do_chain");
//! assert_eq!(function.module, Some(&b"nf_tables"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [source]: https://github.com/torvalds/linux/blob/master/kernel/kallsyms.c

use std::collections::HashMap;
use std::io::{self, BufRead};

use thiserror::Error;

mod nearest;

use crate::binding::{Aliases, Binding};
use crate::lines::{Lines, hex, word};
use crate::table::{Extent, Symbol, SymbolEntry, SymbolTable, SymbolTableBuilder, TableError};
use nearest::Nearest;

/// Limit of the list, in bytes. A distribution kernel with its modules has 12 MB.
const MAX_BYTES: u64 = 256 << 20;
/// Limit of the range of a symbol, which has no size.
///
/// Without it, an address in a gap between two BPF programs, or between the kernel and its modules,
/// would get the symbol before the gap. The largest function of a distribution kernel has 60 KB.
/// A BPF program of a million instructions, the verifier's limit, rarely has 1 MB.
const MAX_REACH_BYTES: u64 = 1 << 20;
/// Page size. As in perf (`symbols__fixup_end`), the last symbol of a module extends to the end of
/// the page after its start.
const PAGE_BYTES: u64 = 4096;

/// Why the list cannot be used.
#[derive(Debug, Error)]
pub enum KallsymsError {
    /// Reading failed.
    #[error("cannot read kallsyms: {0}")]
    Read(#[from] io::Error),
    /// Every function is at address 0: the reader lacks CAP_SYSLOG, or `kernel.kptr_restrict` is 2.
    #[error(
        "kallsyms hides the addresses of all {functions} functions (missing CAP_SYSLOG, or kernel.kptr_restrict)"
    )]
    Restricted {
        /// Number of function lines.
        functions: u64,
    },
    /// The symbols exceed the limits of a table.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// A kernel function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// The range and the name.
    pub symbol: Symbol<'a>,
    /// The module without brackets: `bpf` for BPF programs, `None` for the kernel proper.
    pub module: Option<&'a [u8]>,
}

/// The functions of a running kernel: the symbols of the types t, T, w and W.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    table: SymbolTable,
    modules: Vec<Vec<u8>>,
    skipped: u64,
}

impl KernelSymbols {
    /// Reads `/proc/kallsyms`. The list is empty in a kernel without `CONFIG_KALLSYMS`.
    ///
    /// # Errors
    /// Reading fails, the addresses are hidden, or the symbols exceed the limits of a table.
    pub fn read(input: impl BufRead) -> Result<Self, KallsymsError> {
        Self::read_lines(Reader::default(), input)
    }

    /// Reads the list with another choice among aliases.
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

    /// Reads only the symbols of these addresses. Other addresses must not be looked up.
    ///
    /// A capture has a few hundred kernel addresses, the kernel a hundred thousand functions.
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
        while let Some(line) = lines.next()? {
            match parse_line(line) {
                Some(line) => reader.add(line)?,
                None => reader.skipped += 1,
            }
        }
        reader.skipped += u64::from(lines.is_truncated());
        reader.finish()
    }

    /// Returns the function at an address.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<KernelSymbol<'_>> {
        self.table
            .lookup(address)
            .map(|symbol| self.with_module(symbol))
    }

    /// Returns all functions, sorted by start.
    pub fn iter(&self) -> impl Iterator<Item = KernelSymbol<'_>> {
        self.table.iter().map(|symbol| self.with_module(symbol))
    }

    /// Returns the number of functions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there are no functions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the number of malformed lines.
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

/// Returns the address of the first symbol of this name, of any type, in `/proc/kallsyms`.
///
/// Reads no further than that symbol.
///
/// # Errors
/// Reading fails.
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

fn parse_line(line: &[u8]) -> Option<KallsymsLine<'_>> {
    let (address, rest) = word(line)?;
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
        for symbol in nearest.into_iter().flatten() {
            self.push(symbol.start, &symbol.name, symbol.rank, symbol.tag);
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
