//! What all analyses of functions of one file need: its bytes, and where functions start.

use std::ops::Range;

use perfcollect_symbols::elf::{CodeImage, ElfFile, FunctionRanges};

use super::starts::Starts;
use super::sweep::Sweep;

/// Limit of the work for a file, by its code. All functions of a library need two.
const WORK_PER_BYTE: usize = 40;
/// The same for any file: ten seconds.
const MAX_WORK: usize = 100_000_000;

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
        let ranges = ranges.into_iter().flat_map(FunctionRanges::iter);
        let symbols = elf.symbols().ok();
        let symbols = symbols.iter().flat_map(|symbols| symbols.iter());
        Some(Self::of(
            image,
            ranges.map(|range| range.start),
            symbols.map(|symbol| (symbol.start, symbol.name)),
        ))
    }

    /// Finds the starts of functions, besides those in `ranges` and `symbols`.
    fn of<'a>(
        image: CodeImage,
        ranges: impl Iterator<Item = u64>,
        symbols: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> Self {
        let mut sweep = Sweep::new(&image);
        let starts = Starts::new(&image, &sweep, ranges, symbols);
        let mut entrances = std::mem::take(&mut sweep.jumps);
        entrances.retain(|(target, source)| {
            !starts.has(*target) && starts.before(*target) != starts.before(*source)
        });
        entrances.sort_unstable();
        entrances.shrink_to_fit();
        Self {
            image,
            sweep,
            starts,
            entrances,
        }
    }

    /// Returns the sources of jumps from other functions to the addresses of a range, that to the
    /// highest address first.
    pub(super) fn entrances(&self, range: Range<u64>) -> impl Iterator<Item = u64> {
        let to = |end: u64| self.entrances.partition_point(|(target, _)| *target < end);
        let jumps = self.entrances.get(to(range.start)..to(range.end));
        let sources = jumps.unwrap_or_default().iter().rev();
        sources.map(|(_, source)| *source)
    }

    /// Returns whether code of others than a function jumps to an address, and none of the function.
    pub(super) fn is_part_of_others(&self, address: u64, function: &Range<u64>) -> bool {
        let mut sources = self
            .entrances(address..address.saturating_add(1))
            .peekable();
        sources.peek().is_some() && !sources.any(|source| function.contains(&source))
    }

    /// Returns the limit of the work for the file.
    pub(super) fn work_limit(&self) -> usize {
        let code = self.image.segments.iter();
        let code = code.filter(|segment| segment.executable);
        let bytes: usize = code.map(|segment| segment.data.len()).sum();
        bytes.saturating_mul(WORK_PER_BYTE).min(MAX_WORK)
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

/// Returns the module of a file that has only some code at an address.
#[cfg(test)]
pub(super) fn module_of(start: u64, code: &[u8]) -> Module {
    Module::of(
        image_of(start, code),
        std::iter::empty(),
        std::iter::empty(),
    )
}

/// Returns a file that has only some code at an address.
#[cfg(test)]
pub(super) fn image_of(start: u64, code: &[u8]) -> CodeImage {
    let segment = perfcollect_symbols::elf::ImageSegment {
        address: start,
        executable: true,
        data: code.to_vec(),
    };
    CodeImage {
        segments: vec![segment],
        entry: 0,
        pointers: Vec::new(),
    }
}
