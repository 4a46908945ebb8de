//! The in-memory state of a running capture: ids of code addresses and stacks.
//!
//! All rows go to the spool, which alone holds the samples.
//!
//! A system that runs new code all the time, such as a build, produces new stacks all the time. The
//! recorder drops its ids when they become too many. A repeated stack then gets a second id, which
//! costs only a few bytes of the spool.

use std::hash::BuildHasher;
use std::io::Write;
use std::ops::Range;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::code_address::CodeAddress;
use super::ids::{FrameId, ModuleId, ProcessId, StackId, ThreadId};
use super::quality::{Losses, Truncation};
use super::recent::RecentStacks;
use super::spool::{EventCodeRow, FileRow, KsymbolRow, MethodRow, SpoolEnd, SpoolRow, SpoolWriter};
use super::stack::StackTable;
use super::{Header, Sample};
use crate::ids::Nanos;

/// Source of the rows that stacks and samples refer to.
pub trait RowSource {
    /// Writes the rows that are new since the last call: processes, threads and JIT code.
    fn write_rows<W: Write>(&mut self, recorder: &mut Recorder<W>);

    /// Returns the row of a file. The recorder writes it when code of the file is first sampled.
    fn file_row(&self, id: ModuleId) -> FileRow<'_>;
}

/// Maximum number of interned stack nodes; with their index some 20 bytes each.
const MAX_NODES: usize = 128 << 10;
/// Maximum number of interned code addresses; with their index some 30 bytes each.
const MAX_FRAMES: usize = 32 << 10;
/// Maximum number of steps to drop replaced code, before all code addresses are dropped at once.
///
/// A target that replaces code all the time must not delay the samples of others.
const MAX_DROP_WORK: u64 = 4 * MAX_FRAMES as u64;
/// Maximum number of assigned ids.
///
/// The remaining ids are for records that arrive after the request to stop the capture.
const MAX_IDS: u32 = u32::MAX - (1 << 28);

/// Writer of a running capture.
pub struct Recorder<W> {
    interned: Interned,
    files: SampledFiles,
    samples: u64,
    waits: u64,
    other_samples: u64,
    spool: SpoolWriter<W>,
}

/// Writer of stacks and samples, after the rows that they refer to.
///
/// [`Recorder::sample_writer`] has written all rows of the source. The writer borrows the source
/// and the recorder, so that no other row can be written in between:
///
/// ```compile_fail,E0499
/// use perfcollect::trace::{Recorder, RowSource, ThreadId};
///
/// fn sample(recorder: &mut Recorder<Vec<u8>>, source: &mut impl RowSource) {
///     let mut writer = recorder.sample_writer(source);
///     source.write_rows(recorder);
///     writer.stack(ThreadId(0), &[], None);
/// }
/// ```
pub struct SampleWriter<'a, W, S> {
    recorder: &'a mut Recorder<W>,
    source: &'a S,
}

/// Code addresses and stacks that the spool already contains.
#[derive(Default)]
struct Interned {
    frames: Vec<CodeAddress>,
    rows: HashTable<u32>,
    stacks: StackTable,
    recent: RecentStacks,
    /// Id of the first of `frames`.
    first_frame: u32,
    /// Id of the first of `stacks`.
    first_stack: u32,
    /// Number of steps that [`Self::drop_code`] took since it last dropped everything.
    drop_work: u64,
}

impl Interned {
    fn is_full(&self) -> bool {
        self.stacks.len() >= MAX_NODES || self.frames.len() >= MAX_FRAMES
    }

    fn forget(&mut self) {
        *self = Self {
            first_frame: self.first_frame + self.frames.len() as u32,
            first_stack: self.first_stack + self.stacks.len() as u32,
            ..Self::default()
        };
    }

