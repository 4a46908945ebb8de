//! A stripped program, its debug file, and `perfcollect symbols` in a separate environment.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use perfcollect_symbols::elf::ElfFile;
use tempfile::TempDir;

use crate::support::{Finished, Missing, perfcollect, run, workloads};

const LIMIT: Duration = Duration::from_secs(60);

/// `native-nofp` without symbols, in a temporary directory. Its debug file is in another directory.
pub(crate) struct Program {
    pub(crate) directory: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) build_id: String,
    pub(crate) debug: Vec<u8>,
}

impl Program {
    pub(crate) fn new() -> Result<Self, Missing> {
        let original = workloads::native("native-nofp")?;
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("app")).unwrap();
        let (path, debug) = (
            directory.path().join("app/native-app"),
            directory.path().join("debug"),
        );
        let objcopy = |arguments: &[&OsStr]| {
            let status = Command::new("objcopy").args(arguments).status();
            let status = status.map_err(|_| Missing::Command("objcopy"))?;
            assert!(status.success(), "objcopy {arguments:?}");
            Ok(())
        };
        objcopy(&[
            "--only-keep-debug".as_ref(),
            original.as_ref(),
            debug.as_ref(),
        ])?;
        objcopy(&["--strip-all".as_ref(), original.as_ref(), path.as_ref()])?;
        let library = "libwork.so";
        fs::copy(
            original.with_file_name(library),
            path.with_file_name(library),
        )
        .unwrap();
        Ok(Self {
            build_id: build_id(&path),
            debug: fs::read(debug).unwrap(),
            directory,
            path,
        })
    }

    /// Returns the path of the debug file on a symbol server.
    pub(crate) fn key(&self) -> String {
        format!("/_.debug/elf-buildid-sym-{}/_.debug", self.build_id)
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.directory.path().join("cache")
    }

    /// Returns the path of the debug file in the cache.
    pub(crate) fn cached(&self) -> PathBuf {
        let below = format!("perfcollect/symbols{}", self.key());
        self.cache().join(below)
    }

    /// Returns a perfcollect command with a separate cache and without other settings.
    pub(crate) fn command<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = Command::new(perfcollect());
        command
            .args(arguments)
            .current_dir(&self.directory)
            .env("HOME", self.directory.path())
            .env("XDG_CACHE_HOME", self.cache());
        let variables = [
            "_NT_SYMBOL_PATH",
            "DEBUGINFOD_URLS",
            "DEBUGINFOD_CACHE_PATH",
            "no_proxy",
        ];
        let proxies = [
            "http_proxy",
            "https_proxy",
            "all_proxy",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
        ];
        for name in variables
            .iter()
            .chain(&proxies)
            .chain(&["SUDO_UID", "SUDO_GID"])
        {
            command.env_remove(name);
        }
        command
    }

    /// Runs `perfcollect symbols PROGRAM -server URL OPTIONS`.
    pub(crate) fn get(&self, url: &str, options: &[&str]) -> Finished {
        let path = self.path.to_str().unwrap();
        let arguments = [&["symbols", path, "-server", url], options].concat();
        run(&mut self.command(arguments), LIMIT)
    }

    /// Returns all files in the cache, including hidden ones.
    pub(crate) fn files_in_cache(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut directories = vec![self.cache()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                match entry.file_type().unwrap().is_dir() {
                    true => directories.push(entry.path()),
                    false => files.push(entry.path()),
                }
            }
        }
        files
    }
}

/// Returns the build id of a file in hexadecimal.
pub(crate) fn build_id(path: &Path) -> String {
    let file = File::open(path).unwrap();
    let id = ElfFile::open(file).unwrap().build_id().unwrap();
    id.to_string()
}
