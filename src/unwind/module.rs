//! Unwind information of one ELF file, made once and used for every process that maps it.
//!
//! Everything is kept in the file's own addresses: an address of a process becomes one of the file through the
//! offset of its mapping, so neither processes nor mappings need unwind data of their own.

use framehop::{
    ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, Unwinder, UnwinderNative,
};
use perfcollect_symbols::elf::{ElfFile, LoadSegment, Section, StubSection};

use super::managed::{UnwindRule, epilogue, stub};
use crate::machine::Content;

/// The unwinder of one file.
pub(super) type FileUnwinder = UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>;

fn elf_file(content: &Content) -> Option<ElfFile<'_>> {
    match content {
        Content::File(file) => ElfFile::open_mapped(file).ok(),
        Content::Vdso(image) => ElfFile::parse(image).ok(),
        Content::Unavailable(_) => None,
    }
}

/// Where an ELF file has its bytes in memory.
#[derive(Default)]
pub(super) struct Segments(Vec<LoadSegment>);

/// An ELF file that code is unwound in.
pub(super) struct ElfModule {
    /// Of the unwind sections, and of managed code.
    bytes: usize,
    /// Knows one module at base address 0, so it takes addresses as the file states them.
    pub(super) unwinder: FileUnwinder,
    /// Calls to other files go through these, and no unwind information tells of them.
    stubs: Vec<StubSection>,
    /// Here unwind information is silent about epilogues.
    managed: Option<Section>,
}

impl Segments {
    /// Reads the headers. `None`: as of [`ElfModule::read`].
    pub(super) fn read(content: &Content) -> Option<Self> {
        Some(Self(elf_file(content)?.load_segments()))
    }

    /// The address the file states for the byte at `file_offset`, by the segment that holds it.
    ///
    /// A mapping may begin before its segment (page rounding) and be a piece of it (mprotect), so the segment is
    /// found by the byte itself, never by comparing ranges.
    pub(super) fn address_of(&self, file_offset: u64) -> Option<u64> {
        let segment = self.0.iter().find(|segment| {
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
        self.0
            .iter()
            .find_map(|segment| segment.file_offset.checked_add(within(segment)?))
    }
}

impl ElfModule {
    /// Reads the unwind sections. `None`: not an ELF file, damaged, or not readable.
    pub(super) fn read(content: &Content) -> Option<Self> {
        let elf = elf_file(content)?;
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
        let managed = elf.managed_code();
        Some(Self {
            bytes: bytes + managed.as_ref().map_or(0, |section| section.data.len()),
            unwinder,
            stubs: elf.stub_sections(),
            managed,
        })
    }

    /// Memory its sections take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The rule of an instruction in a stub or in an epilogue that unwind information does not tell of; `None`: it does.
    pub(super) fn instruction_rule(&self, address: u64) -> Option<UnwindRule> {
        self.epilogue_rule(address)
            .or_else(|| self.stub_rule(address))
    }

    fn epilogue_rule(&self, address: u64) -> Option<UnwindRule> {
        let section = self.managed.as_ref()?;
        let at = usize::try_from(address.checked_sub(section.address)?).ok()?;
        // Where the function ends is not known: a jump is taken for one inside.
        epilogue::rule(section.data.get(at..)?, address, &(0..u64::MAX))
    }

    fn stub_rule(&self, address: u64) -> Option<UnwindRule> {
        self.stubs.iter().find_map(|section| {
            let at = usize::try_from(address.checked_sub(section.address)?).ok()?;
            let done = at.checked_rem(section.stub_bytes)?;
            let code = section.code.get(at - done..)?.get(..section.stub_bytes)?;
            stub::plt_rule(code, done, at < section.stub_bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epilogues_of_managed_code_are_walked_by_their_instructions() {
        // inc rax; add rsp, 8; pop rbx; pop rbp; ret
        let code = [0x48, 0xff, 0xc0, 0x48, 0x83, 0xc4, 8, 0x5b, 0x5d, 0xc3];
        let module = ElfModule {
            bytes: code.len(),
            unwinder: FileUnwinder::new(),
            stubs: Vec::new(),
            managed: Some(Section {
                address: 0x1000,
                data: code.into(),
            }),
        };
        assert!(module.instruction_rule(0x1000).is_none());
        for epilogue in [0x1003, 0x1007, 0x1008] {
            let rule = module.instruction_rule(epilogue);
            assert!(rule.is_some() && rule != Some(UnwindRule::RETURN));
        }
        assert_eq!(module.instruction_rule(0x1009), Some(UnwindRule::RETURN));
        assert!(module.instruction_rule(0x100a).is_none());
        assert!(module.instruction_rule(0xfff).is_none());
    }
}
