//! What a running capture keeps in memory: each code address and each stack once, as ids. Everything goes on to the
//! spool, and samples are nowhere else.

use std::hash::BuildHasher;
use std::io::Write;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::ids::{FrameId, ModuleId, Nanos, ProcessId, StackId};
use super::quality::{Losses, Truncation};
use super::spool::{FileRow, Row, SpoolEnd, SpoolWriter};
use super::stack::StackTable;
use super::{Header, Sample};

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

/// The growing capture.
pub struct Recorder<W> {
    frames: Vec<CodeAddress>,
    rows: HashTable<u32>,
    stacks: StackTable,
    files: SampledFiles,
    samples: u64,
    spool: SpoolWriter<W>,
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
            frames: Vec::new(),
            rows: HashTable::new(),
            stacks: StackTable::default(),
            files: SampledFiles::default(),
            samples: 0,
            spool: SpoolWriter::new(spool, header),
        }
    }

    /// Handle of a code address.
    fn frame(&mut self, address: CodeAddress, files: &impl DescribeFile) -> FrameId {
        let Self { frames, rows, .. } = self;
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
        self.spool.put(&Row::Frame(spooled));
        FrameId(row)
    }

    /// Handle of a file in the spool.
    fn file(&mut self, id: ModuleId, files: &impl DescribeFile) -> ModuleId {
        let SampledFiles { order, in_spool } = &mut self.files;
        if in_spool.len() <= id.index() {
            in_spool.resize(id.index() + 1, None);
        }
        *in_spool[id.index()].get_or_insert_with(|| {
            self.spool.put(&Row::File(files.describe(id)));
            order.push(id);
            ModuleId(order.len() as u32 - 1)
        })
    }

    /// Handle of a stack given from the leaf to the root; `cut` tells why it ends before its root, if it does.
    pub fn stack(
        &mut self,
        leaf_first: &[CodeAddress],
        cut: Option<Truncation>,
        files: &impl DescribeFile,
    ) -> StackId {
        let root = cut.map(CodeAddress::Cut);
        let root_first = root.into_iter().chain(leaf_first.iter().rev().copied());
        root_first.fold(StackId::EMPTY, |parent, address| {
            let frame = self.frame(address, files);
            let known = self.stacks.len();
            let stack = self.stacks.push(parent, frame);
            if stack.index() == known {
                self.spool.put(&Row::Node(parent, frame));
            }
            stack
        })
    }

    /// Keeps a sample. Samples come in order of time; its thread must have been recorded.
    pub fn push(&mut self, sample: Sample) {
        self.spool.put(&Row::Sample(sample));
        self.samples += 1;
    }

    /// Records a process, a thread or what has become of one.
    pub fn put(&mut self, row: &Row<'_>) {
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

    /// Whether the spool can grow no further.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.spool.error().is_some()
    }

    /// Ends the recording: the spool, and the files in the order it counts them.
    #[must_use]
    pub fn finish(self, now: Nanos, losses: &Losses) -> (SpoolEnd, Vec<ModuleId>) {
        (self.spool.finish(now, losses), self.files.order)
    }
}
