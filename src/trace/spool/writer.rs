//! Writing of a spool: rows are collected into blocks, which are written when full or old.

use std::io::{self, Write};

use super::block::{self, MAX_RAW_BYTES};
use super::codec::{Codec, MAX_ROW_BYTES};
use super::header::Header;
use super::row::SpoolRow;
use crate::trace::{Losses, Nanos};

/// Interval after which rows are written even if the block is not full.
const FLUSH_INTERVAL_NS: u64 = 500_000_000;
/// Maximum size of the blocks kept in memory after a failed write.
///
/// The capture ends at once then. This limit allows for the rows that still arrive.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// A spool being written.
///
/// A failed write is not an error of a single row: [`SpoolWriter::error`] returns it, and the
/// writer keeps all unwritten blocks.
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
    /// Number of samples for which there was no room, not even in memory.
    dropped: u64,
}

/// Result of writing a spool.
#[derive(Debug)]
pub struct SpoolEnd {
    /// Length of the whole blocks written.
    pub written: u64,
    /// Blocks that follow but could not be written.
    pub kept: Vec<u8>,
    /// Reason why they could not be written.
    pub error: Option<io::Error>,
}

impl<W: Write> SpoolWriter<W> {
    /// Starts a spool.
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
        // A header of strings and integers always serializes.
        let json = serde_json::to_vec(header).unwrap_or_default();
        writer.put(&SpoolRow::Header(json.into()));
        writer.flush();
        writer
    }

    /// Adds a row. Earlier rows must define its ids.
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

    /// Receives the time: no older row follows. Writes rows that are old enough.
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
            let doubts = losses.doubts.clone();
            let has_new = doubts != self.losses.doubts;
            self.losses.clone_from(&losses);
            self.put(&SpoolRow::Losses(losses));
            if has_new {
                self.put(&SpoolRow::Doubts(doubts));
            }
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

    /// Returns the length of the spool on disk.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.written
    }

    /// Returns the error that stopped the growth of the spool, if any.
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
