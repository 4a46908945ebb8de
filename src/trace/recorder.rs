//! What a running capture keeps in memory: code addresses and stacks that it may meet again, as ids. Everything goes on
//! to the spool, and samples are nowhere else.
//!
//! On a machine that runs ever new code (a build, say) there are ever new stacks, so what is known is forgotten when it
//! becomes too much. What comes again then gets a second id, which costs a few bytes of the spool and nothing else.

use std::hash::BuildHasher;
use std::io::Write;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::ids::{FrameId, ModuleId, ProcessId, StackId, ThreadId};
use super::quality::{Losses, Truncation};
use super::recent::RecentStacks;
use super::spool::{FileRow, SpoolEnd, SpoolRow, SpoolWriter};
use super::stack::StackTable;
use super::{Header, Sample};
use crate::ids::Nanos;

/// A code address before it has a name. Equal code in two processes that map the same file is one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeAddress {
    /// In the kernel.
    Kernel(u64),
    /// In a loaded ELF file: virtual address as the file states it.
    Elf(ModuleId, u64),
    /// In a mapped file, but in none of its ELF segments (a PE image, say): offset in the file.
    File(ModuleId, u64),
    /// In memory that holds code made at run time.
    Jit(ProcessId, u64),
    /// In no known mapping.
    Unmapped(ProcessId, u64),
    /// Stands for the callers a cut stack lacks.
    Cut(Truncation),
}

/// What a recorder is told of a file when its code is sampled first.
pub trait DescribeFile {
    /// The file of this handle.
    fn describe(&self, id: ModuleId) -> FileRow<'_>;
}

/// Stack nodes that are remembered; with their index some 20 bytes each.
const MAX_NODES: usize = 256 << 10;
/// Code addresses that are remembered; with their index some 30 bytes each.
const MAX_FRAMES: usize = 64 << 10;
/// Ids given out at most. The rest is for what still comes once the capture is told to end.
const MAX_IDS: u32 = u32::MAX - (1 << 28);

/// The growing capture.
pub struct Recorder<W> {
    known: Interned,
    files: SampledFiles,
    samples: u64,
    spool: SpoolWriter<W>,
}

/// What need not be told the spool again.
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
    /// Forgets everything, if it is too much.
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

    /// Id of a row of `stacks`.
    fn stack_id(&self, row: StackId) -> StackId {
        match row {
            StackId::EMPTY => row,
            StackId(row) => StackId(self.first_stack + row),
        }
    }
}

/// Files whose code was sampled; only these are in the spool, where they are counted from 0.
#[derive(Default)]
struct SampledFiles {
    order: Vec<ModuleId>,
    in_spool: Vec<Option<ModuleId>>,
}

impl<W: Write> Recorder<W> {
    /// Begins a recording.
    pub fn new(spool: W, header: &Header) -> Self {
        Self {
            known: Interned::default(),
            files: SampledFiles::default(),
            samples: 0,
            spool: SpoolWriter::new(spool, header),
        }
    }

    /// Row of a code address.
    fn frame(&mut self, address: CodeAddress, files: &impl DescribeFile) -> FrameId {
        let Interned { frames, rows, .. } = &mut self.known;
        let hash = |address: &CodeAddress| FxBuildHasher.hash_one(address);
        let same = |row: &u32| frames[*row as usize] == address;
        if let Some(&row) = rows.find(hash(&address), same) {
            return FrameId(row);
        }
        let row = frames.len() as u32;
        frames.push(address);
        rows.insert_unique(hash(&address), row, |&row| hash(&frames[row as usize]));
        let spooled = match address {
            CodeAddress::Elf(id, address) => CodeAddress::Elf(self.file(id, files), address),
            CodeAddress::File(id, offset) => CodeAddress::File(self.file(id, files), offset),
            other => other,
        };
        self.spool.put(&SpoolRow::Frame(spooled));
        FrameId(row)
    }

    /// Handle of a file in the spool.
    fn file(&mut self, id: ModuleId, files: &impl DescribeFile) -> ModuleId {
        let SampledFiles { order, in_spool } = &mut self.files;
        if in_spool.len() <= id.index() {
            in_spool.resize(id.index() + 1, None);
        }
        *in_spool[id.index()].get_or_insert_with(|| {
            self.spool.put(&SpoolRow::File(files.describe(id)));
            order.push(id);
            ModuleId(order.len() as u32 - 1)
        })
    }

