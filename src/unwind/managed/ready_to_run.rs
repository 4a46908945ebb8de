//! Code that .NET compiled ahead of time: PE images, in files of their own or inside a single-file program.
//!
//! The exception directory (data directory 3) lists all functions by address, each with its UNWIND_INFO. Sections have to
//! be taken from their headers: the directory lies in `.data`, and there is no `.pdata`.

use crate::dotnet::{Function, Memory};

/// x86-64 with the mark that the image is for Linux: 0x8664 ^ 0x7B79.
const MACHINE: u16 = 0xfd1d;
/// Optional headers of 64-bit images.
const PE32_PLUS: u16 = 0x20b;
/// Longest DOS header with its program.
const MAX_DOS_BYTES: u32 = 1 << 16;
/// Most sections; the loaders of Windows take 96.
const MAX_SECTIONS: u16 = 96;
/// Largest exception directory; the composite image of a whole framework has 2.4 MB.
const MAX_DIRECTORY_BYTES: u32 = 32 << 20;
const FUNCTION_BYTES: usize = 12;
/// How far before its first code an image may begin: its headers, and the rounding of the mapping to a page.
const SEARCH_BACK: u64 = 1 << 16;
const PAGE_BYTES: u64 = 4096;
/// Flag of a section: it holds code.
const EXECUTABLE: u32 = 0x2000_0000;

/// A precompiled image within a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyToRunImage {
    /// Where in the file it begins.
    begins_at: u64,
    sections: Vec<Section>,
    /// RUNTIME_FUNCTIONs, by address.
    functions: Vec<[u8; FUNCTION_BYTES]>,
}

/// Addresses are relative to the image's base (RVA), offsets to its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Section {
    address: u64,
    offset: u64,
    bytes: u64,
    executable: bool,
}

impl ReadyToRunImage {
    /// The image whose code is mapped from `mapped_from` in a file on. `file` gives the file's bytes by offset.
    ///
    /// A file of its own begins with the image. Inside a single-file program it may begin anywhere, shortly before its code.
    pub fn find(file: &impl Memory, mapped_from: u64) -> Option<Self> {
        let covers = |image: &Self| image.address_of_page(mapped_from).is_some();
        if let Some(image) = Self::parse(file, 0).filter(covers) {
            return Some(image);
        }
        let from = mapped_from.saturating_sub(SEARCH_BACK);
        let mut window = vec![0; (mapped_from - from + PAGE_BYTES) as usize];
        let read = file.read(from, &mut window);
        window.truncate(read);
        // Bundled files are aligned to 16 bytes at least.
        let aligned = window.chunks(16).zip((from..).step_by(16));
        let begins = aligned.filter(|(bytes, _)| bytes.starts_with(b"MZ"));
        let found: Vec<_> = begins.map(|(_, at)| at).collect();
        found
            .into_iter()
            .rev()
            .filter_map(|at| Self::parse(file, at))
            .find(covers)
    }

    /// The image that begins at an offset of a file.
    pub fn parse(file: &impl Memory, begins_at: u64) -> Option<Self> {
        let at = |offset: u64| begins_at.checked_add(offset);
        if file.bytes(at(0)?)? != *b"MZ" {
            return None;
        }
        let pe = file.u32(at(0x3c)?)?;
        if pe > MAX_DOS_BYTES {
            return None;
        }
        let header: [u8; 24] = file.bytes(at(pe.into())?)?;
        let short = |offset: usize| u16_at(&header, offset);
        let (sections, optional_bytes) = (short(6)?, short(20)?);
        if !header.starts_with(b"PE\0\0") || short(4)? != MACHINE || sections > MAX_SECTIONS {
            return None;
        }
        let optional = u64::from(pe) + 24;
        let headers: [u8; 144] = file.bytes(at(optional)?)?;
        if u16_at(&headers, 0)? != PE32_PLUS || u32_at(&headers, 108)? < 4 {
            return None;
        }
        let (directory, bytes) = (u32_at(&headers, 136)?, u32_at(&headers, 140)?);
        let table = optional + u64::from(optional_bytes);
        let mut image = Self {
            begins_at,
            sections: (0..u64::from(sections))
                .map(|index| {
                    file.bytes(at(table + index * 40)?)
                        .as_ref()
                        .and_then(section)
                })
                .collect::<Option<_>>()?,
            functions: Vec::new(),
        };
        image.functions = image.directory(file, directory.into(), bytes)?;
        Some(image)
    }

