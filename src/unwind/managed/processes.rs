//! Processes that make code while they run, with the .NET runtime in them if there is one.

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
use crate::trace::{ModuleId, Nanos, Notice, Pid, ProcessId};

/// Most processes that are held open; when there are more, all are found anew.
const MAX_PROCESSES: usize = 512;
/// How long a process is believed to have no runtime that can be read.
const RETRY_NS: u64 = 1_000_000_000;
/// Processes that are named in the report as unreadable.
const MAX_REFUSED: usize = 16;

#[derive(Default)]
pub(super) struct Processes {
    runtimes: FxHashMap<ProcessId, Process>,
    /// By file; `None`: it holds no runtime.
    files: FxHashMap<ModuleId, Option<RuntimeFile>>,
    refused: Vec<(Pid, io::Error)>,
    assemblies: MetadataCache,
    /// Not yet told.
    met: Vec<DiscoveredCode>,
    /// Whose memory does not tell what their methods are, not yet told; and all that were told.
    silent: Vec<(ProcessId, Pid)>,
    known_silent: FxHashSet<ProcessId>,
}

enum Process {
    /// The large one is boxed: most processes have none.
    Dotnet(Box<Dotnet>),
    /// No runtime that can be read, at least up to a time.
    Other(Nanos),
}

/// A process with a runtime.
struct Dotnet {
    pid: Pid,
    runtime: Runtime,
    names: MethodNamer,
    named: NamedRanges,
}

/// What a frame is in.
#[derive(Clone, Copy)]
enum FrameCode {
    Method(MethodKey, FunctionEntry),
    Stub(StubKind),
    /// Code that may be anybody's.
    Foreign,
}

impl Dotnet {
    fn name(&mut self, code: FrameCode, assemblies: &mut MetadataCache) -> Option<MethodName> {
        match code {
            FrameCode::Method(key, _) => self.names.name(self.runtime.memory(), assemblies, key),
            FrameCode::Stub(kind) => Some(MethodName::of_stub(kind)),
            FrameCode::Foreign => None,
        }
    }
}

impl Processes {
    /// The code that was met since the last call, in order.
    pub(super) fn take_discovered(&mut self) -> Vec<DiscoveredCode> {
        std::mem::take(&mut self.met)
    }

    /// The processes since the last call whose memory cannot be read as that of a .NET runtime, or has no names that can.
    pub(super) fn take_unreadable(&mut self) -> Vec<(ProcessId, Pid)> {
        std::mem::take(&mut self.silent)
    }

    fn note_unreadable(&mut self, host: &SampledProcess<'_>) {
        if self.known_silent.insert(host.process) {
            self.silent.push((host.process, host.pid));
        }
    }

    /// The rule of a frame in code made at run time.
    pub(super) fn find(
        &mut self,
        host: &SampledProcess<'_>,
        address: FrameAddress,
    ) -> Option<RuleLookup> {
        self.attach_now(host);
        let Some(Process::Dotnet(dotnet)) = self.runtimes.get_mut(&host.process) else {
            return None;
        };
        let at = address.address_for_lookup();
        let found = dotnet.runtime.code_at(at)?;
        let lasting = !found.collectible;
        let (code, piece) = match found.code {
            Code::Method(method) => {
                let piece = Piece {
                    start: method.key.start,
                    end: method.end(),
                    record: method.key.method_desc,
                };
                let function = *method.function_at(at)?;
                (FrameCode::Method(method.key, function), piece)
            }
            Code::Stub(stub) => (
                FrameCode::Stub(stub.kind),
                Piece::of_stub(stub.begin, stub.end),
            ),
            Code::Foreign => {
                let met = if is_helper(host, dotnet.runtime.memory(), address) {
                    FrameCode::Stub(StubKind::Helper)
                } else {
                    FrameCode::Foreign
                };
                (met, Piece::of_stub(at, at.saturating_add(1)))
            }
        };
        let now = Epoch::of(host.time);
        if !dotnet.named.is_current(piece, now) {
            let name = dotnet.name(code, &mut self.assemblies);
            let is_settled = match code {
                FrameCode::Method(..) => lasting && name.is_some(),
                // A method that takes its place has another start or record.
                FrameCode::Stub(StubKind::Helper) | FrameCode::Foreign => true,
                FrameCode::Stub(_) => lasting,
            };
            if name.is_none() && host.is_preview {
                return None;
            }
            let is_silent = name.is_none() && dotnet.names.off().is_some();
            let period = if is_settled { Epoch::ALWAYS } else { now };
            let met = dotnet.named.insert(host.process, piece, name, period);
            // Of what memory does not tell somebody else may.
            self.met.extend(met.filter(|_| !is_silent));
            if is_silent {
                self.note_unreadable(host);
            }
        }
        let Some(Process::Dotnet(dotnet)) = self.runtimes.get(&host.process) else {
            return None;
        };
        let memory = dotnet.runtime.memory();
        Some(match code {
            FrameCode::Method(_, function) => {
                let found = rule_in(memory, &function, address);
                RuleLookup {
                    is_stable: found.is_stable && lasting,
                    ..found
                }
            }
            FrameCode::Stub(_) | FrameCode::Foreign => RuleLookup {
                rule: stub_rule(memory, address),
                is_stable: lasting,
            },
        })
    }

