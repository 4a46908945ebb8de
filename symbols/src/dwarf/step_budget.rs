//! A step budget for untrusted DWARF: reading fails when it takes too many steps.
//!
//! A few bytes can cause a large amount of work: ranges that thousands of functions share, or
//! functions inlined into each other without end. The parsers of gimli have no limits for these,
//! but they do all work through a reader, which counts steps here.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use gimli::{EndianSlice, Error, Reader, ReaderOffsetId, RunTimeEndian};

use super::DwarfError;
use crate::memory_budget::{LARGE_BYTES, MemoryUse};

/// Limit of steps per file, for all its addresses together: one or two seconds.
///
/// 300 addresses in perfcollect's 18 MB of DWARF take 4.4 million steps.
const MAX_STEPS: u64 = if cfg!(test) { 1 << 20 } else { 1 << 26 };
/// Steps that a file may take without the permit for large files.
const MAX_STEPS_WITHOUT_PERMIT: u64 = MAX_STEPS / 8;
/// Cost of keeping an element of a few dozen bytes, in steps.
///
/// It bounds the memory for a file to some 500 MB.
pub(super) const KEEP_COST: u64 = 8;
/// Bytes per step when bytes are searched or copied.
const BYTES_PER_READ: usize = 16;

/// The steps that reading a file has taken.
///
/// Threads that read the same file at the same time may undo each other's steps: the limit is then
/// approximate. An atomic addition would take a third of the time of reading.
#[derive(Debug)]
pub(super) struct StepBudget {
    spent: AtomicU64,
    /// [`MAX_STEPS_WITHOUT_PERMIT`], then [`MAX_STEPS`].
    limit: AtomicU64,
    extended: OnceLock<()>,
    memory: Arc<MemoryUse>,
}

impl StepBudget {
    pub(super) fn new(memory: Arc<MemoryUse>) -> Self {
        Self {
            spent: AtomicU64::new(0),
            limit: AtomicU64::new(MAX_STEPS_WITHOUT_PERMIT),
            extended: OnceLock::new(),
            memory,
        }
    }

    /// Returns the cause of an error: the exceeded budget, or the error itself.
    ///
    /// Errors are cached, so the error may be of an earlier call.
    pub(super) fn explain(&self, error: DwarfError) -> DwarfError {
        match self.spent() > MAX_STEPS {
            true => DwarfError::BudgetExceeded,
            false => error,
        }
    }

    /// Subtracts steps for work other than reading.
    ///
    /// # Errors
    /// The budget is exceeded.
    pub(super) fn charge(&self, steps: u64) -> Result<(), DwarfError> {
        match self.spend(steps) {
            true => Ok(()),
            false => Err(DwarfError::BudgetExceeded),
        }
    }

    /// Subtracts steps for bytes that are searched or copied.
    ///
    /// # Errors
    /// The budget is exceeded.
    pub(super) fn charge_bytes(&self, bytes: usize) -> Result<(), DwarfError> {
        self.charge(cost_of_bytes(bytes))
    }

    /// Charges the steps of `read` `times` more, because its result is kept.
    ///
    /// # Errors
    /// `read` fails, or the budget is exceeded.
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
        self.spent.load(Ordering::Relaxed)
    }

    /// Subtracts steps. Returns `false` if the budget is exceeded.
    #[inline]
    fn spend(&self, steps: u64) -> bool {
        let spent = self.spent().saturating_add(steps);
        self.spent.store(spent, Ordering::Relaxed);
        spent <= self.limit.load(Ordering::Relaxed) || self.extend(spent)
    }

    /// Waits for the permit for large files and extends the budget once.
    #[cold]
    fn extend(&self, spent: u64) -> bool {
        self.extended.get_or_init(|| {
            self.memory.charge(LARGE_BYTES);
            self.limit.store(MAX_STEPS, Ordering::Relaxed);
        });
        spent <= MAX_STEPS
    }
}

fn cost_of_bytes(bytes: usize) -> u64 {
    1 + (bytes / BYTES_PER_READ) as u64
}

/// A reader of a section or a part of it, which charges each read to the budget.
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

    /// Returns all remaining bytes.
    pub(super) fn bytes(&self) -> gimli::Result<&'a [u8]> {
        self.charge_bytes(self.slice.slice().len())?;
        Ok(self.slice.slice())
    }

    #[inline]
    fn charge(&self, steps: u64) -> gimli::Result<()> {
        match self.budget.spend(steps) {
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
        let position = Reader::find(&self.slice, byte);
        let searched = position.as_ref().map_or(self.slice.len(), |at| *at);
        self.charge_bytes(searched)?;
        position
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
        let string = std::str::from_utf8(self.bytes()?);
        string.map(Cow::Borrowed).map_err(|_| Error::BadUtf8)
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
