//! Detects .NET runtimes, with deployment and version, without communicating with the process.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::process::{Root, executable};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::runtime_file::FILE_NAME;
use super::version;
use crate::machine::{self, MappedCode, ProcError};
use crate::trace::Pid;

/// Prefix of the names of runtime threads, since .NET 5.
const THREAD_PREFIX: &[u8] = b".NET ";
/// The executable that runs programs on the shared framework.
const HOST: &[u8] = b"dotnet";

/// The deployment of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deployment {
    /// Framework-dependent: `libcoreclr.so` of a shared installation.
    Framework,
    /// Self-contained: `libcoreclr.so` of the program itself.
    SelfContained,
    /// Single-file: the runtime is linked into the executable.
    SingleFile,
    /// NativeAOT: compiled ahead of time, without a JIT compiler.
    NativeAot,
    /// A runtime of unknown deployment, because the process is not accessible.
    Unknown,
}

/// Kind and version of the runtime in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeIdentity {
    /// The deployment.
    pub flavour: Deployment,
    /// The version, such as `8.0.4`, if known.
    pub version: Option<String>,
}

/// Detector of runtimes. Reads each executable once.
#[derive(Debug, Default)]
pub struct Detector {
    /// Runtimes in executables, by device and inode.
    executables: FxHashMap<(u64, u64), Option<RuntimeIdentity>>,
}

impl Detector {
    /// Returns all .NET processes of the system, sorted by pid.
    ///
    /// # Errors
    /// /proc is not readable.
    pub fn find_all(&mut self) -> Result<Vec<(Pid, RuntimeIdentity)>, ProcError> {
        let mut pids = machine::pids()?;
        pids.sort_unstable();
        let runtimes = pids
            .into_iter()
            .filter_map(|pid| Some((pid, self.identify(pid)?)));
        Ok(runtimes.collect())
    }

    /// Identifies the runtime in a process. Returns `None` without a runtime, or if the process has
    /// ended.
    pub fn identify(&mut self, pid: Pid) -> Option<RuntimeIdentity> {
        let Ok(files) = machine::mapped_code(pid) else {
            return by_threads(pid, &machine::thread_names(pid));
        };
        if let Some(library) = files.iter().find(|file| file.path.ends_with(FILE_NAME)) {
            return Some(identify_library(pid, library));
        }
        // A kernel thread has no executable.
        let executable = Arc::new(executable(pid.0).ok()?);
        let key = executable
            .metadata()
            .map(|file| (file.dev(), file.ino()))
            .ok()?;
        self.executables
            .entry(key)
            .or_insert_with(|| identify_executable(&executable))
            .clone()
    }
}

/// Detects a runtime by thread names, for processes whose mappings are not accessible.
fn by_threads(pid: Pid, names: &[Vec<u8>]) -> Option<RuntimeIdentity> {
    let is_runtime = |name: &Vec<u8>| name.starts_with(THREAD_PREFIX) || name == HOST;
    (names.iter().any(is_runtime) && machine::exists(pid)).then_some(RuntimeIdentity {
        flavour: Deployment::Unknown,
        version: None,
    })
}

fn identify_library(pid: Pid, library: &MappedCode) -> RuntimeIdentity {
    if let Some(version) = version::from_path(&library.path) {
        return RuntimeIdentity {
            flavour: Deployment::Framework,
            version: Some(version.to_owned()),
        };
    }
    let is_mapped = |stat: &rustix::fs::Stat| match stat.st_ino == library.inode {
        true => Ok(()),
        false => Err(io::Error::other("the file was replaced")),
    };
    let file = Root::of(pid.0).and_then(|root| root.open_if(&library.path, is_mapped));
    RuntimeIdentity {
        flavour: Deployment::SelfContained,
        version: file.ok().and_then(|file| version::from_file(&file)),
    }
}

/// Identifies a runtime that is linked into an executable, by its symbol for debuggers.
fn identify_executable(file: &Arc<File>) -> Option<RuntimeIdentity> {
    let elf = ElfFile::open(file.clone()).ok()?;
    let has = |symbol: &[u8]| matches!(elf.dynamic_symbol(symbol), Ok(Some(_)));
    if has(b"DotNetRuntimeInfo") {
        return Some(RuntimeIdentity {
            flavour: Deployment::SingleFile,
            version: version::from_file(file),
        });
    }
    has(b"DotNetRuntimeDebugHeader").then_some(RuntimeIdentity {
        flavour: Deployment::NativeAot,
        version: None,
    })
}
