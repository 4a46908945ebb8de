//! Perf maps and jitdump files of a process, and the remedy if it has neither.

use std::fmt::Write;
use std::io;

use perfcollect_symbols::perf_map::MAX_BYTES as MAX_MAP_BYTES;
use perfcollect_symbols::symbolizer::{JitError, JitQuery, JitSymbols};

use super::cancel::CancelCheck;
use super::unresolved::{Unresolved, UnresolvedKind};
use crate::machine::JitProcess;
use crate::trace::{Nanos, Pid};

const REMEDY: &str = "start a process of .NET before 8 with DOTNET_PerfMapEnabled=1 (before .NET 6 COMPlus_PerfMapEnabled=1), \
                      Node.js with --perf-basic-prof, Python with -X perf; Java from 17 writes it while it runs: jcmd PID Compiler.perfmap";
/// Start of the reason if a process has no perf map.
const NO_MAP: &str = "there is no ";
/// Remedy for a recording of perf, which does not query runtimes.
const REMEDY_OF_RECORDING: &str = "put what the process wrote beside the recording, its perf map (/tmp/perf-PID.map) or jitdump (jit-PID.dump); \
                                   .NET writes a map with DOTNET_PerfMapEnabled=1 (before .NET 6 COMPlus_PerfMapEnabled=1), \
                                   Node.js with --perf-basic-prof, Python with -X perf, Java from 17 while it runs: jcmd PID Compiler.perfmap; \
                                   for .NET `perfcollect collect` needs none";

/// Reads the symbols of these addresses as of time `until`.
///
/// Also returns the reason if neither file can be read.
pub(super) fn read(
    process: Option<&io::Result<JitProcess>>,
    addresses: &[u64],
    until: Nanos,
    cancel: CancelCheck<'_>,
) -> (JitSymbols, Option<JitSymbolError>) {
    let query = JitQuery {
        addresses: Some(addresses),
        until: until.0,
        // The clocks of recording and jitdump agree only with `perf record -k mono`.
        or_at_end: is_recorded(process),
        cancel,
    };
    read_query(process, &query)
}

/// Reads all symbols of a process as of its end, and the reason if there may be none.
pub(crate) fn read_all(process: io::Result<JitProcess>) -> (JitSymbols, JitSymbolError) {
    let process = Some(process);
    let (symbols, error) = read_query(process.as_ref(), &JitQuery::default());
    let error = error.unwrap_or_else(|| useless(&symbols, process.as_ref()));
    (symbols, error)
}

fn read_query(
    process: Option<&io::Result<JitProcess>>,
    query: &JitQuery<'_>,
) -> (JitSymbols, Option<JitSymbolError>) {
    let process = match process {
        Some(Ok(process)) => process,
        Some(Err(error)) => {
            return (
                JitSymbols::default(),
                Some(JitSymbolError::no_process(error)),
            );
        }
        None => {
            let error = JitSymbolError::new("the process was gone too soon", "");
            return (JitSymbols::default(), Some(error));
        }
    };
    let symbols = JitSymbols::read(&process.source, query);
    let error = symbols.is_unreadable(&process.source).then(|| {
        let map = symbols.map_error.as_ref();
        let map = map.map(|error| JitSymbolError::of_map(error, process));
        let dump = symbols.dump_error.as_ref();
        let dump = dump.map(|error| JitSymbolError::of_dump(error, process));
        match (dump, map) {
            (Some(dump), Some(map)) => {
                JitSymbolError::new(format!("{}; {}", dump.why, map.why), dump.remedy)
            }
            (dump, map) => dump.or(map).unwrap_or_else(|| JitSymbolError::new("", "")),
        }
    });
    (symbols, error)
}

fn is_recorded(process: Option<&io::Result<JitProcess>>) -> bool {
    matches!(process, Some(Ok(process)) if process.is_recorded())
}

/// Returns why a process has no symbols.
pub(super) fn useless(
    symbols: &JitSymbols,
    process: Option<&io::Result<JitProcess>>,
) -> JitSymbolError {
    let mut why = String::from("what it wrote names none of it");
    let limit = MAX_MAP_BYTES >> 20;
    let map = symbols.map();
    // Writing to a string cannot fail.
    let _ = match (map.truncated, map.skipped) {
        (true, _) => write!(why, ": of its perf map the first {limit} MiB were read"),
        (false, 0) => Ok(()),
        (false, lines) => write!(why, ": {lines} lines of its perf map were not understood"),
    };
    JitSymbolError::new(why, remedy(is_recorded(process)))
}

