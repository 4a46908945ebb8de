//! The code of the functions in a jitdump, and the unwind information that some have.
//!
//! ```text
//! unwinding info   u64 size, size of .eh_frame_hdr, mapped size   .eh_frame, .eh_frame_hdr
//! ```
//!
//! The record precedes that of its function. Addresses in it count as if it followed the code, at the
//! next multiple of 8.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::{
    CLOSE, HEADER_BYTES, JitDumpError, LOAD, LOAD_BYTES, MAX_BYTES, MAX_NAME_BYTES, MOVE,
    MOVE_BYTES, PREFIX_BYTES, Words, fill, skip,
};
use crate::elf::CallFrames;

const UNWINDING_INFO: u32 = 4;
const UNWINDING_BYTES: usize = 24;
/// Limit of functions. Large services have some 100 000.
const MAX_FUNCTIONS: usize = 1 << 20;
/// Limit of the functions that are compared for one address.
const MAX_COMPARED: usize = 64;
/// Limit of the unwind information of a function, in bytes.
const MAX_UNWINDING_BYTES: u64 = 64 << 10;
const BUFFER_BYTES: usize = 1 << 16;

/// A range of bytes in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bytes {
    offset: u64,
    length: u64,
}

/// A function from the time when it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JitFunction {
    /// Its addresses.
    pub range: Range<u64>,
    time: u64,
    code: u64,
    eh_frame: Bytes,
}

impl JitFunction {
    /// Returns what distinguishes its code from that of other functions.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.code
    }
}

/// The functions of a jitdump, whose code is read on demand.
#[derive(Debug)]
pub struct JitDumpCode {
    file: File,
    /// Sorted by start, then by time.
    functions: Vec<JitFunction>,
}

impl JitDumpCode {
    /// Lists the functions of a file for x86-64 up to the first corrupt record or a limit.
    ///
    /// # Errors
    /// Reading fails, or the file is not a jitdump.
    pub fn read(file: File) -> Result<Self, JitDumpError> {
        let buffered = BufReader::with_capacity(BUFFER_BYTES, &file);
        let mut input = Counted {
            input: buffered.take(MAX_BYTES),
            position: 0,
        };
        let mut functions = Vec::new();
        let mut header = [0; HEADER_BYTES];
        if fill(&mut input, &mut header)? {
            let header = Words::from_header(&header)?;
            let rest = u64::from(header.u32(8)).saturating_sub(HEADER_BYTES as u64);
            skip(&mut input, rest)?;
            if !header.swapped {
                list(&mut input, &mut functions)?;
            }
        }
        functions.sort_by_key(|function: &JitFunction| (function.range.start, function.time));
        Ok(Self { file, functions })
    }

    /// Returns the number of functions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Returns whether there is no function.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns the function that an address belongs to at a time, in ns on CLOCK_MONOTONIC.
    ///
    /// Without one at that time, it is the first later one: the clock of a recording may be another.
    #[must_use]
    pub fn lookup(&self, address: u64, time: u64) -> Option<&JitFunction> {
        let after = self
            .functions
            .partition_point(|function| function.range.start <= address);
        let before = self.functions.get(..after)?.iter().rev().take(MAX_COMPARED);
        let of_address = before.filter(|function| function.range.contains(&address));
        of_address.max_by_key(|function| match function.time <= time {
            true => (true, function.time),
            false => (false, u64::MAX - function.time),
        })
    }

    /// Reads the code of a function in a range of addresses.
    ///
    /// # Errors
    /// The file cannot be read, or ends before.
    pub fn code(&self, function: &JitFunction, range: Range<u64>) -> io::Result<Vec<u8>> {
        let outside = || io::Error::from(io::ErrorKind::InvalidInput);
        let from = range.start.checked_sub(function.range.start);
        let from = from.filter(|_| range.end <= function.range.end);
        let from = from.and_then(|from| function.code.checked_add(from));
        let length = range
            .end
            .checked_sub(range.start)
            .and_then(|length| usize::try_from(length).ok());
        let (from, length) = from.zip(length).ok_or_else(outside)?;
        self.bytes(from, length)
    }

    /// Returns the unwind information of a function. Returns `None` if it has none.
    #[must_use]
    pub fn call_frames(&self, function: &JitFunction) -> Option<CallFrames> {
        let Bytes { offset, length } = function.eh_frame;
        let mut bytes = self.bytes(offset, usize::try_from(length).ok()?).ok()?;
        hide_omitted_encoding(&mut bytes);
        let Range { start, end } = function.range;
        let address = start.checked_add((end - start).checked_next_multiple_of(8)?)?;
        CallFrames::of_eh_frame(address, bytes)
    }