    /// Drops JIT code addresses of a process, so that new code there gets new frames.
    ///
    /// Stacks keep their ids: the caller may still push a sample with one.
    fn drop_code(&mut self, process: ProcessId, addresses: Range<u64>) {
        let Self {
            frames,
            rows,
            recent,
            drop_work,
            ..
        } = self;
        *recent = RecentStacks::default();
        let size = addresses.end.saturating_sub(addresses.start);
        let known = rows.len() as u64;
        *drop_work += size.min(known);
        if *drop_work > MAX_DROP_WORK {
            *drop_work = 0;
            rows.clear();
        } else if size > known {
            let is_dropped = |code| matches!(code, CodeAddress::Jit(of, at) if of == process && addresses.contains(&at));
            rows.retain(|&mut row| !is_dropped(frames[row as usize]));
        } else {
            for code in addresses.map(|address| CodeAddress::Jit(process, address)) {
                let is_same = |row: &u32| frames[*row as usize] == code;
                if let Ok(known) = rows.find_entry(hash(&code), is_same) {
                    known.remove();
                }
            }
        }
    }

    /// Returns the spool's id of a row of `stacks`.
    fn stack_id(&self, row: StackId) -> StackId {
        match row {
            StackId::EMPTY => row,
            StackId(row) => StackId(self.first_stack + row),
        }
    }
}

fn hash(address: &CodeAddress) -> u64 {
    FxBuildHasher.hash_one(address)
}

/// Files with sampled code. The spool contains only these, with ids from 0.
#[derive(Default)]
struct SampledFiles {
    order: Vec<ModuleId>,
    in_spool: Vec<Option<ModuleId>>,
}

impl<W: Write> Recorder<W> {
    /// Starts a capture.
    pub fn new(spool: W, header: &Header) -> Self {
        Self {
            interned: Interned::default(),
            files: SampledFiles::default(),
            samples: 0,
            waits: 0,
            other_samples: 0,
            spool: SpoolWriter::new(spool, header),
        }
    }

    /// Returns the row of a code address.
    fn frame(&mut self, address: CodeAddress, source: &impl RowSource) -> FrameId {
        let Interned { frames, rows, .. } = &mut self.interned;
        let same = |row: &u32| frames[*row as usize] == address;
        if let Some(&row) = rows.find(hash(&address), same) {
            return FrameId(row);
        }
        let row = frames.len() as u32;
        frames.push(address);
        rows.insert_unique(hash(&address), row, |&row| hash(&frames[row as usize]));
        let spooled = match address {
            CodeAddress::Elf(id, address) => CodeAddress::Elf(self.file(id, source), address),
            CodeAddress::File(id, offset) => CodeAddress::File(self.file(id, source), offset),
            other => other,
        };
        self.spool.put(&SpoolRow::Frame(spooled));
        FrameId(row)
    }

    /// Returns the handle of a file in the spool.
    fn file(&mut self, id: ModuleId, source: &impl RowSource) -> ModuleId {
        let SampledFiles { order, in_spool } = &mut self.files;
        if in_spool.len() <= id.index() {
            in_spool.resize(id.index() + 1, None);
        }
        *in_spool[id.index()].get_or_insert_with(|| {
            self.spool.put(&SpoolRow::File(source.file_row(id)));
            order.push(id);
            ModuleId(order.len() as u32 - 1)
        })
    }

    /// Interns the stack in which `parent` calls `address`.
    fn node(&mut self, parent: StackId, address: CodeAddress, source: &impl RowSource) -> StackId {
        let frame = self.frame(address, source);
        let interned = &mut self.interned;
        let count = interned.stacks.len();
        let stack = interned.stacks.push(parent, frame);
        if stack.index() == count {
            let frame = FrameId(interned.first_frame + frame.0);
            self.spool
                .put(&SpoolRow::Node(interned.stack_id(parent), frame));
        }
        stack
    }

