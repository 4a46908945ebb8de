//! The in-memory state of a running capture: ids of code addresses and stacks.
//!
//! All rows go to the spool, which alone holds the samples.
//!
//! A system that runs new code all the time, such as a build, produces new stacks all the time. The
//! recorder drops its ids when they become too many. A repeated stack then gets a second id, which
//! costs only a few bytes of the spool.

use std::hash::BuildHasher;
use std::io::Write;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::code_address::CodeAddress;
use super::ids::{FrameId, ModuleId, StackId, ThreadId};
use super::quality::{Losses, Truncation};
use super::recent::RecentStacks;
use super::spool::{EventCodeRow, FileRow, SpoolEnd, SpoolRow, SpoolWriter};
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
/// Maximum number of assigned ids.
///
/// The remaining ids are for records that arrive after the request to stop the capture.
const MAX_IDS: u32 = u32::MAX - (1 << 28);

/// Writer of a running capture.
pub struct Recorder<W> {
    interned: Interned,
    files: SampledFiles,
    samples: u64,
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
}

impl Interned {
    /// Drops all entries if there are too many.
    fn make_room(&mut self) {
        if self.stacks.len() >= MAX_NODES || self.frames.len() >= MAX_FRAMES {
            self.forget();
        }
    }

    fn forget(&mut self) {
        *self = Self {
            first_frame: self.first_frame + self.frames.len() as u32,
            first_stack: self.first_stack + self.stacks.len() as u32,
            ..Self::default()
        };
    }

    /// Returns the spool's id of a row of `stacks`.
    fn stack_id(&self, row: StackId) -> StackId {
        match row {
            StackId::EMPTY => row,
            StackId(row) => StackId(self.first_stack + row),
        }
    }
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
            spool: SpoolWriter::new(spool, header),
        }
    }

    /// Returns the row of a code address.
    fn frame(&mut self, address: CodeAddress, source: &impl RowSource) -> FrameId {
        let Interned { frames, rows, .. } = &mut self.interned;
        let hash = |address: &CodeAddress| FxBuildHasher.hash_one(address);
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

    /// Writes the row of code that replaces other code at its addresses.
    pub fn replace_code(&mut self, row: &SpoolRow<'_>) {
        // Otherwise frames sampled before would represent this code, too.
        self.interned.forget();
        self.spool.put(row);
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
        recorder.interned.make_room();
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
        recorder.interned.make_room();
        let frame = recorder.frame(code, *source);
        let frame = FrameId(recorder.interned.first_frame + frame.0);
        if frame != row.frame {
            recorder
                .spool
                .put(&SpoolRow::EventCode(EventCodeRow { frame, ..row }));
        }
        frame
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
    use crate::trace::{Pid, ProcessId, RawTrace};

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

    #[test]
    fn bounds_memory_and_stores_repeated_stacks_once() {
        let mut spool = Vec::new();
        let mut recorder = Recorder::new(&mut spool, &Header::default());
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