/// Reason for JIT code without symbols, and the remedy.
#[derive(Clone)]
pub(crate) struct JitSymbolError {
    why: String,
    remedy: &'static str,
}

impl JitSymbolError {
    fn new(why: impl Into<String>, remedy: &'static str) -> Self {
        Self {
            why: why.into(),
            remedy,
        }
    }

    /// The files of the user of the process took too long.
    pub(super) fn overrun(why: String) -> Self {
        Self::new(why, "")
    }

    /// The files of the process could not be determined.
    fn no_process(error: &io::Error) -> Self {
        match error.kind() {
            // The error lists the files.
            io::ErrorKind::NotFound if error.get_ref().is_some() => {
                Self::new(error.to_string(), REMEDY_OF_RECORDING)
            }
            // The process has ended and is not reaped yet.
            io::ErrorKind::NotFound => Self::new(format!("{NO_MAP}/tmp/perf-PID.map"), REMEDY),
            io::ErrorKind::PermissionDenied => Self::denied(error),
            _ => Self::new(format!("/tmp/perf-PID.map: {error}"), ""),
        }
    }

    fn denied(why: &impl std::fmt::Display) -> Self {
        Self::new(
            format!("its root directory cannot be looked into: {why}"),
            "run as root, or with CAP_SYS_PTRACE",
        )
    }

    fn of_map(error: &JitError, process: &JitProcess) -> Self {
        let is_recorded = process.is_recorded();
        match error {
            JitError::Missing(path) => {
                let map = match path.is_relative() {
                    true => "perf-PID.map beside the recording",
                    false => "/tmp/perf-PID.map",
                };
                Self::new(format!("{NO_MAP}{map}"), remedy(is_recorded))
            }
            JitError::Denied { why, .. } if !is_recorded => Self::denied(why),
            JitError::Malformed { why, .. } => Self::new(why, ""),
            error => {
                let map = process.source.map.display();
                Self::new(format!("{map}: {}", cause(error, is_recorded)), "")
            }
        }
    }

    fn of_dump(error: &JitError, process: &JitProcess) -> Self {
        let is_recorded = process.is_recorded();
        let remedy = match error {
            JitError::Missing(_) | JitError::Malformed { .. } => remedy(is_recorded),
            _ => "",
        };
        let cause = cause(error, is_recorded);
        match error {
            JitError::Malformed { .. } => Self::new(cause, remedy),
            _ => Self::new(format!("its jitdump: {cause}"), remedy),
        }
    }

    /// Returns the unresolved code of a process.
    pub(crate) fn gap(self, pid: Pid) -> Unresolved {
        Unresolved {
            kind: UnresolvedKind::Jit,
            who: who(pid),
            why: self.why,
            remedy: self.remedy,
        }
    }
}

impl Unresolved {
    /// Returns whether this is JIT code of a process.
    pub(super) fn is_of_jit(&self, pid: Pid) -> bool {
        self.kind == UnresolvedKind::Jit && self.who == who(pid)
    }

    /// Returns whether the process wrote neither a perf map nor a jitdump.
    pub(super) fn lacks_files(&self) -> bool {
        self.why.starts_with(NO_MAP)
    }
}

fn who(pid: Pid) -> String {
    format!("process {pid}")
}

fn cause(error: &JitError, is_recorded: bool) -> String {
    match error {
        JitError::Missing(_) => io::Error::from(rustix::io::Errno::NOENT).to_string(),
        JitError::Owner { owner, uid, .. } if is_recorded => {
            format!("belongs to user {owner}, not to {uid} or root; if it can be trusted, chown it")
        }
        JitError::Owner { owner, uid, .. } => {
            format!("belongs to user {owner}, not to the process's user {uid} or root")
        }
        JitError::Private(_) => {
            "belongs to root, and not all users may read it or it has several hard links".into()
        }
        JitError::Changed(_) => {
            "changed after the capture, and the process is gone: it may be another's".into()
        }
        JitError::Denied { why, .. }
        | JitError::Unreadable { why, .. }
        | JitError::Malformed { why, .. } => why.clone(),
        error => error.to_string(),
    }
}

fn remedy(is_recorded: bool) -> &'static str {
    match is_recorded {
        true => REMEDY_OF_RECORDING,
        false => REMEDY,
    }
}
