//! ReadyToRun code: PE images in separate files or within a single-file program.
//!
//! The exception directory lists all functions by address, with the UNWIND_INFO of each.

use perfcollect_symbols::dotnet::pe::{ByAddress, PeImage};
use perfcollect_symbols::dotnet::ready_to_run::ReadyToRunError;
use perfcollect_symbols::dotnet::runtime_functions::RuntimeFunctions;

use crate::dotnet::{FunctionEntry, Memory};

/// A ReadyToRun image within a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyToRunImage {
    image: PeImage,
    functions: RuntimeFunctions,
}

impl ReadyToRunImage {
    /// Finds the image whose code is mapped from file offset `mapped_from`.
    ///
    /// `file` contains the bytes of the file by offset.
    ///
    /// # Errors
    /// No image is there, or it has no valid list of functions.
    pub fn find(file: &impl Memory, mapped_from: u64) -> Result<Self, ReadyToRunError> {
        let image = PeImage::find(file, mapped_from)?;
        let functions = RuntimeFunctions::of(&image, file)?;
        Ok(Self { image, functions })
    }

    /// Returns the memory that the list of functions occupies, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.functions.bytes()
    }

    /// Returns the image address of a code byte at a file offset.
    #[must_use]
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        self.image.address_of(file_offset)
    }

    /// Returns a view of the file that is addressed by image address.
    pub(super) fn by_address<M>(&self, file: M) -> ByAddress<'_, M> {
        self.image.by_address(file)
    }

    /// Returns the function that contains an address.
    #[must_use]
    pub fn function_at(&self, address: u64) -> Option<FunctionEntry> {
        let (_, function) = self.functions.at(address)?;
        Some(FunctionEntry {
            begin: function.begin.into(),
            end: function.end.into(),
            unwind_info: function.unwind_info.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dotnet::Image;
    use proptest::prelude::*;

    /// Builds an image with two functions.
    ///
    /// `.text` has 0x1000 bytes at file offset 0x400 and address 0x1_0000. `.data` lists the
    /// functions.
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
    fn finds_function_by_file_offset() {
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
        assert_eq!(mapped.u32(0x2_0010), Ok(0x1_0010));
        assert!(mapped.u32(0x2_00fe).is_err());
    }

    #[test]
    fn finds_image_within_program() {
        let bytes = [&vec![0x90; 0x5230][..], &image(), &[0; 0x3000]].concat();
        // The page that contains file offset 0x5230 + 0x400.
        let image = ReadyToRunImage::find(&file(&bytes), 0x5000).unwrap();
        assert_eq!(image.address_of(0x5230 + 0x425), Some(0x1_0025));
        assert!(ReadyToRunImage::find(&file(&bytes), 0x7000).is_err());
    }

    #[test]
    fn rejects_corrupt_images() {
        for (at, value, expected) in [
            (0, 0, "no PE image has code at file offset 0x0"),
            (0x3f, 9, "offset of the PE header 150995072 exceeds"),
            (0x84, 0x64, "machine 0xfd64 of the image, expected 0xfd1d"),
            (0x98, 0, "unknown optional header 0x200"),
            (0x1413, 2, "not sorted by address"),
            (0x98 + 143, 1, "cannot read 16777240 bytes at 0x20010"),
        ] {
            let mut bytes = image();
            bytes[at] = value;
            let error = ReadyToRunImage::find(&file(&bytes), 0).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(expected), "{at:#x}: {error}");
        }
        assert!(ReadyToRunImage::find(&file(&image()[..0x1418]), 0).is_err());
    }

    proptest! {
        #[test]
        fn accepts_arbitrary_corruption_without_panic(
            changes in proptest::collection::vec((0..0x1440_usize, any::<u8>()), 0..12), offset in any::<u64>())
        {
            let mut bytes = image();
            for (at, value) in changes {
                bytes[at] = value;
            }
            if let Ok(image) = ReadyToRunImage::find(&file(&bytes), 0) {
                let address = image.address_of(0x425).unwrap_or(offset);
                let _ = (image.address_of(offset), image.function_at(address));
            }
            let _ = PeImage::parse(&file(&bytes), offset);
        }
    }
}
