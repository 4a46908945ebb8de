//! Processes with JIT code, and the .NET runtime of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use framehop::FrameAddress;
use rustc_hash::FxHashMap;
use rustix::io::Errno;

use super::met_code::{Met, MetCode, MetKind};
use super::{Code, RuleLookup, SampledProcess, is_interrupted, rule_in, stub_rule};
use crate::dotnet::{
    AttachError, ProcessMemory, Runtime, RuntimeFile, RuntimeFileError, candidates, maps_runtime,
};
use crate::machine::{self, Backing};
use crate::trace::{
    MORE_DESCRIPTORS, ModuleId, Nanos, Notice, NoticeKind, Pid, ProcessId, process_notices,
};

/// Maximum number of open processes. When there are more, one is closed and attached again later.
const MAX_PROCESSES: usize = 1024;
/// Time until perfcollect first retries a process without a readable runtime. The runtime may be about
/// to start, and optimized methods may replace the first ones soon.
const FIRST_RETRY_NS: u64 = 1_000_000;
/// Maximum time between retries. It doubles from the first one.
const MAX_RETRY_NS: u64 = 1_000_000_000;
/// Maximum number of processes that notices about unreadable memory count.
const MAX_UNREADABLE: usize = 4096;

#[derive(Default)]
pub(super) struct Processes {
    runtimes: FxHashMap<ProcessId, Process>,
    /// Runtime of each file, or `None` if the file contains no runtime.
    files: FxHashMap<ModuleId, Result<Option<RuntimeFile>, Arc<RuntimeFileError>>>,
    /// First error of each process whose runtime could not be read so far.
    unreadable: BTreeMap<Pid, AttachError>,
}

enum Process {
    /// Boxed because it is large, and most processes have no runtime.
    Dotnet(Box<Runtime>),
    /// A process without a readable runtime.
    Other(Retry),
}

/// When perfcollect retries a process without a readable runtime.
#[derive(Clone, Copy, Debug)]
struct Retry {
    at: Nanos,
    /// Nanoseconds between the retry and the attempt before.
    wait: u64,
}

impl Retry {
    /// Returns the retry after a failure at a time.
    fn after(failure: Nanos, previous: Option<Self>) -> Self {
        let wait = previous.map_or(FIRST_RETRY_NS, |retry| {
            retry.wait.saturating_mul(2).min(MAX_RETRY_NS)
        });
        Self {
            at: Nanos(failure.0.saturating_add(wait)),
            wait,
        }
    }
}

