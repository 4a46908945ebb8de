//! Names of JIT code, read from the memory of its process when a walk meets the code.
//!
//! The process may end, and the runtime may free code. So a name is read at once, and again when
//! it may have changed. Samples of processes that free code are walked as they come.

use std::io::Write;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::named_ranges::{NameChange, NamedRanges};
use crate::dotnet::{
    Memory, MetadataCache, MethodKey, MethodName, MethodNamer, NamingDisabled, Runtime, StubKind,
};
use crate::machine::{Backing, MappedFiles, Mapping};
use crate::trace::spool::{MethodRow, SpoolRow};
use crate::trace::{Nanos, Notice, NoticeKind, Pid, ProcessId, Recorder, process_notices};
use crate::unwind::{Epoch, MetCode, MetKind, SampledProcess};

/// Maximum number of processes. At the limit, one is dropped and its code is named again.
const MAX_PROCESSES: usize = 1024;
/// Maximum number of ended processes that notices about unreadable names count.
const MAX_DISABLED: usize = 4096;

/// Size of the first part of the memory file for code. Copies of helpers are at offsets 0 and 0xe000
/// (.NET 8 to 10), methods start behind 0x20000.
const FIRST_PART_BYTES: u64 = 0x2_0000;

/// Time for which a process counts as freeing code after a sign of it, and when code that may be
/// freed is first met.
const FREES_CODE_NS: u64 = 10_000_000_000;
const MAY_FREE_CODE_NS: u64 = 2_000_000_000;

/// Names of the JIT code of all processes.
#[derive(Default)]
pub(super) struct CodeNames {
    processes: FxHashMap<ProcessId, NamedProcess>,
    /// Time until which a process may free code.
    may_free_until: Nanos,
    metadata: MetadataCache,
    /// Names that the spool does not contain yet.
    new: Vec<NewName>,
    /// Processes without readable method names that the caller has not taken yet.
    unreadable: Vec<(ProcessId, Pid)>,
    /// Running processes that were added to `unreadable`.
    seen_unreadable: FxHashSet<ProcessId>,
    /// Ended processes whose method names could not be read, with the reasons.
    disabled: Vec<(Pid, NamingDisabled)>,
}

struct NamedProcess {
    pid: Pid,
    namer: MethodNamer,
    named: NamedRanges,
    /// Whether methods of assemblies that may be unloaded were met. Their code is unmapped from the
    /// runtime's structures then; that of dynamic methods is not.
    may_unload: bool,
    /// Whether code that may be freed was met.
    has_collectible: bool,
    /// Time until which it may free code, and until which it does as far as walks show.
    may_free_until: Nanos,
    frees_until: Nanos,
}

struct NewName {
    row: MethodRow<'static>,
    /// Addresses of the code and of what it replaced, if it replaced other code.
    replaced: Option<Range<u64>>,
}

impl CodeNames {
    /// Returns whether a process has recently freed code, as far as walks show.
    pub(super) fn frees_code(&self, process: ProcessId, now: Nanos) -> bool {
        let names = self.processes.get(&process);
        names.is_some_and(|names| now < names.frees_until)
    }

    /// Returns whether a process frees code, or was just found to have code that may be freed.
    pub(super) fn may_free_code(&self, process: ProcessId, now: Nanos) -> bool {
        let names = self.processes.get(&process);
        names.is_some_and(|names| now < names.may_free_until)
    }

    /// Returns whether this holds for any process.
    pub(super) fn any_may_free_code(&self, now: Nanos) -> bool {
        now < self.may_free_until
    }

