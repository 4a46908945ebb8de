//! Unwind information of an ELF file, shared by all processes that map the file.
//!
//! All addresses are SVMAs (link-time addresses). The mapping translates an address of a process to
//! a file offset, and the segments translate that to an SVMA. So processes and mappings need no
//! separate unwind data.

use std::sync::Arc;

use bytes::Bytes;
use framehop::{
    ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, Unwinder, UnwinderNative,
};
use perfcollect_symbols::elf::{
    ElfFile, FunctionRanges, LoadSegment, PltSection, Section, UnwindSections,
};

use super::analysis::Finding;
use super::go::GoProgram;
use super::managed::{epilogue, stub};
use super::rule::UnwindRule;
use crate::machine::Content;

/// Limit of the unwind information of an untrusted file without `.eh_frame_hdr`, in bytes. To sort
/// its functions takes some 10 ms a MiB.
const MAX_UNSORTED_BYTES: usize = 2 << 20;

/// Unwinder of one file.
pub(super) type FileUnwinder = UnwinderNative<Bytes, MayAllocateDuringUnwind>;

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

/// Unwind data of an ELF file. The default has none.
#[derive(Default)]
pub(super) struct ElfModule {
    /// Size of all sections.
    bytes: usize,
    /// Time to evaluate the rules of the file.
    rules: Rules,
    /// Has one module at base address 0, so it accepts SVMAs.
    pub(super) unwinder: FileUnwinder,
    /// PLT sections, which no unwind information covers.
    stubs: Vec<PltSection>,
    /// NativeAOT code, whose unwind information does not describe epilogues.
    managed: Option<Section>,
    /// Unwind information. The data are those of `unwinder`.
    sections: Option<Arc<UnwindSections>>,
    /// Functions that the unwind information covers. `None` if it covers all code.
    covered: Option<FunctionRanges>,
    /// Function table of a Go program.
    go: Option<GoProgram>,
}

/// What a file has for an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    /// Unwind information.
    UnwindInformation,
    /// A function table.
    FunctionTable(Finding),
    /// Nothing.
    None,
}

/// Size of the unwind rules of a file.
#[derive(Default)]
pub(super) enum Rules {
    /// The file is trusted, or has no rules.
    #[default]
    Trusted,
    /// No rule is longer.
    All(usize),
    /// Each rule has another size, which [`UnwindSections::rule_bytes`] returns.
    Each(Arc<UnwindSections>),
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
    pub(super) fn read(content: &Content, is_trusted: bool) -> Option<Self> {
        let elf = elf_file(content)?;
        let mut module = Self {
            stubs: elf.plt_sections(),
            managed: elf.managed_code(),
            go: GoProgram::read(&elf),
            ..Self::default()
        };
        let stubs = module.stubs.iter().map(|section| section.code.len());
        let go = module.go.as_ref().map_or(0, GoProgram::bytes);
        module.bytes = stubs.sum::<usize>() + bytes(module.managed.as_ref()) + go;
        if let Ok(sections) = elf.unwind_sections() {
            let covered = elf.function_ranges_of(&sections);
            let sections = Arc::new(sections);
            if module.add(sections.clone(), is_trusted) {
                module.sections = Some(sections);
                module.covered = Some(covered);
            }
        }
        Some(module)
    }

    /// Adds the sections. Returns false if they would take too long to use.
    fn add(&mut self, sections: Arc<UnwindSections>, is_trusted: bool) -> bool {
        let all = [sections.eh_frame.as_ref(), sections.eh_frame_hdr.as_ref()];
        let added: usize = all.map(bytes).iter().sum();
        if !is_trusted {
            self.rules = match &sections.eh_frame_hdr {
                Some(_) => Rules::Each(sections.clone()),
                None if added > MAX_UNSORTED_BYTES => return false,
                None => match sections.rule_bytes(0) {
                    Some(longest) => Rules::All(longest),
                    None => return false,
                },
            };
        }
        self.bytes += added;
        let data = |section: Option<&Section>| section.map(|section| section.data.clone());
        let range = |section: Option<&Section>| {
            let Section { address, data } = section?;
            Some(*address..address.saturating_add(data.len() as u64))
        };
        let [eh_frame, eh_frame_hdr] = all;
        let info = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: sections.text_range.clone(),
            got_svma: sections.got_range.clone(),
            eh_frame_svma: range(eh_frame),
            eh_frame_hdr_svma: range(eh_frame_hdr),
            eh_frame: data(eh_frame),
            eh_frame_hdr: data(eh_frame_hdr),
            ..Default::default()
        };
        let module = Module::new(String::new(), 0..u64::MAX, 0, info);
        self.unwinder.add_module(module);
        true
    }

    /// Returns the size of its unwind rules.
    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns what covers an instruction.
    pub(super) fn coverage(&self, svma: u64) -> Coverage {
        if let Some(finding) = self.go.as_ref().and_then(|go| go.at(svma)) {
            return Coverage::FunctionTable(finding);
        }
        let covered = self.covered.as_ref();
        let is_covered = covered.is_none_or(|covered| covered.lookup(svma).is_some());
        // The unwinder knows no other registers, and would silently follow rbp.
        let is_known = |sections: &Arc<UnwindSections>| !sections.has_other_cfa_register(svma);
        match is_covered && self.sections.as_ref().is_none_or(is_known) {
            true => Coverage::UnwindInformation,
            false => Coverage::None,
        }
    }

    /// Returns the start of the function that contains an SVMA, if the unwind information has it.
    pub(super) fn function_start(&self, svma: u64) -> Option<u64> {
        let range = self.covered.as_ref()?.lookup(svma)?;
        Some(range.start)
    }

    /// Returns the memory that its sections occupy, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Creates unwind data without sections, as if they had a size.
    #[cfg(test)]
    pub(super) fn of_test(bytes: usize) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
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

fn bytes(section: Option<&Section>) -> usize {
    section.map_or(0, |section| section.data.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwinds_epilogues_of_managed_code_by_instructions() {
        // inc rax; add rsp, 8; pop rbx; pop rbp; ret
        let code = [0x48, 0xff, 0xc0, 0x48, 0x83, 0xc4, 8, 0x5b, 0x5d, 0xc3];
        let module = ElfModule {
            managed: Some(Section {
                address: 0x1000,
                data: code.to_vec().into(),
            }),
            ..ElfModule::default()
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
