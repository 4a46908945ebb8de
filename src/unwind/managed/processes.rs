//! Processes that make code while they run, with the .NET runtime in them if there is one.

use std::io;

use rustc_hash::FxHashMap;

use super::{Code, Found, Host, Point, rule_in, stub_rule};
use crate::dotnet::{ProcessMemory, Runtime, RuntimeFile, candidates};
use crate::machine::{Backing, FileTable};
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
}

enum Process {
    /// The large one is boxed: most processes have none.
    Dotnet(Box<Runtime>),
    /// No runtime that can be read, at least up to a time.
    Other(Nanos),
}

impl Processes {
    /// The rule of a frame in code made at run time.
    pub(super) fn find(&mut self, host: &Host<'_>, point: Point) -> Option<Found> {
        let runtime = self.runtime(host)?;
        let found = runtime.code_at(point.instruction())?;
        let lasting = !found.collectible;
        Some(match found.code {
            Code::Method(method) => {
                let function = *method.function_at(point.instruction())?;
                let found = rule_in(runtime.memory(), &function, point);
                Found {
                    lasting: found.lasting && lasting,
                    ..found
                }
            }
            Code::Stub => Found {
                rule: stub_rule(runtime.memory(), point),
                lasting,
            },
            // In a .NET process that is what the runtime has copied for itself, such as write barriers.
            Code::Foreign => Found {
                rule: stub_rule(runtime.memory(), point),
                lasting: false,
            },
        })
    }

    fn runtime(&mut self, host: &Host<'_>) -> Option<&mut Runtime> {
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
                Some(runtime) => Process::Dotnet(Box::new(runtime)),
                None => Process::Other(Nanos(host.time.0.saturating_add(RETRY_NS))),
            };
            self.runtimes.insert(host.process, process);
        }
        match self.runtimes.get_mut(&host.process)? {
            Process::Dotnet(runtime) => Some(runtime),
            Process::Other(_) => None,
        }
    }

    fn attach(&mut self, host: &Host<'_>) -> Option<Runtime> {
        let holder = candidates(host.maps, host.files)
            .find(|&id| runtime_file(&mut self.files, host.files, id).is_some())?;
        let file = self.files.get(&holder)?.as_ref()?;
        let bias = host
            .maps
            .iter()
            .filter(|mapping| mapping.backing == Backing::File(holder))
            .find_map(|mapping| file.bias(mapping.start, mapping.file_offset))?;
        match ProcessMemory::open(host.pid) {
            Ok(memory) => Runtime::attach(memory, file, bias),
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
        self.refused.iter().map(|(pid, error)| {
            Notice::new(
                format!(
                    "the memory of .NET process {pid} cannot be read ({error}): \
                     callers of its JIT code were guessed by the frame pointer"
                ),
                "run perfcollect as root, or with the capability CAP_SYS_PTRACE",
            )
        })
    }
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
