//! Cache of ReadyToRun images by file.

use rustc_hash::FxHashMap;

use super::{InFile, ReadyToRunImage, RuleLookup, frame_address, rule_in, stub_rule};
use crate::machine::{Content, FileTable};
use crate::trace::ModuleId;

/// Maximum number of cached images. The cache is cleared when it is full. webapi has 75.
const MAX_IMAGES: usize = 4096;

/// Images by file and file offset of the mapped code, or `None` if there is no image.
#[derive(Default)]
pub(super) struct Images(FxHashMap<(ModuleId, u64), Option<ReadyToRunImage>>);

impl Images {
    /// Returns the rule of a frame, or `None` outside the code of an image.
    pub(super) fn find(
        &mut self,
        files: &FileTable,
        location: InFile,
        interrupted: bool,
    ) -> Option<RuleLookup> {
        let Content::File(file) = &files.file(location.file).content else {
            return None;
        };
        if self.0.len() >= MAX_IMAGES {
            self.0.clear();
        }
        let image = self
            .0
            .entry((location.file, location.mapped_from))
            .or_insert_with(|| ReadyToRunImage::find(&**file, location.mapped_from).ok())
            .as_ref()?;
        let instruction = image.address_of(location.instruction)?;
        let ip = instruction.checked_add(u64::from(!interrupted))?;
        let address = frame_address(ip, interrupted)?;
        let memory = image.by_address(&**file);
        Some(match image.function_at(instruction) {
            Some(function) => rule_in(&memory, &function, address),
            None => RuleLookup {
                rule: stub_rule(&memory, address),
                is_stable: true,
            },
        })
    }
}
