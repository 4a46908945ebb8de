//! Byte order conversion of records from big-endian machines.

use perf_event_open_sys::bindings as sys;

use super::attribute::Attribute;
use crate::perf::{RecordFormat, TRAILER};

const HEADER_BYTES: usize = 8;

/// Converts a kernel record from big-endian to little-endian in place.
///
/// Strings, raw data and stacks stay unchanged. A record too short for its fields is converted as
/// far as possible; the parser then rejects it.
pub(super) fn to_little(
    record: &mut [u8],
    events: &[Attribute],
    event_of: impl Fn(u64) -> Option<u32>,
) {
    let Some(first) = events.first() else {
        return;
    };
    let total = record.len();
    let mut swapper = ByteSwapper { record, at: 0 };
    swapper.u32s(1);
    swapper.u16s(2);
    let kind = swapper.back_u32(HEADER_BYTES).unwrap_or(0);
    if kind == sys::PERF_RECORD_SAMPLE {
        let _ = sample(&mut swapper, events, event_of);
        return;
    }
    let trailer = first.format.trailer_bytes();
    match kind {
        sys::PERF_RECORD_MMAP => {
            swapper.u32s(2);
            swapper.u64s(3);
        }
        sys::PERF_RECORD_MMAP2 => {
            swapper.u32s(2);
            swapper.u64s(3);
            swapper.u32s(2);
            swapper.u64s(2);
            swapper.u32s(2);
        }
        sys::PERF_RECORD_COMM => swapper.u32s(2),
        sys::PERF_RECORD_KSYMBOL => {
            swapper.u64s(1);
            swapper.u32s(1);
            swapper.u16s(2);
        }
        sys::PERF_RECORD_FORK | sys::PERF_RECORD_EXIT => {
            swapper.u32s(4);
            swapper.u64s(1);
        }
        _ => swapper.u64s(total.saturating_sub(HEADER_BYTES + trailer) / 8),
    }
    swapper.at = total.saturating_sub(trailer).max(swapper.at);
    sample_id(&mut swapper, &first.format);
}

fn sample_id(swapper: &mut ByteSwapper<'_>, format: &RecordFormat) {
    for (field, is_pair) in TRAILER {
        match (format.has(field), is_pair) {
            (true, true) => swapper.u32s(2),
            (true, false) => swapper.u64s(1),
            _ => {}
        }
    }
}

fn sample(
    swapper: &mut ByteSwapper<'_>,
    events: &[Attribute],
    event_of: impl Fn(u64) -> Option<u32>,
) -> Option<()> {
    let mut format = events.first()?.format;
    let mut id = None;
    if format.has(sys::PERF_SAMPLE_IDENTIFIER) {
        id = Some(swapper.u64()?);
    }
    for (field, is_pair) in [
        (sys::PERF_SAMPLE_IP, false),
        (sys::PERF_SAMPLE_TID, true),
        (sys::PERF_SAMPLE_TIME, false),
        (sys::PERF_SAMPLE_ADDR, false),
    ] {
        match (format.has(field), is_pair) {
            (true, true) => swapper.u32s(2),
            (true, false) => swapper.u64s(1),
            _ => {}
        }
    }
    if format.has(sys::PERF_SAMPLE_ID) {
        id = Some(swapper.u64()?);
    }
    // The fields up to the id are the same in all events.
    let event = id.and_then(event_of);
    if let Some(event) = event.and_then(|event| events.get(event as usize)) {
        format = event.format;
    }
    if format.has(sys::PERF_SAMPLE_STREAM_ID) {
        swapper.u64s(1);
    }
    if format.has(sys::PERF_SAMPLE_CPU) {
        swapper.u32s(2);
    }
    if format.has(sys::PERF_SAMPLE_PERIOD) {
        swapper.u64s(1);
    }
    if format.has(sys::PERF_SAMPLE_READ) {
        read_values(swapper, &format)?;
    }
    if format.has(sys::PERF_SAMPLE_CALLCHAIN) {
        let count = swapper.u64()?;
        swapper.u64s(usize::try_from(count).ok()?);
    }
    if format.has(sys::PERF_SAMPLE_RAW) {
        swapper.u32s(1);
        let len = swapper.back_u32(4)?;
        swapper.skip(len as usize);
    }
    if format.has(sys::PERF_SAMPLE_BRANCH_STACK) {
        let count = usize::try_from(swapper.u64()?).ok()?;
        let index = u64::from(sys::PERF_SAMPLE_BRANCH_HW_INDEX) & format.branch_type != 0;
        swapper.u64s(count.checked_mul(3)?.checked_add(usize::from(index))?);
    }
    if format.has(sys::PERF_SAMPLE_REGS_USER) && swapper.u64()? != 0 {
        swapper.u64s(format.user_regs.count_ones() as usize);
    }
    if format.has(sys::PERF_SAMPLE_STACK_USER) {
        let size = swapper.u64()?;
        if size > 0 {
            swapper.skip(usize::try_from(size).ok()?);
            swapper.u64s(1);
        }
    }
    Some(())
}

fn read_values(swapper: &mut ByteSwapper<'_>, format: &RecordFormat) -> Option<()> {
    let has = |bit: u32| usize::from(format.read_format & u64::from(bit) != 0);
    let times = has(sys::PERF_FORMAT_TOTAL_TIME_ENABLED) + has(sys::PERF_FORMAT_TOTAL_TIME_RUNNING);
    let words_per_counter = 1 + has(sys::PERF_FORMAT_ID) + has(sys::PERF_FORMAT_LOST);
    let counters = match has(sys::PERF_FORMAT_GROUP) {
        0 => 1,
        _ => usize::try_from(swapper.u64()?).ok()?,
    };
    swapper.u64s(
        counters
            .checked_mul(words_per_counter)?
            .checked_add(times)?,
    );
    Some(())
}

/// Converts the fields of a record in order.
struct ByteSwapper<'a> {
    record: &'a mut [u8],
    at: usize,
}

impl ByteSwapper<'_> {
    fn each<const N: usize>(&mut self, count: usize) {
        for _ in 0..count {
            let number = self
                .record
                .get_mut(self.at..)
                .and_then(|rest| rest.get_mut(..N));
            let Some(number) = number else {
                self.at = self.record.len();
                return;
            };
            number.reverse();
            self.at += N;
        }
    }

    fn u16s(&mut self, count: usize) {
        self.each::<2>(count);
    }

    fn u32s(&mut self, count: usize) {
        self.each::<4>(count);
    }

    fn u64s(&mut self, count: usize) {
        self.each::<8>(count);
    }

    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes).min(self.record.len());
    }

    /// Converts an integer and returns it.
    fn u64(&mut self) -> Option<u64> {
        let from = self.at;
        self.u64s(1);
        let (number, _) = self.record.get(from..)?.split_first_chunk()?;
        Some(u64::from_le_bytes(*number))
    }

    /// Returns the converted integer at `bytes` before the current position.
    fn back_u32(&self, bytes: usize) -> Option<u32> {
        let at = self.at.checked_sub(bytes)?;
        let (number, _) = self.record.get(at..)?.split_first_chunk()?;
        Some(u32::from_le_bytes(*number))
    }
}
