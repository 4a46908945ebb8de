//! What a capture keeps while it runs: stacks of code addresses as ids, and samples that point to them.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::Sample;
use super::ids::{FrameId, ModuleId, ProcessId, StackId};
use super::quality::{StackQuality, Truncation};
use super::stack::StackTable;

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

/// The growing capture.
#[derive(Default)]
pub struct Recorder {
    frames: Vec<CodeAddress>,
    rows: HashTable<u32>,
    stacks: StackTable,
    samples: Vec<Sample>,
    quality: StackQuality,
}

impl Recorder {
    /// Handle of a code address.
    fn frame(&mut self, address: CodeAddress) -> FrameId {
        let Self { frames, rows, .. } = self;
        let hash = |address: &CodeAddress| FxBuildHasher.hash_one(address);
        let same = |row: &u32| frames[*row as usize] == address;
        if let Some(&row) = rows.find(hash(&address), same) {
            return FrameId(row);
        }
        let row = frames.len() as u32;
        frames.push(address);
        rows.insert_unique(hash(&address), row, |&row| hash(&frames[row as usize]));
        FrameId(row)
    }

    /// Handle of a stack given from the leaf to the root; `cut` tells why it ends before its root, if it does.
    pub fn stack(&mut self, leaf_first: &[CodeAddress], cut: Option<Truncation>) -> StackId {
        self.quality.count(cut);
        let root = cut.map(CodeAddress::Cut);
        let root_first = root.into_iter().chain(leaf_first.iter().rev().copied());
        root_first.fold(StackId::EMPTY, |stack, address| {
            let frame = self.frame(address);
            self.stacks.push(stack, frame)
        })
    }

    /// Counts a stack in which a caller was guessed.
    pub fn count_guess(&mut self) {
        self.quality.guessed += 1;
    }

    /// Keeps a sample. Samples come in order of time.
    pub fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Samples kept so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether nothing was kept yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Memory the recording takes, without the room kept for growth.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let stack_node = size_of::<(StackId, FrameId)>();
        (self.samples.len() * size_of::<Sample>()
            + self.frames.len() * size_of::<CodeAddress>()
            + self.stacks.len() * stack_node) as u64
    }

    /// Ends the recording.
    #[must_use]
    pub fn finish(self) -> Recording {
        Recording {
            frames: self.frames,
            stacks: self.stacks,
            samples: self.samples,
            quality: self.quality,
        }
    }
}

/// A finished recording; names are still to be found.
pub struct Recording {
    /// [`FrameId`] is the position.
    pub frames: Vec<CodeAddress>,
    /// Stacks of `frames`.
    pub stacks: StackTable,
    /// Samples in order of time.
    pub samples: Vec<Sample>,
    /// How complete the stacks are.
    pub quality: StackQuality,
}
