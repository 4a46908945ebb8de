//! A reader of hostile DWARF: gives up when reading takes too many steps.
//!
//! A few bytes can make a parser do much: ranges that thousands of functions share, functions inlined into each other without
//! end. The parsers of gimli have no limits for these, but all they do goes through their reader.

use std::borrow::Cow;
use std::cell::Cell;

use gimli::{EndianSlice, Error, Reader, ReaderOffsetId, RunTimeEndian};

use super::DwarfError;
use crate::large_file_permit;

/// Most reads of one file, for all its addresses together: a second or two. 300 addresses in the 18 MB that this program has take 4.4
/// million.
const MAX_STEPS: i64 = if cfg!(test) { 1 << 20 } else { 1 << 26 };
/// What of it a file may take that is not large.
const MAX_STEPS_WITHOUT_PERMIT: i64 = MAX_STEPS / 8;
/// What keeping something counts, a few dozen bytes of memory: all that is kept of a file stays within some 500 MB.
pub(super) const KEEP_COST: u64 = 8;
/// Bytes that count as much as a read where they are searched or copied.
const BYTES_PER_READ: usize = 16;

/// What reading a file may still take.
#[derive(Debug)]
pub(super) struct StepBudget {
    /// Below 0 once it was too much.
    left: Cell<i64>,
    /// Whether more than [`MAX_SMALL_WORK`] was allowed.
    is_large: Cell<bool>,
}

impl Default for StepBudget {
    fn default() -> Self {
        Self {
            left: Cell::new(MAX_STEPS_WITHOUT_PERMIT),
            is_large: Cell::new(false),
        }
    }
}

impl StepBudget {
    /// Why a call failed. Failures are remembered, so that one of an earlier call may be the reason.
    pub(super) fn explain(&self, error: DwarfError) -> DwarfError {
        match self.left.get() {
            0.. => error,
            _ => DwarfError::BudgetExceeded,
        }
    }

    /// Counts work that is no reading.
    pub(super) fn charge(&self, work: u64) -> Result<(), DwarfError> {
        match self.allows(work) {
            true => Ok(()),
            false => Err(DwarfError::BudgetExceeded),
        }
    }

    /// Counts bytes that are searched or copied.
    pub(super) fn charge_bytes(&self, bytes: usize) -> Result<(), DwarfError> {
        self.charge(cost_of_bytes(bytes))
    }

    /// Counts what `read` reads `times` more: what comes of it is kept.
    pub(super) fn charge_kept<T>(
        &self,
        times: u64,
        read: impl FnOnce() -> Result<T, gimli::Error>,
    ) -> Result<T, DwarfError> {
        let before = self.spent();
        let kept = read()?;
        self.charge(self.spent().saturating_sub(before).saturating_mul(times))?;
        Ok(kept)
    }

    fn spent(&self) -> u64 {
        let allowed = match self.is_large.get() {
            true => MAX_STEPS,
            false => MAX_STEPS_WITHOUT_PERMIT,
        };
        allowed.saturating_sub(self.left.get()) as u64
    }

    /// Whether so many reads more may be done.
    #[inline]
    fn allows(&self, work: u64) -> bool {
        let left = self.left.get().saturating_sub_unsigned(work);
        self.left.set(left);
        left >= 0 || self.allows_more()
    }

    #[cold]
    fn allows_more(&self) -> bool {
        if self.is_large.replace(true) {
            return false;
        }
        large_file_permit::charge(large_file_permit::LARGE_BYTES);
        let left = self
            .left
            .get()
            .saturating_add(MAX_STEPS - MAX_STEPS_WITHOUT_PERMIT);
        self.left.set(left);
        left >= 0
    }
}

fn cost_of_bytes(bytes: usize) -> u64 {
    1 + (bytes / BYTES_PER_READ) as u64
}

/// A section, or a part of it.
#[derive(Clone, Debug)]
pub(super) struct BudgetedReader<'a> {
    slice: EndianSlice<'a, RunTimeEndian>,
    budget: &'a StepBudget,
}

impl<'a> BudgetedReader<'a> {
    pub(super) fn new(bytes: &'a [u8], endian: RunTimeEndian, budget: &'a StepBudget) -> Self {
        Self {
            slice: EndianSlice::new(bytes, endian),
            budget,
        }
    }

    /// All of it.
    pub(super) fn bytes(&self) -> gimli::Result<&'a [u8]> {
        self.charge_bytes(self.slice.slice().len())?;
        Ok(self.slice.slice())
    }

    #[inline]
    fn charge(&self, work: u64) -> gimli::Result<()> {
        match self.budget.allows(work) {
            true => Ok(()),
            false => Err(Error::UnexpectedEof(self.slice.offset_id())),
        }
    }

    fn charge_bytes(&self, bytes: usize) -> gimli::Result<()> {
        self.charge(cost_of_bytes(bytes))
    }
}

impl Reader for BudgetedReader<'_> {
    type Endian = RunTimeEndian;
    type Offset = usize;

    #[inline]
    fn endian(&self) -> RunTimeEndian {
        self.slice.endian()
    }

    #[inline]
    fn len(&self) -> usize {
        self.slice.len()
    }

    #[inline]
    fn empty(&mut self) {
        self.slice.empty();
    }

    #[inline]
    fn truncate(&mut self, len: usize) -> gimli::Result<()> {
        self.slice.truncate(len)
    }

    #[inline]
    fn offset_from(&self, base: &Self) -> usize {
        self.slice.offset_from(base.slice)
    }

    #[inline]
    fn offset_id(&self) -> ReaderOffsetId {
        self.slice.offset_id()
    }

    #[inline]
    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        self.slice.lookup_offset_id(id)
    }

    #[inline]
    fn find(&self, byte: u8) -> gimli::Result<usize> {
        let found = Reader::find(&self.slice, byte);
        let passed = found.as_ref().map_or(self.slice.len(), |at| *at);
        self.charge_bytes(passed)?;
        found
    }

    #[inline]
    fn skip(&mut self, len: usize) -> gimli::Result<()> {
        self.charge(1)?;
        self.slice.skip(len)
    }

    #[inline]
    fn split(&mut self, len: usize) -> gimli::Result<Self> {
        self.charge(1)?;
        Ok(Self {
            slice: self.slice.split(len)?,
            budget: self.budget,
        })
    }

    fn to_slice(&self) -> gimli::Result<Cow<'_, [u8]>> {
        self.bytes().map(Cow::Borrowed)
    }

    fn to_string(&self) -> gimli::Result<Cow<'_, str>> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map(Cow::Borrowed).map_err(|_| Error::BadUtf8)
    }

    fn to_string_lossy(&self) -> gimli::Result<Cow<'_, str>> {
        self.bytes().map(String::from_utf8_lossy)
    }

    #[inline]
    fn read_slice(&mut self, buffer: &mut [u8]) -> gimli::Result<()> {
        self.charge(1)?;
        Reader::read_slice(&mut self.slice, buffer)
    }
}

#[cfg(test)]
#[path = "step_budget_tests.rs"]
mod tests;
