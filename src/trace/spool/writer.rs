//! Writing: rows are gathered to blocks, blocks go out as they are full or old.

use std::io::{self, Write};

use super::block::{self, MAX_RAW_BYTES};
use super::codec::{Codec, MAX_ROW_BYTES};
use super::header::Header;
use super::row::SpoolRow;
use crate::trace::{Losses, Nanos};

/// How old rows get before they go out.
const FLUSH_INTERVAL_NS: u64 = 500_000_000;
/// Blocks kept in memory once the disk takes no more. The capture ends at once then; this holds what still comes.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// A spool being written. A failed write is not an error of a single row: it is asked for with [`SpoolWriter::error`],
/// and what cannot be written is kept.
pub struct SpoolWriter<W> {
    out: W,
    codec: Codec,
    rows: Vec<u8>,
    packed: Vec<u8>,
    sequence: u32,
    written: u64,
    flushed: Nanos,
    losses: Losses,
    error: Option<io::Error>,
    kept: Vec<u8>,
    /// Samples there was no room for, not even in memory.
    dropped: u64,
}

/// How writing ended.
#[derive(Debug)]
pub struct SpoolEnd {
    /// Bytes of whole blocks that were written.
    pub written: u64,
    /// Blocks that belong behind them.
    pub kept: Vec<u8>,
    /// Why they are not there.
    pub error: Option<io::Error>,
}

impl<W: Write> SpoolWriter<W> {
    /// Begins a spool.
    pub fn new(out: W, header: &Header) -> Self {
        let mut writer = Self {
            out,
            codec: Codec::default(),
            rows: Vec::with_capacity(MAX_RAW_BYTES),
            packed: Vec::new(),
            sequence: 0,
            written: 0,
            flushed: Nanos(header.info.start_ns),
            losses: Losses::default(),
            error: None,
            kept: Vec::new(),
            dropped: 0,
        };
        // Strings and numbers: this cannot fail.
        let json = serde_json::to_vec(header).unwrap_or_default();
        writer.put(&SpoolRow::Header(json.into()));
        writer.flush();
        writer
    }

    /// Adds a row. Ids in it must be defined by rows before it.
    pub fn put(&mut self, row: &SpoolRow<'_>) {
        if self.kept.len() > MAX_KEPT_BYTES {
            self.dropped += u64::from(matches!(row, SpoolRow::Sample(_)));
            return;
        }
        self.codec.encode(row, &mut self.rows);
        if self.rows.len() > MAX_RAW_BYTES - MAX_ROW_BYTES {
            self.flush();
        }
    }

    /// Tells the time: nothing older will come. Rows that are old enough go out.
    pub fn tick(&mut self, now: Nanos, losses: &Losses) {
        if now.0.saturating_sub(self.flushed.0) >= FLUSH_INTERVAL_NS {
            self.put_losses(losses);
            self.put(&SpoolRow::Clock(now));
            self.flush();
            self.flushed = now;
        }
    }

    fn put_losses(&mut self, losses: &Losses) {
        let mut losses = losses.clone();
        losses.lost_samples += self.dropped;
        if losses != self.losses {
            self.losses.clone_from(&losses);
            self.put(&SpoolRow::Losses(losses));
        }
    }

    fn flush(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        self.packed.clear();
        block::pack(self.sequence, &self.rows, &mut self.packed);
        self.sequence += 1;
        self.rows.clear();
        if self.error.is_none() {
            match self.out.write_all(&self.packed) {
                Ok(()) => self.written += self.packed.len() as u64,
                Err(error) => self.error = Some(error),
            }
        }
        if self.error.is_some() {
            self.kept.extend_from_slice(&self.packed);
        }
    }

    /// Bytes of the spool so far, on the disk.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.written
    }

    /// Why the spool does not grow any more.
    #[must_use]
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Ends the spool.
    #[must_use]
    pub fn finish(mut self, now: Nanos, losses: &Losses) -> SpoolEnd {
        self.put_losses(losses);
        self.put(&SpoolRow::End(now));
        self.flush();
        SpoolEnd {
            written: self.written,
            kept: self.kept,
            error: self.error,
        }
    }
}
