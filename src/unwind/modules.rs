//! Unwind information of the files in use, within a memory budget.
//!
//! The budget matters on build machines, which keep creating new programs.

use super::module::{ElfModule, Segments};
use crate::machine::Content;
use crate::trace::ModuleId;

/// Maximum size of all cached sections. The current file is kept even if it exceeds the budget.
///
/// Compilers and browsers have up to 15 MB each, most libraries less than 100 KB. A dropped file is
/// read again when it is sampled again.
const MAX_BYTES: usize = 32 << 20;

/// Cache of unwind information, indexed by [`ModuleId`].
#[derive(Default)]
pub(super) struct Modules {
    slots: Vec<Slot>,
    bytes: usize,
    /// Number of lookups, which orders files by last use.
    clock: u64,
}

#[derive(Default)]
enum Slot {
    #[default]
    Unread,
    /// The file is unreadable or not ELF, and is not tried again.
    Unusable,
    Read {
        segments: Segments,
        module: Option<Box<ElfModule>>,
        used: u64,
    },
}

impl Modules {
    fn slot(&mut self, id: ModuleId, content: &Content) -> &mut Slot {
        if self.slots.len() <= id.index() {
            self.slots.resize_with(id.index() + 1, Slot::default);
        }
        let slot = &mut self.slots[id.index()];
        if matches!(slot, Slot::Unread) {
            *slot = match Segments::read(content) {
                Some(segments) => Slot::Read {
                    segments,
                    module: None,
                    used: 0,
                },
                None => Slot::Unusable,
            };
        }
        slot
    }

    /// Returns the load segments of a file.
    pub(super) fn segments(&mut self, id: ModuleId, content: &Content) -> Option<&Segments> {
        match self.slot(id, content) {
            Slot::Read { segments, .. } => Some(segments),
            Slot::Unread | Slot::Unusable => None,
        }
    }

    /// Returns the unwind information of a file, and reads it if it is not cached.
    pub(super) fn read(&mut self, id: ModuleId, content: &Content) -> Option<&ElfModule> {
        self.clock += 1;
        let clock = self.clock;
        let Slot::Read { module, used, .. } = self.slot(id, content) else {
            return None;
        };
        *used = clock;
        if module.is_none() {
            let read = ElfModule::read(content)?;
            let bytes = read.bytes();
            *module = Some(Box::new(read));
            self.bytes += bytes;
            self.evict_except(id);
        }
        self.get(id)
    }

    fn get(&self, id: ModuleId) -> Option<&ElfModule> {
        match self.slots.get(id.index())? {
            Slot::Read { module, .. } => module.as_deref(),
            Slot::Unread | Slot::Unusable => None,
        }
    }

    /// Drops the least recently used files, but never `current`.
    fn evict_except(&mut self, current: ModuleId) {
        while self.bytes > MAX_BYTES {
            let oldest = self.slots.iter_mut().enumerate();
            let oldest = oldest.filter(|(index, _)| *index != current.index());
            let oldest = oldest.filter_map(|(_, slot)| match slot {
                Slot::Read { module, used, .. } if module.is_some() => Some((*used, module)),
                _ => None,
            });
            let Some((_, module)) = oldest.min_by_key(|(used, _)| *used) else {
                return;
            };
            self.bytes -= module.take().map_or(0, |module| module.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn evicts_least_recently_used() {
        let me = || Content::File(File::open("/proc/self/exe").unwrap().into());
        let mut modules = Modules::default();
        let bytes = modules.read(ModuleId(0), &me()).unwrap().bytes();
        assert!(bytes > 0 && bytes < MAX_BYTES);
        let fit = MAX_BYTES / bytes;
        for id in 1..=fit as u32 {
            // The first file is used in every round, each other file once.
            assert!(modules.read(ModuleId(0), &me()).is_some());
            assert!(modules.read(ModuleId(id), &me()).is_some());
            assert!(modules.bytes <= MAX_BYTES);
        }
        assert!(modules.get(ModuleId(0)).is_some());
        assert!(modules.get(ModuleId(1)).is_none());
        assert!(modules.read(ModuleId(1), &me()).is_some());
    }

    #[test]
    fn does_not_retry_unusable_files() {
        let mut modules = Modules::default();
        let not_elf = Content::File(File::open("/proc/self/status").unwrap().into());
        assert!(modules.read(ModuleId(3), &not_elf).is_none());
        let me = Content::File(File::open("/proc/self/exe").unwrap().into());
        assert!(modules.read(ModuleId(3), &me).is_none());
    }
}