impl Processes {
    /// Closes a process that has ended.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.runtimes.remove(&process);
    }

    /// Returns the runtime of a process. Returns `None` if it has none, or it could not be read.
    pub(super) fn runtime(&self, process: ProcessId) -> Option<&Runtime> {
        match self.runtimes.get(&process)? {
            Process::Dotnet(runtime) => Some(runtime),
            Process::Other(_) => None,
        }
    }

    /// Attaches to the runtime of a process. Returns `None` if it has none, or it cannot be read.
    pub(super) fn attached(
        &mut self,
        process: &SampledProcess<'_>,
        met: &mut Met,
    ) -> Option<&Runtime> {
        self.ensure_attached(process, met);
        self.runtime(process.process)
    }

    /// Returns the rule of a frame in JIT memory, and adds its code to `met`.
    pub(super) fn find(
        &mut self,
        process: &SampledProcess<'_>,
        address: FrameAddress,
        met: &mut Met,
    ) -> Option<RuleLookup> {
        self.ensure_attached(process, met);
        let Some(Process::Dotnet(runtime)) = self.runtimes.get_mut(&process.process) else {
            return None;
        };
        let lookup_address = address.address_for_lookup();
        let lookup = runtime.code_at(lookup_address).ok()?;
        let collectible = lookup.collectible;
        let (kind, start, end, function) = match lookup.code {
            Code::Method(method) => {
                let function = *method.function_at(lookup_address)?;
                let kind = MetKind::Method(method.key.method_desc);
                (kind, method.key.start, method.end(), Some(function))
            }
            Code::Stub(stub) => (MetKind::Stub(stub.kind), stub.begin, stub.end, None),
            Code::Foreign => {
                let end = lookup_address.saturating_add(1);
                (MetKind::Foreign, lookup_address, end, None)
            }
        };
        met.code.push(MetCode {
            ip: address.address(),
            interrupted: is_interrupted(address),
            start,
            end,
            kind,
            collectible,
        });
        let lookup = match function {
            Some(function) => rule_in(runtime.memory(), &function, address),
            None => RuleLookup::only(stub_rule(runtime.memory(), address), true),
        };
        Some(RuleLookup {
            is_stable: lookup.is_stable && !collectible,
            ..lookup
        })
    }

    /// Attaches to the runtime of a process unless a previous result is still valid.
    fn ensure_attached(&mut self, process: &SampledProcess<'_>, met: &mut Met) {
        let previous = match self.runtimes.get(&process.process) {
            Some(Process::Dotnet(_)) => return,
            Some(Process::Other(retry)) => Some(*retry),
            None => None,
        };
        if previous.is_none_or(|retry| process.time >= retry.at) {
            if self.runtimes.len() >= MAX_PROCESSES
                && let Some(&any) = self.runtimes.keys().next()
            {
                self.forget(any);
            }
            let entry = match self.attach(process, met) {
                Some(runtime) => Process::Dotnet(Box::new(runtime)),
                None if process.is_preview => return,
                None => Process::Other(Retry::after(process.time, previous)),
            };
            self.runtimes.insert(process.process, entry);
        }
    }

    fn attach(&mut self, process: &SampledProcess<'_>, met: &mut Met) -> Option<Runtime> {
        // The processes of a recording have ended, and their pids may be reused.
        if process.files.recorded().is_some() {
            return None;
        }
        let attached = self.try_attach(process).transpose()?;
        // A rundown session checks by itself whether the memory can be opened. A rundown may crash
        // the process, which a lack of descriptors does not justify.
        if let Err(error) = &attached
            && !matches!(error, AttachError::Open(_))
            && !error.lacks_descriptors()
            && !process.is_preview
        {
            met.unreadable_runtime |= machine::is_running(process.pid);
        }
        self.note(process.pid, attached)
    }

    /// Attaches to the runtime of a process. Returns `None` if the process has none.
    fn try_attach(&mut self, process: &SampledProcess<'_>) -> Result<Option<Runtime>, AttachError> {
        let Some((id, file)) = self.runtime_file(process)? else {
            return Ok(None);
        };
        let mappings = process.maps.iter();
        let bias = mappings
            .filter(|mapping| mapping.backing == Backing::File(id))
            .find_map(|mapping| file.bias(mapping.start, mapping.file_offset));
        let Some(bias) = bias else {
            return Ok(None);
        };
        let memory = ProcessMemory::open(process.pid)?;
        Runtime::attach(memory, file, bias).map(Some)
    }

    /// Returns the file of a process that contains the runtime, or `None` if the process has none.
    ///
    /// # Errors
    /// The most likely file is not readable, and the process has a runtime.
    fn runtime_file(
        &mut self,
        process: &SampledProcess<'_>,
    ) -> Result<Option<(ModuleId, &RuntimeFile)>, AttachError> {
        let SampledProcess { maps, files, .. } = *process;
        let mut candidates = candidates(maps, files).peekable();
        let Some(&likeliest) = candidates.peek() else {
            return Ok(None);
        };
        let known = &mut self.files;
        let found = candidates.find(|&id| {
            let file = known.entry(id);
            let file = file.or_insert_with(|| RuntimeFile::of(files.file(id)).map_err(Arc::new));
            matches!(file, Ok(Some(_)))
        });
        let id = found.unwrap_or(likeliest);
        match self.files.get(&id) {
            Some(Ok(Some(file))) => Ok(Some((id, file))),
            Some(Err(error)) if maps_runtime(maps, files) => {
                Err(match machine::is_running(process.pid) {
                    true => AttachError::File(error.clone()),
                    // Its files were opened too late.
                    false => AttachError::Ended,
                })
            }
            _ => Ok(None),
        }
    }

    /// Notes the error if the runtime of a process could not be read. Returns the runtime.
    fn note<R>(&mut self, pid: Pid, attached: Result<R, AttachError>) -> Option<R> {
        match attached {
            Ok(runtime) => {
                self.unreadable.remove(&pid);
                Some(runtime)
            }
            // Its samples may be unwound after its end.
            Err(AttachError::Ended) => None,
            Err(error) => {
                if self.unreadable.len() < MAX_UNREADABLE {
                    self.unreadable.entry(pid).or_insert(error);
                }
                None
            }
        }
    }

    /// Returns notices about processes that could not be read.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        process_notices(
            NoticeKind::MemoryUnreadable,
            self.unreadable.iter().map(|(pid, error)| (*pid, error)),
            |processes, error| {
                format!(
                    "cannot read the .NET runtime of process {processes}: {error}; \
                     its JIT code was unwound by frame pointers and may miss callers"
                )
            },
            remedy,
        )
        .into_iter()
    }
}

