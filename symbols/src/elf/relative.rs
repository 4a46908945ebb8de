//! Relative relocations: the words that the loader sets to an address of the same file.
//!
//! A position-independent file may contain zeros where it has pointers. Format: gABI,
//! "Relocation" and "Dynamic Section". The types are those of the psABI of each architecture.

use object::Endianness;
use object::elf::{self, Dyn64, Rela64};
use object::pod::slice_from_bytes;

use super::headers::Headers;
use super::image::LoadedImage;
use super::{ElfError, check_size};
use crate::memory::Memory;

/// Limit of the dynamic section, in bytes. It has some 30 entries of 16 bytes.
const MAX_DYNAMIC_BYTES: u64 = 1 << 20;
/// Limit of relocations, in bytes. Chromium has 23 MB.
const MAX_RELOCATIONS_BYTES: u64 = 128 << 20;
/// Size of the pieces in which relocations are read.
const PIECE_BYTES: usize = 4096 * size_of::<Rela64<Endianness>>();

/// The table `DT_RELA` of a 64-bit file.
///
/// Files without such a table have none, and neither have those of architectures whose type of a
/// relative relocation is unknown here. `DT_REL` and `DT_RELR` need no support: their words already
/// contain the address.
pub(super) struct Relocations<'a> {
    image: &'a LoadedImage,
    endian: Endianness,
    kind: u32,
    address: u64,
    size: u64,
}

impl<'a> Relocations<'a> {
    pub(super) fn read(image: &'a LoadedImage, headers: &Headers) -> Result<Self, ElfError> {
        let mut relocations = Self {
            image,
            endian: headers.endian,
            kind: 0,
            address: 0,
            size: 0,
        };
        relocations.kind = match headers.machine {
            elf::EM_X86_64 => elf::R_X86_64_RELATIVE.0,
            elf::EM_AARCH64 => elf::R_AARCH64_RELATIVE.0,
            elf::EM_RISCV => elf::R_RISCV_RELATIVE.0,
            _ => return Ok(relocations),
        };
        let mut segments = headers.segments.iter();
        let dynamic = segments.find(|segment| segment.kind == elf::PT_DYNAMIC);
        let Some(dynamic) = dynamic.filter(|_| headers.is_64) else {
            return Ok(relocations);
        };
        check_size("dynamic section", dynamic.file_size, MAX_DYNAMIC_BYTES)?;
        let mut bytes = vec![0; dynamic.file_size as usize];
        let read = image.read(dynamic.address, &mut bytes);
        bytes.truncate(read);
        let count = bytes.len() / size_of::<Dyn64<Endianness>>();
        let entries = slice_from_bytes::<Dyn64<Endianness>>(&bytes, count);
        for entry in entries.map_or(&[][..], |(entries, _)| entries) {
            let value = entry.d_val.get(headers.endian);
            match entry.d_tag.get(headers.endian) {
                elf::DT_NULL => break,
                elf::DT_RELA => relocations.address = value,
                elf::DT_RELASZ => relocations.size = value,
                _ => {}
            }
        }
        check_size("relocations", relocations.size, MAX_RELOCATIONS_BYTES)?;
        Ok(relocations)
    }

    /// Calls `visit` with the address of each word and the address that the word is set to.
    ///
    /// # Errors
    /// The table is not inside the file.
    pub(super) fn for_each(&self, mut visit: impl FnMut(u64, u64)) -> Result<(), ElfError> {
        let mut piece = vec![0; PIECE_BYTES.min(self.size as usize)];
        let mut done = 0;
        while done < self.size {
            let length = (self.size - done).min(PIECE_BYTES as u64) as usize;
            let bytes = piece.get_mut(..length).unwrap_or_default();
            let address = self.address.saturating_add(done);
            if self.image.read(address, bytes) < length {
                return Err(ElfError::Corrupt {
                    what: "relocations",
                    why: format!("{length} bytes at address {address:#x} are not in one segment"),
                });
            }
            for (address, target) in relative(bytes, self.endian, &[self.kind]) {
                visit(address, target);
            }
            done += length as u64;
        }
        Ok(())
    }
}

/// Returns the relocations of some types, which are those without a symbol: the address of the word
/// and the address that it is set to.
pub(super) fn relative(
    bytes: &[u8],
    endian: Endianness,
    kinds: &[u32],
) -> impl Iterator<Item = (u64, u64)> {
    let count = bytes.len() / size_of::<Rela64<Endianness>>();
    let all = slice_from_bytes::<Rela64<Endianness>>(bytes, count);
    let all = all.map_or(&[][..], |(all, _)| all).iter();
    let relative = all.filter(move |all| kinds.contains(&(all.r_info.get(endian) as u32)));
    relative.map(move |relocation| {
        let target = relocation.r_addend.get(endian);
        (relocation.r_offset.get(endian), target.cast_unsigned())
    })
}
