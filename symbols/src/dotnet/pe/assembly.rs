//! The COR header and the metadata of a PE image that is an assembly.

use super::{Directory, PeError, PeImage, expect_magic};
use crate::dotnet::metadata::Metadata;
use crate::memory::{Image, Memory, Structure};

/// Index of the COR header's data directory, and size of that header.
const COR_DIRECTORY: usize = 14;
const COR_BYTES: usize = 72;
/// Size limit of metadata. The metadata of the core library has 4 MB.
const MAX_METADATA_BYTES: usize = 64 << 20;

/// The header of an assembly (ECMA-335 II.25.3.3, "CLI header").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorHeader {
    /// The metadata.
    pub metadata: Directory,
    /// The ReadyToRun header. Empty if the image has no ReadyToRun code.
    pub native: Directory,
}

impl PeImage {
    /// Reads the COR header. `image` provides the image's bytes by address.
    ///
    /// # Errors
    /// The image has no COR header, or it is not readable.
    pub fn cor_header(&self, image: &impl Memory) -> Result<CorHeader, PeError> {
        let directory = self.directory(COR_DIRECTORY).ok_or(PeError::NoCorHeader)?;
        let header: [u8; COR_BYTES] = image.bytes(directory.address.into())?;
        let header = Image {
            start: 0,
            bytes: &header,
        };
        let at = |offset| -> Result<_, PeError> {
            Ok(Directory {
                address: header.u32(offset)?,
                size: header.u32(offset + 4)?,
            })
        };
        Ok(CorHeader {
            metadata: at(8)?,
            native: at(64)?,
        })
    }

    /// Reads the metadata of the image. `file` provides the file's bytes by offset.
    ///
    /// # Errors
    /// The image is no assembly, or its metadata is not readable or corrupt.
    pub fn metadata(&self, file: &impl Memory) -> Result<Metadata, PeError> {
        let image = self.by_address(file);
        metadata(&image, self.cor_header(&image)?)
    }
}

/// Reads the metadata of the image at an address of a process's memory.
///
/// The image may be laid out by address or as in its file.
///
/// # Errors
/// No assembly is there, or its metadata is not readable or corrupt in both layouts. The error is
/// that of the layout of the file.
pub fn metadata_in_memory(memory: &impl Memory, base: u64) -> Result<Metadata, PeError> {
    let image = PeImage::parse(memory, base)?;
    let loaded = Structure::new(memory, base);
    image
        .cor_header(&loaded)
        .and_then(|header| metadata(&loaded, header))
        .or_else(|_| image.metadata(memory))
}

fn metadata(image: &impl Memory, header: CorHeader) -> Result<Metadata, PeError> {
    let Directory { address, size } = header.metadata;
    // A cheap check of the magic precedes the large read, because the address may be wrong.
    expect_magic(image, address.into(), *b"BSJB", "metadata")?;
    let bytes = image.vec(address.into(), size.into(), MAX_METADATA_BYTES)?;
    Ok(Metadata::open(bytes)?)
}
