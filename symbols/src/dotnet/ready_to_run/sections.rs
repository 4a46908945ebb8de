//! The ReadyToRun sections of an image, or of one component assembly of a composite image.

use crate::dotnet::pe::Directory;
use crate::memory::Memory;

const MAGIC: u32 = 0x0052_5452;
const MAX_SECTIONS: u32 = 256;

/// Section types and their positions in the image.
pub(super) struct Sections(Vec<(u32, Directory)>);

impl Sections {
    pub(super) fn read(image: &impl Memory, address: u32, has_magic: bool) -> Option<Self> {
        let address = u64::from(address);
        let mut core_header = address;
        if has_magic {
            if image.u32(address)? != MAGIC {
                return None;
            }
            core_header += 8;
        }
        let count = image.u32(core_header + 4)?;
        if count > MAX_SECTIONS {
            return None;
        }
        let sections = (0..u64::from(count)).map(|index| {
            let entry = core_header + 8 + index * 12;
            let directory = Directory {
                address: image.u32(entry + 4)?,
                size: image.u32(entry + 8)?,
            };
            Some((image.u32(entry)?, directory))
        });
        sections.collect::<Option<_>>().map(Self)
    }

    pub(super) fn get(&self, kind: u32) -> Option<Directory> {
        let section = self.0.iter().find(|(section, _)| *section == kind);
        section.map(|(_, directory)| *directory)
    }
}
