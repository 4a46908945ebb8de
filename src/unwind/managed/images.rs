//! Precompiled images by the file they are in.

use rustc_hash::FxHashMap;

use super::{InFile, ReadyToRunImage, RuleLookup, frame_address, rule_in, stub_rule};
use crate::dotnet::FileBytes;
use crate::machine::{Content, FileTable};
use crate::trace::ModuleId;

/// Most images that are kept; all are read anew when there are more. webapi has 75.
const MAX_IMAGES: usize = 4096;

/// Images by the file and the place in it that their code is mapped from; `None`: there is no image.
#[derive(Default)]
pub(super) struct Images(FxHashMap<(ModuleId, u64), Option<ReadyToRunImage>>);

impl Images {
    pub(super) fn find(
        &mut self,
        files: &FileTable,
        place: InFile,
        interrupted: bool,
    ) -> Option<RuleLookup> {
        let Content::File(file) = &files.file(place.file).content else {
            return None;
        };
        let file = FileBytes(file);
        if self.0.len() >= MAX_IMAGES {
            self.0.clear();
        }
        let image = self
            .0
            .entry((place.file, place.mapped_from))
            .or_insert_with(|| ReadyToRunImage::find(&file, place.mapped_from))
            .as_ref()?;
        let instruction = image.address_of(place.instruction)?;
        let ip = instruction.checked_add(u64::from(!interrupted))?;
        let address = frame_address(ip, interrupted)?;
        let memory = image.by_address(file);
        Some(match image.function_at(instruction) {
            Some(function) => rule_in(&memory, &function, address),
            None => RuleLookup {
                rule: stub_rule(&memory, address),
                is_stable: true,
            },
        })
    }
}
