//! Processes with JIT code, and the .NET runtime of each.

use std::collections::BTreeMap;
use std::io;

use framehop::FrameAddress;
use rustc_hash::{FxHashMap, FxHashSet};

use super::named_ranges::{DiscoveredCode, NamedRanges, Piece};
use super::rule_cache::Epoch;
use super::{Code, RuleLookup, SampledProcess, is_interrupted, rule_in, stub_rule};
use crate::dotnet::{
    FunctionEntry, Memory, MetadataCache, MethodKey, MethodName, MethodNamer, NamingDisabled,
    ProcessMemory, Runtime, RuntimeFile, StubKind, candidates,
};
use crate::machine::{Backing, FileTable, MappedFiles};
use crate::trace::{ModuleId, Nanos, Notice, NoticeKind, Pid, ProcessId};

/// Maximum number of open processes. All are closed and attached again when there are more.
const MAX_PROCESSES: usize = 512;
/// Time until perfcollect retries a process without a readable runtime.
const RETRY_NS: u64 = 1_000_000_000;
/// Maximum number of processes in a notice about unreadable memory or methods.
const MAX_REPORTED: usize = 16;

#[derive(Default)]
pub(super) struct Processes {
    runtimes: FxHashMap<ProcessId, Process>,
    /// Runtime of each file, or `None` if the file contains no runtime.
    files: FxHashMap<ModuleId, Option<RuntimeFile>>,
    /// Processes whose memory cannot be opened.
    denied: Vec<(Pid, io::Error)>,
    metadata: MetadataCache,
    /// Code that the caller has not taken yet.
    discovered: Vec<DiscoveredCode>,
    /// Processes without readable method names that the caller has not taken yet.
    unreadable: Vec<(ProcessId, Pid)>,
    /// All processes that were ever added to `unreadable`.
    seen_unreadable: FxHashSet<ProcessId>,
}

enum Process {
    /// Boxed because it is large, and most processes have no runtime.
    Dotnet(Box<Dotnet>),
    /// A process without a readable runtime. perfcollect retries it at this time.
    Other(Nanos),
}

/// A process with a .NET runtime.
struct Dotnet {
    pid: Pid,
    runtime: Runtime,
    namer: MethodNamer,
    named: NamedRanges,
}

/// Kind of code that a frame is in.
#[derive(Clone, Copy)]
enum FrameCode {
    Method(MethodKey, FunctionEntry),
    Stub(StubKind),
    /// Code that the runtime does not describe.
    Foreign,
}

impl Dotnet {
    fn name(&mut self, code: FrameCode, metadata: &mut MetadataCache) -> Option<MethodName> {
        match code {
            FrameCode::Method(key, _) => {
                let name = self.namer.name(self.runtime.memory(), metadata, key);
                name.ok()
            }
            FrameCode::Stub(kind) => Some(MethodName::of_stub(kind)),
            FrameCode::Foreign => None,
        }
    }
}

impl Processes {
    /// Returns the code discovered since the last call, in order.
    pub(super) fn take_discovered(&mut self) -> Vec<DiscoveredCode> {
        std::mem::take(&mut self.discovered)
    }

    /// Returns the processes discovered since the last call whose memory yields no method names.
    pub(super) fn take_unreadable(&mut self) -> Vec<(ProcessId, Pid)> {
        std::mem::take(&mut self.unreadable)
    }

    fn note_unreadable(&mut self, process: &SampledProcess<'_>) {
        if self.seen_unreadable.insert(process.process) {
            self.unreadable.push((process.process, process.pid));
        }
    }

