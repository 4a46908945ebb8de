//! Which file of a process holds the .NET runtime, and what it states.

use perfcollect_symbols::elf::{ElfFile, LoadSegment};

use crate::machine::{Backing, CodeFile, Content, FileTable, Maps};
use crate::trace::ModuleId;

/// The runtime's file, unless it is linked into the executable (single-file programs).
pub(super) const FILE_NAME: &str = "libcoreclr.so";
const PAGE_BYTES: u64 = 4096;

/// What a file that holds a runtime says about it. Addresses are those the file states.
#[derive(Debug)]
pub struct RuntimeFile {
    /// The table for debuggers; its first entry is the range section map.
    pub(super) dac_table: u64,
    pub(super) descriptor: Option<u64>,
    segments: Vec<LoadSegment>,
}

impl RuntimeFile {
    /// The runtime in a file; `None`: there is none in it, or one older than .NET 8.
    #[must_use]
    pub fn of(file: &CodeFile) -> Option<Self> {
        let Content::File(content) = &file.content else {
            return None;
        };
        let elf = ElfFile::open(content).ok()?;
        let symbol = |name: &[u8]| elf.dynamic_symbol(name).ok().flatten();
        Some(Self {
            dac_table: symbol(b"g_dacTable")?,
            descriptor: symbol(b"DotNetRuntimeContractDescriptor"),
            segments: elf.load_segments(),
        })
    }

    /// How far the file is loaded from where it states to be, by one of its mappings. `None`: another mapping may tell;
    /// a single-file program also holds images that are mapped by themselves.
    #[must_use]
    pub fn bias(&self, mapped_at: u64, file_offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| {
            let first = segment.file_offset & !(PAGE_BYTES - 1);
            segment.executable
                && (first..segment.file_offset.saturating_add(segment.file_size))
                    .contains(&file_offset)
        })?;
        let stated = segment
            .address
            .wrapping_add(file_offset)
            .wrapping_sub(segment.file_offset);
        Some(mapped_at.wrapping_sub(stated))
    }
}

/// The files of a process that may hold a runtime, the likelier first: `libcoreclr.so`, then what is neither library nor
/// assembly, so the executable.
pub fn candidates<'a>(maps: &'a Maps, files: &'a FileTable) -> impl Iterator<Item = ModuleId> + 'a {
    let mapped = || {
        maps.iter().filter_map(|mapping| match mapping.backing {
            Backing::File(id) => Some((id, files.file(id).clean_path())),
            Backing::Jit | Backing::DoubleMapped => None,
        })
    };
    let named = mapped().find(|(_, path)| path.ends_with(FILE_NAME));
    let executable = mapped().find(|(_, path)| {
        let name = path.file_name().unwrap_or_default();
        !is_library(name.as_encoded_bytes())
    });
    named.into_iter().chain(executable).map(|(id, _)| id)
}

/// Whether a file is a library or an assembly, by its name: `libc.so`, `libc.so.6`, `App.dll`. Programs have dots too.
fn is_library(name: &[u8]) -> bool {
    let is_versioned = || name.windows(4).any(|part| part == b".so.");
    name.ends_with(b".so") || name.ends_with(b".dll") || is_versioned()
}

/// Whether a mapping of code, by its path, tells of a runtime: its library, or the memory it makes code in, which a
/// single-file program has too.
#[must_use]
pub fn tells_of_runtime(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next();
    name == Some(FILE_NAME.as_bytes()) || Backing::of_memory(path) == Some(Backing::DoubleMapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_be_called_almost_like_a_library() {
        for library in ["libc.so.6", "libclrjit.so", "split.r2r.dll"] {
            assert!(is_library(library.as_bytes()), "{library}");
        }
        for program in ["dotnet", "route.solver", "my.dllhost", "so", "Acme.App"] {
            assert!(!is_library(program.as_bytes()), "{program}");
        }
    }

    #[test]
    fn a_mapping_may_begin_before_its_segment() {
        let segment = LoadSegment {
            file_offset: 0x1c_89a0,
            file_size: 0x4b_0600,
            address: 0x1c_99a0,
            memory_size: 0x4b_0600,
            executable: true,
        };
        let file = RuntimeFile {
            dac_table: 0,
            descriptor: None,
            segments: vec![segment],
        };
        assert_eq!(
            file.bias(0x7f00_001c_9000, 0x1c_8000),
            Some(0x7f00_0000_0000)
        );
        assert_eq!(file.bias(0x7f00_001c_9000, 0x1c_7000), None);
    }
}
