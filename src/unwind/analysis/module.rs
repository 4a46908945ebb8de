//! What all analyses of functions of one file need: its bytes, and where functions start.

use perfcollect_symbols::elf::{CodeImage, ElfFile, FunctionRanges};

use super::starts::Starts;
use super::sweep::Sweep;

/// The code of a file.
pub(super) struct Module {
    pub(super) image: CodeImage,
    pub(super) sweep: Sweep,
    pub(super) starts: Starts,
    /// Jumps from one function to code of another that is no start: source by target, sorted.
    entrances: Vec<(u64, u64)>,
}

impl Module {
    /// Reads the code of a file. Returns `None` if it cannot be analyzed.
    pub(super) fn read(elf: &ElfFile, ranges: Option<&FunctionRanges>) -> Option<Self> {
        let image = elf.code_image().ok()??;
        let mut sweep = Sweep::new(&image);
        let ranges = ranges.into_iter().flat_map(FunctionRanges::iter);
        let starts = Starts::new(elf, &image, &sweep, ranges.map(|range| range.start));
        let mut entrances = std::mem::take(&mut sweep.jumps);
        entrances.retain(|(target, source)| {
            !starts.has(*target) && starts.before(*target) != starts.before(*source)
        });
        entrances.sort_unstable();
        entrances.shrink_to_fit();
        Some(Self {
            image,
            sweep,
            starts,
            entrances,
        })
    }

    /// Returns the sources of jumps from other functions to the addresses of a range.
    pub(super) fn entrances(&self, range: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
        let first = self
            .entrances
            .partition_point(|(target, _)| *target < range.start);
        let sources = self.entrances.get(first..).unwrap_or_default().iter();
        let sources = sources.take_while(move |(target, _)| *target < range.end);
        sources.map(|(_, source)| *source)
    }

    /// Returns the size of the executable segments.
    pub(super) fn code_bytes(&self) -> usize {
        let code = self.image.segments.iter();
        let code = code.filter(|segment| segment.executable);
        code.map(|segment| segment.data.len()).sum()
    }

    /// Returns the memory that it occupies, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let image: usize = self
            .image
            .segments
            .iter()
            .map(|segment| segment.data.len())
            .sum();
        image + self.sweep.bytes() + self.starts.bytes() + self.entrances.len() * 16
    }
}
