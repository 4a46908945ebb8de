//! Code that .NET compiled ahead of time: PE images, in files of their own or inside a single-file program.
//!
//! The exception directory (data directory 3) lists all functions by address, each with its UNWIND_INFO. Sections have to
//! be taken from their headers: the directory lies in `.data`, and there is no `.pdata`.

use perfcollect_symbols::dotnet::pe::{ByAddress, PeImage};

use crate::dotnet::{Function, Memory};

/// x86-64 with the mark that the image is for Linux: 0x8664 ^ 0x7B79.
const MACHINE: u16 = 0xfd1d;
const EXCEPTION_DIRECTORY: usize = 3;
/// Largest exception directory; the composite image of a whole framework has 2.4 MB.
const MAX_DIRECTORY_BYTES: usize = 32 << 20;
const FUNCTION_BYTES: usize = 12;

/// A precompiled image within a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyToRunImage {
    image: PeImage,
    /// RUNTIME_FUNCTIONs, by address.
    functions: Vec<[u8; FUNCTION_BYTES]>,
}

impl ReadyToRunImage {
    /// The image whose code is mapped from `mapped_from` in a file on. `file` gives the file's bytes by offset.
    pub fn find(file: &impl Memory, mapped_from: u64) -> Option<Self> {
        Self::of(PeImage::find(file, mapped_from)?, file)
    }

    fn of(image: PeImage, file: &impl Memory) -> Option<Self> {
        if image.machine != MACHINE {
            return None;
        }
        let functions = functions(&image, file)?;
        Some(Self { image, functions })
    }

    /// The address of a byte of code by its place in the file.
    #[must_use]
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        self.image.address_of(file_offset)
    }

    /// The bytes of the image by address, from those of its file.
    pub(super) fn by_address<M>(&self, file: M) -> ByAddress<'_, M> {
        self.image.by_address(file)
    }

    /// The function that an address lies in.
    #[must_use]
    pub fn function_at(&self, address: u64) -> Option<Function> {
        let behind = self
            .functions
            .partition_point(|raw| u64::from(begin(raw)) <= address);
        let [begin, end, unwind_info] = numbers(self.functions.get(behind.checked_sub(1)?)?);
        let function = Function {
            begin: begin.into(),
            end: end.into(),
            unwind_info: unwind_info.into(),
        };
        (function.begin..function.end)
            .contains(&address)
            .then_some(function)
    }
}

/// The exception directory, if it is sound: sorted, so that it can be searched.
fn functions(image: &PeImage, file: &impl Memory) -> Option<Vec<[u8; FUNCTION_BYTES]>> {
    let directory = image.directory(EXCEPTION_DIRECTORY)?;
    let bytes = image.by_address(file).vec(
        directory.address.into(),
        directory.size.into(),
        MAX_DIRECTORY_BYTES,
    )?;
    let (functions, _) = bytes.as_chunks();
    functions
        .is_sorted_by_key(begin)
        .then(|| functions.to_vec())
}

fn begin(raw: &[u8; FUNCTION_BYTES]) -> u32 {
    numbers(raw)[0]
}

fn numbers(raw: &[u8; FUNCTION_BYTES]) -> [u32; 3] {
    let (numbers, _) = raw.as_chunks::<4>();
    std::array::from_fn(|index| numbers.get(index).copied().map_or(0, u32::from_le_bytes))
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
        let mapped = image.by_address(file);
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
            assert_eq!(ReadyToRunImage::find(&file(&bytes), 0), None, "{at:#x}");
        }
        assert_eq!(ReadyToRunImage::find(&file(&image()[..0x1418]), 0), None);
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
            let _ = PeImage::parse(&file(&bytes), offset);
        }
    }
}
