//! The functions of a precompiled image: its exception directory, which lists them by address. It lies in `.data`, and
//! there is no `.pdata`.

use super::pe::PeImage;
use crate::memory::Memory;

/// x86-64 with the mark that the image is for Linux: 0x8664 ^ 0x7B79.
const MACHINE: u16 = 0xfd1d;
const EXCEPTION_DIRECTORY: usize = 3;
/// Largest exception directory; the composite image of a whole framework has 2.4 MB.
const MAX_DIRECTORY_BYTES: usize = 32 << 20;
const FUNCTION_BYTES: usize = 12;

/// RUNTIME_FUNCTIONs, by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeFunctions(Vec<[u8; FUNCTION_BYTES]>);

/// A contiguous piece of code: a method, or a handler of one. Addresses are relative to the image's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeFunction {
    /// Its first address.
    pub begin: u32,
    /// Behind its last address.
    pub end: u32,
    /// Where its UNWIND_INFO is.
    pub unwind_info: u32,
}

impl RuntimeFunctions {
    /// Those of an image, if they are sound: sorted, so that they can be searched. `file` gives the file's bytes by offset.
    pub fn of(image: &PeImage, file: &impl Memory) -> Option<Self> {
        if image.machine != MACHINE {
            return None;
        }
        let directory = image.directory(EXCEPTION_DIRECTORY)?;
        let bytes = image.by_address(file).vec(
            directory.address.into(),
            directory.size.into(),
            MAX_DIRECTORY_BYTES,
        )?;
        let (functions, _) = bytes.as_chunks();
        let is_sound = functions.is_sorted_by_key(|raw| decode(raw).begin);
        is_sound.then(|| Self(functions.to_vec()))
    }

    /// The function that an address lies in, and its position.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<(u32, RuntimeFunction)> {
        let address = u32::try_from(address).ok()?;
        let behind = self.0.partition_point(|raw| decode(raw).begin <= address);
        let index = behind.checked_sub(1)?;
        let function = decode(self.0.get(index)?);
        (address < function.end).then_some((index as u32, function))
    }

    /// All, by address.
    pub fn iter(&self) -> impl Iterator<Item = RuntimeFunction> + '_ {
        self.0.iter().map(decode)
    }
}

fn decode(raw: &[u8; FUNCTION_BYTES]) -> RuntimeFunction {
    let (numbers, _) = raw.as_chunks::<4>();
    let number = |index: usize| numbers.get(index).copied().map_or(0, u32::from_le_bytes);
    RuntimeFunction {
        begin: number(0),
        end: number(1),
        unwind_info: number(2),
    }
}
