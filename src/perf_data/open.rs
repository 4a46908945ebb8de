//! Finding the recording: a file, a folder of files, standard input, or one in the archive that the original perfcollect makes.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use thiserror::Error;
use zip::result::ZipError;

use super::archive::Archive;
use super::{PerfDataError, Reader};
use crate::bytes::fill;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 18;
/// What has the header, where a recording is a folder.
const FIRST_OF_FOLDER: &str = "data";
const ZIP_MAGIC: &[u8] = b"PK\x03\x04";

/// A recording's bytes.
pub type Input = Box<dyn Read>;

/// A recording that is open.
pub struct Opened {
    /// Its records.
    pub reader: Reader<Input>,
    /// Where the maps and dumps of its processes may be.
    pub beside: Beside,
}

impl Opened {
    fn new(reader: Reader<Input>, beside: Beside) -> Self {
        Self { reader, beside }
    }
}

/// A directory beside a recording.
#[derive(Debug)]
pub enum Beside {
    /// It came through a pipe.
    Nothing,
    /// The directory it lies in.
    Directory(PathBuf),
    /// A folder with what its archive had, which goes with the value.
    Unpacked(TempDir),
}

impl Beside {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Nothing => None,
            Self::Directory(path) => Some(path),
            Self::Unpacked(folder) => Some(folder.path()),
        }
    }
}

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
pub fn open(path: &Path) -> Result<Opened, OpenError> {
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
        let reader = Reader::pipe(input).map_err(recording_error)?;
        return Ok(Opened::new(reader, Beside::Nothing));
    }
    let mut file = File::open(path).map_err(file_error)?;
    if file.metadata().map_err(file_error)?.is_dir() {
        return open_folder(path);
    }
    let mut beside = Beside::Directory(directory_of(path));
    // A FIFO can be read only once, from its beginning.
    if file.rewind().is_err() {
        let input: Input = Box::new(BufReader::with_capacity(BUFFER_BYTES, file));
        let reader = Reader::pipe(input).map_err(recording_error)?;
        return Ok(Opened::new(reader, beside));
    }
    if is_archive(&mut file).map_err(file_error)? {
        let archive = Archive::open(file).map_err(|error| OpenError::Archive {
            path: shown(),
            error,
        });
        let (recording, unpacked) = from_archive(archive?, path)?;
        file = recording;
        if let Some(unpacked) = unpacked {
            beside = Beside::Unpacked(unpacked);
        }
    }
    let input = BufReader::with_capacity(BUFFER_BYTES, file);
    let reader = Reader::file(input).map_err(recording_error)?;
    match reader.about.is_in_folder {
        true => Err(recording_error(PerfDataError::OneOfMany)),
        false => Ok(Opened::new(reader.boxed(), beside)),
    }
}

/// Opens a folder that `perf record --threads` has made, or `--kcore`, which puts a copy of the kernel into it.
fn open_folder(path: &Path) -> Result<Opened, OpenError> {
    let open = |path: &Path| {
        let file = File::open(path).map_err(|error| OpenError::File {
            path: path.display().to_string(),
            error,
        });
        Ok(BufReader::with_capacity(BUFFER_BYTES, file?))
    };
    let reader = Reader::file(open(&path.join(FIRST_OF_FOLDER))?);
    let reader = reader.map_err(|error| OpenError::Recording {
        path: path.display().to_string(),
        error,
    })?;
    let files = thread_files(path).map_err(|error| OpenError::File {
        path: path.display().to_string(),
        error,
    })?;
    let mut threads: Vec<Input> = Vec::new();
    for path in files {
        threads.push(Box::new(open(&path)?));
    }
    let beside = Beside::Directory(directory_of(path));
    Ok(Opened::new(reader.boxed().with_threads(threads), beside))
}

/// The files of a folder that threads have written, in the order of their numbers.
fn thread_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut numbered = Vec::new();
    for entry in folder.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("data."));
        if let Some(number) = number.and_then(|number| number.parse::<u32>().ok())
            && entry.file_type()?.is_file()
        {
            numbered.push((number, entry.path()));
        }
    }
    numbered.sort_unstable();
    Ok(numbered.into_iter().map(|(_, path)| path).collect())
}

/// What `perf script` has made of a recording, if a file is an archive that has no recording but that.
///
/// # Errors
/// See [`OpenError`].
pub fn text_of_archive(path: &Path) -> Result<Option<File>, OpenError> {
    let shown = || path.display().to_string();
    let file_error = |error| OpenError::File {
        path: shown(),
        error,
    };
    // What is no file, or none that can be read twice, says so where it is read.
    let Ok(mut file) = File::open(path) else {
        return Ok(None);
    };
    let is_file = file.metadata().map_err(file_error)?.is_file();
    if !is_file || file.rewind().is_err() || !is_archive(&mut file).map_err(file_error)? {
        return Ok(None);
    }
    let archive = Archive::open(file).map_err(|error| OpenError::Archive {
        path: shown(),
        error,
    });
    let mut archive = archive?;
    match archive.has_recording() {
        true => Ok(None),
        false => archive.text(&directory_of(path)).map_err(file_error),
    }
}

fn is_archive(file: &mut File) -> io::Result<bool> {
    let mut magic = [0; ZIP_MAGIC.len()];
    let read = fill(file, &mut magic)?;
    file.rewind()?;
    Ok(magic[..read] == *ZIP_MAGIC)
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => ".".into(),
    }
}

fn from_archive(mut archive: Archive, path: &Path) -> Result<(File, Option<TempDir>), OpenError> {
    let directory = directory_of(path);
    let unpack_error = |to: &Path| {
        let path = format!("{}, to unpack to", to.display());
        move |error| OpenError::File { path, error }
    };
    let recording = archive.recording(&directory);
    let recording = recording.map_err(unpack_error(&directory))?;
    let recording = recording.ok_or_else(|| OpenError::NotInArchive {
        path: path.display().to_string(),
    })?;
    let unpacked = archive.beside();
    let unpacked = unpacked.map_err(unpack_error(&std::env::temp_dir()))?;
    Ok((recording, unpacked))
}