    /// Returns the rule of a frame in JIT memory, and names its code if that is new.
    pub(super) fn find(
        &mut self,
        process: &SampledProcess<'_>,
        address: FrameAddress,
    ) -> Option<RuleLookup> {
        self.ensure_attached(process);
        let Some(Process::Dotnet(dotnet)) = self.runtimes.get_mut(&process.process) else {
            return None;
        };
        let lookup_address = address.address_for_lookup();
        let lookup = dotnet.runtime.code_at(lookup_address).ok()?;
        let is_stable = !lookup.collectible;
        let (code, piece) = match lookup.code {
            Code::Method(method) => {
                let piece = Piece {
                    start: method.key.start,
                    end: method.end(),
                    method_desc: method.key.method_desc,
                };
                let function = *method.function_at(lookup_address)?;
                (FrameCode::Method(method.key, function), piece)
            }
            Code::Stub(stub) => (
                FrameCode::Stub(stub.kind),
                Piece::of_stub(stub.begin, stub.end),
            ),
            Code::Foreign => {
                let code = if is_helper(process, dotnet.runtime.memory(), address) {
                    FrameCode::Stub(StubKind::Helper)
                } else {
                    FrameCode::Foreign
                };
                let end = lookup_address.saturating_add(1);
                (code, Piece::of_stub(lookup_address, end))
            }
        };
        let now = Epoch::of(process.time);
        if !dotnet.named.is_current(piece, now) {
            let name = dotnet.name(code, &mut self.metadata);
            let is_final = match code {
                FrameCode::Method(..) => is_stable && name.is_some(),
                // A method that replaces this code has another start or MethodDesc.
                FrameCode::Stub(StubKind::Helper) | FrameCode::Foreign => true,
                FrameCode::Stub(_) => is_stable,
            };
            if name.is_none() && process.is_preview {
                return None;
            }
            let is_unreadable = name.is_none() && dotnet.namer.off().is_some();
            let epoch = if is_final { Epoch::ALWAYS } else { now };
            let discovered = dotnet.named.insert(process.process, piece, name, epoch);
            // A rundown may name methods that the memory does not.
            self.discovered
                .extend(discovered.filter(|_| !is_unreadable));
            if is_unreadable {
                self.note_unreadable(process);
            }
        }
        let Some(Process::Dotnet(dotnet)) = self.runtimes.get(&process.process) else {
            return None;
        };
        let memory = dotnet.runtime.memory();
        Some(match code {
            FrameCode::Method(_, function) => {
                let lookup = rule_in(memory, &function, address);
                RuleLookup {
                    is_stable: lookup.is_stable && is_stable,
                    ..lookup
                }
            }
            FrameCode::Stub(_) | FrameCode::Foreign => RuleLookup {
                rule: stub_rule(memory, address),
                is_stable,
            },
        })
    }

    /// Attaches to the runtime of a process unless a previous result is still valid.
    fn ensure_attached(&mut self, process: &SampledProcess<'_>) {
        let retry = match self.runtimes.get(&process.process) {
            Some(Process::Dotnet(_)) => false,
            Some(Process::Other(retry_at)) => process.time >= *retry_at,
            None => true,
        };
        if retry {
            if self.runtimes.len() >= MAX_PROCESSES {
                self.runtimes.clear();
            }
            let entry = match self.attach(process) {
                Some(runtime) => {
                    let files = MappedFiles::of(process.pid);
                    let namer = MethodNamer::of(process.process, files, &runtime);
                    Process::Dotnet(Box::new(Dotnet {
                        pid: process.pid,
                        runtime,
                        namer,
                        named: NamedRanges::default(),
                    }))
                }
                None if process.is_preview => return,
                None => Process::Other(Nanos(process.time.0.saturating_add(RETRY_NS))),
            };
            self.runtimes.insert(process.process, entry);
        }
    }

    fn attach(&mut self, process: &SampledProcess<'_>) -> Option<Runtime> {
        // The processes of a recording have ended, and their pids may be reused.
        if process.files.recorded().is_some() {
            return None;
        }
        let runtime_id = candidates(process.maps, process.files)
            .find(|&id| runtime_file(&mut self.files, process.files, id).is_some())?;
        let file = self.files.get(&runtime_id)?.as_ref()?;
        let bias = process
            .maps
            .iter()
            .filter(|mapping| mapping.backing == Backing::File(runtime_id))
            .find_map(|mapping| file.bias(mapping.start, mapping.file_offset))?;
        match ProcessMemory::open(process.pid) {
            Ok(memory) => {
                let runtime = Runtime::attach(memory, file, bias).ok();
                if runtime.is_none() && !process.is_preview {
                    self.note_unreadable(process);
                }
                runtime
            }
            Err(error) => {
                let is_reported = self.denied.iter().any(|(pid, _)| *pid == process.pid);
                if !is_reported && self.denied.len() < MAX_REPORTED {
                    self.denied.push((process.pid, error));
                }
                None
            }
        }
    }

