//! What a process itself has written of the code it made: a jitdump, where it has mapped one, and the map
//! `/tmp/perf-PID.map`; in the process's own root directory, with its pid in its own namespace.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use perfcollect_symbols::jit_dump::JitDump;
use perfcollect_symbols::perf_map::PerfMap;
use perfcollect_symbols::table::Symbol;

use super::stop::{Stop, Stoppable};
use crate::machine::{JitHost, ProcessRow};
use crate::trace::Nanos;

const REMEDY: &str = "start a process of .NET before 8 with DOTNET_PerfMapEnabled=1 (before .NET 6 COMPlus_PerfMapEnabled=1), \
                      Node.js with --perf-basic-prof, Python with -X perf; Java from 17 writes it while it runs: jcmd PID Compiler.perfmap";
/// perf reads nothing of a runtime while it records.
const REMEDY_OF_RECORDING: &str = "put the /tmp/perf-PID.map of the process beside the recording; .NET writes one with DOTNET_PerfMapEnabled=1 \
                                   (before .NET 6 COMPlus_PerfMapEnabled=1), Node.js with --perf-basic-prof, Java with jcmd PID Compiler.perfmap; \
                                   for .NET `perfcollect collect` needs none";
const BUFFER_BYTES: usize = 1 << 16;

/// Both files, as far as they are there.
#[derive(Default)]
pub(super) struct Written {
    dump: JitDump,
    map: PerfMap,
}

impl Written {
    /// Reads what covers these addresses, and what the code was at `until`; and why there is nothing, if there is not.
    pub(super) fn read(
        process: &ProcessRow,
        addresses: &[u64],
        until: Nanos,
        stop: Stop<'_>,
    ) -> (Self, Option<Fault>) {
        let host = match &process.jit_host {
            Some(Ok(host)) => host,
            Some(Err(error)) => return (Self::default(), Some(Fault::of(error, None))),
            None => {
                let fault = Fault::new("the process was gone too soon", "");
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
                Some(Fault::new(why, map.remedy))
            }
        };
        let written = Self {
            dump: dump.ok().flatten().unwrap_or_default(),
            map: map.unwrap_or_default(),
        };
        (written, fault)
    }

    /// The function at an address. The dump knows the time, the map also stubs.
    pub(super) fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let symbol = self.dump.lookup(address);
        symbol.or_else(|| self.map.lookup(address))
    }
}

/// Why there are no names.
#[derive(Clone)]
pub(super) struct Fault {
    pub(super) why: String,
    pub(super) remedy: &'static str,
}

impl Fault {
    pub(super) fn new(why: impl Into<String>, remedy: &'static str) -> Self {
        Self {
            why: why.into(),
            remedy,
        }
    }

    /// It names nothing.
    pub(super) fn useless(process: &ProcessRow) -> Self {
        let host = process.jit_host.as_ref();
        let host = host.and_then(|host| host.as_ref().ok());
        Self::new("what it wrote names none of it", remedy(host))
    }

    fn of(error: &io::Error, host: Option<&JitHost>) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::new("there is no /tmp/perf-PID.map", remedy(host)),
            io::ErrorKind::PermissionDenied => Self::new(
                format!("its root directory cannot be looked into: {error}"),
                "run as root, or with CAP_SYS_PTRACE",
            ),
            _ => {
                let map = host.map_or(Path::new("/tmp/perf-PID.map"), |host| &host.map);
                Self::new(format!("{}: {error}", map.display()), "")
            }
        }
    }
}

fn remedy(host: Option<&JitHost>) -> &'static str {
    match host {
        Some(host) if host.is_recorded() => REMEDY_OF_RECORDING,
        _ => REMEDY,
    }
}

fn map(host: &JitHost, addresses: &[u64], stop: Stop<'_>) -> Result<PerfMap, Fault> {
    let inner = open(host, &host.map).map_err(|error| Fault::of(&error, Some(host)))?;
    let file = Stoppable { inner, stop };
    PerfMap::read_for(BufReader::with_capacity(BUFFER_BYTES, file), addresses)
        .map_err(|error| Fault::new(error.to_string(), ""))
}

/// All of a perf map.
pub(super) fn whole_map(host: &JitHost) -> Option<PerfMap> {
    let file = open(host, &host.map).ok()?;
    PerfMap::read(BufReader::with_capacity(BUFFER_BYTES, file)).ok()
}

/// `None`: it has mapped none.
fn dump(host: &JitHost, until: Nanos, stop: Stop<'_>) -> Option<Result<JitDump, Fault>> {
    let path = Path::new(OsStr::from_bytes(host.dump.as_ref()?));
    Some(
        open(host, path)
            .map_err(|error| Fault::new(format!("its jitdump: {error}"), ""))
            .and_then(|inner| {
                let file = Stoppable { inner, stop };
                JitDump::read(BufReader::with_capacity(BUFFER_BYTES, file), until.0)
                    .map_err(|error| Fault::new(error.to_string(), ""))
            }),
    )
}

/// A file speaks for a process only if the process's own user, or root, wrote it: /tmp is everybody's.
fn open(host: &JitHost, path: &Path) -> io::Result<File> {
    host.root.open_if(path, |found| {
        if host.until.is_some_and(|until| found.st_mtime > until) {
            return Err(io::Error::other(
                "changed after the capture, and the process is gone: it may be another's",
            ));
        }
        if found.st_uid == host.uid || found.st_uid == 0 {
            Ok(())
        } else {
            Err(io::Error::other(format!(
                "belongs to user {}, not to the process's user {} or root",
                found.st_uid, host.uid
            )))
        }
    })
}