    /// Handle of a thread's stack given from the leaf to the root; `cut` tells why it ends before its root, if it does.
    pub fn stack(
        &mut self,
        thread: ThreadId,
        leaf_first: &[CodeAddress],
        cut: Option<Truncation>,
        files: &impl DescribeFile,
    ) -> StackId {
        self.known.make_room();
        let root = cut.map(CodeAddress::Cut);
        let root_first = root.into_iter().chain(leaf_first.iter().rev().copied());
        let mut recent = self.known.recent.take(thread);
        let (common, shared) = recent.keep_common(root_first.clone());
        let stack = root_first.skip(common).fold(shared, |parent, address| {
            let stack = self.node(parent, address, files);
            recent.push(address, stack);
            stack
        });
        self.known.recent.put_back(recent);
        self.known.stack_id(stack)
    }

    /// The stack that has `address` called from `parent`.
    fn node(
        &mut self,
        parent: StackId,
        address: CodeAddress,
        files: &impl DescribeFile,
    ) -> StackId {
        let frame = self.frame(address, files);
        let known = &mut self.known;
        let count = known.stacks.len();
        let stack = known.stacks.push(parent, frame);
        if stack.index() == count {
            let frame = FrameId(known.first_frame + frame.0);
            self.spool
                .put(&SpoolRow::Node(known.stack_id(parent), frame));
        }
        stack
    }

    /// Forgets which code addresses and stacks were met, because one of them stands for something else from now on.
    pub fn forget(&mut self) {
        self.known.forget();
    }

    /// Keeps a sample. Samples come in order of time; its thread must have been recorded.
    pub fn push(&mut self, sample: Sample) {
        self.spool.put(&SpoolRow::Sample(sample));
        self.samples += 1;
    }

    /// Records a process, a thread or what has become of one.
    pub fn put(&mut self, row: &SpoolRow<'_>) {
        self.spool.put(row);
    }

    /// Tells the time and the losses so far.
    pub fn tick(&mut self, now: Nanos, losses: &Losses) {
        self.spool.tick(now, losses);
    }

    /// Samples so far.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Bytes of the spool so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.spool.bytes()
    }

    /// Why the spool does not grow, if it does not.
    #[must_use]
    pub fn error(&self) -> Option<&std::io::Error> {
        self.spool.error()
    }

    /// Whether the spool can grow no further.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.spool.error().is_some() || self.known.first_stack > MAX_IDS
    }

    /// Ends the recording: the spool, and the files in the order it counts them.
    #[must_use]
    pub fn finish(self, now: Nanos, losses: &Losses) -> (SpoolEnd, Vec<ModuleId>) {
        (self.spool.finish(now, losses), self.files.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Pid, RawTrace};

    struct NoFiles;

    impl DescribeFile for NoFiles {
        fn describe(&self, _: ModuleId) -> FileRow<'_> {
            FileRow {
                path: b"".into(),
                pid: Pid(1),
                identity: None,
                build_id: b"".into(),
            }
        }
    }

    #[test]
    fn ever_new_stacks_take_no_ever_growing_memory_and_old_ones_are_there_once() {
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
            let stack = recorder.stack(ThreadId(0), &code, None, &NoFiles);
            recorder.push(Sample {
                time: Nanos(sample),
                stack,
                ..Sample::default()
            });
            assert!(recorder.known.frames.len() < MAX_FRAMES + 3);
            assert!(recorder.known.stacks.len() < MAX_NODES + 3);
        }
        assert!(recorder.known.first_frame > 0 && recorder.known.first_stack > 0);
        let _ = recorder.finish(Nanos(2 * SAMPLES), &Losses::default());
        let recording = RawTrace::read(&spool[..]).unwrap();
        assert_eq!(recording.samples.len() as u64, 2 * SAMPLES);
        assert_eq!(recording.frames.len() as u64, SAMPLES + SAMPLES / 2 + 1);
        assert_eq!(recording.stacks.len() as u64, SAMPLES + SAMPLES / 2 + 1);
        assert_eq!(recording.files.len(), 1);
        for sample in recording.samples.iter() {
            let frames = recording.stacks.leaf_first(sample.stack);
            let frames: Vec<_> = frames
                .map(|frame| recording.frames[frame.index()])
                .collect();
            let mut expected = code(sample.time.0 % SAMPLES);
            expected[0] = CodeAddress::Elf(ModuleId(0), sample.time.0 % SAMPLES);
            assert_eq!(frames, expected);
        }
    }
}
