//! The file of a process that contains the .NET runtime, and its symbols.

use perfcollect_symbols::elf::{ElfFile, LoadSegment};

use super::runtime_error::RuntimeFileError;
use crate::machine::{Backing, CodeFile, Content, FileTable, Maps};
use crate::trace::{ModuleId, lacks_descriptors};

/// The runtime's library. In a single-file program, the runtime is linked into the executable.
pub(super) const FILE_NAME: &str = "libcoreclr.so";
const PAGE_BYTES: u64 = 4096;

/// Symbols and segments of a file that contains a runtime. Addresses are SVMAs.
#[derive(Debug)]
pub struct RuntimeFile {
    /// The DAC table. Its first entry is the range section map.
    pub(super) dac_table: u64,
    /// The data contract descriptor.
    pub(super) descriptor: Option<u64>,
    pub(super) segments: Vec<LoadSegment>,
}

impl RuntimeFile {
    /// Reads a file. Returns `None` if it contains no runtime, or one older than .NET 8.
    ///
    /// # Errors
    /// The content of the file is not available, or it is not a valid ELF file.
    pub fn of(file: &CodeFile) -> Result<Option<Self>, RuntimeFileError> {
        let content = match &file.content {
            Content::File(content) => content,
            // An image in the memory of the kernel.
            Content::Vdso(_) => return Ok(None),
            Content::Unavailable(why) if lacks_descriptors(why) => {
                return Err(RuntimeFileError::TooManyOpenFiles);
            }
            Content::Unavailable(why) => return Err(RuntimeFileError::NoContent(why.to_string())),
        };
        let elf = ElfFile::open(content.clone())?;
        let Some(dac_table) = elf.dynamic_symbol(b"g_dacTable")? else {
            return Ok(None);
        };
        Ok(Some(Self {
            dac_table,
            descriptor: elf.dynamic_symbol(b"DotNetRuntimeContractDescriptor")?,
            segments: elf.load_segments(),
        }))
    }

    /// Returns the load bias according to one mapping of the file.
    ///
    /// Returns `None` if the mapping is not of an executable segment. A single-file program also
    /// contains images with separate mappings.
    #[must_use]
    pub fn bias(&self, mapped_at: u64, file_offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| {
            let first = segment.file_offset & !(PAGE_BYTES - 1);
            segment.executable
                && (first..segment.file_offset.saturating_add(segment.file_size))
                    .contains(&file_offset)
        })?;
        let svma = segment
            .address
            .wrapping_add(file_offset)
            .wrapping_sub(segment.file_offset);
        Some(mapped_at.wrapping_sub(svma))
    }
}

/// Returns the files of a process that may contain a runtime, the most likely first.
///
/// These are `libcoreclr.so`, and the first file that is neither library nor assembly, which is the
/// executable.
pub fn candidates<'a>(maps: &'a Maps, files: &'a FileTable) -> impl Iterator<Item = ModuleId> + 'a {
    let mapped = || {
        maps.iter().filter_map(|mapping| match mapping.backing {
            Backing::File(id) => Some((id, files.file(id).clean_path())),
            Backing::Jit | Backing::DoubleMapped => None,
        })
    };
    let library = mapped().find(|(_, path)| path.ends_with(FILE_NAME));
    let executable = mapped().find(|(_, path)| {
        let name = path.file_name().unwrap_or_default();
        !is_library(name.as_encoded_bytes())
    });
    library.into_iter().chain(executable).map(|(id, _)| id)
}

/// Returns whether the mappings of a process indicate a runtime, as [`tells_of_runtime`].
#[must_use]
pub fn maps_runtime(maps: &Maps, files: &FileTable) -> bool {
    maps.iter().any(|mapping| match mapping.backing {
        Backing::File(id) => files.file(id).clean_path().ends_with(FILE_NAME),
        Backing::Jit => false,
        Backing::DoubleMapped => true,
    })
}

/// Returns whether a name is that of a library or an assembly: `libc.so`, `libc.so.6`, `App.dll`.
///
/// Names of programs may contain dots, too.
fn is_library(name: &[u8]) -> bool {
    let is_versioned = || name.windows(4).any(|part| part == b".so.");
    name.ends_with(b".so") || name.ends_with(b".dll") || is_versioned()
}

/// Returns whether the path of an executable mapping indicates a runtime.
///
/// The path is that of the runtime's library, or of its memory for JIT code, which single-file
/// programs have, too.
#[must_use]
pub fn tells_of_runtime(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next();
    name == Some(FILE_NAME.as_bytes()) || Backing::of_memory(path) == Some(Backing::DoubleMapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_libraries_from_programs_by_name() {
        for library in ["libc.so.6", "libclrjit.so", "split.r2r.dll"] {
            assert!(is_library(library.as_bytes()), "{library}");
        }
        for program in ["dotnet", "route.solver", "my.dllhost", "so", "Acme.App"] {
            assert!(!is_library(program.as_bytes()), "{program}");
        }
    }

    #[test]
    fn computes_bias_of_a_mapping_that_starts_before_its_segment() {
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