/// Returns what helps to read the runtime of a process; empty if there is nothing.
fn remedy(error: &AttachError) -> &'static str {
    if error.lacks_descriptors() {
        return MORE_DESCRIPTORS;
    }
    let AttachError::Open(error) = error else {
        return "";
    };
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => {
            "run perfcollect as root, or with the capability CAP_SYS_PTRACE"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{CodeFile, Content, Maps};

    fn refused(errno: Errno) -> AttachError {
        AttachError::Open(errno.into())
    }

    #[test]
    fn reports_the_first_error_until_the_runtime_can_be_read() {
        let mut processes = Processes::default();
        let [denied, starting] = [Pid(2), Pid(1)];
        for (pid, error) in [
            (denied, refused(Errno::ACCESS)),
            (starting, AttachError::NotInitialized(0x1000)),
            (starting, AttachError::NotInitialized(0x2000)),
        ] {
            assert_eq!(processes.note::<()>(pid, Err(error)), None);
        }
        let notices: Vec<_> = processes.notices().collect();
        let [first, second] = &notices[..] else {
            panic!("{notices:?}");
        };
        assert_eq!((&*first.subject, &*second.subject), ("1", "2"));
        assert!(first.what.contains("not yet initialized"), "{first:?}");
        assert!(first.what.contains("0x1000"), "{first:?}");
        assert_eq!(first.remedy, "");
        assert!(second.what.contains("ermission denied"), "{second:?}");
        assert!(second.remedy.contains("CAP_SYS_PTRACE"), "{second:?}");
        assert_eq!(processes.note(starting, Ok(7)), Some(7));
        let rest: Vec<_> = processes.notices().collect();
        assert_eq!(rest, notices[1..]);
    }

    #[test]
    fn retries_soon_and_then_less_often() {
        let (mut retry, mut times) = (None, Vec::new());
        for _ in 0..12 {
            let next = Retry::after(retry.map_or(Nanos(0), |retry: Retry| retry.at), retry);
            times.push(next.at.0 / FIRST_RETRY_NS);
            retry = Some(next);
        }
        assert_eq!(times[..4], [1, 3, 7, 15]);
        assert_eq!(times[11] - times[10], 1000);
    }

    /// Attaches to this process as if it had mapped an unreadable file, and JIT memory.
    fn attach_to_unreadable(path: &str, jit: Backing) -> (Met, Vec<Notice>) {
        let no_permission = Errno::ACCESS.into();
        let files = [CodeFile {
            path: path.as_bytes().into(),
            content: Content::Unavailable(no_permission),
            root: None,
            container: None,
            pid: Pid(1),
        }];
        let maps = Maps::of_pages(&[(0x1000, Backing::File(ModuleId(0))), (0x3000, jit)]);
        let process = SampledProcess {
            process: ProcessId(0),
            pid: Pid(std::process::id() as i32),
            time: Nanos(1),
            epoch: crate::unwind::Epoch::of(Nanos(1)),
            maps: &maps,
            files: &files.into_iter().collect(),
            is_preview: false,
        };
        let (mut processes, mut met) = (Processes::default(), Met::default());
        let frame = FrameAddress::from_instruction_pointer(0x3000);
        assert!(processes.find(&process, frame, &mut met).is_none());
        (met, processes.notices().collect())
    }

    #[test]
    fn reports_an_unreadable_runtime_file() {
        for (path, jit) in [
            ("/usr/share/dotnet/libcoreclr.so (deleted)", Backing::Jit),
            ("/opt/single-file", Backing::DoubleMapped),
        ] {
            let (met, notices) = attach_to_unreadable(path, jit);
            assert!(met.unreadable_runtime, "{path}");
            let [notice] = &notices[..] else {
                panic!("{path}: {notices:?}");
            };
            let cause = ": cannot read its file: Permission denied";
            assert!(notice.what.contains(cause), "{notice:?}");
        }
        let (met, notices) = attach_to_unreadable("/usr/bin/python3", Backing::Jit);
        assert!(!met.unreadable_runtime);
        assert_eq!(notices, []);
    }

    #[test]
    fn counts_all_unreadable_processes() {
        let mut processes = Processes::default();
        for pid in 1..=20 {
            processes.note::<()>(Pid(pid), Err(refused(Errno::PERM)));
        }
        let notices: Vec<_> = processes.notices().collect();
        let [notice] = &notices[..] else {
            panic!("{notices:?}");
        };
        assert_eq!(notice.count, 20);
        assert!(notice.what.contains(", 16 and 4 more: "), "{notice:?}");
    }

    #[test]
    fn suggests_permissions_only_if_they_are_missing() {
        for denied in [Errno::ACCESS, Errno::PERM] {
            assert!(remedy(&refused(denied)).contains("root"));
        }
        assert!(remedy(&refused(Errno::MFILE)).contains("ulimit"));
        assert_eq!(remedy(&refused(Errno::IO)), "");
    }

    #[test]
    fn reports_no_process_that_ends_before_its_memory_is_read() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid(child.id() as i32);
        child.wait().unwrap();
        let memory = ProcessMemory::open(pid);
        assert!(matches!(memory, Err(AttachError::Ended)), "{memory:?}");
        let mut processes = Processes::default();
        assert!(processes.note(pid, memory).is_none());
        assert_eq!(processes.notices().count(), 0);
    }
}