    /// Writes the new rows of a source. Then stacks and samples can refer to them.
    pub fn sample_writer<'a, S: RowSource>(
        &'a mut self,
        source: &'a mut S,
    ) -> SampleWriter<'a, W, S> {
        source.write_rows(self);
        SampleWriter {
            recorder: self,
            source,
        }
    }

    /// Writes a row.
    ///
    /// Any row is possible at any time, so the caller must write it before the rows that refer to
    /// it. Stacks and samples are written by [`SampleWriter`].
    pub fn put(&mut self, row: &SpoolRow<'_>) {
        self.spool.put(row);
    }

    /// Writes the row of a method that replaces other code. `addresses` are those of both.
    ///
    /// Code there gets new frames: those of the old code do not represent it.
    pub fn replace_method(&mut self, row: MethodRow<'_>, addresses: Range<u64>) {
        self.interned.drop_code(row.process, addresses);
        self.spool.put(&SpoolRow::Method(row));
    }

    /// Writes the row of kernel code that replaces other code, or was unregistered.
    pub fn replace_kernel_code(&mut self, row: KsymbolRow<'_>) {
        self.forget();
        self.spool.put(&SpoolRow::Ksymbol(row));
    }

    /// Returns whether samples may still refer to a stack that [`SampleWriter::stack`] returned.
    #[must_use]
    pub fn has_stack(&self, stack: StackId) -> bool {
        stack == StackId::EMPTY || stack.0 >= self.interned.first_stack
    }

    /// Drops all code addresses and stacks if there are too many.
    fn make_room(&mut self) {
        if self.interned.is_full() {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.interned.forget();
        self.spool.put(&SpoolRow::Forget);
    }

    /// Passes on the time and the losses so far.
    pub fn tick(&mut self, now: Nanos, losses: &Losses) {
        self.spool.tick(now, losses);
    }

    /// Returns the number of samples so far.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the number of times without a CPU so far.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// Returns the number of samples of page faults and wake-ups so far.
    #[must_use]
    pub fn other_samples(&self) -> u64 {
        self.other_samples
    }

    /// Returns the size of the spool so far, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.spool.bytes()
    }

    /// Returns the error that stopped the growth of the spool, if any.
    #[must_use]
    pub fn error(&self) -> Option<&std::io::Error> {
        self.spool.error()
    }

    /// Returns whether the spool cannot grow further.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        let Interned {
            first_frame,
            first_stack,
            ..
        } = self.interned;
        self.spool.error().is_some() || first_frame.max(first_stack) > MAX_IDS
    }

    /// Finishes the spool. Returns its end, and the files in the order of their ids in the spool.
    #[must_use]
    pub fn finish(self, now: Nanos, losses: &Losses) -> (SpoolEnd, Vec<ModuleId>) {
        (self.spool.finish(now, losses), self.files.order)
    }
}

