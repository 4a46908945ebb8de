//! Where the tables of an image are, or of one assembly of a composite image.

use crate::dotnet::pe::Directory;
use crate::memory::Memory;

const MAGIC: u32 = 0x0052_5452;
const MAX_SECTIONS: u32 = 256;

/// The sections of an image, or of one assembly of it.
pub(super) struct Sections(Vec<(u32, Directory)>);

impl Sections {
    pub(super) fn read(image: &impl Memory, address: u32, has_mark: bool) -> Option<Self> {
        let address = u64::from(address);
        let mut at = address;
        if has_mark {
            if image.u32(address)? != MAGIC {
                return None;
            }
            at += 8;
        }
        let count = image.u32(at + 4)?;
        if count > MAX_SECTIONS {
            return None;
        }
        let sections = (0..u64::from(count)).map(|index| {
            let entry = at + 8 + index * 12;
            let directory = Directory {
                address: image.u32(entry + 4)?,
                size: image.u32(entry + 8)?,
            };
            Some((image.u32(entry)?, directory))
        });
        sections.collect::<Option<_>>().map(Self)
    }

    pub(super) fn get(&self, kind: u32) -> Option<Directory> {
        let found = self.0.iter().find(|(of, _)| *of == kind);
        found.map(|(_, directory)| *directory)
    }
}
