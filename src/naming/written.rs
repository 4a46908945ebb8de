//! What a process itself has written of the code it made: a jitdump, where it has mapped one, and the map
//! `/tmp/perf-PID.map`; in the process's own root directory, with its pid in its own namespace.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use perfcollect_symbols::jit_dump::JitDump;
use perfcollect_symbols::perf_map::PerfMap;

use super::stop::{Stop, Stoppable};
use crate::machine::{JitHost, ProcessRow};
use crate::trace::Nanos;

pub(super) const REMEDY: &str = "start a process of .NET before 8 with DOTNET_PerfMapEnabled=1 (before .NET 6 COMPlus_PerfMapEnabled=1), \
                      Node.js with --perf-basic-prof";
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
            Some(Err(error)) => return (Self::default(), Some(Fault::of(error))),
            None => {
                let fault = Fault::new("the process was gone too soon", "");
                return (Self::default(), Some(fault));
            }
        };
        let dump = dump(host, until, stop).transpose();
        let map = map(host, addresses, stop);
        let fault = match (&dump, &map) {
            (Ok(Some(_)), _) | (_, Ok(_)) => None,
            (Err(_), _) => dump.as_ref().err(),
            (Ok(None), _) => map.as_ref().err(),
        };
        let fault = fault.cloned();
        let written = Self {
            dump: dump.ok().flatten().unwrap_or_default(),
            map: map.unwrap_or_default(),
        };
        (written, fault)
    }

    /// The name of the function at an address. The dump knows the time, the map also stubs.
    pub(super) fn name(&self, address: u64) -> Option<&[u8]> {
        let symbol = self.dump.lookup(address);
        let symbol = symbol.or_else(|| self.map.lookup(address))?;
        Some(symbol.name)
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

    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::new("there is no /tmp/perf-PID.map", REMEDY),
            io::ErrorKind::PermissionDenied => Self::new(
                format!("its root directory cannot be looked into: {error}"),
                "run as root, or with CAP_SYS_PTRACE",
            ),
            _ => Self::new(format!("/tmp/perf-PID.map: {error}"), ""),
        }
    }
}

fn map(host: &JitHost, addresses: &[u64], stop: Stop<'_>) -> Result<PerfMap, Fault> {
    let inner = open(host, &host.map).map_err(|error| Fault::of(&error))?;
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