impl<W: Write, S: RowSource> SampleWriter<'_, W, S> {
    /// Interns the stack of a thread, given from the leaf to the root.
    ///
    /// `truncation` is the reason if the stack ends before its root.
    pub fn stack(
        &mut self,
        thread: ThreadId,
        leaf_first: &[CodeAddress],
        truncation: Option<Truncation>,
    ) -> StackId {
        let Self { recorder, source } = self;
        recorder.make_room();
        let root = truncation.map(CodeAddress::Truncated);
        let root_first = root.into_iter().chain(leaf_first.iter().rev().copied());
        let mut recent = recorder.interned.recent.take(thread);
        let (common, shared) = recent.keep_common(root_first.clone());
        let stack = root_first.skip(common).fold(shared, |parent, address| {
            let stack = recorder.node(parent, address, *source);
            recent.push(address, stack);
            stack
        });
        recorder.interned.recent.put_back(recent);
        recorder.interned.stack_id(stack)
    }

    /// Writes the row of an address in the stacks of events, unless its frame is that of `code`.
    ///
    /// Returns the frame of `code`, which may be another one for the same code.
    pub fn event_code(&mut self, row: EventCodeRow, code: CodeAddress) -> FrameId {
        let Self { recorder, source } = self;
        recorder.make_room();
        let frame = recorder.frame(code, *source);
        let frame = FrameId(recorder.interned.first_frame + frame.0);
        if frame != row.frame {
            recorder
                .spool
                .put(&SpoolRow::EventCode(EventCodeRow { frame, ..row }));
        }
        frame
    }

    /// Writes the time for which a thread waited.
    ///
    /// These times must be in the order of their ends.
    pub fn push_blocked(&mut self, wait: Sample) {
        self.recorder.spool.put(&SpoolRow::Blocked(wait));
        self.recorder.waits += 1;
    }

    /// Writes a sample of page faults, whose weight is their number.
    ///
    /// These samples must be in order of time.
    pub fn push_faults(&mut self, sample: Sample) {
        self.recorder.spool.put(&SpoolRow::Faults(sample));
        self.recorder.other_samples += 1;
    }

    /// Writes a sample of wake-ups, see [`SpoolRow::Wakeups`].
    ///
    /// These samples must be in order of time.
    pub fn push_wakeups(&mut self, sample: Sample) {
        self.recorder.spool.put(&SpoolRow::Wakeups(sample));
        self.recorder.other_samples += 1;
    }

    /// Writes a sample.
    ///
    /// Samples must be in order of time.
    pub fn push(&mut self, sample: Sample) {
        self.recorder.spool.put(&SpoolRow::Sample(sample));
        self.recorder.samples += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::spool::Ending;
    use crate::trace::{Pid, RawTrace};

    struct NoFiles;

    impl RowSource for NoFiles {
        fn write_rows<W: Write>(&mut self, _: &mut Recorder<W>) {}

        fn file_row(&self, _: ModuleId) -> FileRow<'_> {
            FileRow {
                path: b"".into(),
                pid: Pid(1),
                identity: None,
                build_id: b"".into(),
            }
        }
    }

    fn recorder_of_one_thread(spool: &mut Vec<u8>) -> Recorder<&mut Vec<u8>> {
        let mut recorder = Recorder::new(spool, &Header::default());
        recorder.put(&SpoolRow::Process {
            pid: Pid(1),
            name: b"",
            command_line: b"",
        });
        recorder.put(&SpoolRow::Thread {
            process: ProcessId(0),
            tid: super::super::Tid(1),
            name: b"",
        });
        recorder
    }

    #[test]
    fn replaced_code_gets_another_frame_and_other_code_keeps_its_own() {
        // Fewer addresses than frames: each is looked up. More: all frames are searched.
        for size in [2, 1 << 20] {
            let mut spool = Vec::new();
            let mut recorder = recorder_of_one_thread(&mut spool);
            let other = ProcessId(1);
            recorder.put(&SpoolRow::Process {
                pid: Pid(2),
                name: b"",
                command_line: b"",
            });
            let code = [
                CodeAddress::Jit(other, 1),
                CodeAddress::Jit(ProcessId(0), 1),
                CodeAddress::Kernel(1),
            ];
            let method = |name: &'static [u8]| MethodRow {
                process: ProcessId(0),
                start: 0,
                size,
                name: name.into(),
                module: b"".into(),
                tier: b"".into(),
            };
            recorder.put(&SpoolRow::Method(method(b"first")));
            let push = |recorder: &mut Recorder<_>| {
                let mut source = NoFiles;
                let mut writer = recorder.sample_writer(&mut source);
                let stack = writer.stack(ThreadId(0), &code, None);
                writer.push(Sample {
                    stack,
                    ..Sample::default()
                });
            };
            (0..2).for_each(|_| push(&mut recorder));
            recorder.replace_method(method(b"second"), 0..size);
            (0..2).for_each(|_| push(&mut recorder));
            assert_eq!(recorder.interned.frames.len(), 4, "{size}");
            recorder.replace_kernel_code(KsymbolRow {
                start: 0,
                size,
                unregistered: true,
                name: b"".into(),
                module: b"".into(),
            });
            push(&mut recorder);
            assert_eq!(recorder.interned.frames.len(), 3, "{size}");
            let _ = recorder.finish(Nanos(1), &Losses::default());
            let trace = RawTrace::read(&spool[..]).unwrap();
            let methods = trace.samples.iter().map(|sample| {
                let frame = trace.stacks.leaf_first(sample.stack).nth(1).unwrap();
                trace.methods.of(frame).unwrap().unwrap().name.clone()
            });
            let methods: Vec<_> = methods.collect();
            assert_eq!(
                methods,
                ["first", "first", "second", "second", "second"].map(Box::from)
            );
        }
    }

    #[test]
    fn a_stack_stays_valid_however_much_code_is_replaced() {
        let mut spool = Vec::new();
        let mut recorder = recorder_of_one_thread(&mut spool);
        let code = |address| [CodeAddress::Jit(ProcessId(0), address)];
        let mut source = NoFiles;
        for address in 0..1000 {
            let mut writer = recorder.sample_writer(&mut source);
            writer.stack(ThreadId(0), &code(address), None);
        }
        let mut writer = recorder.sample_writer(&mut source);
        let stack = writer.stack(ThreadId(0), &code(2000), None);
        let mut dropped = 0;
        for _ in 0..2 * MAX_DROP_WORK / 1000 {
            let row = MethodRow {
                process: ProcessId(0),
                start: 1 << 20,
                size: 1000,
                name: b"other".into(),
                module: b"".into(),
                tier: b"".into(),
            };
            recorder.replace_method(row, 1 << 20..(1 << 20) + 1000);
            dropped += u64::from(recorder.interned.rows.is_empty());
        }
        assert!(dropped > 0 && recorder.has_stack(stack));
        recorder.sample_writer(&mut source).push(Sample {
            stack,
            ..Sample::default()
        });
        let _ = recorder.finish(Nanos(1), &Losses::default());
        let trace = RawTrace::read(&spool[..]).unwrap();
        assert_eq!(trace.ending, Ending::Complete);
        assert_eq!(trace.samples.len(), 1);
    }

    #[test]
    fn bounds_memory_and_stores_repeated_stacks_once() {
        let mut spool = Vec::new();
        let mut recorder = recorder_of_one_thread(&mut spool);
        const SAMPLES: u64 = 150_000;
        let code = |sample: u64| {
            [
                CodeAddress::Elf(ModuleId(7), sample),
                CodeAddress::Kernel(sample / 2),
                CodeAddress::Kernel(1 << 40),
            ]
        };
        for sample in 0..2 * SAMPLES {
            let code = code(sample % SAMPLES);
            let mut source = NoFiles;
            let mut writer = recorder.sample_writer(&mut source);
            let stack = writer.stack(ThreadId(0), &code, None);
            writer.push(Sample {
                time: Nanos(sample),
                stack,
                ..Sample::default()
            });
            assert!(recorder.interned.frames.len() < MAX_FRAMES + 3);
            assert!(recorder.interned.stacks.len() < MAX_NODES + 3);
        }
        assert!(recorder.interned.first_frame > 0 && recorder.interned.first_stack > 0);
        let _ = recorder.finish(Nanos(2 * SAMPLES), &Losses::default());
        let trace = RawTrace::read(&spool[..]).unwrap();
        assert_eq!(trace.samples.len() as u64, 2 * SAMPLES);
        assert_eq!(trace.frames.len() as u64, SAMPLES + SAMPLES / 2 + 1);
        assert_eq!(trace.stacks.len() as u64, SAMPLES + SAMPLES / 2 + 1);
        assert_eq!(trace.files.len(), 1);
        for sample in trace.samples.iter() {
            let frames = trace.stacks.leaf_first(sample.stack);
            let frames: Vec<_> = frames.map(|frame| trace.frames[frame.index()]).collect();
            let mut expected = code(sample.time.0 % SAMPLES);
            expected[0] = CodeAddress::Elf(ModuleId(0), sample.time.0 % SAMPLES);
            assert_eq!(frames, expected);
        }
    }
}