    /// The exception directory, if it is sound: sorted, so that it can be searched.
    fn directory(
        &self,
        file: &impl Memory,
        address: u64,
        bytes: u32,
    ) -> Option<Vec<[u8; FUNCTION_BYTES]>> {
        let (offset, available) = self.offset_of(address)?;
        if bytes == 0 || bytes > MAX_DIRECTORY_BYTES || u64::from(bytes) > available {
            return None;
        }
        let mut functions = vec![[0; FUNCTION_BYTES]; bytes as usize / FUNCTION_BYTES];
        let flat = functions.as_flattened_mut();
        let sound = file.read(offset, flat) == flat.len() && functions.is_sorted_by_key(begin);
        sound.then_some(functions)
    }

    /// Where the byte at an address is in the file, and how many follow it in its section.
    fn offset_of(&self, address: u64) -> Option<(u64, u64)> {
        self.sections.iter().find_map(|section| {
            let within = address.checked_sub(section.address)?;
            let left = section.bytes.checked_sub(within).filter(|left| *left > 0)?;
            let offset = self.begins_at.checked_add(section.offset)?;
            Some((offset.checked_add(within)?, left))
        })
    }

    /// The address of a byte of code by its place in the file.
    #[must_use]
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        let within = file_offset.checked_sub(self.begins_at)?;
        self.code_at(|section| within.checked_sub(section.offset))
    }

    /// The same for the start of a mapping, which may lie before the section by up to a page.
    fn address_of_page(&self, file_offset: u64) -> Option<u64> {
        self.code_at(|section| {
            let starts_at = self.begins_at.checked_add(section.offset)?;
            file_offset.checked_sub(starts_at & !(PAGE_BYTES - 1))
        })
    }

    fn code_at(&self, within: impl Fn(&Section) -> Option<u64>) -> Option<u64> {
        self.sections.iter().find_map(|section| {
            let at = within(section).filter(|at| *at < section.bytes && section.executable)?;
            section.address.checked_add(at)
        })
    }

    /// The function that an address lies in.
    #[must_use]
    pub fn function_at(&self, address: u64) -> Option<Function> {
        let behind = self
            .functions
            .partition_point(|raw| u64::from(begin(raw)) <= address);
        let raw = self.functions.get(behind.checked_sub(1)?)?;
        let function = Function {
            begin: begin(raw).into(),
            end: u32_at(raw, 4)?.into(),
            unwind_info: u32_at(raw, 8)?.into(),
        };
        (function.begin..function.end)
            .contains(&address)
            .then_some(function)
    }
}

/// The bytes of an image by address.
pub(super) struct Mapped<'a, M> {
    pub(super) image: &'a ReadyToRunImage,
    pub(super) file: M,
}

impl<M: Memory> Memory for Mapped<'_, M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Some((offset, available)) = self.image.offset_of(address) else {
            return 0;
        };
        let wanted = buffer
            .len()
            .min(usize::try_from(available).unwrap_or(usize::MAX));
        buffer
            .get_mut(..wanted)
            .map_or(0, |buffer| self.file.read(offset, buffer))
    }
}

fn section(header: &[u8; 40]) -> Option<Section> {
    let number = |offset| u32_at(header, offset).map(u64::from);
    Some(Section {
        address: number(12)?,
        bytes: number(16)?,
        offset: number(20)?,
        executable: u32_at(header, 36)? & EXECUTABLE != 0,
    })
}

