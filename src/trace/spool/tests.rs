#![allow(clippy::unwrap_used)]

use std::io::{self, Write};

use proptest::prelude::*;

use super::codec::Codec;
use super::*;
use crate::trace::{
    BlockIo, CodeAddress, Cpu, FrameId, Losses, MAX_WEIGHT_NS, ModuleId, Nanos, Notice, NoticeKind,
    Pid, ProcessId, Recorder, RowSource, Sample, StackId, ThreadId, Tid, Truncation, Waker,
};

struct Files;

impl RowSource for Files {
    fn write_rows<W: Write>(&mut self, _: &mut Recorder<W>) {}

    fn file_row(&self, id: ModuleId) -> FileRow<'_> {
        FileRow {
            path: format!("/lib/{id}").into_bytes().into(),
            pid: Pid(7),
            identity: Some(FileIdentity {
                device: 1,
                inode: u64::from(id.0),
                size: 3,
                modified: 4,
            }),
            build_id: vec![id.0 as u8; 20].into(),
        }
    }
}

/// Input of one sample of a test.
type SampleInput = (u64, u32, u32, Vec<(u8, u32, u64)>, Option<usize>);

fn inputs() -> impl Strategy<Value = Vec<SampleInput>> {
    let frame = (0..8_u8, 0..4_u32, prop_oneof![0..9_u64, any::<u64>()]);
    let sample = (
        prop_oneof![0..3_000_000_u64, any::<u64>()],
        0..3_u32,
        prop_oneof![0..4_u32, any::<u32>()],
        proptest::collection::vec(frame, 0..8),
        proptest::option::of(0..Truncation::ALL.len()),
    );
    proptest::collection::vec(sample, 0..60)
}

fn code((kind, id, address): (u8, u32, u64)) -> CodeAddress {
    match kind {
        0 => CodeAddress::Kernel(address),
        1 => CodeAddress::Elf(ModuleId(id), address),
        2 => CodeAddress::File(ModuleId(id), address),
        3 => CodeAddress::Jit(ProcessId(id % 2), address),
        4 => CodeAddress::Unmapped(ProcessId(id % 2), address),
        5 => CodeAddress::Waker(Waker::Thread(ThreadId(id % 3))),
        6 => CodeAddress::Waker(Waker::Outsider(0)),
        _ => CodeAddress::Waker(Waker::Interrupt),
    }
}

/// Returns a spool of these samples with a block after every `interval` samples, and the end of
/// each block.
fn spool(inputs: &[SampleInput], interval: usize) -> (Vec<u8>, Vec<usize>) {
    let mut file = Vec::new();
    let mut ends = Vec::new();
    let mut out = Shared(&mut file, &mut ends);
    let mut recorder = Recorder::new(&mut out, &Header::default());
    for pid in [7, -1] {
        recorder.put(&SpoolRow::Process {
            pid: Pid(pid),
            name: b"process",
            command_line: b"a b",
        });
    }
    for tid in 0..3 {
        recorder.put(&SpoolRow::Thread {
            process: ProcessId(1),
            tid: Tid(tid),
            name: b"thread",
        });
    }
    recorder.put(&SpoolRow::ThreadName(ThreadId(2), b"renamed"));
    recorder.put(&SpoolRow::Outsider {
        pid: Pid(9),
        name: b"other",
    });
    recorder.put(&SpoolRow::ProcessEnd(ProcessId(1), Nanos(5)));
    let mut now = 0;
    for (index, (time, thread, cpu, frames, truncation)) in inputs.iter().enumerate() {
        let leaf_first: Vec<_> = frames.iter().copied().map(code).collect();
        let mut source = Files;
        let mut writer = recorder.sample_writer(&mut source);
        let truncation = truncation.map(|at| Truncation::ALL[at]);
        let stack = writer.stack(ThreadId(*thread), &leaf_first, truncation);
        let sample = Sample {
            time: Nanos(*time),
            weight: Nanos(1000 + u64::from(cpu % 2)),
            thread: ThreadId(*thread),
            cpu: Cpu(*cpu),
            stack,
        };
        writer.push(sample);
        // They are as the samples, each of them one thread further.
        let thread = ThreadId((thread + 1) % 3);
        writer.push_faults(Sample { thread, ..sample });
        let cpu = Cpu(cpu.wrapping_add(1));
        writer.push_wakeups(Sample { cpu, ..sample });
        if index % interval == interval - 1 {
            now += 500_000_000;
            recorder.tick(Nanos(now), &Losses::default());
        }
    }
    let mut losses = Losses::default();
    losses.count_samples(Cpu(1), 3, Nanos(now));
    losses.pauses.start(Cpu(1), Nanos(5));
    losses.pauses.end(Cpu(1), Nanos(8));
    let (end, _) = recorder.finish(Nanos(now), &losses);
    assert!(end.error.is_none() && end.kept.is_empty());
    (file, ends)
}

