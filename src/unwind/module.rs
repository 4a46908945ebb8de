//! Unwind information of one ELF file, made once and used for every process that maps it.
//!
//! Everything is kept in the file's own addresses: an address of a process becomes one of the file through the
//! offset of its mapping, so neither processes nor mappings need unwind data of their own.

use framehop::{
    ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, Unwinder, UnwinderNative,
};
use perfcollect_symbols::elf::{ElfFile, LoadSegment, Section, StubSection};

use super::managed::{Rule, stub};
use crate::machine::Content;

/// The unwinder of one file.
pub(super) type FileUnwinder = UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>;

/// An ELF file that code is unwound in.
pub(super) struct ElfModule {
    segments: Vec<LoadSegment>,
    /// Of the unwind sections.
    bytes: usize,
    /// Knows one module at base address 0, so it takes addresses as the file states them.
    pub(super) unwinder: FileUnwinder,
    /// Calls to other files go through these, and no unwind information tells of them.
    stubs: Vec<StubSection>,
}

impl ElfModule {
    /// Reads the unwind sections. `None`: not an ELF file, damaged, or not readable.
    pub(super) fn read(content: &Content) -> Option<Self> {
        let elf = match content {
            Content::File(file) => ElfFile::open(file).ok()?,
            Content::Vdso(image) => ElfFile::parse(image).ok()?,
            Content::Unavailable(_) => return None,
        };
        let mut unwinder = FileUnwinder::new();
        let mut bytes = 0;
        if let Ok(sections) = elf.unwind_sections() {
            let range = |section: &Section| {
                section.address..section.address.saturating_add(section.data.len() as u64)
            };
            bytes = [
                &sections.eh_frame,
                &sections.eh_frame_hdr,
                &sections.debug_frame,
            ]
            .into_iter()
            .flatten()
            .map(|section| section.data.len())
            .sum();
            let info = ExplicitModuleSectionInfo {
                base_svma: 0,
                text_svma: sections.text_range,
                got_svma: sections.got_range,
                eh_frame_svma: sections.eh_frame.as_ref().map(range),
                eh_frame_hdr_svma: sections.eh_frame_hdr.as_ref().map(range),
                eh_frame: sections.eh_frame.map(|section| section.data),
                eh_frame_hdr: sections.eh_frame_hdr.map(|section| section.data),
                debug_frame: sections.debug_frame.map(|section| section.data),
                ..Default::default()
            };
            unwinder.add_module(Module::new(String::new(), 0..u64::MAX, 0, info));
        }
        Some(Self {
            segments: elf.load_segments(),
            bytes,
            unwinder,
            stubs: elf.stub_sections(),
        })
    }

    /// Memory its unwind sections take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The rule of an instruction of a stub; `None`: there is no stub.
    pub(super) fn stub_rule(&self, address: u64) -> Option<Rule> {
        self.stubs.iter().find_map(|section| {
            let at = usize::try_from(address.checked_sub(section.address)?).ok()?;
            let done = at.checked_rem(section.stub_bytes)?;
            let code = section.code.get(at - done..)?.get(..section.stub_bytes)?;
            stub::linkage_rule(code, done, at < section.stub_bytes)
        })
    }

    /// The address the file states for the byte at `file_offset`, by the segment that holds it.
    ///
    /// A mapping may begin before its segment (page rounding) and be a piece of it (mprotect), so the segment is
    /// found by the byte itself, never by comparing ranges.
    pub(super) fn address_of(&self, file_offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| {
            segment.executable
                && file_offset
                    .checked_sub(segment.file_offset)
                    .is_some_and(|at| at < segment.file_size)
        })?;
        segment
            .address
            .checked_add(file_offset - segment.file_offset)
    }

    /// The opposite: where in the file the byte at an address is.
    pub(super) fn file_offset_of(&self, address: u64) -> Option<u64> {
        let within = |segment: &LoadSegment| {
            let at = address.checked_sub(segment.address)?;
            (at < segment.file_size).then_some(at)
        };
        self.segments
            .iter()
            .find_map(|segment| segment.file_offset.checked_add(within(segment)?))
    }
}
