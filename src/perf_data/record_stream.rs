//! The records of a file in file order, decompressed.

use std::io::{self, Read};

use super::error::Corruption;
use super::numbers::{Numbers, Order};
use super::zstd::Decompressor;
use crate::bytes::fill;

pub(super) const HEADER_BYTES: usize = 8;

/// Types of perf's own (user-type) records (`enum perf_user_event_type`).
pub(super) mod user {
    pub(in super::super) const HEADER_ATTR: u32 = 64;
    pub(in super::super) const TRACING_DATA: u32 = 66;
    pub(in super::super) const BUILD_ID: u32 = 67;
    pub(in super::super) const FINISHED_ROUND: u32 = 68;
    pub(in super::super) const AUXTRACE_INFO: u32 = 70;
    pub(in super::super) const AUXTRACE: u32 = 71;
    pub(in super::super) const EVENT_UPDATE: u32 = 78;
    pub(in super::super) const HEADER_FEATURE: u32 = 80;
    pub(in super::super) const COMPRESSED: u32 = 81;
    pub(in super::super) const COMPRESSED2: u32 = 83;
}

/// Maximum size of the tracing data in a pipe.
const MAX_TRACING_BYTES: u64 = 64 << 20;

/// Type and size of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) kind: u32,
    pub(super) size: u16,
}

impl RecordHeader {
    pub(super) fn parse(bytes: &[u8], order: Order) -> Option<Self> {
        let mut numbers = Numbers::new(bytes, order);
        let (kind, _misc, size) = (numbers.u32()?, numbers.u16()?, numbers.u16()?);
        Some(Self { kind, size })
    }
}

/// Reader of the records of a file.
pub(super) struct RecordStream<R> {
    input: R,
    order: Order,
    /// Remaining bytes of records. `None` if the records end with the file.
    remaining: Option<u64>,
    /// Number of bytes read from the start of the first record.
    pub(super) position: u64,
    /// Data of the current compressed record, decompressed up to `compressed_at`.
    compressed: Vec<u8>,
    compressed_at: usize,
    decompressor: Decompressor,
    /// Skipped bytes of AUX data.
    pub(super) aux_bytes: u64,
    /// Data that followed the last `TRACING_DATA` record.
    pub(super) tracing_data: Vec<u8>,
}

impl<R: Read> RecordStream<R> {
    pub(super) fn new(input: R, order: Order, remaining: Option<u64>) -> Self {
        Self {
            input,
            order,
            remaining,
            position: 0,
            compressed: Vec::new(),
            compressed_at: 0,
            decompressor: Decompressor::default(),
            aux_bytes: 0,
            tracing_data: Vec::new(),
        }
    }

    pub(super) fn boxed(self) -> RecordStream<Box<dyn Read>>
    where
        R: 'static,
    {
        RecordStream {
            input: Box::new(self.input),
            order: self.order,
            remaining: self.remaining,
            position: self.position,
            compressed: self.compressed,
            compressed_at: self.compressed_at,
            decompressor: self.decompressor,
            aux_bytes: self.aux_bytes,
            tracing_data: self.tracing_data,
        }
    }

    /// Reads the next record into `record`. Returns `false` at the end.
    pub(super) fn next(&mut self, record: &mut Vec<u8>) -> Result<bool, Corruption> {
        loop {
            if self.next_decompressed(record)? {
                return Ok(true);
            }
            if self.compressed_at < self.compressed.len() {
                let rest = &self.compressed[self.compressed_at..];
                let before = self.decompressor.rest().len();
                let read = self
                    .decompressor
                    .feed(rest)
                    .map_err(Corruption::Compressed)?;
                if read == 0 && self.decompressor.rest().len() == before {
                    return Err(Corruption::Compressed("decompression makes no progress"));
                }
                self.compressed_at += read;
                continue;
            }
            if !self.next_stored(record)? {
                let is_truncated = !self.decompressor.rest().is_empty();
                return if is_truncated {
                    Err(Corruption::Truncated)
                } else {
                    Ok(false)
                };
            }
            match RecordHeader::parse(record, self.order).map(|header| header.kind) {
                Some(user::COMPRESSED) => self.set_compressed(&record[HEADER_BYTES..]),
                Some(user::COMPRESSED2) => {
                    let body = &record[HEADER_BYTES..];
                    let mut numbers = Numbers::new(body, self.order);
                    let size = numbers.u64().and_then(|size| usize::try_from(size).ok());
                    let data = size.and_then(|size| numbers.bytes.take(size));
                    self.set_compressed(data.ok_or(Corruption::Compressed("invalid size"))?);
                }
                _ => return Ok(true),
            }
        }
    }