    /// Names code that a walk met, unless its name is still valid.
    ///
    /// Returns false if the code of a preview has no name yet: the next walk must meet it again.
    pub(super) fn name(
        &mut self,
        process: &SampledProcess<'_>,
        runtime: &Runtime,
        code: &MetCode,
    ) -> bool {
        if !self.processes.contains_key(&process.process)
            && self.processes.len() >= MAX_PROCESSES
            && let Some(&any) = self.processes.keys().next()
        {
            self.drop_process(any);
        }
        let names = self.processes.entry(process.process).or_insert_with(|| {
            let files = MappedFiles::of(process.pid);
            NamedProcess {
                pid: process.pid,
                namer: MethodNamer::of(process.process, files, runtime),
                named: NamedRanges::default(),
                may_unload: false,
                has_collectible: false,
                may_free_until: Nanos(0),
                frees_until: Nanos(0),
            }
        });
        let now = process.epoch;
        if names.named.is_current(code, now) {
            return true;
        }
        let memory = runtime.memory();
        let (name, is_final) = match code.kind {
            MetKind::Method(method_desc) => {
                let start = code.start;
                let method = MethodKey { start, method_desc };
                let namer = &mut names.namer;
                let name = namer.name(memory, &mut self.metadata, method, code.collectible);
                let name = name.ok();
                let is_final = !code.collectible && name.is_some();
                names.may_unload |=
                    code.collectible && name.as_ref().is_some_and(|name| !name.is_dynamic());
                (name, is_final)
            }
            MetKind::Stub(kind) => (Some(MethodName::of_stub(kind)), !code.collectible),
            // A method that replaces this code has another start or MethodDesc.
            MetKind::Foreign => {
                let is_helper = is_helper(process, memory, code, names.may_unload);
                let name = is_helper.then(|| MethodName::of_stub(StubKind::Helper));
                (name, true)
            }
        };
        if name.is_none() && process.is_preview {
            return false;
        }
        let is_method = matches!(code.kind, MetKind::Method(_));
        let is_unreadable = name.is_none() && names.namer.off().is_some();
        let epoch = if is_final { Epoch::ALWAYS } else { now };
        let change = names.named.insert(code, name.as_ref(), epoch);
        let replaced = match change {
            NameChange::Replaced { start, end } => Some(start..end),
            _ => None,
        };
        // Its code is not described any more, or other code is at its address.
        let is_freed = name.is_none() && !is_unreadable || replaced.is_some();
        let window = match names.has_collectible {
            true if is_freed => FREES_CODE_NS,
            false if is_method && code.collectible => MAY_FREE_CODE_NS,
            _ => 0,
        };
        let until = Nanos(process.time.0.saturating_add(window));
        if names.has_collectible {
            names.frees_until = names.frees_until.max(until);
        }
        names.has_collectible |= is_method && code.collectible;
        names.may_free_until = names.may_free_until.max(until);
        self.may_free_until = self.may_free_until.max(until);
        if is_unreadable {
            // A rundown may name methods that the memory does not.
            self.note_unreadable(process.process, process.pid);
        } else if change != NameChange::Unchanged {
            let size = code.end.saturating_sub(code.start);
            self.new.push(NewName {
                row: method_row(process.process, code.start, size, name),
                replaced,
            });
        }
        true
    }

    /// Forgets a process that has ended.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.drop_process(process);
        self.seen_unreadable.remove(&process);
    }

    fn drop_process(&mut self, process: ProcessId) {
        let dropped = self.processes.remove(&process);
        if dropped.is_some() {
            self.metadata.forget(process);
        }
        let why = dropped.and_then(|process| Some((process.pid, process.namer.off()?)));
        if self.disabled.len() < MAX_DISABLED {
            self.disabled.extend(why);
        }
    }

    /// Adds a process whose memory yields no method names.
    pub(super) fn note_unreadable(&mut self, process: ProcessId, pid: Pid) {
        if self.seen_unreadable.insert(process) {
            self.unreadable.push((process, pid));
        }
    }

    /// Returns the processes discovered since the last call whose memory yields no method names.
    pub(super) fn take_unreadable(&mut self) -> Vec<(ProcessId, Pid)> {
        std::mem::take(&mut self.unreadable)
    }

    /// Writes the names that the spool does not contain yet.
    pub(super) fn write_rows<W: Write>(&mut self, recorder: &mut Recorder<W>) {
        for name in self.new.drain(..) {
            match name.replaced {
                Some(addresses) => recorder.replace_method(name.row, addresses),
                None => recorder.put(&SpoolRow::Method(name.row)),
            }
        }
    }

    /// Returns notices about processes whose method names could not be read from memory.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        let disabled = self.processes.values();
        let disabled = disabled.filter_map(|process| Some((process.pid, process.namer.off()?)));
        let disabled = disabled.chain(self.disabled.iter().copied());
        unreadable_names(&disabled.collect::<Vec<_>>()).into_iter()
    }
}

