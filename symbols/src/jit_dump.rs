//! Jitdump files, `jit-PID.dump`: JIT-compiled functions with their code and time stamps.
//!
//! Format: [jitdump-specification.txt][spec].
//!
//! ```text
//! header   u32 magic "JiTD", version, header size, machine, 0, pid   u64 time, flags
//! record   u32 id, record size   u64 time
//!   load   u32 pid, tid   u64 vma, code address, code size, code index   name NUL   code
//!   move   u32 pid, tid   u64 vma, old code address, new code address, code size, code index
//! ```
//!
//! ```
//! use perfcollect_symbols::jit_dump::JitDump;
//!
//! let mut dump = Vec::new();
//! for word in [0x4a69_5444_u32, 1, 40, 62, 0, 7] {
//!     dump.extend(word.to_le_bytes());
//! }
//! dump.extend([0; 16]);
//! // A load record at time 5: 16 bytes prefix, 40 bytes fields, name, one byte of code.
//! dump.extend([0_u32, 16 + 40 + 5 + 1].map(u32::to_le_bytes).concat());
//! dump.extend([5_u64, 7, 0x1000, 0x1000, 1, 0].map(u64::to_le_bytes).concat());
//! dump.extend(b"main\0\xc3");
//!
//! let functions = JitDump::read(dump.as_slice(), 10)?;
//! assert_eq!(functions.lookup(0x1000).map(|symbol| symbol.name), Some(&b"main"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [spec]: https://github.com/torvalds/linux/blob/master/tools/perf/Documentation/jitdump-specification.txt

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
/// Header flag: time stamps are of the CPU's counter instead of CLOCK_MONOTONIC.
const FLAG_ARCH_TIME: u64 = 1;
/// Limit of a file, in bytes.
const MAX_BYTES: u64 = 2 << 30;
/// Limit of a name, in bytes. Longer names are truncated.
const MAX_NAME_BYTES: u64 = 8 << 10;

/// Why a jitdump file cannot be used.
#[derive(Debug, Error)]
pub enum JitDumpError {
    /// Reading failed.
    #[error("cannot read jitdump: {0}")]
    Read(#[from] io::Error),
    /// The file starts with these bytes instead of the magic.
    #[error("not a jitdump: it starts with {0:02x?}")]
    NotJitDump([u8; 4]),
    /// The symbols exceed the limits of a table.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// The functions of a jitdump file at a point in time.
#[derive(Debug, Default)]
pub struct JitDump {
    table: SymbolTable,
    /// Whether the file ends within a record or exceeds a limit. Later records are missing then.
    ///
    /// The file of a runtime that still runs, or that was killed, may end within a record.
    pub truncated: bool,
}

impl JitDump {
    /// Reads the functions that exist at `until` (nanoseconds on CLOCK_MONOTONIC).
    ///
    /// A truncated file sets [`JitDump::truncated`]. A file with the time stamps of a CPU counter
    /// is read to its end.
    ///
    /// # Errors
    /// Reading fails, or the file is not a jitdump.
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
        let is_complete = functions.read(&mut input)?;
        Ok(Self {
            table: functions.ranges.into_table()?,
            truncated: !is_complete,
        })
    }

    /// Returns the function at an address.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        self.table.lookup(address)
    }

    /// Returns all functions.
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
    /// Reads all records. Returns `false` if the file is truncated or exceeds a limit.
    fn read(&mut self, input: &mut impl Read) -> io::Result<bool> {
        loop {
            let mut prefix = [0; PREFIX_BYTES];
            if input.read(&mut prefix[..1])? == 0 {
                return Ok(true);
            }
            if !fill(input, &mut prefix[1..])? {
                return Ok(false);
            }
            let prefix = Words {
                bytes: &prefix,
                swapped: self.swapped,
            };
            let (kind, record_bytes, time) = (prefix.u32(0), prefix.u32(4), prefix.u64(8));
            let Some(body_bytes) = u64::from(record_bytes).checked_sub(PREFIX_BYTES as u64) else {
                return Ok(false);
            };
            if kind == CLOSE || time > self.until {
                return Ok(true);
            }
            let mut body = input.by_ref().take(body_bytes);
            let is_complete = match kind {
                LOAD => self.load(&mut body)?,
                MOVE => self.move_code(&mut body)?,
                _ => true,
            };
            let rest = body.limit();
            if !is_complete || skip(input, rest)? < rest {
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

/// Integers by offset, in the byte order of the file.
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

    fn bytes_at<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut word = [0; N];
        if let Some(bytes) = self.bytes.get(offset..offset + N) {
            word.copy_from_slice(bytes);
        }
        if self.swapped {
            word.reverse();
        }
        word
    }

    fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.bytes_at(offset))
    }

    fn u64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.bytes_at(offset))
    }
}

/// Fills the buffer. Returns `false` if the input ends before.
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

mod code;

pub use code::{JitDumpCode, JitFunction};

#[cfg(test)]
mod tests;
