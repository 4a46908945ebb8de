//! Encoding of a sample, relative to the sample before.

use super::row::RowError;
use super::wire::{Input, put, put_difference};
use crate::trace::{Cpu, Nanos, Sample, StackId, ThreadId};

/// Flags of the fields that differ, combined with a kind.
const THREAD: u8 = 1;
const CPU: u8 = 2;
const WEIGHT: u8 = 4;
const STACK: u8 = 8;
/// First byte of a sample, without flags.
pub(in crate::trace) const SAMPLE: u8 = 0x80;
/// First byte of the time for which a thread waited, without flags.
pub(super) const BLOCKED: u8 = 0x40;
/// First byte of a sample of page faults, without flags.
pub(super) const FAULTS: u8 = 0x20;
/// First byte of a sample of wake-ups, without flags.
pub(super) const WAKEUPS: u8 = 0xc0;

/// Returns whether the first byte of a row is `kind` with flags.
pub(super) fn is_kind(kind: u8, byte: u8) -> bool {
    byte & !(THREAD | CPU | WEIGHT | STACK) == kind
}

/// Writes a sample of a kind that follows `last`: the kind and the flags, then the fields that differ.
pub(in crate::trace) fn encode(kind: u8, last: &Sample, sample: &Sample, out: &mut Vec<u8>) {
    let differs = |differs: bool, flag: u8| if differs { flag } else { 0 };
    let flags = differs(sample.thread != last.thread, THREAD)
        | differs(sample.cpu != last.cpu, CPU)
        | differs(sample.weight != last.weight, WEIGHT)
        | differs(sample.stack != last.stack, STACK);
    out.push(kind | flags);
    put_difference(out, last.time.0, sample.time.0);
    if flags & THREAD != 0 {
        put(out, sample.thread.0.into());
    }
    if flags & CPU != 0 {
        put(out, sample.cpu.0.into());
    }
    if flags & WEIGHT != 0 {
        put(out, sample.weight.0);
    }
    if flags & STACK != 0 {
        // The empty stack has the highest id and becomes 0.
        put(out, sample.stack.0.wrapping_add(1).into());
    }
}

/// Reads the fields that follow the first byte, `flags`.
pub(in crate::trace) fn decode(
    last: &Sample,
    flags: u8,
    input: &mut Input<'_>,
) -> Result<Sample, RowError> {
    let mut sample = *last;
    sample.time = Nanos(input.difference(last.time.0)?);
    if flags & THREAD != 0 {
        sample.thread = ThreadId(input.small()?);
    }
    if flags & CPU != 0 {
        sample.cpu = Cpu(input.small()?);
    }
    if flags & WEIGHT != 0 {
        sample.weight = Nanos(input.integer()?);
    }
    if flags & STACK != 0 {
        sample.stack = StackId(input.small()?.wrapping_sub(1));
    }
    Ok(sample)
}
