//! Detects .NET runtimes, with deployment and version, without communicating with the process.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use perfcollect_symbols::elf::{ElfError, ElfFile};
use perfcollect_symbols::process::executable;
use rustc_hash::FxHashMap;
use serde::Serialize;
use thiserror::Error;

use super::memory::ProcessMemory;
use super::runtime_file::FILE_NAME;
use super::version;
use crate::machine::{self, MappedCode, ProcError};
use crate::trace::{Pid, lacks_descriptors};

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

/// First version of .NET whose methods perfcollect reads from memory.
const MIN_READABLE_VERSION: u32 = 8;

impl RuntimeIdentity {
    /// Returns whether only a rundown has the names of the methods: before .NET 8, and if the memory
    /// of the process is not readable. NativeAOT programs have no such methods.
    #[must_use]
    pub fn needs_rundown(&self, pid: Pid) -> bool {
        self.flavour != Deployment::NativeAot
            && (self
                .major()
                .is_some_and(|major| major < MIN_READABLE_VERSION)
                || matches!(ProcessMemory::open(pid), Err(error) if !error.lacks_descriptors()))
    }

    /// Returns the major version, if known.
    #[must_use]
    pub fn major(&self) -> Option<u32> {
        self.version.as_deref()?.split('.').next()?.parse().ok()
    }
}

/// Why perfcollect cannot determine whether a process has a runtime.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum IdentifyError {
    /// The process has ended, or is a kernel thread, which has no executable.
    #[error("cannot open its executable: {0}")]
    Executable(#[source] Arc<io::Error>),
    /// The mappings of the process are not readable for lack of descriptors.
    #[error("cannot read its mappings: {0}")]
    Mappings(#[source] Arc<io::Error>),
    /// The dynamic symbols of the executable are not readable or corrupt.
    #[error("cannot read its executable: {0}")]
    Symbols(#[source] Arc<ElfError>),
}

impl IdentifyError {
    /// Returns whether too many files were open.
    pub(super) fn lacks_descriptors(&self) -> bool {
        match self {
            Self::Executable(error) | Self::Mappings(error) => lacks_descriptors(error),
            Self::Symbols(_) => false,
        }
    }
}

/// Detector of runtimes. Reads each executable once.
#[derive(Debug, Default)]
pub struct Detector {
    /// Runtimes in executables, by device and inode.
    executables: FxHashMap<(u64, u64), Result<Option<RuntimeIdentity>, IdentifyError>>,
}

impl Detector {
    /// Returns all .NET processes of the system, sorted by pid. Omits processes that it cannot
    /// identify: most have ended or are kernel threads.
    ///
    /// # Errors
    /// /proc is not readable.
    pub fn find_all(&mut self) -> Result<Vec<(Pid, RuntimeIdentity)>, ProcError> {
        let mut pids = machine::pids()?;
        pids.sort_unstable();
        let runtimes = pids
            .into_iter()
            .filter_map(|pid| Some((pid, self.identify(pid).ok()??)));
        Ok(runtimes.collect())
    }

    /// Identifies the runtime in a process. Returns `None` without a runtime.
    ///
    /// # Errors
    /// The process has ended, or its executable is not readable.
    pub fn identify(&mut self, pid: Pid) -> Result<Option<RuntimeIdentity>, IdentifyError> {
        let files = match machine::mapped_code(pid) {
            Ok(files) => files,
            Err(error) if lacks_descriptors(&error) => {
                return Err(IdentifyError::Mappings(Arc::new(error)));
            }
            Err(_) => return Ok(by_threads(pid, &machine::thread_names(pid))),
        };
        if let Some(library) = files.iter().find(|file| file.path.ends_with(FILE_NAME)) {
            return Ok(Some(identify_library(pid, library)));
        }
        let opened = executable(pid.0).and_then(|file| {
            let status = file.metadata()?;
            Ok((file, (status.dev(), status.ino())))
        });
        let (file, key) = opened.map_err(|error| IdentifyError::Executable(Arc::new(error)))?;
        self.executables
            .entry(key)
            .or_insert_with(|| {
                let identity = identify_executable(&Arc::new(file));
                identity.map_err(|error| IdentifyError::Symbols(Arc::new(error)))
            })
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
    let file = library.open(pid).ok();
    RuntimeIdentity {
        flavour: Deployment::SelfContained,
        version: file.and_then(|file| version::from_file(&file)),
    }
}

/// Identifies a runtime that is linked into an executable, by its symbol for debuggers.
fn identify_executable(file: &Arc<File>) -> Result<Option<RuntimeIdentity>, ElfError> {
    let elf = ElfFile::open(file.clone())?;
    if elf.dynamic_symbol(b"DotNetRuntimeInfo")?.is_some() {
        return Ok(Some(RuntimeIdentity {
            flavour: Deployment::SingleFile,
            version: version::from_file(file),
        }));
    }
    let header = elf.dynamic_symbol(b"DotNetRuntimeDebugHeader")?;
    Ok(header.map(|_| RuntimeIdentity {
        flavour: Deployment::NativeAot,
        version: None,
    }))
}
