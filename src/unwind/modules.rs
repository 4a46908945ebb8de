//! Unwind information of the files in use, within a memory budget.
//!
//! The budget matters on build machines, which keep creating new programs.

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::module::{Coverage, ElfModule, Rules, Segments};
use super::owner_time::OwnerTime;
use crate::machine::{CodeFile, Owner};
use crate::trace::ModuleId;

/// Maximum size of all cached sections. The current file is kept even if it exceeds the budget.
///
/// Compilers and browsers have up to 20 MB each, most libraries less than 100 KB. Go programs have a
/// function table of a third of their size, and servers of containers run several. A dropped file
/// is read again when it is sampled again.
const MAX_BYTES: usize = 128 << 20;
/// Maximum size of the files of one user whom perfcollect does not trust, which leaves some room
/// for the files of others.
const MAX_OWNER_BYTES: usize = 64 << 20;
/// Maximum number of rules whose size is known. All are forgotten when there are more.
const MAX_RULES: usize = 64 << 10;
/// Size of rules whose time is not charged, in bytes. Few programs have longer ones.
const SHORT_RULE_BYTES: usize = 1 << 10;
/// Time to evaluate a byte of a rule.
const BYTE_TIME: Duration = Duration::from_nanos(3);

/// Cache of unwind information, indexed by [`ModuleId`].
#[derive(Default)]
pub(super) struct Modules {
    slots: Vec<Slot>,
    bytes: usize,
    /// Number of lookups, which orders files by last use.
    clock: u64,
    /// Sizes of rules of untrusted files by SVMA; `None` if a rule takes unbounded time.
    rules: FxHashMap<(ModuleId, u64), Option<usize>>,
}

#[derive(Default)]
enum Slot {
    #[default]
    Unread,
    /// The file is unreadable or not ELF, and is not tried again.
    Unusable,
    Read(File),
}

struct File {
    /// Owner whose files are read for a bounded time.
    owner: Option<Owner>,
    segments: Segments,
    module: Option<Box<ElfModule>>,
    used: u64,
}

/// Time to evaluate a long rule of an untrusted file.
pub(super) struct RuleTime {
    owner: Owner,
    taken: Duration,
}

impl RuleTime {
    /// Charges it to the owner of the file.
    pub(super) fn charge(self, time: &mut OwnerTime) {
        time.add(self.owner, self.taken);
    }
}

impl Modules {
    fn file(&mut self, id: ModuleId, file: &CodeFile, time: &mut OwnerTime) -> Option<&mut File> {
        if matches!(self.slots.get(id.index()), None | Some(Slot::Unread)) {
            self.open(id, file, time);
        }
        match self.slots.get_mut(id.index())? {
            Slot::Read(file) => Some(file),
            Slot::Unread | Slot::Unusable => None,
        }
    }

    #[cold]
    fn open(&mut self, id: ModuleId, file: &CodeFile, time: &mut OwnerTime) {
        let owner = Owner::of_file(file, None);
        let slot = match time.charge(owner, || Segments::read(&file.content)) {
            Some(segments) => Slot::Read(File {
                owner,
                segments,
                module: None,
                used: 0,
            }),
            None => Slot::Unusable,
        };
        if self.slots.len() <= id.index() {
            self.slots.resize_with(id.index() + 1, Slot::default);
        }
        self.slots[id.index()] = slot;
    }

    /// Returns the load segments of a file.
    pub(super) fn segments(
        &mut self,
        id: ModuleId,
        file: &CodeFile,
        time: &mut OwnerTime,
    ) -> Option<&Segments> {
        Some(&self.file(id, file, time)?.segments)
    }

    /// Returns the unwind information of a file, and reads it if it is not cached.
    ///
    /// Returns `None` if the time of its owner is used up.
    pub(super) fn read(
        &mut self,
        id: ModuleId,
        file: &CodeFile,
        time: &mut OwnerTime,
    ) -> Option<&ElfModule> {
        self.load(id, file, time)?;
        self.get(id)
    }

    /// Returns the unwind information of a file as [`Modules::read`] does, and the time of the rule
    /// at an SVMA if that is long. Returns `None` if the rule shall not be evaluated.
    pub(super) fn at(
        &mut self,
        id: ModuleId,
        file: &CodeFile,
        svma: u64,
        time: &mut OwnerTime,
    ) -> Option<(&ElfModule, Option<RuleTime>)> {
        let rule_time = match self.load(id, file, time)? {
            Some(owner) => self.rule_time(id, owner, svma, time)?,
            None => None,
        };
        Some((self.get(id)?, rule_time))
    }

    /// Returns what a file has for an SVMA.
    ///
    /// Returns `None` if the file cannot be read, or the time of its owner is used up.
    pub(super) fn coverage(
        &mut self,
        id: ModuleId,
        file: &CodeFile,
        svma: u64,
        time: &mut OwnerTime,
    ) -> Option<Coverage> {
        let owner = self.load(id, file, time)?;
        let module = self.get(id)?;
        time.read(owner, || module.coverage(svma))
    }

    /// Returns the owner of a file that was read, if its time is bounded.
    pub(super) fn owner(&self, id: ModuleId) -> Option<Owner> {
        match self.slots.get(id.index())? {
            Slot::Read(file) => file.owner,
            Slot::Unread | Slot::Unusable => None,
        }
    }

    /// Reads a file that is not cached. Returns its owner if that has a bound.
    fn load(
        &mut self,
        id: ModuleId,
        file: &CodeFile,
        time: &mut OwnerTime,
    ) -> Option<Option<Owner>> {
        self.clock += 1;
        let clock = self.clock;
        let cached = self.file(id, file, time)?;
        cached.used = clock;
        let owner = cached.owner;
        if cached.module.is_none() {
            self.read_module(id, file, time)?;
        }
        Some(owner)
    }

