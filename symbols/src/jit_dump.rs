//! `jit-PID.dump`: functions that a runtime writes as it makes them, with their code and the time
//! (tools/perf/Documentation/jitdump-specification.txt in the kernel's sources).
//!
//! ```text
//! header   u32 magic "JiTD", version, bytes of the header, machine, 0, pid   u64 time, flags
//! record   u32 kind, bytes of the record   u64 time
//!   load   u32 pid, tid   u64 address in the file, address, bytes of code, index   name NUL   code
//!   move   u32 pid, tid   u64 address in the file, old address, new address, bytes of code, index
//! ```

use std::io::{self, Read};

use thiserror::Error;

use crate::demangle::ELLIPSIS;
use crate::latest_wins::LatestWins;
use crate::table::{Symbol, SymbolTable, TableError};

const MAGIC: u32 = 0x4a69_5444;
const HEADER_BYTES: usize = 40;
const PREFIX_BYTES: usize = 16;
const LOAD_BYTES: usize = 40;
const MOVE_BYTES: usize = 48;
const LOAD: u32 = 0;
const MOVE: u32 = 1;
const CLOSE: u32 = 3;
/// Times are of the processor's own counter, not of CLOCK_MONOTONIC.
const FLAG_ARCH_TIME: u64 = 1;
/// Most bytes read, and bytes of a name that are kept.
const MAX_BYTES: u64 = 2 << 30;
const MAX_NAME_BYTES: u64 = 8 << 10;

/// Why a dump gave no names.
#[derive(Debug, Error)]
pub enum JitDumpError {
    /// Reading failed.
    #[error("jitdump: reading: {0}")]
    Read(#[from] io::Error),
    /// It begins otherwise.
    #[error("not a jitdump: it begins with {0:02x?}")]
    NotJitDump([u8; 4]),
    /// The table refused a symbol.
    #[error("jitdump: {0}")]
    Table(#[from] TableError),
}

/// The functions of a dump at a time.
#[derive(Debug, Default)]
pub struct JitDump {
    table: SymbolTable,
    /// Whether it ends within a record, or had more than a limit lets in: what came later is missing. A runtime that
    /// still runs, or was killed, leaves such an end.
    pub truncated: bool,
}

impl JitDump {
    /// Reads the functions that were there at `until` (nanoseconds on CLOCK_MONOTONIC).
    ///
    /// # Errors
    /// Reading failed, or it is no jitdump. A damaged end is no error: [`JitDump::truncated`].
    pub fn read(input: impl Read, until: u64) -> Result<Self, JitDumpError> {
        let mut input = input.take(MAX_BYTES);
        let mut header = [0; HEADER_BYTES];
        if !fill(&mut input, &mut header)? {
            return Ok(Self {
                truncated: true,
                ..Self::default()
            });
        }
        let header = Words::from_header(&header)?;
        let until = match header.u64(32) & FLAG_ARCH_TIME {
            0 => until,
            _ => u64::MAX,
        };
        skip(
            &mut input,
            u64::from(header.u32(8)).saturating_sub(HEADER_BYTES as u64),
        )?;
        let mut functions = Functions {
            ranges: LatestWins::default(),
            swapped: header.swapped,
            until,
        };
        let whole = functions.read(&mut input)?;
        Ok(Self {
            table: functions.ranges.into_table()?,
            truncated: !whole,
        })
    }

    /// The function at an address.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        self.table.lookup(address)
    }

    /// All functions.
    #[must_use]
    pub fn table(&self) -> &SymbolTable {
        &self.table
    }
}

struct Functions {
    ranges: LatestWins,
    swapped: bool,
    until: u64,
}

impl Functions {
    /// Tells whether the dump ends with a whole record, and all of it was used.
    fn read(&mut self, input: &mut impl Read) -> io::Result<bool> {
        loop {
            let mut prefix = [0; PREFIX_BYTES];
            let begun = input.read(&mut prefix[..1])?;
            if begun == 0 {
                return Ok(true);
            }
            if !fill(input, &mut prefix[1..])? {
                return Ok(false);
            }
            let prefix = Words {
                bytes: &prefix,
                swapped: self.swapped,
            };
            let (kind, bytes, time) = (prefix.u32(0), prefix.u32(4), prefix.u64(8));
            let Some(left) = u64::from(bytes).checked_sub(PREFIX_BYTES as u64) else {
                return Ok(false);
            };
            if kind == CLOSE || time > self.until {
                return Ok(true);
            }
            let mut body = input.by_ref().take(left);
            let whole = match kind {
                LOAD => self.load(&mut body)?,
                MOVE => self.move_code(&mut body)?,
                _ => true,
            };
            let rest = body.limit();
            if !whole || skip(input, rest)? < rest {
                return Ok(false);
            }
        }
    }