/// Returns notices about processes whose method names could not be read.
fn unreadable_names(disabled: &[(Pid, NamingDisabled)]) -> Vec<Notice> {
    process_notices(
        NoticeKind::MethodNamesUnreadable,
        disabled.iter().map(|(pid, why)| (*pid, why)),
        |processes, why| {
            format!("cannot read method names from the memory of .NET process {processes}: {why}")
        },
        |_| "start it with DOTNET_PerfMapEnabled=1",
    )
}

/// Returns the row of code at an address range; without a name, the code has changed.
pub(super) fn method_row(
    process: ProcessId,
    start: u64,
    size: u64,
    name: Option<MethodName>,
) -> MethodRow<'static> {
    let parts = name.map(|name| (name.method, name.module, name.tier));
    let (method, module, tier) = parts.unwrap_or_default();
    MethodRow {
        process,
        start,
        size,
        name: method.into_bytes().into(),
        module: module.into_bytes().into(),
        tier: tier.unwrap_or_default().as_bytes().into(),
    }
}

/// Returns whether code that the runtime does not describe is a helper, or a copy of one.
///
/// Helpers call nothing and are never freed. Some are in the first part of the runtime's memory file
/// for code, which a runtime reserves when it starts. Elsewhere the same memory may have held a
/// method that was freed after the sample, so the code must still be readable, and the process must
/// not unload assemblies.
fn is_helper(
    process: &SampledProcess<'_>,
    memory: &impl Memory,
    code: &MetCode,
    may_unload: bool,
) -> bool {
    let may_be = |mapping: &Mapping| {
        let is_in_first_part = mapping.file_offset_of(code.ip) < FIRST_PART_BYTES;
        mapping.backing == Backing::DoubleMapped && (is_in_first_part || !may_unload)
    };
    code.interrupted && process.maps.find(code.ip).is_some_and(may_be) && memory.u8(code.ip).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dotnet::{Image, MethodDataError};
    use crate::machine::{FileTable, Maps};

    #[test]
    fn groups_processes_whose_structures_are_elsewhere() {
        let disabled = [(8, 0x8000), (7, 0x7000)].map(|(pid, address)| {
            let error = MethodDataError::Address(address, "MethodTable");
            (Pid(pid), NamingDisabled::Contradictory(error))
        });
        let notices = unreadable_names(&disabled);
        let [notice] = &notices[..] else {
            panic!("{notices:?}");
        };
        assert_eq!((notice.count, &*notice.subject), (2, "7, 8"));
        assert!(
            notice.what.starts_with(
                "cannot read method names from the memory of .NET process 7, 8: the runtime's"
            ),
            "{notice:?}"
        );
        assert!(notice.what.contains("0x7000"), "{notice:?}");
    }

    #[test]
    fn does_not_identify_freed_code_as_helper() {
        let (start, bytes) = (0x7f00_0000_1000, [0xc3; 0x100]);
        let memory = Image {
            start,
            bytes: &bytes,
        };
        let files: FileTable = [].into_iter().collect();
        let is_at = |file_offset, backing, ip, interrupted, may_unload| {
            let maps: Maps = [Mapping {
                start,
                end: start + 4096,
                file_offset,
                backing,
                object: None,
            }]
            .into_iter()
            .collect();
            let process = SampledProcess {
                process: ProcessId(0),
                pid: Pid(1),
                time: Nanos(1),
                epoch: Epoch::of(Nanos(1)),
                maps: &maps,
                files: &files,
                is_preview: false,
            };
            let code = MetCode {
                ip,
                interrupted,
                start: ip,
                end: ip + 1,
                kind: MetKind::Foreign,
                collectible: true,
            };
            is_helper(&process, &memory, &code, may_unload)
        };
        let is_in = |backing, ip, interrupted| is_at(0xe000, backing, ip, interrupted, true);
        assert!(is_in(Backing::DoubleMapped, start + 0x40, true));
        // Where methods are.
        let is_among_methods =
            |may_unload| is_at(0x2_1000, Backing::DoubleMapped, start, true, may_unload);
        assert!(is_among_methods(false) && !is_among_methods(true));
        // Mapped when the sample was taken, but unmapped now.
        assert!(!is_in(Backing::DoubleMapped, start + 0x800, true));
        // The frame called another function.
        assert!(!is_in(Backing::DoubleMapped, start + 0x40, false));
        assert!(!is_in(Backing::Jit, start + 0x40, true));
    }
}
