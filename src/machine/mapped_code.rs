//! The files that a process has mapped as code.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use perfcollect_symbols::process::{
    MapsLine, open_mapped_file, parse_maps, read_maps, without_deleted_suffix,
};

use crate::trace::Pid;

/// A file that a process has mapped as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedCode {
    /// Path below the root directory of the process.
    pub path: PathBuf,
    /// Its first mapping, without the path.
    mapping: MapsLine<'static>,
}

impl MappedCode {
    /// Opens the file, or the one that was mapped if another one is at its path.
    ///
    /// # Errors
    /// The file is gone or cannot be read.
    pub fn open(&self, pid: Pid) -> io::Result<File> {
        let path = self.path.as_os_str().as_bytes();
        open_mapped_file(
            pid.0,
            &MapsLine {
                path,
                ..self.mapping
            },
        )
    }
}

/// Returns the files that a process has mapped as code, each once.
///
/// # Errors
/// /proc/PID/maps cannot be read.
pub fn mapped_code(pid: Pid) -> io::Result<Vec<MappedCode>> {
    let content = read_maps(pid.0)?;
    let mut files: Vec<MappedCode> = Vec::new();
    for line in parse_maps(&content) {
        let path = without_deleted_suffix(line.path);
        let path = Path::new(OsStr::from_bytes(path));
        // The mappings of a file are adjacent.
        if line.inode != 0 && files.last().is_none_or(|last| last.path != path) {
            files.push(MappedCode {
                path: path.to_owned(),
                mapping: MapsLine { path: b"", ..line },
            });
        }
    }
    Ok(files)
}
