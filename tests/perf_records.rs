//! Compares the record parser with the crate linux-perf-event-reader, on all supported layouts.
//!
//! Also tests the parser on corrupt records, and the merge.
#![allow(clippy::unwrap_used)]

use linux_perf_event_reader::{
    BranchSampleFormat, Endianness, EventRecord, Mmap2FileId, RawData, RawEventRecord, ReadFormat,
    RecordIdParseInfo, RecordParseInfo, RecordType, SampleFormat,
};
use perf_event_open_sys::bindings as sys;
use std::ops::ControlFlow;

use perfcollect::perf::{Abi, Layout, Merge, Record, RecordSource, SampleRecord};
use perfcollect::trace::Nanos;
use proptest::prelude::*;

const X86_BP_SP_IP: u64 = 0b1_1100_0000;
const TIME_FIELDS: SampleFormat = SampleFormat::TIME
    .union(SampleFormat::ID)
    .union(SampleFormat::STREAM_ID)
    .union(SampleFormat::CPU)
    .union(SampleFormat::IDENTIFIER);

/// Supported sample types. All have TIME and TID, which the merge and the machine model need.
fn layouts() -> impl Strategy<Value = SampleFormat> {
    let optional = [
        SampleFormat::IDENTIFIER,
        SampleFormat::IP,
        SampleFormat::ADDR,
        SampleFormat::ID,
        SampleFormat::STREAM_ID,
        SampleFormat::CPU,
        SampleFormat::PERIOD,
        SampleFormat::CALLCHAIN,
        SampleFormat::RAW,
        SampleFormat::REGS_USER,
        SampleFormat::STACK_USER,
    ];
    proptest::sample::subsequence(optional.to_vec(), 0..=optional.len()).prop_map(|fields| {
        let always = SampleFormat::TIME | SampleFormat::TID;
        fields.into_iter().fold(always, |all, field| all | field)
    })
}

fn oracle(format: SampleFormat) -> RecordParseInfo {
    let trailer = 8
        * (format & (TIME_FIELDS | SampleFormat::TID))
            .bits()
            .count_ones();
    let from_time = 8 * (format & TIME_FIELDS).bits().count_ones();
    let before_time = SampleFormat::IDENTIFIER | SampleFormat::IP | SampleFormat::TID;
    RecordParseInfo {
        endian: Endianness::LittleEndian,
        sample_format: format,
        branch_sample_format: BranchSampleFormat::empty(),
        read_format: ReadFormat::empty(),
        common_data_offset_from_end: Some(trailer as u8),
        sample_regs_user: X86_BP_SP_IP,
        user_regs_count: 3,
        sample_regs_intr: 0,
        intr_regs_count: 0,
        id_parse_info: RecordIdParseInfo {
            nonsample_record_id_offset_from_end: None,
            sample_record_id_offset_from_start: None,
        },
        nonsample_record_time_offset_from_end: Some(from_time as u8),
        sample_record_time_offset_from_start: Some(
            (8 * (format & before_time).bits().count_ones()) as u8,
        ),
    }
}

/// Returns a record with a header of the correct size.
fn record(kind: RecordType, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(kind.0.to_le_bytes());
    bytes.extend(misc.to_le_bytes());
    bytes.extend((body.len() as u16 + 8).to_le_bytes());
    bytes.extend(body);
    bytes
}

#[derive(Clone, Debug)]
struct Body {
    numbers: Vec<u64>,
    chain: Vec<u64>,
    raw: Vec<u8>,
    regs_abi: u64,
    stack: Vec<u8>,
    filled: u64,
}

fn bodies() -> impl Strategy<Value = Body> {
    let stack = proptest::collection::vec(any::<u8>(), 0..8).prop_map(|words| words.repeat(8));
    (
        proptest::collection::vec(any::<u64>(), 16),
        proptest::collection::vec(any::<u64>(), 0..6),
        proptest::collection::vec(any::<u8>(), 4),
        0_u64..3,
        stack,
        any::<u64>(),
    )
        .prop_map(|(numbers, chain, raw, regs_abi, stack, filled)| Body {
            numbers,
            chain,
            raw,
            regs_abi,
            stack,
            filled,
        })
}

