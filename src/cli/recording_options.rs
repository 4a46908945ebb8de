//! Options that locate the files of a recording.

use std::fs::File;
use std::io;
use std::path::Path;

use thiserror::Error;

use super::arguments::RecordingOptions;
use crate::machine::RecordingFiles;
use crate::perf_data::SiblingFiles;

/// A path of an option cannot be used.
#[derive(Debug, Error)]
#[error("{path}: {error}")]
pub(super) struct UnusablePath {
    path: String,
    error: io::Error,
}

impl RecordingOptions {
    /// Returns the files of the recording. `beside`: files in the directory of the recording.
    pub(super) fn recorded(&self, siblings: &SiblingFiles) -> Result<RecordingFiles, UnusablePath> {
        let unusable = |path: &Path, error| UnusablePath {
            path: path.display().to_string(),
            error,
        };
        if let Some(path) = &self.kallsyms {
            File::open(path).map_err(|error| unusable(path, error))?;
        }
        let sysroot = self.sysroot.as_deref();
        RecordingFiles::new(sysroot, siblings.place())
            .map_err(|error| unusable(sysroot.unwrap_or(Path::new("/")), error))
    }
}