    fn set_compressed(&mut self, data: &[u8]) {
        self.compressed.clear();
        self.compressed.extend_from_slice(data);
        self.compressed_at = 0;
    }

    /// Reads the next decompressed record. Returns `false` if none is complete.
    fn next_decompressed(&mut self, record: &mut Vec<u8>) -> Result<bool, Corruption> {
        let rest = self.decompressor.rest();
        let Some(header) = RecordHeader::parse(rest, self.order) else {
            return Ok(false);
        };
        let size = usize::from(header.size);
        if size < HEADER_BYTES {
            return Err(Corruption::Size(header.size));
        }
        let Some(whole) = rest.get(..size) else {
            return Ok(false);
        };
        record.clear();
        record.extend_from_slice(whole);
        self.decompressor.consume(size);
        Ok(true)
    }

    /// Reads the next record of the file, and the data that follows some types.
    fn next_stored(&mut self, record: &mut Vec<u8>) -> Result<bool, Corruption> {
        let mut header = [0; HEADER_BYTES];
        let len = self
            .remaining
            .map_or(HEADER_BYTES as u64, |remaining| remaining.min(8)) as usize;
        match fill(&mut self.input, &mut header[..len]).map_err(Corruption::Read)? {
            0 if self.remaining.is_none_or(|remaining| remaining == 0) => return Ok(false),
            HEADER_BYTES => {}
            _ => return Err(Corruption::Truncated),
        }
        let parsed = RecordHeader::parse(&header, self.order).ok_or(Corruption::Truncated)?;
        let size = usize::from(parsed.size);
        if size < HEADER_BYTES {
            return Err(Corruption::Size(parsed.size));
        }
        record.clear();
        record.extend_from_slice(&header);
        record.resize(size, 0);
        let body = fill(&mut self.input, &mut record[HEADER_BYTES..]).map_err(Corruption::Read)?;
        if body < size - HEADER_BYTES {
            return Err(Corruption::Truncated);
        }
        self.advance(size as u64)?;
        let mut numbers = Numbers::new(&record[HEADER_BYTES..], self.order);
        match parsed.kind {
            user::AUXTRACE => {
                let size = numbers.u64().ok_or(Corruption::Truncated)?;
                self.skip(size)?;
                self.aux_bytes = self.aux_bytes.saturating_add(size);
            }
            user::TRACING_DATA => {
                let size = u64::from(numbers.u32().ok_or(Corruption::Truncated)?);
                let padded = size.next_multiple_of(8);
                self.tracing_data.clear();
                let kept = size.min(MAX_TRACING_BYTES);
                let mut input = (&mut self.input).take(kept);
                let read = input
                    .read_to_end(&mut self.tracing_data)
                    .map_err(Corruption::Read)?;
                self.advance(read as u64)?;
                self.skip(padded - read as u64)?;
            }
            _ => {}
        }
        Ok(true)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Corruption> {
        let mut input = (&mut self.input).take(bytes);
        let skipped = io::copy(&mut input, &mut io::sink()).map_err(Corruption::Read)?;
        self.advance(skipped)?;
        match skipped == bytes {
            true => Ok(()),
            false => Err(Corruption::Truncated),
        }
    }

    fn advance(&mut self, bytes: u64) -> Result<(), Corruption> {
        self.position += bytes;
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.checked_sub(bytes).ok_or(Corruption::Truncated)?;
        }
        Ok(())
    }
}

/// Whether a type belongs to records of the kernel.
pub(super) fn is_kernel_type(kind: u32) -> bool {
    (1..user::HEADER_ATTR).contains(&kind)
}