/// Writer that records where each write ends.
struct Shared<'a>(&'a mut Vec<u8>, &'a mut Vec<usize>);

impl Write for Shared<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        self.1.push(self.0.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the frames of a sample with the paths of their files, as file ids differ in a spool.
fn frames(trace: &RawTrace, sample: &Sample) -> Vec<String> {
    let name = |code| match code {
        CodeAddress::Elf(id, at) => format!("elf {:?} {at}", trace.files[id.index()].path),
        CodeAddress::File(id, at) => format!("file {:?} {at}", trace.files[id.index()].path),
        other => format!("{other:?}"),
    };
    let frames = trace.stacks.leaf_first(sample.stack);
    frames
        .map(|frame| name(trace.frames[frame.index()]))
        .collect()
}

fn expected((.., leaf_first, truncation): &SampleInput) -> Vec<String> {
    let path = |id: u32| Files.file_row(ModuleId(id)).path.into_owned();
    let name = |frame: &_| match code(*frame) {
        CodeAddress::Elf(id, at) => format!("elf {:?} {at}", path(id.0)),
        CodeAddress::File(id, at) => format!("file {:?} {at}", path(id.0)),
        other => format!("{other:?}"),
    };
    let truncation =
        truncation.map(|at| format!("{:?}", CodeAddress::Truncated(Truncation::ALL[at])));
    leaf_first.iter().map(name).chain(truncation).collect()
}

/// Checks that the samples are the first of the input.
fn check_prefix(trace: &RawTrace, inputs: &[SampleInput]) -> Result<(), TestCaseError> {
    prop_assert!(trace.samples.len() <= inputs.len());
    for (sample, input) in trace.samples.iter().zip(inputs) {
        prop_assert_eq!(
            (sample.time.0, sample.thread.0, sample.cpu.0),
            (input.0, input.1, input.2)
        );
        prop_assert_eq!(sample.weight.0, 1000 + u64::from(input.2 % 2));
        prop_assert_eq!(frames(trace, &sample), expected(input));
    }
    prop_assert_eq!(trace.faults.len(), trace.samples.len());
    for (faults, sample) in trace.faults.iter().zip(trace.samples.iter()) {
        let thread = ThreadId((sample.thread.0 + 1) % 3);
        prop_assert_eq!(faults, Sample { thread, ..sample });
    }
    prop_assert_eq!(trace.wakeups.len(), trace.samples.len());
    for (wakeups, sample) in trace.wakeups.iter().zip(trace.samples.iter()) {
        let cpu = Cpu(sample.cpu.0.wrapping_add(1));
        prop_assert_eq!(wakeups, Sample { cpu, ..sample });
    }
    let quality = &trace.quality;
    let counted = quality.samples();
    prop_assert_eq!(counted, trace.samples.len() as u64);
    Ok(())
}

proptest! {
    #[test]
    fn spool_round_trips(inputs in inputs(), interval in 1..20_usize) {
        let (file, _) = spool(&inputs, interval);
        let trace = RawTrace::read(&file[..]).unwrap();
        prop_assert_eq!(&trace.ending, &Ending::Complete);
        prop_assert_eq!(trace.samples.len(), inputs.len());
        check_prefix(&trace, &inputs)?;
        prop_assert_eq!(trace.bytes, file.len() as u64);
        prop_assert_eq!(trace.losses.lost_samples, 3);
        prop_assert_eq!(trace.losses.by_cpu[0].samples, 3);
        prop_assert_eq!(trace.losses.pauses.paused_ns(), 3);
        prop_assert_eq!(&*trace.threads[2].name, "renamed");
        let truncated = inputs.iter().filter(|(.., truncation)| truncation.is_some()).count();
        prop_assert_eq!(trace.quality.truncated(), truncated as u64);
    }

    #[test]
    fn truncated_spool_yields_all_whole_blocks(inputs in inputs(), interval in 1..20_usize, at: prop::sample::Index) {
        let (file, ends) = spool(&inputs, interval);
        let len = at.index(file.len());
        let read = RawTrace::read(&file[..len]);
        let whole = ends.iter().copied().filter(|&end| end <= len).max();
        let Some(whole) = whole else {
            prop_assert!(read.is_err());
            return Ok(());
        };
        let trace = read.unwrap();
        check_prefix(&trace, &inputs)?;
        prop_assert_eq!(trace.bytes, whole as u64);
        if whole < len {
            let is_corrupt = matches!(trace.ending, Ending::Damaged { at, .. } if at == whole as u64);
            prop_assert!(is_corrupt, "{:?}", trace.ending);
        } else {
            prop_assert_eq!(&trace.ending, &Ending::Open);
        }
    }

    #[test]
    fn corrupt_spool_yields_all_blocks_before_the_corruption(
    inputs in inputs(),
    interval in 1..20_usize,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 1..4),
    ) {
        let (mut file, ends) = spool(&inputs, interval);
        let whole = file.clone();
        for (at, flip) in &flips {
            file[at.index(whole.len())] ^= flip;
        }
        let corrupt = (0..file.len()).find(|&at| file[at] != whole[at]);
        let Ok(trace) = RawTrace::read(&file[..]) else {
            prop_assert!(corrupt.is_some_and(|at| at < ends[0]));
            return Ok(());
        };
        check_prefix(&trace, &inputs)?;
        if let Some(corrupt) = corrupt {
            let before = ends.iter().copied().filter(|&end| end <= corrupt).max();
            prop_assert_eq!(trace.bytes, before.unwrap_or_default() as u64);
        }
    }

    #[test]
    fn accepts_any_rows_without_panic(rows: Vec<u8>) {
    // Anyone can compute a checksum, so rows may contain anything.
        let file = pack_rows(&rows);
        let trace = RawTrace::read(&file[..]).unwrap();
        for sample in trace.samples.iter() {
            frames(&trace, &sample);
            prop_assert!(sample.thread.index() < trace.threads.len());
        }
    }

    #[test]
    fn rejects_any_bytes_without_panic(bytes: Vec<u8>) {
        prop_assert!(RawTrace::read(&bytes[..]).is_err());
    }
}

