//! What a process itself has written of the code it made: a jitdump, where it has mapped one, and the map
//! `/tmp/perf-PID.map`; in the process's own root directory, with its pid in its own namespace.

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use perfcollect_symbols::jit_dump::JitDump;
use perfcollect_symbols::perf_map::{MAX_BYTES as MAX_MAP_BYTES, PerfMap};
use perfcollect_symbols::table::Symbol;

use super::cancel::{CancelCheck, CancellableReader};
use super::unresolved::{NO_NAMES, Unresolved};
use crate::machine::JitProcess;
use crate::trace::{Nanos, Pid};

const REMEDY: &str = "start a process of .NET before 8 with DOTNET_PerfMapEnabled=1 (before .NET 6 COMPlus_PerfMapEnabled=1), \
                      Node.js with --perf-basic-prof, Python with -X perf; Java from 17 writes it while it runs: jcmd PID Compiler.perfmap";
/// perf reads nothing of a runtime while it records.
const REMEDY_OF_RECORDING: &str = "put what the process wrote beside the recording, its perf map (/tmp/perf-PID.map) or jitdump (jit-PID.dump); \
                                   .NET writes a map with DOTNET_PerfMapEnabled=1 (before .NET 6 COMPlus_PerfMapEnabled=1), \
                                   Node.js with --perf-basic-prof, Python with -X perf, Java from 17 while it runs: jcmd PID Compiler.perfmap; \
                                   for .NET `perfcollect collect` needs none";
const BUFFER_BYTES: usize = 1 << 16;
/// When all of a dump holds.
const AT_END: Nanos = Nanos(u64::MAX);

/// Both files, as far as they are there.
#[derive(Default)]
pub(crate) struct JitSymbolFiles {
    dump: JitDump,
    /// The same at its end, for what has no name in the other.
    later: JitDump,
    map: PerfMap,
}

impl JitSymbolFiles {
    /// Reads what covers these addresses, and what the code was at `until`; and why there is nothing, if there is not.
    pub(super) fn read(
        host: Option<&io::Result<JitProcess>>,
        addresses: &[u64],
        until: Nanos,
        stop: CancelCheck<'_>,
    ) -> (Self, Option<JitSymbolError>) {
        let (mut written, fault) = Self::of(host, Some(addresses), until, stop);
        let is_named = |address: &u64| written.dump.lookup(*address).is_some();
        // The clock of a recording need not be that of the dump: it is with `perf record -k mono`.
        if let Some(Ok(host)) = host
            && host.is_recorded()
            && !addresses.iter().all(is_named)
            && let Some(Ok(later)) = dump(host, AT_END, stop)
        {
            written.later = later;
        }
        (written, fault)
    }

    /// Reads all that a process has written, as it was at the end; and why that names nothing, should it not.
    pub(crate) fn whole(host: io::Result<JitProcess>) -> (Self, JitSymbolError) {
        let host = Some(host);
        let (written, fault) = Self::of(host.as_ref(), None, AT_END, &|| false);
        let fault = fault.unwrap_or_else(|| written.useless(host.as_ref()));
        (written, fault)
    }

    fn of(
        host: Option<&io::Result<JitProcess>>,
        addresses: Option<&[u64]>,
        until: Nanos,
        stop: CancelCheck<'_>,
    ) -> (Self, Option<JitSymbolError>) {
        let host = match host {
            Some(Ok(host)) => host,
            Some(Err(error)) => return (Self::default(), Some(JitSymbolError::of(error, None))),
            None => {
                let fault = JitSymbolError::new("the process was gone too soon", "");
                return (Self::default(), Some(fault));
            }
        };
        let dump = dump(host, until, stop).transpose();
        let map = map(host, addresses, stop);
        let fault = match (&dump, &map) {
            (Ok(Some(_)), _) | (_, Ok(_)) => None,
            (Ok(None), Err(map)) => Some(map.clone()),
            (Err(dump), Err(map)) => {
                let why = format!("{}; {}", dump.why, map.why);
                Some(JitSymbolError::new(why, dump.remedy))
            }
        };
        let written = Self {
            dump: dump.ok().flatten().unwrap_or_default(),
            later: JitDump::default(),
            map: map.unwrap_or_default(),
        };
        (written, fault)
    }

