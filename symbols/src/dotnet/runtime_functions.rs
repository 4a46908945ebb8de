//! The functions of a ReadyToRun image, from its exception directory, which is sorted by address.
//!
//! The directory is in `.data`: these images have no `.pdata`.

use super::pe::PeImage;
use super::ready_to_run::ReadyToRunError;
use crate::memory::Memory;

/// The machine type of x86-64 images for Linux: 0x8664 ^ 0x7B79.
const MACHINE: u16 = 0xfd1d;
const EXCEPTION_DIRECTORY: usize = 3;
/// Size limit of the exception directory. The composite image of a whole framework has 2.4 MB.
const MAX_DIRECTORY_BYTES: usize = 32 << 20;
const FUNCTION_BYTES: usize = 12;

/// The `RUNTIME_FUNCTION` entries of an image, sorted by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeFunctions(Vec<[u8; FUNCTION_BYTES]>);

/// A contiguous range of code: a method body, or a funclet of one. Addresses are relative to the
/// image base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeFunction {
    /// The first address.
    pub begin: u32,
    /// The exclusive end address.
    pub end: u32,
    /// The address of the `UNWIND_INFO`.
    pub unwind_info: u32,
}

impl RuntimeFunctions {
    /// Reads the functions of an image. `file` provides the file's bytes by offset.
    ///
    /// # Errors
    /// The image is for another machine, its exception directory is missing or not readable, or its
    /// functions are not sorted, as a binary search requires.
    pub fn of(image: &PeImage, file: &impl Memory) -> Result<Self, ReadyToRunError> {
        if image.machine != MACHINE {
            return Err(ReadyToRunError::Machine {
                found: image.machine,
                expected: MACHINE,
            });
        }
        let directory = image.directory(EXCEPTION_DIRECTORY);
        let directory = directory.ok_or(ReadyToRunError::NoFunctions)?;
        let bytes = image.by_address(file).vec(
            directory.address.into(),
            directory.size.into(),
            MAX_DIRECTORY_BYTES,
        )?;
        let (functions, _) = bytes.as_chunks();
        match functions.is_sorted_by_key(|raw| decode(raw).begin) {
            true => Ok(Self(functions.to_vec())),
            false => Err(ReadyToRunError::NotSorted),
        }
    }

    /// Returns the memory that the functions occupy, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.as_flattened().len()
    }

    /// Returns the function that contains an address, and its index.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<(u32, RuntimeFunction)> {
        let address = u32::try_from(address).ok()?;
        let next = self.0.partition_point(|raw| decode(raw).begin <= address);
        let index = next.checked_sub(1)?;
        let function = decode(self.0.get(index)?);
        (address < function.end).then_some((index as u32, function))
    }

    /// Iterates over all functions in address order.
    pub fn iter(&self) -> impl Iterator<Item = RuntimeFunction> + '_ {
        self.0.iter().map(decode)
    }
}

fn decode(raw: &[u8; FUNCTION_BYTES]) -> RuntimeFunction {
    let (fields, _) = raw.as_chunks::<4>();
    let field = |index: usize| fields.get(index).copied().map_or(0, u32::from_le_bytes);
    RuntimeFunction {
        begin: field(0),
        end: field(1),
        unwind_info: field(2),
    }
}
