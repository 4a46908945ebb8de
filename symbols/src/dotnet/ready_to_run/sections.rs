//! The ReadyToRun sections of an image, or of one component assembly of a composite image.

use super::ReadyToRunError;
use crate::dotnet::pe::Directory;
use crate::memory::{Memory, Structure};

const MAGIC: u32 = 0x0052_5452;
const MAX_SECTIONS: u32 = 256;

/// Section types and their positions in the image.
pub(super) struct Sections(Vec<(u32, Directory)>);

impl Sections {
    /// Reads the section list of a header. Headers of component assemblies have no magic.
    pub(super) fn read(
        image: &impl Memory,
        address: u32,
        has_magic: bool,
    ) -> Result<Self, ReadyToRunError> {
        let address = u64::from(address);
        let mut core_header = address;
        if has_magic {
            let found = image.u32(address)?;
            if found != MAGIC {
                return Err(ReadyToRunError::Magic { address, found });
            }
            core_header += 8;
        }
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
