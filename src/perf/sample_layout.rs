//! The fields of a sample, in the order in which the kernel writes them.

use perf_event_open_sys::bindings as sys;

use super::layout::{FieldCursor, Layout, ParseError};
use super::record::{Abi, BranchStack, CpuMode, ReadValues, Registers, SampleRecord, U64s};
use crate::ids::{Cpu, Nanos, Pid, Tid};

/// Bits of user registers (`asm/perf_regs.h`, x86).
const REG_BP: u32 = 6;
const REG_SP: u32 = 7;
const REG_IP: u32 = 8;
/// User registers that unwinding needs: 24 bytes per sample.
pub(super) const USER_REGS: u64 = 1 << REG_BP | 1 << REG_SP | 1 << REG_IP;

impl Layout {
    pub(super) fn sample<'a>(
        &self,
        mut fields: FieldCursor<'a>,
        misc: u32,
    ) -> Result<SampleRecord<'a>, ParseError> {
        let mut sample = SampleRecord {
            mode: match misc & sys::PERF_RECORD_MISC_CPUMODE_MASK {
                sys::PERF_RECORD_MISC_KERNEL => CpuMode::Kernel,
                sys::PERF_RECORD_MISC_USER => CpuMode::User,
                _ => CpuMode::Other,
            },
            ip: 0,
            pid: Pid(0),
            tid: Tid(0),
            time: Nanos(0),
            cpu: Cpu(0),
            period: 0,
            event: 0,
            counts: ReadValues::default(),
            callchain: U64s(&[]),
            calls: BranchStack::default(),
            raw: &[],
            abi: Abi::None,
            registers: None,
            stack: &[],
            requested_stack: 0,
        };
        if self.has(sys::PERF_SAMPLE_IDENTIFIER) {
            sample.event = fields.u64("identifier")?;
        }
        if self.has(sys::PERF_SAMPLE_IP) {
            sample.ip = fields.u64("ip")?;
        }
        if self.has(sys::PERF_SAMPLE_TID) {
            (sample.pid, sample.tid) = (fields.pid()?, fields.tid()?);
        }
        if self.has(sys::PERF_SAMPLE_TIME) {
            sample.time = Nanos(fields.u64("time")?);
        }
        if self.has(sys::PERF_SAMPLE_ADDR) {
            fields.u64("addr")?;
        }
        if self.has(sys::PERF_SAMPLE_ID) {
            sample.event = fields.u64("id")?;
        }
        if self.has(sys::PERF_SAMPLE_STREAM_ID) {
            fields.u64("stream id")?;
        }
        if self.has(sys::PERF_SAMPLE_CPU) {
            sample.cpu = Cpu(fields.u32("cpu")?);
            fields.u32("reserved half of cpu")?;
        }
        if self.has(sys::PERF_SAMPLE_PERIOD) {
            sample.period = fields.u64("period")?;
        }
        if self.has(sys::PERF_SAMPLE_READ) {
            sample.counts = self.read_values(&mut fields)?;
        }
        if self.has(sys::PERF_SAMPLE_CALLCHAIN) {
            let count = fields.u64("callchain length")?;
            let bytes = usize::try_from(count)
                .ok()
                .and_then(|count| count.checked_mul(8));
            sample.callchain = fields.get("callchain", |b| b.take(bytes?)).map(U64s)?;
        }
        if self.has(sys::PERF_SAMPLE_RAW) {
            let len = fields.u32("raw size")?;
            sample.raw = fields.get("raw data", |b| b.take(len as usize))?;
        }
        if self.has(sys::PERF_SAMPLE_BRANCH_STACK) {
            sample.calls = self.branch_stack(&mut fields)?;
        }
        if self.has(sys::PERF_SAMPLE_REGS_USER) {
            self.registers(&mut fields, &mut sample)?;
        }
        if self.has(sys::PERF_SAMPLE_STACK_USER) {
            (sample.stack, sample.requested_stack) = stack(&mut fields)?;
        }
        Ok(sample)
    }

    /// Reads the `read_format` struct: one counter, or all counters of a group.
    fn read_values<'a>(&self, fields: &mut FieldCursor<'a>) -> Result<ReadValues<'a>, ParseError> {
        let has = |bit: u32| usize::from(self.format.read_format & u64::from(bit) != 0);
        let times =
            has(sys::PERF_FORMAT_TOTAL_TIME_ENABLED) + has(sys::PERF_FORMAT_TOTAL_TIME_RUNNING);
        let (id, lost) = (has(sys::PERF_FORMAT_ID), has(sys::PERF_FORMAT_LOST));
        let (counters, id_index) = match has(sys::PERF_FORMAT_GROUP) {
            // The times are between the value and the id.
            0 => (1, 1 + times),
            _ => {
                let counters = fields.u64("counters of the group")?;
                fields.get("times of the group", |b| b.take(8 * times))?;
                (counters, 1)
            }
        };
        let words_per_counter = id_index + id + lost;
        let bytes = usize::try_from(counters)
            .ok()
            .and_then(|counters| counters.checked_mul(8 * words_per_counter));
        let words = fields.get("counts", |b| b.take(bytes?))?;
        Ok(match id {
            0 => ReadValues::default(),
            _ => ReadValues {
                words: U64s(words),
                words_per_counter,
                id_index,
            },
        })
    }

    /// Reads a branch stack. Returns an empty one unless it is a call stack.
    fn branch_stack<'a>(
        &self,
        fields: &mut FieldCursor<'a>,
    ) -> Result<BranchStack<'a>, ParseError> {
        let has = |bit: u32| self.format.branch_type & u64::from(bit) != 0;
        let count = fields.u64("branches")?;
        if has(sys::PERF_SAMPLE_BRANCH_HW_INDEX) {
            fields.u64("index of the branches")?;
        }
        let bytes_of = |each: usize| usize::try_from(count).ok()?.checked_mul(each);
        let branches = fields.get("branch stack", |b| {
            b.take(bytes_of(BranchStack::ENTRY_BYTES)?)
        })?;
        if has(sys::PERF_SAMPLE_BRANCH_COUNTERS) {
            fields.get("branch counters", |b| b.take(bytes_of(8)?))?;
        }
        Ok(match has(sys::PERF_SAMPLE_BRANCH_CALL_STACK) {
            true => BranchStack(branches),
            false => BranchStack::default(),
        })
    }

    fn registers(
        &self,
        fields: &mut FieldCursor<'_>,
        sample: &mut SampleRecord<'_>,
    ) -> Result<(), ParseError> {
        sample.abi = match u32::try_from(fields.u64("registers' abi")?) {
            Ok(sys::PERF_SAMPLE_REGS_ABI_64) => Abi::Bits64,
            Ok(sys::PERF_SAMPLE_REGS_ABI_32) => Abi::Bits32,
            _ => return Ok(()),
        };
        let mut registers = Registers {
            ip: 0,
            sp: 0,
            bp: 0,
        };
        for bit in (0..u64::BITS).filter(|bit| self.format.user_regs >> bit & 1 != 0) {
            let value = fields.u64("registers")?;
            match bit {
                REG_BP => registers.bp = value,
                REG_SP => registers.sp = value,
                REG_IP => registers.ip = value,
                _ => {}
            }
        }
        let usable = sample.abi == Abi::Bits64 && !self.format.foreign_registers;
        sample.registers = usable.then_some(registers);
        Ok(())
    }
}

/// Reads a stack copy: `u64 size; char data[size]; u64 dyn_size`, nothing but `size` if it is 0.
///
/// Only the first `dyn_size` bytes of `data` are valid. Returns them, and `size`.
fn stack<'a>(fields: &mut FieldCursor<'a>) -> Result<(&'a [u8], u64), ParseError> {
    let size = fields.u64("stack size")?;
    if size == 0 {
        return Ok((&[], 0));
    }
    let data = fields.get("stack", |b| b.take(usize::try_from(size).ok()?))?;
    let filled = fields.u64("filled stack size")?.min(size) as usize;
    Ok((&data[..filled], size))
}