fn begin(raw: &[u8; FUNCTION_BYTES]) -> u32 {
    u32_at(raw, 0).unwrap_or(0)
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dotnet::Image;
    use proptest::prelude::*;

    /// An image with `.text` of 0x1000 bytes at file 0x400 and address 0x1_0000, and `.data` with two functions.
    fn image() -> Vec<u8> {
        let mut bytes = vec![0; 0x2000];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, b"MZ");
        put(0x3c, &0x80_u32.to_le_bytes());
        put(0x80, b"PE\0\0\x1d\xfd\x02\0");
        put(0x94, &240_u16.to_le_bytes());
        put(0x98, &0x20b_u16.to_le_bytes());
        put(0x98 + 108, &16_u32.to_le_bytes());
        put(0x98 + 136, &0x2_0010_u32.to_le_bytes());
        put(0x98 + 140, &24_u32.to_le_bytes());
        let section = |values: [u32; 4], flags: u32| {
            let mut header = vec![0; 40];
            for (index, value) in values.iter().enumerate() {
                header[8 + index * 4..][..4].copy_from_slice(&value.to_le_bytes());
            }
            header[36..].copy_from_slice(&flags.to_le_bytes());
            header
        };
        put(
            0x188,
            &section([0x1000, 0x1_0000, 0x1000, 0x400], 0x6000_0020),
        );
        put(
            0x1b0,
            &section([0x100, 0x2_0000, 0x100, 0x1400], 0xc000_0040),
        );
        let functions = [
            0x1_0010_u32,
            0x1_0020,
            0x1_0f00,
            0x1_0020,
            0x1_0050,
            0x1_0f10,
        ];
        let functions: Vec<u8> = functions.iter().flat_map(|v| v.to_le_bytes()).collect();
        put(0x1410, &functions);
        bytes
    }

    fn file(bytes: &[u8]) -> Image<'_> {
        Image { start: 0, bytes }
    }

    #[test]
    fn a_place_in_the_file_leads_to_its_function() {
        let bytes = image();
        let image = ReadyToRunImage::find(&file(&bytes), 0).unwrap();
        assert_eq!(image.address_of(0x425), Some(0x1_0025));
        assert_eq!(image.address_of(0x1405), None);
        let function = image.function_at(0x1_0025).unwrap();
        assert_eq!((function.begin, function.end), (0x1_0020, 0x1_0050));
        assert_eq!(function.unwind_info, 0x1_0f10);
        assert_eq!(image.function_at(0x1_0050), None);
        assert_eq!(image.function_at(0x1_000f), None);
        let file = file(&bytes);
        let mapped = Mapped {
            image: &image,
            file,
        };
        assert_eq!(mapped.u32(0x2_0010), Some(0x1_0010));
        assert_eq!(mapped.u32(0x2_00fe), None);
    }

    #[test]
    fn an_image_inside_a_program() {
        let bytes = [&vec![0x90; 0x5230][..], &image(), &[0; 0x3000]].concat();
        // The page that holds file offset 0x5230 + 0x400.
        let image = ReadyToRunImage::find(&file(&bytes), 0x5000).unwrap();
        assert_eq!(image.address_of(0x5230 + 0x425), Some(0x1_0025));
        assert!(ReadyToRunImage::find(&file(&bytes), 0x7000).is_none());
    }

    #[test]
    fn damage_is_refused() {
        for (at, value) in [
            (0, 0),
            (0x3f, 9),
            (0x84, 0x64),
            (0x98, 0),
            (0x1413, 2),
            (0x98 + 143, 1),
        ] {
            let mut bytes = image();
            bytes[at] = value;
            assert_eq!(ReadyToRunImage::parse(&file(&bytes), 0), None, "{at:#x}");
        }
        assert_eq!(ReadyToRunImage::parse(&file(&image()[..0x1418]), 0), None);
    }

    proptest! {
        #[test]
        fn any_damage_is_survived(
            changes in proptest::collection::vec((0..0x1440_usize, any::<u8>()), 0..12), offset in any::<u64>())
        {
            let mut bytes = image();
            for (at, value) in changes {
                bytes[at] = value;
            }
            if let Some(image) = ReadyToRunImage::find(&file(&bytes), 0) {
                let address = image.address_of(0x425).unwrap_or(offset);
                let _ = (image.address_of(offset), image.function_at(address));
            }
            let _ = ReadyToRunImage::parse(&file(&bytes), offset);
        }
    }
}
