//! Functions of code made at run time: as they were named while they were sampled, else by the map the runtime keeps,
//! `/tmp/perf-PID.map` in the process's own root directory, with its pid in its own namespace.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use perfcollect_symbols::demangle::demangle;
use perfcollect_symbols::dotnet_name::{self, ManagedName};
use perfcollect_symbols::perf_map::PerfMap;

use super::gap::Gap;
use super::stop::{Stop, Stoppable};
use super::{Named, nameless, offset};
use crate::machine::{JitHost, ProcessRow};
use crate::trace::{CodeAddress, FrameId, Function, FunctionKind, Method, Methods};

const REMEDY: &str = "start a .NET process with DOTNET_PerfMapEnabled=1 (before .NET 6 COMPlus_PerfMapEnabled=1), \
                      Node.js with --perf-basic-prof";
/// Module of code whose name tells none.
pub(super) const MODULE: &str = "jit";

pub(super) fn name(
    frames: &[FrameId],
    codes: &[CodeAddress],
    methods: &Methods,
    process: &ProcessRow,
    stop: Stop<'_>,
) -> Named {
    let known: Vec<_> = frames.iter().map(|frame| methods.of(*frame)).collect();
    let is_open = |known: &Option<_>| known.is_none();
    let open = || codes.iter().zip(&known).filter(|(_, known)| is_open(known));
    let addresses: Vec<_> = open().map(|(code, _)| offset(*code)).collect();
    let (map, fault) = match &addresses[..] {
        [] => (PerfMap::default(), None),
        addresses => match perf_map(process, addresses, stop) {
            Ok(map) => (map, None),
            Err(fault) => (PerfMap::default(), Some(fault)),
        },
    };
    let functions: Vec<_> = codes
        .iter()
        .zip(&known)
        .map(|(&code, known)| match known {
            Some(Some(method)) => of_method(method),
            Some(None) => nameless(code),
            None => map
                .lookup(offset(code))
                .map_or_else(|| nameless(code), |symbol| function(symbol.name)),
        })
        .collect();
    let named = functions.iter().any(|function| function.name.is_some());
    let useless = || Fault::new("its perf map names none of it", REMEDY);
    // Where the runtime told the names itself, the rest are its stubs.
    let fault = fault.or_else(|| (!named).then(useless)).filter(|_| !named);
    Named {
        functions,
        notices: Vec::new(),
        gap: fault.map(|Fault { why, remedy }| Gap {
            kind: "code made at run time by",
            who: format!("process {}", process.pid),
            why,
            remedy,
        }),
    }
}

fn of_method(method: &Method) -> Function {
    Function {
        name: Some(method.name.clone()),
        module: match &*method.module {
            "" => MODULE.into(),
            module => module.into(),
        },
        tier: method.tier.clone(),
        kind: FunctionKind::Jit,
        inlined: false,
    }
}

/// Why there is no perf map.
struct Fault {
    why: String,
    remedy: &'static str,
}

impl Fault {
    fn new(why: impl Into<String>, remedy: &'static str) -> Self {
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

fn function(name: &[u8]) -> Function {
    let (name, module, tier) = match ManagedName::parse(name) {
        Some(managed) => (managed.method, managed.assembly.into(), managed.tier),
        None => {
            let stub = dotnet_name::stub(name).map(|kind| format!("[stub] {kind}"));
            let name = stub.unwrap_or_else(|| demangle(name).into_owned());
            (name, MODULE.into(), None)
        }
    };
    Function {
        name: Some(name.into()),
        module,
        tier: tier.map(Into::into),
        kind: FunctionKind::Jit,
        inlined: false,
    }
}

fn perf_map(process: &ProcessRow, addresses: &[u64], stop: Stop<'_>) -> Result<PerfMap, Fault> {
    let host = match &process.jit_host {
        Some(Ok(host)) => host,
        Some(Err(error)) => return Err(Fault::of(error)),
        None => return Err(Fault::new("the process was gone too soon", "")),
    };
    let path = format!("/tmp/perf-{}.map", host.namespace_pid);
    let inner = open_map(host, Path::new(&path)).map_err(|error| Fault::of(&error))?;
    let file = Stoppable { inner, stop };
    PerfMap::read_for(BufReader::with_capacity(1 << 16, file), addresses)
        .map_err(|error| Fault::new(error.to_string(), ""))
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
