//! Unwind information of an ELF file, shared by all processes that map the file.
//!
//! All addresses are SVMAs (link-time addresses). The mapping translates an address of a process to
//! a file offset, and the segments translate that to an SVMA. So processes and mappings need no
//! separate unwind data.

use framehop::{
    ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, Unwinder, UnwinderNative,
};
use perfcollect_symbols::elf::{ElfFile, LoadSegment, PltSection, Section};

use super::managed::{UnwindRule, epilogue, stub};
use crate::machine::Content;

/// Unwinder of one file.
pub(super) type FileUnwinder = UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>;

fn elf_file(content: &Content) -> Option<ElfFile> {
    match content {
        Content::File(file) => ElfFile::open_mapped(file.clone()).ok(),
        Content::Vdso(image) => ElfFile::parse(image).ok(),
        Content::Unavailable(_) => None,
    }
}

/// Load segments of an ELF file.
#[derive(Default)]
pub(super) struct Segments(Vec<LoadSegment>);

/// Unwind data of an ELF file.
pub(super) struct ElfModule {
    /// Size of the unwind sections and the managed code.
    bytes: usize,
    /// Has one module at base address 0, so it accepts SVMAs.
    pub(super) unwinder: FileUnwinder,
    /// PLT sections, which no unwind information covers.
    stubs: Vec<PltSection>,
    /// NativeAOT code, whose unwind information does not describe epilogues.
    managed: Option<Section>,
}

impl Segments {
    /// Reads the program headers. Returns `None` for the same reasons as [`ElfModule::read`].
    pub(super) fn read(content: &Content) -> Option<Self> {
        Some(Self(elf_file(content)?.load_segments()))
    }

    /// Returns the SVMA of the byte at `file_offset`.
    ///
    /// The segment is the one that contains the byte. Ranges are not compared: a mapping may start
    /// before its segment (page rounding) or be a part of it (mprotect).
    pub(super) fn svma_of(&self, file_offset: u64) -> Option<u64> {
        let segment = self.0.iter().find(|segment| {
            segment.executable
                && file_offset
                    .checked_sub(segment.file_offset)
                    .is_some_and(|offset| offset < segment.file_size)
        })?;
        segment
            .address
            .checked_add(file_offset - segment.file_offset)
    }

    /// Returns the file offset of the byte at an SVMA.
    pub(super) fn file_offset_of(&self, svma: u64) -> Option<u64> {
        let within = |segment: &LoadSegment| {
            let offset = svma.checked_sub(segment.address)?;
            (offset < segment.file_size).then_some(offset)
        };
        self.0
            .iter()
            .find_map(|segment| segment.file_offset.checked_add(within(segment)?))
    }
}

impl ElfModule {
    /// Reads the unwind sections. Returns `None` if the file is unreadable, corrupt or not ELF.
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
            stubs: elf.plt_sections(),
            managed,
        })
    }

    /// Returns the memory that its sections occupy, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the rule of an instruction in a PLT stub or in an epilogue of managed code.
    ///
    /// No unwind information describes these. Returns `None` for all other instructions.
    pub(super) fn instruction_rule(&self, svma: u64) -> Option<UnwindRule> {
        self.epilogue_rule(svma).or_else(|| self.stub_rule(svma))
    }

    fn epilogue_rule(&self, svma: u64) -> Option<UnwindRule> {
        let section = self.managed.as_ref()?;
        let offset = usize::try_from(svma.checked_sub(section.address)?).ok()?;
        // The end of the function is unknown, so every relative jump counts as one within it.
        epilogue::rule(section.data.get(offset..)?, svma, &(0..u64::MAX))
    }

    fn stub_rule(&self, svma: u64) -> Option<UnwindRule> {
        self.stubs.iter().find_map(|section| {
            let offset = usize::try_from(svma.checked_sub(section.address)?).ok()?;
            let offset_in_stub = offset.checked_rem(section.stub_bytes)?;
            let from_stub = section.code.get(offset - offset_in_stub..)?;
            let code = from_stub.get(..section.stub_bytes)?;
            stub::plt_rule(code, offset_in_stub, offset < section.stub_bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwinds_epilogues_of_managed_code_by_instructions() {
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