    #[cold]
    fn read_module(&mut self, id: ModuleId, file: &CodeFile, time: &mut OwnerTime) -> Option<()> {
        let cached = self.file(id, file, time)?;
        let owner = cached.owner;
        let read = || ElfModule::read(&file.content, owner.is_none());
        let mut module = time.read(owner, read)??;
        if owner.is_some() && module.bytes() > MAX_OWNER_BYTES {
            module = ElfModule::default();
        }
        let bytes = module.bytes();
        cached.module = Some(Box::new(module));
        self.bytes += bytes;
        time.charge(owner, || self.evict_except(id, owner));
        Some(())
    }

    fn rule_time(
        &mut self,
        id: ModuleId,
        owner: Owner,
        svma: u64,
        time: &mut OwnerTime,
    ) -> Option<Option<RuleTime>> {
        let Some(Slot::Read(File {
            module: Some(module),
            ..
        })) = self.slots.get(id.index())
        else {
            return None;
        };
        let bytes = match module.rules() {
            Rules::Trusted => 0,
            Rules::All(longest) => *longest,
            Rules::Each(sections) => match self.rules.get(&(id, svma)) {
                Some(bytes) => (*bytes)?,
                None => {
                    if self.rules.len() >= MAX_RULES {
                        self.rules.clear();
                    }
                    let bytes = time.read(Some(owner), || sections.rule_bytes(svma))?;
                    self.rules.insert((id, svma), bytes);
                    bytes?
                }
            },
        };
        if bytes <= SHORT_RULE_BYTES {
            return Some(None);
        }
        let taken = BYTE_TIME * u32::try_from(bytes).ok()?;
        (!time.is_over(Some(owner))).then_some(Some(RuleTime { owner, taken }))
    }

    fn get(&self, id: ModuleId) -> Option<&ElfModule> {
        match self.slots.get(id.index())? {
            Slot::Read(file) => file.module.as_deref(),
            Slot::Unread | Slot::Unusable => None,
        }
    }

    /// Drops the least recently used files, but never `current`. If its owner has too many, they
    /// are dropped before those of others.
    fn evict_except(&mut self, current: ModuleId, owner: Option<Owner>) {
        loop {
            let is_crowded = owner.is_some() && self.bytes_of(owner) > MAX_OWNER_BYTES;
            if !is_crowded && self.bytes <= MAX_BYTES {
                return;
            }
            let slots = self.slots.iter_mut().enumerate();
            let cached = slots.filter_map(|(index, slot)| match slot {
                Slot::Read(file) if index != current.index() && file.module.is_some() => Some(file),
                _ => None,
            });
            let dropped = cached.filter(|file| !is_crowded || file.owner == owner);
            let Some(oldest) = dropped.min_by_key(|file| file.used) else {
                return;
            };
            self.bytes -= oldest.module.take().map_or(0, |module| module.bytes());
        }
    }

    fn bytes_of(&self, owner: Option<Owner>) -> usize {
        let files = self.slots.iter().filter_map(|slot| match slot {
            Slot::Read(file) if file.owner == owner => file.module.as_deref(),
            _ => None,
        });
        files.map(ElfModule::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Content;
    use crate::trace::Pid;

    fn code_file(path: &str) -> CodeFile {
        CodeFile {
            path: path.as_bytes().into(),
            content: Content::File(std::fs::File::open(path).unwrap().into()),
            root: None,
            pid: Pid(1),
            container: None,
        }
    }

    #[test]
    fn evicts_least_recently_used() {
        let me = code_file("/proc/self/exe");
        let (mut modules, mut time) = (Modules::default(), OwnerTime::default());
        let bytes = modules.read(ModuleId(0), &me, &mut time).unwrap().bytes();
        assert!(bytes > 0 && bytes < MAX_BYTES);
        let fit = MAX_BYTES / bytes;
        for id in 1..=fit as u32 {
            // The first file is used in every round, each other file once.
            assert!(modules.read(ModuleId(0), &me, &mut time).is_some());
            assert!(modules.read(ModuleId(id), &me, &mut time).is_some());
            assert!(modules.bytes <= MAX_BYTES);
        }
        assert!(modules.get(ModuleId(0)).is_some());
        assert!(modules.get(ModuleId(1)).is_none());
        assert!(modules.read(ModuleId(1), &me, &mut time).is_some());
    }

    #[test]
    fn files_of_an_untrusted_user_do_not_evict_those_of_others() {
        let file = |owner: Option<u32>, used, bytes| {
            Slot::Read(File {
                owner: owner.map(Owner::of_test),
                segments: Segments::default(),
                module: Some(Box::new(ElfModule::of_test(bytes))),
                used,
            })
        };
        let mib = 1 << 20;
        let files = [(None, 1, 4), (Some(7), 2, 40), (Some(7), 3, 40)];
        let slots = files.map(|(owner, used, mibs)| file(owner, used, mibs * mib));
        let mut modules = Modules {
            slots: slots.into(),
            bytes: 84 * mib,
            ..Modules::default()
        };
        modules.evict_except(ModuleId(2), Some(Owner::of_test(7)));
        let are_cached = [0, 1, 2].map(|id| modules.get(ModuleId(id)).is_some());
        assert_eq!(are_cached, [true, false, true]);
        assert_eq!(modules.bytes, 44 * mib);
    }

    #[test]
    fn does_not_retry_unusable_files() {
        let (mut modules, mut time) = (Modules::default(), OwnerTime::default());
        let not_elf = code_file("/proc/self/status");
        assert!(modules.read(ModuleId(3), &not_elf, &mut time).is_none());
        let me = code_file("/proc/self/exe");
        assert!(modules.read(ModuleId(3), &me, &mut time).is_none());
    }
}