    /// Returns notices about processes and methods that could not be read.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        let denied = self.denied.iter().map(|(pid, error)| {
            Notice::new(
                NoticeKind::MemoryUnreadable,
                format!(
                    "cannot read the memory of .NET process {pid}: {error}; \
                     its JIT code was unwound by frame pointers and may miss callers"
                ),
                "run perfcollect as root, or with the capability CAP_SYS_PTRACE",
            )
            .about(pid)
        });
        denied.chain(self.naming_notices())
    }

    /// Returns why method names could not be read from memory.
    fn naming_notices(&self) -> impl Iterator<Item = Notice> {
        let mut reasons: BTreeMap<NamingDisabled, Vec<Pid>> = BTreeMap::new();
        for process in self.runtimes.values() {
            if let Process::Dotnet(dotnet) = process
                && let Some(why) = dotnet.namer.off()
            {
                reasons.entry(why).or_default().push(dotnet.pid);
            }
        }
        reasons.into_iter().map(|(why, mut pids)| {
            pids.sort_unstable();
            pids.truncate(MAX_REPORTED);
            let count = pids.len();
            let pids: Vec<_> = pids.iter().map(Pid::to_string).collect();
            let pids = pids.join(", ");
            Notice::new(
                NoticeKind::MethodNamesUnreadable,
                format!("cannot read method names from the memory of .NET process {pids}: {why}"),
                "start it with DOTNET_PerfMapEnabled=1",
            )
            .about(pids)
            .counting(count)
        })
    }
}

/// Returns whether code that the runtime does not describe is a copy of one of its helpers.
///
/// Helpers call nothing and are never freed. The same memory may have held a dynamic method that
/// was freed after the sample, so the code must still be readable.
fn is_helper(process: &SampledProcess<'_>, memory: &impl Memory, address: FrameAddress) -> bool {
    let mapping = process.maps.find(address.address());
    is_interrupted(address)
        && mapping.is_some_and(|mapping| mapping.backing == Backing::DoubleMapped)
        && memory.u8(address.address()).is_ok()
}

fn runtime_file<'a>(
    cache: &'a mut FxHashMap<ModuleId, Option<RuntimeFile>>,
    files: &FileTable,
    id: ModuleId,
) -> Option<&'a RuntimeFile> {
    cache
        .entry(id)
        .or_insert_with(|| RuntimeFile::of(files.file(id)).ok().flatten())
        .as_ref()
}

#[cfg(test)]
mod tests {
    use super::super::frame_address;
    use super::*;
    use crate::dotnet::Image;
    use crate::machine::{Mapping, Maps};

    #[test]
    fn does_not_identify_freed_code_as_helper() {
        let (start, bytes) = (0x7f00_0000_1000, [0xc3; 0x100]);
        let memory = Image {
            start,
            bytes: &bytes,
        };
        let files: FileTable = [].into_iter().collect();
        let is_in = |backing, ip, interrupted| {
            let mut maps = Maps::default();
            maps.insert(Mapping {
                start,
                end: start + 0x1000,
                file_offset: 0,
                backing,
                object: None,
            });
            let process = SampledProcess {
                process: ProcessId(0),
                pid: Pid(1),
                time: Nanos(1),
                maps: &maps,
                files: &files,
                is_preview: false,
            };
            is_helper(&process, &memory, frame_address(ip, interrupted).unwrap())
        };
        assert!(is_in(Backing::DoubleMapped, start + 0x40, true));
        // Mapped when the sample was taken, but unmapped now.
        assert!(!is_in(Backing::DoubleMapped, start + 0x800, true));
        // The frame called another function.
        assert!(!is_in(Backing::DoubleMapped, start + 0x40, false));
        assert!(!is_in(Backing::Jit, start + 0x40, true));
    }
}