    /// The function at an address. The dump knows the time, the map also stubs.
    pub(super) fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let symbol = self.dump.lookup(address);
        symbol
            .or_else(|| self.later.lookup(address))
            .or_else(|| self.map.lookup(address))
    }

    /// The same as perf shows it, which reads no dump and takes a line without a name for none.
    pub(crate) fn lookup_as_perf(&self, address: u64) -> Option<Symbol<'_>> {
        let symbol = self.map.lookup(address);
        let symbol = symbol.filter(|symbol| !symbol.name.is_empty());
        symbol.or_else(|| self.dump.lookup(address))
    }

    /// It names nothing of a process.
    pub(super) fn useless(&self, host: Option<&io::Result<JitProcess>>) -> JitSymbolError {
        let host = host.and_then(|host| host.as_ref().ok());
        let mut why = String::from("what it wrote names none of it");
        let limit = MAX_MAP_BYTES >> 20;
        // Writing to a string cannot fail.
        let _ = match (self.map.truncated, self.map.skipped) {
            (true, _) => write!(why, ": of its perf map the first {limit} MiB were read"),
            (false, 0) => Ok(()),
            (false, lines) => write!(why, ": {lines} lines of its perf map were not understood"),
        };
        JitSymbolError::new(why, remedy(host))
    }
}

/// Why there are no names.
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

    fn of(error: &io::Error, host: Option<&JitProcess>) -> Self {
        match error.kind() {
            // It says itself what was looked for.
            io::ErrorKind::NotFound if error.get_ref().is_some() => {
                Self::new(error.to_string(), REMEDY_OF_RECORDING)
            }
            io::ErrorKind::NotFound => {
                let is_beside = host.is_some_and(|host| host.map.is_relative());
                let map = match is_beside {
                    true => "perf-PID.map beside the recording",
                    false => "/tmp/perf-PID.map",
                };
                Self::new(format!("there is no {map}"), remedy(host))
            }
            io::ErrorKind::PermissionDenied if !host.is_some_and(JitProcess::is_recorded) => {
                Self::new(
                    format!("its root directory cannot be looked into: {error}"),
                    "run as root, or with CAP_SYS_PTRACE",
                )
            }
            _ => {
                let map = host.map_or(Path::new("/tmp/perf-PID.map"), |host| &host.map);
                Self::new(format!("{}: {error}", map.display()), "")
            }
        }
    }

    fn of_dump(error: &io::Error, host: &JitProcess) -> Self {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => remedy(Some(host)),
            _ => "",
        };
        Self::new(format!("its jitdump: {error}"), remedy)
    }

    /// The same of a process.
    pub(crate) fn gap(self, pid: Pid) -> Unresolved {
        Unresolved {
            kind: "code made at run time by",
            who: format!("process {pid}"),
            fault: NO_NAMES,
            why: self.why,
            remedy: self.remedy,
        }
    }
}

fn remedy(host: Option<&JitProcess>) -> &'static str {
    match host {
        Some(host) if host.is_recorded() => REMEDY_OF_RECORDING,
        _ => REMEDY,
    }
}

/// Reads what names these addresses; without such, everything.
fn map(
    host: &JitProcess,
    addresses: Option<&[u64]>,
    stop: CancelCheck<'_>,
) -> Result<PerfMap, JitSymbolError> {
    let inner = open(host, &host.map).map_err(|error| JitSymbolError::of(&error, Some(host)))?;
    let file = BufReader::with_capacity(BUFFER_BYTES, CancellableReader { inner, stop });
    match addresses {
        Some(addresses) => PerfMap::read_for(file, addresses),
        None => PerfMap::read(file),
    }
    .map_err(|error| JitSymbolError::new(error.to_string(), ""))
}

/// `None`: it has mapped none.
fn dump(
    host: &JitProcess,
    until: Nanos,
    stop: CancelCheck<'_>,
) -> Option<Result<JitDump, JitSymbolError>> {
    let path = Path::new(OsStr::from_bytes(host.dump.as_ref()?));
    let read = |inner| {
        let file = BufReader::with_capacity(BUFFER_BYTES, CancellableReader { inner, stop });
        JitDump::read(file, until.0)
            .map_err(|error| JitSymbolError::new(error.to_string(), remedy(Some(host))))
    };
    let opened = open(host, path).map_err(|error| JitSymbolError::of_dump(&error, host));
    Some(opened.and_then(read))
}

/// A file speaks for a process only if the process's own user, or root, wrote it: /tmp is everybody's.
fn open(host: &JitProcess, path: &Path) -> io::Result<File> {
    host.root.open_if(path, |found| {
        if host.until.is_some_and(|until| found.st_mtime > until) {
            return Err(io::Error::other(
                "changed after the capture, and the process is gone: it may be another's",
            ));
        }
        let (owner, user) = (found.st_uid, host.uid);
        if owner == user || owner == 0 {
            return Ok(());
        }
        Err(io::Error::other(match host.is_recorded() {
            true => format!(
                "belongs to user {owner}, not to {user} or root; if it can be trusted, chown it"
            ),
            false => format!("belongs to user {owner}, not to the process's user {user} or root"),
        }))
    })
}