    fn load(&mut self, body: &mut io::Take<impl Read>) -> io::Result<bool> {
        let mut fixed = [0; LOAD_BYTES];
        if !fill(body, &mut fixed)? {
            return Ok(false);
        }
        let fixed = Words {
            bytes: &fixed,
            swapped: self.swapped,
        };
        let (start, code_bytes) = (fixed.u64(16), fixed.u64(24));
        let Some(name_bytes) = body.limit().checked_sub(code_bytes) else {
            return Ok(false);
        };
        let mut name = Vec::new();
        body.by_ref()
            .take(name_bytes.min(MAX_NAME_BYTES))
            .read_to_end(&mut name)?;
        let name = match memchr::memchr(0, &name) {
            None if name_bytes > MAX_NAME_BYTES => {
                name.extend_from_slice(ELLIPSIS.as_bytes());
                &*name
            }
            end => name.get(..end.unwrap_or(name.len())).unwrap_or_default(),
        };
        Ok(self.insert(start, code_bytes, name))
    }

    fn move_code(&mut self, body: &mut impl Read) -> io::Result<bool> {
        let mut fixed = [0; MOVE_BYTES];
        if !fill(body, &mut fixed)? {
            return Ok(false);
        }
        let fixed = Words {
            bytes: &fixed,
            swapped: self.swapped,
        };
        let (from, to, code_bytes) = (fixed.u64(16), fixed.u64(24), fixed.u64(32));
        let name = self.ranges.name_at(from).map(<[u8]>::to_vec);
        Ok(name.is_none_or(|name| self.insert(to, code_bytes, &name)))
    }

    fn insert(&mut self, start: u64, code_bytes: u64, name: &[u8]) -> bool {
        match start.checked_add(code_bytes) {
            Some(end) if end > start => self.ranges.insert(start, end, name),
            _ => true,
        }
    }
}

/// Numbers at places.
struct Words<'a> {
    bytes: &'a [u8],
    swapped: bool,
}

impl<'a> Words<'a> {
    fn from_header(bytes: &'a [u8; HEADER_BYTES]) -> Result<Self, JitDumpError> {
        let magic = bytes.first_chunk().copied().unwrap_or_default();
        let swapped = match u32::from_le_bytes(magic) {
            MAGIC => false,
            other if other.swap_bytes() == MAGIC => true,
            _ => return Err(JitDumpError::NotJitDump(magic)),
        };
        Ok(Self { bytes, swapped })
    }

    fn bytes_at<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut word = [0; N];
        if let Some(bytes) = self.bytes.get(at..at + N) {
            word.copy_from_slice(bytes);
        }
        if self.swapped {
            word.reverse();
        }
        word
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes_at(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes_at(at))
    }
}

/// Fills the buffer, or says that the input ended before.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn skip(input: &mut impl Read, bytes: u64) -> io::Result<u64> {
    io::copy(&mut input.by_ref().take(bytes), &mut io::sink())
}

#[cfg(test)]
mod tests;
