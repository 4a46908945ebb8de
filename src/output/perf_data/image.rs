//! ELF files with symbols and without code. Readers use them to symbolize addresses.
//!
//! ```text
//! header, segments | build id | .text: traps, a slot for each function | symbols
//!                             at the second page; file offset equals address
//! ```

use std::hash::{DefaultHasher, Hasher};

use object::elf;
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, Sym, Writer};

use crate::output::synthetic_layout::{FUNCTION_BYTES, Module, PAGE_BYTES, SyntheticFunction};

pub(super) const BUILD_ID_BYTES: usize = 20;
/// x86's `int3`.
const TRAP: u8 = 0xcc;

/// A build id that is a hash of the content, so that caches of readers distinguish the files.
pub(super) type ImageBuildId = [u8; BUILD_ID_BYTES];

/// The symbol file of a module.
pub(super) struct Image {
    pub(super) bytes: Vec<u8>,
    pub(super) build_id: ImageBuildId,
    /// File offset of `.text`.
    pub(super) text_offset: u64,
}

impl Image {
    /// Creates the file of a module with these functions, for a processor (`uname -m`).
    pub(super) fn new(
        module: &Module,
        functions: &[&SyntheticFunction],
        processor: &str,
    ) -> Result<Self, object::write::Error> {
        let build_id = build_id(module, functions);
        let note = note(&build_id);
        let text = vec![TRAP; (module.end - module.start) as usize];
        let (note_bytes, text_bytes) = (note.len() as u64, text.len() as u64);
        let mut bytes = Vec::new();
        let mut writer = Writer::new(object::Endianness::Little, true, &mut bytes);
        writer.reserve_file_header();
        writer.reserve_program_headers(2);
        let note_name = Some(writer.add_section_name(b".note.gnu.build-id"));
        let text_name = Some(writer.add_section_name(b".text"));
        writer.reserve_section_index();
        let text_section = writer.reserve_section_index();
        writer.reserve_symtab_section_index();
        writer.reserve_strtab_section_index();
        writer.reserve_shstrtab_section_index();
        let names: Vec<_> = functions
            .iter()
            .map(|function| {
                writer.reserve_symbol_index(Some(text_section));
                Some(writer.add_string(function.name.as_bytes()))
            })
            .collect();
        let note_offset = writer.reserve(note_bytes, 4);
        let text_offset = writer.reserve(text_bytes, PAGE_BYTES);
        writer.reserve_symtab();
        writer.reserve_strtab()?;
        writer.reserve_shstrtab()?;
        writer.reserve_section_headers();

        writer.write_file_header(&FileHeader {
            e_type: elf::ET_DYN,
            e_machine: machine(processor),
            ..FileHeader::default()
        })?;
        writer.write_align_program_headers();
        for (p_type, p_flags, offset, bytes, p_align) in [
            (
                elf::PT_LOAD,
                elf::PF_R | elf::PF_X,
                text_offset,
                text_bytes,
                PAGE_BYTES,
            ),
            (elf::PT_NOTE, elf::PF_R, note_offset, note_bytes, 4),
        ] {
            writer.write_program_header(&ProgramHeader {
                p_type,
                p_flags,
                p_offset: offset,
                p_vaddr: offset,
                p_paddr: offset,
                p_filesz: bytes,
                p_memsz: bytes,
                p_align,
            });
        }
        writer.write_align(4);
        writer.write(&note);
        writer.write_align(PAGE_BYTES);
        writer.write(&text);
        writer.write_null_symbol();
        for (function, name) in functions.iter().zip(names) {
            writer.write_symbol(&Sym {
                section: Some(text_section.0),
                st_name: writer.string_offset(name),
                st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_FUNC),
                st_other: elf::STV_DEFAULT.into(),
                st_shndx: elf::SHN_UNDEF,
                st_value: text_offset + (function.start - module.start),
                st_size: FUNCTION_BYTES,
            });
        }
        writer.write_strtab();
        writer.write_shstrtab();
        writer.write_null_section_header();
        let code = elf::SHF_ALLOC | elf::SHF_EXECINSTR;
        for (name, sh_type, sh_flags, offset, sh_size, sh_addralign) in [
            (
                note_name,
                elf::SHT_NOTE,
                elf::SHF_ALLOC,
                note_offset,
                note_bytes,
                4,
            ),
            (
                text_name,
                elf::SHT_PROGBITS,
                code,
                text_offset,
                text_bytes,
                FUNCTION_BYTES,
            ),
        ] {
            writer.write_section_header(&SectionHeader {
                sh_name: writer.section_name_offset(name),
                sh_type,
                sh_flags,
                sh_addr: offset,
                sh_offset: offset,
                sh_size,
                sh_link: 0,
                sh_info: 0,
                sh_addralign,
                sh_entsize: 0,
            });
        }
        writer.write_symtab_section_header(1);
        writer.write_strtab_section_header();
        writer.write_shstrtab_section_header();
        Ok(Self {
            bytes,
            build_id,
            text_offset,
        })
    }
}

fn machine(processor: &str) -> elf::Machine {
    match processor {
        "aarch64" => elf::EM_AARCH64,
        _ => elf::EM_X86_64,
    }
}

fn build_id(module: &Module, functions: &[&SyntheticFunction]) -> ImageBuildId {
    let names = functions.iter().map(|function| &function.name);
    let mut id = ImageBuildId::default();
    for (part, salt) in id.chunks_mut(size_of::<u64>()).zip(0_u8..) {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(salt);
        for name in std::iter::once(&module.name).chain(names.clone()) {
            hasher.write(name.as_bytes());
            hasher.write_u8(0);
        }
        part.copy_from_slice(&hasher.finish().to_le_bytes()[..part.len()]);
    }
    id
}

/// Returns an ELF note: sizes of owner and content, type, owner, content.
fn note(build_id: &ImageBuildId) -> Vec<u8> {
    let mut note = [4, BUILD_ID_BYTES as u32, elf::NT_GNU_BUILD_ID.0]
        .map(u32::to_le_bytes)
        .concat();
    note.extend(elf::ELF_NOTE_GNU);
    note.push(0);
    note.extend(build_id);
    note
}
