//! Cache of ReadyToRun images by file.

use rustc_hash::FxHashMap;

use super::{InFile, ReadyToRunImage, RuleLookup, frame_address, rule_in, stub_rule};
use crate::machine::{Content, FileTable, Owner};
use crate::trace::ModuleId;
use crate::unwind::owner_time::OwnerTime;

/// Maximum number of cached images. The cache is cleared when it is full. webapi has 75.
const MAX_IMAGES: usize = 4096;
/// Maximum size of their lists of functions. That of a whole framework has 2.4 MB.
const MAX_BYTES: usize = 64 << 20;

/// Images by file and file offset of the mapped code, or `None` if there is no image.
#[derive(Default)]
pub(super) struct Images {
    images: FxHashMap<(ModuleId, u64), Option<ReadyToRunImage>>,
    bytes: usize,
}

impl Images {
    /// Returns the rule of a frame, or `None` outside the code of an image.
    pub(super) fn find(
        &mut self,
        files: &FileTable,
        location: InFile,
        interrupted: bool,
        time: &mut OwnerTime,
    ) -> Option<RuleLookup> {
        let file = files.file(location.file);
        let Content::File(content) = &file.content else {
            return None;
        };
        let key = (location.file, location.mapped_from);
        if !self.images.contains_key(&key) {
            let owner = Owner::of_file(file, None);
            let image = time.read(owner, || {
                ReadyToRunImage::find(&**content, location.mapped_from).ok()
            })?;
            self.insert(key, image);
        }
        let image = self.images.get(&key)?.as_ref()?;
        let instruction = image.address_of(location.instruction)?;
        let ip = instruction.checked_add(u64::from(!interrupted))?;
        let address = frame_address(ip, interrupted)?;
        let memory = image.by_address(&**content);
        Some(match image.function_at(instruction) {
            Some(function) => rule_in(&memory, &function, address),
            None => RuleLookup::only(stub_rule(&memory, address), true),
        })
    }

    fn insert(&mut self, key: (ModuleId, u64), image: Option<ReadyToRunImage>) {
        let bytes = image.as_ref().map_or(0, ReadyToRunImage::bytes);
        if self.images.len() >= MAX_IMAGES || self.bytes + bytes > MAX_BYTES {
            self.images.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.images.insert(key, image);
    }
}
