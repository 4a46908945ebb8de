//! Functions of code made at run time, by the map the runtime keeps: `/tmp/perf-PID.map` in the process's own root
//! directory, with its pid in its own namespace.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use perfcollect_symbols::demangle::demangle;
use perfcollect_symbols::dotnet_name::ManagedName;
use perfcollect_symbols::perf_map::PerfMap;

use super::stop::{Stop, Stoppable};
use super::{Named, nameless, offset};
use crate::machine::{JitHost, ProcessRow};
use crate::trace::{CodeAddress, Function, FunctionKind, Notice};

const REMEDY: &str = "start a .NET process with DOTNET_PerfMapEnabled=1 (before .NET 6 COMPlus_PerfMapEnabled=1), \
                      Node.js with --perf-basic-prof";
/// Module of code whose name tells none.
pub(super) const MODULE: &str = "jit";

pub(super) fn name(codes: &[CodeAddress], process: &ProcessRow, stop: Stop<'_>) -> Named {
    let addresses: Vec<_> = codes.iter().copied().map(offset).collect();
    let (map, notice) = match perf_map(process, &addresses, stop) {
        Ok(map) => (map, None),
        Err(reason) => (
            PerfMap::default(),
            Some(Notice::new(
                format!(
                    "code that process {} made at run time has no names: {reason}",
                    process.pid
                ),
                REMEDY,
            )),
        ),
    };
    let functions: Vec<_> = codes
        .iter()
        .map(|&code| {
            map.lookup(offset(code))
                .map_or_else(|| nameless(code), |symbol| function(symbol.name))
        })
        .collect();
    let named = functions.iter().filter(|f| f.name.is_some()).count();
    let useless = (named == 0 && notice.is_none()).then(|| {
        let pid = process.pid;
        Notice::new(
            format!("the perf map of process {pid} names none of the code it made at run time"),
            REMEDY,
        )
    });
    Named {
        functions,
        notices: notice.into_iter().chain(useless).collect(),
    }
}

fn function(name: &[u8]) -> Function {
    let (name, module, tier) = match ManagedName::parse(name) {
        Some(managed) => (managed.method, managed.assembly.into(), managed.tier),
        None => (demangle(name).into_owned(), MODULE.into(), None),
    };
    Function {
        name: Some(name.into()),
        module,
        tier: tier.map(Into::into),
        kind: FunctionKind::Jit,
        inlined: false,
    }
}

fn perf_map(process: &ProcessRow, addresses: &[u64], stop: Stop<'_>) -> Result<PerfMap, String> {
    let host = match &process.jit_host {
        Some(Ok(host)) => host,
        Some(Err(error)) => return Err(error.to_string()),
        None => return Err("the process was gone too soon".into()),
    };
    let path = format!("/tmp/perf-{}.map", host.namespace_pid);
    let inner = open_map(host, Path::new(&path)).map_err(|error| format!("{path}: {error}"))?;
    let file = Stoppable { inner, stop };
    PerfMap::read_for(BufReader::with_capacity(1 << 16, file), addresses)
        .map_err(|error| format!("{path}: {error}"))
}

/// A map speaks for a process only if the process's own user, or root, wrote it: /tmp is everybody's.
fn open_map(host: &JitHost, path: &Path) -> io::Result<File> {
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