/// Writer that accepts a limited number of bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.min(bytes.len()) {
            0 => Err(io::ErrorKind::StorageFull.into()),
            taken => {
                self.0 -= taken;
                Ok(taken)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn keeps_blocks_that_the_disk_rejects() {
    let mut recorder = Recorder::new(Full(1000), &Header::default());
    recorder.put(&SpoolRow::Process {
        pid: Pid(1),
        name: b"",
        command_line: b"",
    });
    recorder.put(&SpoolRow::Thread {
        process: ProcessId(0),
        tid: Tid(1),
        name: b"",
    });
    let mut pushed = 0;
    while !recorder.is_exhausted() {
        let mut source = Files;
        let mut writer = recorder.sample_writer(&mut source);
        let stack = writer.stack(ThreadId(0), &[CodeAddress::Kernel(pushed)], None);
        writer.push(Sample {
            time: Nanos(pushed * 7919 * 7919),
            stack,
            ..Sample::default()
        });
        pushed += 1;
        recorder.tick(Nanos(pushed * 50_000_000), &Losses::default());
    }
    let (end, _) = recorder.finish(Nanos(1), &Losses::default());
    assert_eq!(end.error.unwrap().kind(), io::ErrorKind::StorageFull);
    assert!((1..1000).contains(&end.written) && !end.kept.is_empty());
}

/// Returns a trace of a process with a thread, and these rows of that thread.
fn of_one_thread(rows: &[SpoolRow<'_>]) -> RawTrace {
    let process = SpoolRow::Process {
        pid: Pid(1),
        name: b"",
        command_line: b"",
    };
    let thread = SpoolRow::Thread {
        process: ProcessId(0),
        tid: Tid(1),
        name: b"",
    };
    let mut codec = Codec::default();
    let mut out = Vec::new();
    for row in [process, thread].iter().chain(rows) {
        codec.encode(row, &mut out);
    }
    RawTrace::read(&pack_rows(&out)[..]).unwrap()
}

#[test]
fn rejects_weights_that_no_capture_has() {
    let weighing = |time, weight| Sample {
        time: Nanos(time),
        weight: Nanos(weight),
        stack: StackId::EMPTY,
        ..Sample::default()
    };
    for bad in [
        SpoolRow::Sample(weighing(5, MAX_WEIGHT_NS + 1)),
        SpoolRow::Blocked(weighing(5, 6)),
        SpoolRow::Blocked(weighing(5, u64::MAX)),
    ] {
        let good = [
            SpoolRow::Sample(weighing(5, MAX_WEIGHT_NS)),
            SpoolRow::Blocked(weighing(5, 5)),
        ];
        let [sample, wait] = good;
        let trace = of_one_thread(&[sample, wait, bad]);
        let is_damaged =
            matches!(&trace.ending, Ending::Damaged { why, .. } if why.contains("weight"));
        assert!(is_damaged, "{:?}", trace.ending);
        assert_eq!((trace.samples.len(), trace.blocked.len()), (1, 1));
    }
}

#[test]
fn sums_of_weights_never_overflow() {
    let wait = |weight| {
        SpoolRow::Blocked(Sample {
            time: Nanos(u64::MAX),
            weight: Nanos(weight),
            stack: StackId::EMPTY,
            ..Sample::default()
        })
    };
    let trace = of_one_thread(&[wait(5), wait(u64::MAX - 3), wait(u64::MAX)]);
    assert_eq!(trace.ending, Ending::Open);
    let weights: Vec<u64> = trace.blocked.iter().map(|wait| wait.weight.0).collect();
    assert_eq!(weights, [5, u64::MAX - 5, 0]);
}

#[test]
fn rejects_references_to_what_was_forgotten() {
    let mut codec = Codec::default();
    let mut rows = Vec::new();
    for row in [
        SpoolRow::Frame(CodeAddress::Kernel(1)),
        SpoolRow::Node(StackId::EMPTY, FrameId(0)),
        SpoolRow::Forget,
        SpoolRow::Frame(CodeAddress::Kernel(1)),
    ] {
        codec.encode(&row, &mut rows);
    }
    let read = |parent, frame| {
        let mut rows = rows.clone();
        let node = SpoolRow::Node(parent, frame);
        codec.clone().encode(&node, &mut rows);
        RawTrace::read(&pack_rows(&rows)[..]).unwrap()
    };
    let trace = read(StackId::EMPTY, FrameId(1));
    assert_eq!(trace.ending, Ending::Open);
    assert_eq!((trace.frames.len(), trace.stacks.len()), (1, 1));
    for (parent, frame) in [(StackId(0), FrameId(1)), (StackId::EMPTY, FrameId(0))] {
        let ending = read(parent, frame).ending;
        assert!(matches!(ending, Ending::Damaged { .. }), "{ending:?}");
    }
}

#[test]
fn results_replace_the_header() {
    let mut results = Header::default();
    results.info.end = "signal".into();
    results.info.block_io = Some(BlockIo {
        incomplete: 7,
        ..BlockIo::default()
    });
    results.notices = vec![Notice::new(NoticeKind::RecordsLost, "lost", "")];
    let read = |results: &Header| {
        let mut file = Vec::new();
        let mut writer = SpoolWriter::new(&mut file, &Header::default());
        writer.put(&SpoolRow::results(results).unwrap());
        let _ = writer.finish(Nanos(5), &Losses::default());
        RawTrace::read(&file[..]).unwrap()
    };
    let trace = read(&results);
    assert_eq!((&trace.header, trace.end), (&results, Nanos(5)));
    // What does not fit a row is left out.
    let notice = results.notices[0].clone();
    results.notices = vec![notice; 10_000];
    let trace = read(&results);
    assert_eq!(trace.header.info, results.info);
    assert!(trace.header.notices.is_empty() && trace.ending == Ending::Complete);
}

#[test]
fn reports_empty_spool() {
    assert!(matches!(RawTrace::read(&[][..]), Err(SpoolError::Empty)));
}

#[test]
fn reports_another_version() {
    let error = RawTrace::read(&b"PCS9----------------"[..]).err().unwrap();
    assert!(error.to_string().contains("another version"), "{error}");
}
