//! The bytes that a file has in memory, and the addresses of code that its tables contain.

use object::Endianness;
use object::elf;

use super::headers::Headers;
use super::relative::relative;
use super::source::Source;
use super::{ElfError, check_size};

/// Limit of the bytes of all segments.
const MAX_IMAGE_BYTES: u64 = 64 << 20;
/// Limit of the segments. Linkers make some five.
const MAX_SEGMENTS: usize = 32;
/// Limit of the relocations that contain an address of code.
const MAX_POINTERS: usize = 1 << 20;
/// Limit of the sections of relocations, in bytes. libcoreclr.so has 1 MB.
const MAX_RELOCATIONS_BYTES: u64 = 32 << 20;
/// Limit of the words of packed relocations.
const MAX_WORDS: u64 = 8 << 20;
const RELOCATIONS: &str = "relocations";
/// Offset of `e_entry` in the header of a 64-bit file (gABI, "ELF Header").
const ENTRY_OFFSET: u64 = 24;

/// A segment with its bytes in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSegment {
    /// Address before any load bias (SVMA).
    pub address: u64,
    /// The bytes of the file.
    pub data: Vec<u8>,
    /// Whether the loader maps it executable.
    pub executable: bool,
}

/// Returns whether a file is for x86-64.
pub(super) fn is_x86_64(headers: &Headers) -> bool {
    let is_little = headers.endian == Endianness::Little;
    headers.machine == elf::EM_X86_64 && headers.is_64 && is_little
}

/// The loaded part of an x86-64 file. All addresses are SVMAs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeImage {
    /// The segments in the order of the file.
    pub segments: Vec<ImageSegment>,
    /// The entry point, or 0 (a library has none).
    pub entry: u64,
    /// Addresses of code that the loader stores in memory, sorted: pointers in tables, initializers.
    pub pointers: Vec<u64>,
}

impl CodeImage {
    /// Reads the segments. Returns `None` for other machines than x86-64.
    pub(super) fn read(source: &Source, headers: &Headers) -> Result<Option<Self>, ElfError> {
        if !is_x86_64(headers) {
            return Ok(None);
        }
        let loads = headers.segments.iter();
        let loads = loads.filter(|segment| segment.kind == elf::PT_LOAD);
        let mut segments = Vec::new();
        let mut left = MAX_IMAGE_BYTES;
        for load in loads {
            check_size(
                "number of segments",
                segments.len() as u64 + 1,
                MAX_SEGMENTS as u64,
            )?;
            let what = "segments";
            check_size(what, load.file_size, left)?;
            left -= load.file_size;
            segments.push(ImageSegment {
                address: load.address,
                data: source.read_exact(what, load.offset, load.file_size)?,
                executable: load.flags.contains(elf::PF_X),
            });
        }
        let entry = source.read_exact("ELF header", ENTRY_OFFSET, 8)?;
        let mut image = Self {
            segments,
            entry: entry
                .first_chunk()
                .map_or(0, |bytes| u64::from_le_bytes(*bytes)),
            pointers: Vec::new(),
        };
        let mut pointers = Vec::new();
        let mut left = MAX_RELOCATIONS_BYTES;
        for section in &headers.sections {
            if pointers.len() >= MAX_POINTERS {
                break;
            }
            let mut read = || {
                check_size(RELOCATIONS, section.size, left)?;
                left -= section.size;
                source.read_exact(RELOCATIONS, section.offset, section.size)
            };
            match section.kind {
                elf::SHT_RELA => image.add_relative(&read()?, &mut pointers),
                elf::SHT_RELR => image.add_packed(&read()?, &mut pointers),
                // Position-dependent files have no relocations for these.
                elf::SHT_INIT_ARRAY | elf::SHT_FINI_ARRAY | elf::SHT_PREINIT_ARRAY => {
                    let words = section.address..section.end();
                    let words = words.step_by(8).take(MAX_POINTERS);
                    pointers.extend(words.filter_map(|address| image.word(address)));
                }
                _ if section.is_executable() => pointers.push(section.address),
                _ => {}
            }
        }
        pointers.retain(|address| image.code_at(*address).is_some());
        pointers.sort_unstable();
        pointers.dedup();
        image.pointers = pointers;
        Ok(Some(image))
    }

    /// Returns the bytes of the code from an address to the end of its segment.
    #[must_use]
    pub fn code_at(&self, address: u64) -> Option<&[u8]> {
        self.at(address, |segment| segment.executable)
    }

    /// Returns the bytes from an address to the end of its segment.
    #[must_use]
    pub fn bytes_at(&self, address: u64) -> Option<&[u8]> {
        self.at(address, |_| true)
    }

    fn at(&self, address: u64, accept: impl Fn(&ImageSegment) -> bool) -> Option<&[u8]> {
        self.segments.iter().find_map(|segment| {
            let offset = usize::try_from(address.checked_sub(segment.address)?).ok()?;
            let bytes = segment.data.get(offset..)?;
            (!bytes.is_empty() && accept(segment)).then_some(bytes)
        })
    }

    fn word(&self, address: u64) -> Option<u64> {
        let bytes = self.bytes_at(address)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// Adds the addresses of relocations without a symbol: those that the load bias is added to.
    fn add_relative(&self, bytes: &[u8], pointers: &mut Vec<u64>) {
        let kinds = [elf::R_X86_64_RELATIVE.0, elf::R_X86_64_IRELATIVE.0];
        let targets = relative(bytes, Endianness::Little, &kinds).map(|(_, target)| target);
        let targets = targets.filter(|target| self.code_at(*target).is_some());
        let left = MAX_POINTERS.saturating_sub(pointers.len());
        pointers.extend(targets.take(left));
    }

    /// Adds the addresses of packed relocations (gABI, "Relative Relocation Table").
    ///
    /// An even entry is the address of a word. An odd one is a bit map of the 63 words that follow.
    fn add_packed(&self, bytes: &[u8], pointers: &mut Vec<u64>) {
        let mut next = 0_u64;
        let mut words_left = MAX_WORDS;
        let (entries, _) = bytes.as_chunks();
        for entry in entries.iter().map(|entry| u64::from_le_bytes(*entry)) {
            let words = match entry & 1 {
                0 => {
                    next = entry;
                    1
                }
                _ => entry >> 1,
            };
            words_left = words_left.saturating_sub(words.count_ones().into());
            if words_left == 0 {
                break;
            }
            for bit in (0..63).filter(|bit| words >> bit & 1 != 0) {
                let address = self.word(next.wrapping_add(bit * 8));
                if let Some(address) = address.filter(|address| self.code_at(*address).is_some())
                    && pointers.len() < MAX_POINTERS
                {
                    pointers.push(address);
                }
            }
            next = next.wrapping_add(if entry & 1 == 0 { 8 } else { 63 * 8 });
        }
    }
}