fn sample_bytes(format: SampleFormat, body: &Body) -> Vec<u8> {
    let mut out = Vec::new();
    let mut numbers = body.numbers.iter();
    let plain = [
        SampleFormat::IDENTIFIER,
        SampleFormat::IP,
        SampleFormat::TID,
        SampleFormat::TIME,
        SampleFormat::ADDR,
        SampleFormat::ID,
        SampleFormat::STREAM_ID,
        SampleFormat::CPU,
        SampleFormat::PERIOD,
    ];
    let mut put_number = |out: &mut Vec<u8>| out.extend(numbers.next().unwrap().to_le_bytes());
    for field in plain {
        if format.contains(field) {
            put_number(&mut out);
        }
    }
    if format.contains(SampleFormat::CALLCHAIN) {
        out.extend((body.chain.len() as u64).to_le_bytes());
        body.chain
            .iter()
            .for_each(|ip| out.extend(ip.to_le_bytes()));
    }
    if format.contains(SampleFormat::RAW) {
        out.extend((body.raw.len() as u32).to_le_bytes());
        out.extend(&body.raw);
    }
    if format.contains(SampleFormat::REGS_USER) {
        out.extend(body.regs_abi.to_le_bytes());
        if body.regs_abi != 0 {
            (0..3).for_each(|_| put_number(&mut out));
        }
    }
    if format.contains(SampleFormat::STACK_USER) {
        out.extend((body.stack.len() as u64).to_le_bytes());
        if !body.stack.is_empty() {
            out.extend(&body.stack);
            out.extend((body.filled % (body.stack.len() as u64 + 1)).to_le_bytes());
        }
    }
    record(RecordType::SAMPLE, 2, &out)
}

fn expect_same_sample(
    ours: &SampleRecord<'_>,
    theirs: &linux_perf_event_reader::SampleRecord<'_>,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(ours.ip, theirs.ip.unwrap_or(0));
    prop_assert_eq!(ours.pid.0, theirs.pid.unwrap_or(0));
    prop_assert_eq!(ours.tid.0, theirs.tid.unwrap_or(0));
    prop_assert_eq!(ours.time.0, theirs.timestamp.unwrap_or(0));
    prop_assert_eq!(ours.cpu.0, theirs.cpu.unwrap_or(0));
    prop_assert_eq!(ours.period, theirs.period.unwrap_or(0));
    let chain = theirs.callchain;
    let chain: Vec<_> = (0..chain.map_or(0, |c| c.len()))
        .filter_map(|i| chain.unwrap().get(i))
        .collect();
    prop_assert_eq!(ours.callchain.iter().collect::<Vec<_>>(), chain);
    if let (Some(ours), Some(theirs)) = (ours.registers, &theirs.user_regs) {
        let theirs = [6, 7, 8].map(|register| theirs.get(register).unwrap());
        prop_assert_eq!([ours.bp, ours.sp, ours.ip], theirs);
    }
    if let Some((stack, filled)) = &theirs.user_stack {
        let filled = (*filled as usize).min(stack.len());
        prop_assert_eq!(ours.stack, &stack.as_slice()[..filled]);
    }
    Ok(())
}

/// The process controls the stack that the kernel reads, so it may contain the values of markers.
#[test]
fn ignores_context_markers_in_the_user_part_of_a_callchain() {
    use sys::{PERF_CONTEXT_KERNEL as KERNEL, PERF_CONTEXT_USER as USER};
    let format = SampleFormat::TIME | SampleFormat::TID | SampleFormat::CALLCHAIN;
    let chain = [KERNEL, 1 << 63, USER, 0x1000, KERNEL, 0x2000, USER, 0x3000];
    let body = Body {
        numbers: vec![7; 16],
        chain: chain.to_vec(),
        raw: Vec::new(),
        regs_abi: 0,
        stack: Vec::new(),
        filled: 0,
    };
    let bytes = sample_bytes(format, &body);
    let layout = Layout::new(format.bits(), X86_BP_SP_IP).unwrap();
    let Ok(Record::Sample(sample)) = layout.parse(&bytes) else {
        panic!("not parsed");
    };
    assert_eq!(sample.kernel_chain().collect::<Vec<_>>(), [1 << 63]);
    assert_eq!(sample.user_chain().collect::<Vec<_>>(), chain[3..]);
}

/// The kernel hands one record to all events that request it, and adds the trailer of each to its size.
#[test]
fn a_ksymbol_record_has_its_time_where_its_name_ends() {
    const TIME: u64 = 18_014_116_478_522;
    let format = SampleFormat::TID | SampleFormat::TIME | SampleFormat::CPU;
    let layout = Layout::new(format.bits(), 0).unwrap();
    let mut body = [0; 16].to_vec();
    body.extend(b"bpf_prog_359901d3566c2d55_busy_perf\0\0\0\0\0");
    body.extend(
        [9_163_u64 << 32 | 9_163, TIME, 1]
            .map(u64::to_le_bytes)
            .concat(),
    );
    for _ in 0..3 {
        let bytes = record(RecordType::KSYMBOL, 0, &body);
        assert_eq!(layout.time_of(&bytes).unwrap().0, TIME);
        body.extend([0; 24]);
    }
    // Cut within the trailer or the name.
    for length in 0..16 + 40 + 24 {
        let _ = layout.time_of(&record(RecordType::KSYMBOL, 0, &body[..length]));
    }
}

