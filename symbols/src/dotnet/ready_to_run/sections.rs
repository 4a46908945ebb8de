//! The ReadyToRun sections of an image, or of one component assembly of a composite image.

use super::ReadyToRunError;
use crate::dotnet::pe::Directory;
use crate::memory::{Memory, Structure};

const MAGIC: u32 = 0x0052_5452;
const MAX_SECTIONS: u32 = 256;
/// Newest supported major version: .NET 11. .NET 8 has 9, .NET 9 has 10, .NET 10 has 16.
const MAX_MAJOR: u16 = 27;

/// Section types and their positions in the image.
pub(super) struct Sections(Vec<(u32, Directory)>);

/// Returns the major version of the ReadyToRun header at an address.
pub(super) fn major_version(image: &impl Memory, address: u32) -> Result<u16, ReadyToRunError> {
    let header = Structure::new(image, address.into());
    let found = header.u32(0)?;
    if found != MAGIC {
        let address = address.into();
        return Err(ReadyToRunError::Magic { address, found });
    }
    let (major, minor) = (header.u16(4)?, header.u16(6)?);
    match major <= MAX_MAJOR {
        true => Ok(major),
        false => Err(ReadyToRunError::Version { major, minor }),
    }
}

impl Sections {
    /// Reads the section list of a header. Headers of component assemblies have no version.
    pub(super) fn read(
        image: &impl Memory,
        address: u32,
        has_version: bool,
    ) -> Result<Self, ReadyToRunError> {
        let core_header = u64::from(address) + if has_version { 8 } else { 0 };
        let count = image.u32(core_header + 4)?;
        if count > MAX_SECTIONS {
            return Err(ReadyToRunError::TooMany {
                what: "ReadyToRun sections",
                count,
                limit: MAX_SECTIONS,
            });
        }
        let sections = (0..u64::from(count)).map(|index| {
            let entry = Structure::new(image, core_header + 8 + index * 12);
            let directory = Directory {
                address: entry.u32(4)?,
                size: entry.u32(8)?,
            };
            Ok((entry.u32(0)?, directory))
        });
        sections.collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn get(&self, kind: u32) -> Option<Directory> {
        let section = self.0.iter().find(|(section, _)| *section == kind);
        section.map(|(_, directory)| *directory)
    }
}