    /// Looks for the runtime of a process, unless that was done.
    fn attach_now(&mut self, host: &SampledProcess<'_>) {
        let retry = match self.runtimes.get(&host.process) {
            Some(Process::Dotnet(_)) => false,
            Some(Process::Other(until)) => host.time >= *until,
            None => true,
        };
        if retry {
            if self.runtimes.len() >= MAX_PROCESSES {
                self.runtimes.clear();
            }
            let process = match self.attach(host) {
                Some(runtime) => {
                    let files = MappedFiles::of(host.pid);
                    let names = MethodNamer::of(host.process, files, &runtime);
                    Process::Dotnet(Box::new(Dotnet {
                        pid: host.pid,
                        runtime,
                        names,
                        named: NamedRanges::default(),
                    }))
                }
                None if host.is_preview => return,
                None => Process::Other(Nanos(host.time.0.saturating_add(RETRY_NS))),
            };
            self.runtimes.insert(host.process, process);
        }
    }

    fn attach(&mut self, host: &SampledProcess<'_>) -> Option<Runtime> {
        // A process of a recording is over, and its id another's perhaps.
        if host.files.recorded().is_some() {
            return None;
        }
        let holder = candidates(host.maps, host.files)
            .find(|&id| runtime_file(&mut self.files, host.files, id).is_some())?;
        let file = self.files.get(&holder)?.as_ref()?;
        let bias = host
            .maps
            .iter()
            .filter(|mapping| mapping.backing == Backing::File(holder))
            .find_map(|mapping| file.bias(mapping.start, mapping.file_offset))?;
        match ProcessMemory::open(host.pid) {
            Ok(memory) => {
                let runtime = Runtime::attach(memory, file, bias);
                if runtime.is_none() && !host.is_preview {
                    self.note_unreadable(host);
                }
                runtime
            }
            Err(error) => {
                let known = self.refused.iter().any(|(pid, _)| *pid == host.pid);
                if !known && self.refused.len() < MAX_REFUSED {
                    self.refused.push((host.pid, error));
                }
                None
            }
        }
    }

    /// What could not be read.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        let unreadable = self.refused.iter().map(|(pid, error)| {
            Notice::new(
                format!(
                    "the memory of .NET process {pid} cannot be read ({error}): \
                     callers of its JIT code were guessed by the frame pointer"
                ),
                "run perfcollect as root, or with the capability CAP_SYS_PTRACE",
            )
        });
        unreadable.chain(self.nameless())
    }

    /// Why methods had to be named by other means.
    fn nameless(&self) -> impl Iterator<Item = Notice> {
        let mut reasons: BTreeMap<NamingDisabled, Vec<Pid>> = BTreeMap::new();
        for process in self.runtimes.values() {
            if let Process::Dotnet(dotnet) = process
                && let Some(why) = dotnet.names.off()
            {
                reasons.entry(why).or_default().push(dotnet.pid);
            }
        }
        reasons.into_iter().map(|(why, mut pids)| {
            pids.sort_unstable();
            pids.truncate(MAX_REFUSED);
            let pids: Vec<_> = pids.iter().map(Pid::to_string).collect();
            Notice::new(
                format!(
                    "methods of .NET process {} could not be named from its memory: {why}",
                    pids.join(", ")
                ),
                "start it with DOTNET_PerfMapEnabled=1",
            )
        })
    }
}

/// Whether code that the runtime does not describe is a copy of one of its helpers. These call nothing and stay; a
/// dynamic method that was freed since the sample is in such memory too.
fn is_helper(host: &SampledProcess<'_>, memory: &impl Memory, address: FrameAddress) -> bool {
    let mapping = host.maps.find(address.address());
    is_interrupted(address)
        && mapping.is_some_and(|of| of.backing == Backing::DoubleMapped)
        && memory.u8(address.address()).is_some()
}

fn runtime_file<'a>(
    known: &'a mut FxHashMap<ModuleId, Option<RuntimeFile>>,
    files: &FileTable,
    id: ModuleId,
) -> Option<&'a RuntimeFile> {
    known
        .entry(id)
        .or_insert_with(|| RuntimeFile::of(files.file(id)))
        .as_ref()
}

#[cfg(test)]
mod tests {
    use super::super::frame_address;
    use super::*;
    use crate::dotnet::Image;
    use crate::machine::{Mapping, Maps};

    #[test]
    fn what_was_freed_is_no_helper() {
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
            let host = SampledProcess {
                process: ProcessId(0),
                pid: Pid(1),
                time: Nanos(1),
                maps: &maps,
                files: &files,
                is_preview: false,
            };
            is_helper(&host, &memory, frame_address(ip, interrupted).unwrap())
        };
        assert!(is_in(Backing::DoubleMapped, start + 0x40, true));
        // Mapped when the sample was taken, and gone now.
        assert!(!is_in(Backing::DoubleMapped, start + 0x800, true));
        // It has called something.
        assert!(!is_in(Backing::DoubleMapped, start + 0x40, false));
        assert!(!is_in(Backing::Jit, start + 0x40, true));
    }
}