proptest! {
    #[test]
    fn samples_of_all_layouts_match_the_oracle(format in layouts(), body in bodies()) {
        let bytes = sample_bytes(format, &body);
        let layout = Layout::new(format.bits(), X86_BP_SP_IP).unwrap();
        let Ok(Record::Sample(ours)) = layout.parse(&bytes) else {
            return Err(TestCaseError::fail("not parsed"));
        };
        let info = oracle(format);
        let raw = RawEventRecord::new(RecordType::SAMPLE, 2, RawData::Single(&bytes[8..]), info);
        let Ok(EventRecord::Sample(theirs)) = raw.parse() else {
            return Err(TestCaseError::fail("rejected by the oracle"));
        };
        expect_same_sample(&ours, &theirs)?;
        prop_assert_eq!(layout.time_of(&bytes).unwrap(), ours.time);
        let has_registers = format.contains(SampleFormat::REGS_USER) && body.regs_abi == 2;
        prop_assert_eq!(ours.registers.is_some(), has_registers);
        prop_assert_eq!(ours.abi == Abi::Bits64, has_registers);
    }

    #[test]
    fn other_records_match_the_oracle(
        format in layouts(),
        kind in prop::sample::select(vec![
            RecordType::MMAP2, RecordType::MMAP, RecordType::COMM, RecordType::FORK, RecordType::EXIT,
            RecordType::LOST]),
        fixed in proptest::collection::vec(any::<u8>(), 64),
        name in "[ -~]{0,20}",
        trailer in proptest::collection::vec(any::<u8>(), 48),
        exec in any::<bool>(),
    ) {
        let info = oracle(format);
        let fixed_bytes = match kind {
            RecordType::MMAP2 => 64,
            RecordType::MMAP => 32,
            RecordType::COMM => 8,
            RecordType::LOST => 16,
            _ => 24,
        };
        let mut body = fixed[..fixed_bytes].to_vec();
        if kind == RecordType::MMAP2 {
            // Protection. The parser takes a string in its place for the path of an old kernel.
            body[56] &= 0xf;
        }
        if matches!(kind, RecordType::MMAP2 | RecordType::MMAP | RecordType::COMM) {
            body.extend(name.as_bytes());
            body.push(0);
            body.resize(body.len().next_multiple_of(8), 0);
        }
        body.extend(&trailer[..info.common_data_offset_from_end.unwrap() as usize]);
        let misc = if exec && kind == RecordType::COMM { 1 << 13 } else { 0 };
        let bytes = record(kind, misc, &body);
        let layout = Layout::new(format.bits(), X86_BP_SP_IP).unwrap();
        let ours = layout.parse(&bytes).unwrap();
        let raw = RawEventRecord::new(kind, misc, RawData::Single(&bytes[8..]), info);
        let theirs = raw.parse().unwrap();
        prop_assert_eq!(layout.time_of(&bytes).unwrap().0, raw.timestamp().unwrap());
        match (ours, theirs) {
            (Record::Mapping(ours), EventRecord::Mmap2(theirs)) => {
                prop_assert_eq!((ours.pid.0, ours.start, ours.len, ours.file_offset),
                    (theirs.pid, theirs.address, theirs.length, theirs.page_offset));
                prop_assert_eq!(ours.path, &*theirs.path.as_slice());
                let Mmap2FileId::InodeAndVersion(id) = theirs.file_id else { panic!("build id") };
                prop_assert_eq!((ours.device, ours.inode), ((id.major, id.minor), id.inode));
            }
            (Record::Mapping(ours), EventRecord::Mmap(theirs)) => {
                prop_assert_eq!((ours.pid.0, ours.start, ours.len, ours.file_offset),
                    (theirs.pid, theirs.address, theirs.length, theirs.page_offset));
                prop_assert_eq!(ours.path, &*theirs.path.as_slice());
            }
            (Record::Comm { pid, tid, exec, name }, EventRecord::Comm(theirs)) => {
                prop_assert_eq!((pid.0, tid.0, exec), (theirs.pid, theirs.tid, theirs.is_execve));
                prop_assert_eq!(name, &*theirs.name.as_slice());
            }
            (Record::Fork { pid, tid, parent_pid, parent_tid }, EventRecord::Fork(theirs)) =>
                prop_assert_eq!((pid.0, tid.0, parent_pid.0, parent_tid.0),
                    (theirs.pid, theirs.tid, theirs.ppid, theirs.ptid)),
            (Record::Exit { pid, tid }, EventRecord::Exit(theirs)) =>
                prop_assert_eq!((pid.0, tid.0), (theirs.pid, theirs.tid)),
            (Record::Lost { records, cpu, .. }, EventRecord::Lost(theirs)) => {
                let common = raw.common_data().unwrap();
                prop_assert_eq!((records, cpu.0), (theirs.count, common.cpu.unwrap_or(0)));
            }
            (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
        }
    }

    #[test]
    fn corrupt_records_never_panic(
        format in layouts(),
        body in bodies(),
        len in any::<prop::sample::Index>(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = sample_bytes(format, &body);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(len.index(bytes.len() + 1));
        let layout = Layout::new(format.bits(), X86_BP_SP_IP).unwrap();
        let _ = layout.time_of(&bytes);
        if let Ok(Record::Sample(sample)) = layout.parse(&bytes) {
            sample.kernel_chain().for_each(drop);
        }
    }

    /// Each round flushes no record beyond its flush limit, and may end earlier at any record.
    #[test]
    fn merge_sorts_records_and_loses_none(
        mut times in proptest::collection::vec(proptest::collection::vec(0_u64..1000, 0..30), 1..6),
        mut flush_limits in proptest::collection::vec(0_u64..1000, 0..5),
        refused in proptest::collection::vec(0_usize..50, 5),
    ) {
        let mut refused = refused.into_iter();
        times.iter_mut().for_each(|ring| ring.sort_unstable());
        flush_limits.sort_unstable();
        flush_limits.push(u64::MAX);
        let mut expected: Vec<_> = times.concat();
        expected.sort_unstable();
        let format = SampleFormat::TIME | SampleFormat::TID;
        let layout = Layout::new(format.bits(), 0).unwrap();
        let mut rings: Vec<_> = times.iter().map(|ring| ForkRecords::new(ring)).collect();
        let mut merge = Merge::default();
        let mut flushed = Vec::new();
        for limit in flush_limits {
            let mut kept = refused.next().unwrap_or_default();
            let reached = merge.round(&mut rings, &layout, Nanos(limit), |time, _| {
                assert!(time.0 < limit);
                if limit < u64::MAX && kept == 0 {
                    return ControlFlow::Break(());
                }
                kept = kept.saturating_sub(1);
                flushed.push(time.0);
                ControlFlow::Continue(())
            });
            assert!(reached.0 <= limit && flushed.iter().all(|&time| time <= reached.0));
        }
        prop_assert_eq!(flushed, expected);
        prop_assert_eq!(merge.late(), 0);
    }

    /// Records may be late or in any order within their ring buffer.
    #[test]
    fn merge_counts_late_records_and_loses_none(
        times in proptest::collection::vec(proptest::collection::vec(0_u64..1000, 0..30), 1..6),
        flush_limits in proptest::collection::vec(0_u64..1000, 0..5),
    ) {
        let format = SampleFormat::TIME | SampleFormat::TID;
        let layout = Layout::new(format.bits(), 0).unwrap();
        let mut rings: Vec<_> = times.iter().map(|ring| ForkRecords::new(ring)).collect();
        let mut merge = Merge::default();
        let mut flushed = Vec::new();
        for limit in flush_limits.into_iter().chain([u64::MAX]) {
            merge.round(&mut rings, &layout, Nanos(limit), |time, _| {
                flushed.push(time.0);
                ControlFlow::Continue(())
            });
        }
        let newest = flushed.iter().scan(0, |newest, &time| {
            *newest = time.max(*newest);
            Some(*newest)
        });
        let late = flushed.iter().zip(newest).filter(|(time, newest)| *time < newest).count();
        prop_assert_eq!(merge.late(), late as u64);
        let mut expected = times.concat();
        expected.sort_unstable();
        flushed.sort_unstable();
        prop_assert_eq!(flushed, expected);
    }
}

/// A queue of FORK records, newest last.
struct ForkRecords {
    records: Vec<Vec<u8>>,
    next: usize,
}

impl ForkRecords {
    fn new(times: &[u64]) -> Self {
        let fork = |time: &u64| {
            let mut body = vec![0; 24 + 8];
            body.extend(time.to_le_bytes());
            record(RecordType::FORK, 0, &body)
        };
        Self {
            records: times.iter().map(fork).collect(),
            next: 0,
        }
    }
}

impl RecordSource for ForkRecords {
    fn peek(&mut self) -> Option<&[u8]> {
        self.records.get(self.next).map(Vec::as_slice)
    }

    fn advance(&mut self) {
        self.next += 1;
    }
}
