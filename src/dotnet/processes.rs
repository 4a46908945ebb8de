//! Which processes have a .NET runtime in them, of which kind and version. Seen from outside; nothing is asked.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use perfcollect_symbols::elf::ElfFile;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::runtime_file::FILE_NAME;
use super::version;
use crate::machine::{self, MappedCode, ProcError, Root};
use crate::trace::Pid;

/// Threads of a runtime have names that begin so (from 5 on).
const THREAD_PREFIX: &[u8] = b".NET ";
/// The program that starts others with the shared framework.
const HOST: &[u8] = b"dotnet";

/// How a runtime came into its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deployment {
    /// `libcoreclr.so` of an installation that programs share.
    Framework,
    /// `libcoreclr.so` of the program itself.
    SelfContained,
    /// Linked into the executable.
    SingleFile,
    /// Compiled ahead of time: native code, without a JIT compiler.
    NativeAot,
    /// There is one; which, may not be seen.
    Unknown,
}

/// The runtime in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeIdentity {
    /// How it came there.
    pub flavour: Deployment,
    /// Such as `8.0.4`, if that can be told.
    pub version: Option<String>,
}

/// Tells which processes have a runtime. Executables are looked into once.
#[derive(Debug, Default)]
pub struct Detector {
    /// By device and inode.
    executables: FxHashMap<(u64, u64), Option<RuntimeIdentity>>,
}

impl Detector {
    /// The .NET processes of the machine, by pid.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn find_all(&mut self) -> Result<Vec<(Pid, RuntimeIdentity)>, ProcError> {
        let mut pids = machine::pids()?;
        pids.sort_unstable();
        let found = pids
            .into_iter()
            .filter_map(|pid| Some((pid, self.identify(pid)?)));
        Ok(found.collect())
    }

    /// The runtime in a process; `None`: there is none, or the process has ended.
    pub fn identify(&mut self, pid: Pid) -> Option<RuntimeIdentity> {
        let Ok(files) = machine::mapped_files(pid) else {
            return by_threads(pid, &machine::thread_names(pid));
        };
        if let Some(library) = files.iter().find(|file| file.path.ends_with(FILE_NAME)) {
            return Some(of_library(pid, library));
        }
        // A kernel thread has no executable.
        let executable = machine::executable(pid).ok()?;
        let key = executable
            .metadata()
            .map(|file| (file.dev(), file.ino()))
            .ok()?;
        self.executables
            .entry(key)
            .or_insert_with(|| in_executable(&executable))
            .clone()
    }
}

/// Where nothing else may be seen.
fn by_threads(pid: Pid, names: &[Vec<u8>]) -> Option<RuntimeIdentity> {
    let is_runtime = |name: &Vec<u8>| name.starts_with(THREAD_PREFIX) || name == HOST;
    (names.iter().any(is_runtime) && machine::exists(pid)).then_some(RuntimeIdentity {
        flavour: Deployment::Unknown,
        version: None,
    })
}

fn of_library(pid: Pid, library: &MappedCode) -> RuntimeIdentity {
    if let Some(version) = version::of_path(&library.path) {
        return RuntimeIdentity {
            flavour: Deployment::Framework,
            version: Some(version.to_owned()),
        };
    }
    let is_mapped = |stat: &rustix::fs::Stat| match stat.st_ino == library.inode {
        true => Ok(()),
        false => Err(io::Error::other("another file is there now")),
    };
    let file = Root::of(pid).and_then(|root| root.open_if(&library.path, is_mapped));
    RuntimeIdentity {
        flavour: Deployment::SelfContained,
        version: file.ok().and_then(|file| version::of_file(&file)),
    }
}

/// A runtime that is linked into an executable gives debuggers a symbol to find it by.
fn in_executable(file: &File) -> Option<RuntimeIdentity> {
    let elf = ElfFile::open(file).ok()?;
    let has = |symbol: &[u8]| matches!(elf.dynamic_symbol(symbol), Ok(Some(_)));
    if has(b"DotNetRuntimeInfo") {
        return Some(RuntimeIdentity {
            flavour: Deployment::SingleFile,
            version: version::of_file(file),
        });
    }
    has(b"DotNetRuntimeDebugHeader").then_some(RuntimeIdentity {
        flavour: Deployment::NativeAot,
        version: None,
    })
}
