//! The files that a process has mapped as code.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use perfcollect_symbols::process::{parse_maps, read_maps, without_deleted_suffix};

use crate::trace::Pid;

/// A file that a process has mapped as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedCode {
    /// Path below the root directory of the process.
    pub path: PathBuf,
    /// Inode of the file.
    pub inode: u64,
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
                inode: line.inode,
            });
        }
    }
    Ok(files)
}
