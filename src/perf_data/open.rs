//! Finding the recording: a file, standard input, or one in the archive that the original perfcollect makes.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use thiserror::Error;
use zip::ZipArchive;
use zip::result::ZipError;

use super::{PerfDataError, Reader};

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 18;
const ZIP_MAGIC: &[u8] = b"PK\x03\x04";

/// A recording's bytes.
pub type Input = Box<dyn Read>;

/// Why a recording cannot be read.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file cannot be opened or read.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// It is no recording.
    #[error("{path} {error}")]
    Recording {
        /// Which.
        path: String,
        /// What is wrong.
        error: PerfDataError,
    },
    /// The archive cannot be read.
    #[error("{path}: {error}")]
    Archive {
        /// Which.
        path: String,
        /// What is wrong.
        error: ZipError,
    },
    /// There is no recording in the archive.
    #[error("{path} has no perf.data in it; `perfcollect view` shows a finished trace")]
    NotInArchive {
        /// Which.
        path: String,
    },
}

/// Opens a recording; `-`: standard input.
///
/// # Errors
/// See [`OpenError`].
pub fn open(path: &Path) -> Result<Reader<Input>, OpenError> {
    let shown = || path.display().to_string();
    let file_error = |error| OpenError::File {
        path: shown(),
        error,
    };
    let recording_error = |error| OpenError::Recording {
        path: shown(),
        error,
    };
    if path == Path::new("-") {
        let input: Input = Box::new(BufReader::with_capacity(BUFFER_BYTES, io::stdin()));
        return Reader::pipe(input).map_err(recording_error);
    }
    let mut file = File::open(path).map_err(file_error)?;
    // A FIFO can be read only once, from its beginning.
    if file.rewind().is_err() {
        let input: Input = Box::new(BufReader::with_capacity(BUFFER_BYTES, file));
        return Reader::pipe(input).map_err(recording_error);
    }
    let mut magic = Vec::new();
    let begin = (&file).take(ZIP_MAGIC.len() as u64);
    BufReader::new(begin)
        .read_to_end(&mut magic)
        .and_then(|_| file.rewind())
        .map_err(file_error)?;
    if magic == ZIP_MAGIC {
        file = from_archive(path, file)?;
    }
    let input = BufReader::with_capacity(BUFFER_BYTES, file);
    let reader = Reader::file(input).map_err(recording_error)?;
    Ok(reader.boxed())
}

/// The directory in which a recording lies.
#[must_use]
pub fn directory_of(path: &Path) -> Option<PathBuf> {
    if path == Path::new("-") {
        return None;
    }
    Some(match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => ".".into(),
    })
}

/// Unpacks the recording of an archive to a file without a name, as a file must be sought in.
fn from_archive(path: &Path, archive: File) -> Result<File, OpenError> {
    let shown = || path.display().to_string();
    let archive_error = |error| OpenError::Archive {
        path: shown(),
        error,
    };
    let mut archive = ZipArchive::new(BufReader::new(archive)).map_err(archive_error)?;
    let is_recording = |name: &String| name.rsplit('/').next() == Some("perf.data");
    let name = archive
        .file_names()
        .filter_map(Result::ok)
        .find_map(|name| Some(name.into_owned()).filter(is_recording));
    let name = name.ok_or_else(|| OpenError::NotInArchive { path: shown() })?;
    let entry = archive.by_name(&name).map_err(archive_error)?;
    let directory = directory_of(path).unwrap_or_default();
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let private = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::open(&directory, flags, private).map_err(io::Error::from);
    let copy = |mut file: File| {
        let size = entry.size();
        io::copy(&mut entry.take(size), &mut file)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    };
    file.map(File::from)
        .and_then(copy)
        .map_err(|error| OpenError::File {
            path: format!("{}, to unpack to", directory.display()),
            error,
        })
}
