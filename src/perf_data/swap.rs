//! Records of a machine with the other byte order, turned into records of this one.

use perf_event_open_sys::bindings as sys;

use super::attribute::Attribute;
use crate::perf::{RecordFormat, TRAILER};

const HEADER_BYTES: usize = 8;

/// Turns a kernel's record from big-endian to little-endian in place. Texts, raw data and stacks stay as they are. What
/// is too short for its fields is turned as far as it goes; the parser then refuses it.
pub(super) fn to_little(
    record: &mut [u8],
    events: &[Attribute],
    event_of: impl Fn(u64) -> Option<u32>,
) {
    let Some(first) = events.first() else {
        return;
    };
    let total = record.len();
    let mut turn = ByteSwapper { record, at: 0 };
    turn.u32s(1);
    turn.halves(2);
    let kind = turn.back_u32(HEADER_BYTES).unwrap_or(0);
    if kind == sys::PERF_RECORD_SAMPLE {
        let _ = sample(&mut turn, events, event_of);
        return;
    }
    let trailer = first.format.trailer_bytes();
    match kind {
        sys::PERF_RECORD_MMAP => {
            turn.u32s(2);
            turn.u64s(3);
        }
        sys::PERF_RECORD_MMAP2 => {
            turn.u32s(2);
            turn.u64s(3);
            turn.u32s(2);
            turn.u64s(2);
            turn.u32s(2);
        }
        sys::PERF_RECORD_COMM => turn.u32s(2),
        sys::PERF_RECORD_KSYMBOL => {
            turn.u64s(1);
            turn.u32s(1);
            turn.halves(2);
        }
        sys::PERF_RECORD_FORK | sys::PERF_RECORD_EXIT => {
            turn.u32s(4);
            turn.u64s(1);
        }
        _ => turn.u64s(total.saturating_sub(HEADER_BYTES + trailer) / 8),
    }
    turn.at = total.saturating_sub(trailer).max(turn.at);
    sample_id(&mut turn, &first.format);
}

fn sample_id(turn: &mut ByteSwapper<'_>, format: &RecordFormat) {
    for (field, is_pair) in TRAILER {
        match (format.has(field), is_pair) {
            (true, true) => turn.u32s(2),
            (true, false) => turn.u64s(1),
            _ => {}
        }
    }
}

fn sample(
    turn: &mut ByteSwapper<'_>,
    events: &[Attribute],
    event_of: impl Fn(u64) -> Option<u32>,
) -> Option<()> {
    let mut format = events.first()?.format;
    let mut id = None;
    if format.has(sys::PERF_SAMPLE_IDENTIFIER) {
        id = Some(turn.u64()?);
    }
    for (field, is_pair) in [
        (sys::PERF_SAMPLE_IP, false),
        (sys::PERF_SAMPLE_TID, true),
        (sys::PERF_SAMPLE_TIME, false),
        (sys::PERF_SAMPLE_ADDR, false),
    ] {
        match (format.has(field), is_pair) {
            (true, true) => turn.u32s(2),
            (true, false) => turn.u64s(1),
            _ => {}
        }
    }
    if format.has(sys::PERF_SAMPLE_ID) {
        id = Some(turn.u64()?);
    }
    // Up to here all events are alike.
    let event = id.and_then(event_of);
    if let Some(event) = event.and_then(|event| events.get(event as usize)) {
        format = event.format;
    }
    if format.has(sys::PERF_SAMPLE_STREAM_ID) {
        turn.u64s(1);
    }
    if format.has(sys::PERF_SAMPLE_CPU) {
        turn.u32s(2);
    }
    if format.has(sys::PERF_SAMPLE_PERIOD) {
        turn.u64s(1);
    }
    if format.has(sys::PERF_SAMPLE_READ) {
        counts(turn, &format)?;
    }
    if format.has(sys::PERF_SAMPLE_CALLCHAIN) {
        let count = turn.u64()?;
        turn.u64s(usize::try_from(count).ok()?);
    }
    if format.has(sys::PERF_SAMPLE_RAW) {
        turn.u32s(1);
        let len = turn.back_u32(4)?;
        turn.skip(len as usize);
    }
    if format.has(sys::PERF_SAMPLE_BRANCH_STACK) {
        let count = usize::try_from(turn.u64()?).ok()?;
        let index = u64::from(sys::PERF_SAMPLE_BRANCH_HW_INDEX) & format.branch_type != 0;
        turn.u64s(count.checked_mul(3)?.checked_add(usize::from(index))?);
    }
    if format.has(sys::PERF_SAMPLE_REGS_USER) && turn.u64()? != 0 {
        turn.u64s(format.user_regs.count_ones() as usize);
    }
    if format.has(sys::PERF_SAMPLE_STACK_USER) {
        let size = turn.u64()?;
        if size > 0 {
            turn.skip(usize::try_from(size).ok()?);
            turn.u64s(1);
        }
    }
    Some(())
}

fn counts(turn: &mut ByteSwapper<'_>, format: &RecordFormat) -> Option<()> {
    let has = |bit: u32| usize::from(format.read_format & u64::from(bit) != 0);
    let times = has(sys::PERF_FORMAT_TOTAL_TIME_ENABLED) + has(sys::PERF_FORMAT_TOTAL_TIME_RUNNING);
    let of_each = 1 + has(sys::PERF_FORMAT_ID) + has(sys::PERF_FORMAT_LOST);
    let counters = match has(sys::PERF_FORMAT_GROUP) {
        0 => 1,
        _ => usize::try_from(turn.u64()?).ok()?,
    };
    turn.u64s(counters.checked_mul(of_each)?.checked_add(times)?);
    Some(())
}

/// A record that is turned from the front to the back.
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

    fn halves(&mut self, count: usize) {
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

    /// Turns a number and gives it.
    fn u64(&mut self) -> Option<u64> {
        let from = self.at;
        self.u64s(1);
        let (number, _) = self.record.get(from..)?.split_first_chunk()?;
        Some(u64::from_le_bytes(*number))
    }

    /// The number that was turned `bytes` before.
    fn back_u32(&self, bytes: usize) -> Option<u32> {
        let at = self.at.checked_sub(bytes)?;
        let (number, _) = self.record.get(at..)?.split_first_chunk()?;
        Some(u32::from_le_bytes(*number))
    }
}