    fn bytes(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// Changes the start of what V8 writes, where functions have the encoding of a pointer that they
/// omit. gimli reads the pointer nevertheless.
///
/// ```text
/// u32 length, 0   u8 version   "zLR" NUL   u8 code and data factor, return address, 2, omitted, encoding
/// u32 length, 0   u8 version   "zRS" NUL   u8 code and data factor, return address, 2, encoding, unused
/// ```
fn hide_omitted_encoding(eh_frame: &mut [u8]) {
    const OMITTED: u8 = 0xff;
    if let Some([b'z', name @ .., 0, _, _, _, 2, lsda, pointer]) = eh_frame.get_mut(9..19)
        && name == b"LR"
        && *lsda == OMITTED
    {
        name.copy_from_slice(b"RS");
        std::mem::swap(lsda, pointer);
    }
}

/// Lists functions up to the end of the file, a corrupt record or the limit.
fn list(input: &mut Counted<impl Read>, functions: &mut Vec<JitFunction>) -> io::Result<()> {
    let mut eh_frame = Bytes::default();
    let mut prefix = [0; PREFIX_BYTES];
    while functions.len() < MAX_FUNCTIONS && fill(input, &mut prefix)? {
        let words = words(&prefix);
        let (kind, time) = (words.u32(0), words.u64(8));
        let start = input.position;
        let body = u64::from(words.u32(4)).checked_sub(PREFIX_BYTES as u64);
        let Some(end) = body.and_then(|body| start.checked_add(body)) else {
            return Ok(());
        };
        let found = match kind {
            CLOSE => return Ok(()),
            LOAD => load(input, end)?,
            MOVE => moved(input, functions)?,
            UNWINDING_INFO => {
                eh_frame = unwinding_info(input, end)?;
                None
            }
            _ => None,
        };
        if let Some((range, code)) = found {
            let eh_frame = std::mem::take(&mut eh_frame);
            functions.push(JitFunction {
                range,
                time,
                code,
                eh_frame,
            });
        }
        let Some(rest) = end.checked_sub(input.position) else {
            return Ok(());
        };
        if skip(input, rest)? < rest {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the addresses of a function and the offset of its code.
fn load(input: &mut Counted<impl Read>, end: u64) -> io::Result<Option<(Range<u64>, u64)>> {
    let mut fixed = [0; LOAD_BYTES];
    if !fill(input, &mut fixed)? {
        return Ok(None);
    }
    let fixed = words(&fixed);
    let (start, bytes) = (fixed.u64(16), fixed.u64(24));
    let name = input.position;
    let Some(last_code) = end.checked_sub(bytes).filter(|code| *code >= name) else {
        return Ok(None);
    };
    let mut read = Vec::new();
    let limit = (last_code - name).min(MAX_NAME_BYTES);
    input.by_ref().take(limit).read_to_end(&mut read)?;
    // Padding may follow the code.
    let code = match memchr::memchr(0, &read) {
        Some(length) => name + length as u64 + 1,
        None => last_code,
    };
    let range = start.checked_add(bytes).map(|end| start..end);
    Ok(range
        .filter(|range| !range.is_empty())
        .map(|range| (range, code)))
}

/// Returns the new addresses of a function, and the offset of its code.
fn moved(
    input: &mut Counted<impl Read>,
    functions: &[JitFunction],
) -> io::Result<Option<(Range<u64>, u64)>> {
    let mut fixed = [0; MOVE_BYTES];
    if !fill(input, &mut fixed)? {
        return Ok(None);
    }
    let fixed = words(&fixed);
    let (from, to, bytes) = (fixed.u64(16), fixed.u64(24), fixed.u64(32));
    let mut recent = functions.iter().rev().take(MAX_COMPARED);
    let is_old = |function: &&JitFunction| {
        function.range.start == from && function.range.end - from == bytes
    };
    let old = recent.find(is_old);
    Ok(old.and_then(|old| Some((to..to.checked_add(bytes)?, old.code))))
}

fn unwinding_info(input: &mut Counted<impl Read>, end: u64) -> io::Result<Bytes> {
    let mut fixed = [0; UNWINDING_BYTES];
    if !fill(input, &mut fixed)? {
        return Ok(Bytes::default());
    }
    let (all, table) = (words(&fixed).u64(0), words(&fixed).u64(8));
    let offset = input.position;
    let length = all.saturating_sub(table);
    let is_inside = offset.checked_add(length).is_some_and(|last| last <= end);
    Ok(match is_inside && length <= MAX_UNWINDING_BYTES {
        true => Bytes { offset, length },
        false => Bytes::default(),
    })
}

fn words(bytes: &[u8]) -> Words<'_> {
    Words {
        bytes,
        swapped: false,
    }
}

/// A reader that knows its position.
struct Counted<R> {
    input: R,
    position: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.position += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
#[path = "code_tests.rs"]
mod tests;
