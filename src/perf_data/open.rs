//! Finding the recording: a file, a folder of files, standard input, or one in the archive that the original perfcollect makes.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::geteuid;
use tempfile::TempDir;
use thiserror::Error;

use super::archive::Archive;
use super::error::looks_like_text;
use super::pipe::{CancelCheck, Pipe};
use super::{PerfDataError, Reader};
use crate::bytes::fill;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 18;
/// What has the header, where a recording is a folder.
const FIRST_OF_FOLDER: &str = "data";
/// Bytes by which a text is told from other files.
const TEXT_HEAD_BYTES: usize = 4096;
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
    /// The directory it lies in, and the user whose recording it is.
    Directory(PathBuf, u32),
    /// A folder with what its archive had, which goes with the value.
    Unpacked(TempDir),
}

impl Beside {
    fn of(recording: &Path, metadata: &Metadata) -> Self {
        Self::Directory(directory_of(recording), metadata.uid())
    }

    /// Where it is, and whose files in it are to be trusted as the recording is.
    #[must_use]
    pub fn place(&self) -> Option<(&Path, u32)> {
        match self {
            Self::Nothing => None,
            Self::Directory(path, owner) => Some((path, *owner)),
            Self::Unpacked(folder) => Some((folder.path(), geteuid().as_raw())),
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
        error: rawzip::Error,
    },
    /// It was converted already.
    #[error(
        "{path} is a trace that perfcollect has made already: `perfcollect view {path}` shows it"
    )]
    Trace {
        /// Which.
        path: String,
    },
    /// There is no recording in the archive.
    #[error("{path} has neither perf.data nor perf.data.txt in it, so no samples{hint}")]
    NotInArchive {
        /// Which.
        path: String,
        /// What is in it instead and what reads that, to go on the line.
        hint: &'static str,
    },
}

/// What a path leads to.
pub enum Source {
    /// A recording of perf.
    Recording(Box<Opened>),
    /// What `perf script` has printed of one: a file, from its beginning.
    Text(File),
}

/// Opens a recording; `-`: standard input.
///
/// # Errors
/// See [`OpenError`].
pub fn open(path: &Path) -> Result<Opened, OpenError> {
    match source(path, Arc::new(|| false))? {
        Source::Recording(opened) => Ok(*opened),
        Source::Text(_) => Err(OpenError::Recording {
            path: path.display().to_string(),
            error: PerfDataError::Text,
        }),
    }
}

/// Opens a recording, or a text of one; `-`: standard input. What comes through a pipe ends with an error when it is `cancelled`.
///
/// # Errors
/// See [`OpenError`].
pub fn source(path: &Path, cancelled: CancelCheck) -> Result<Source, OpenError> {
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
        let input = io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(file_error)?;
        let input = File::from(input);
        return piped(Pipe { input, cancelled }, Beside::Nothing, path);
    }
    let mut file = File::open(path).map_err(file_error)?;
    let metadata = file.metadata().map_err(file_error)?;
    if metadata.is_file() && metadata.len() == 0 {
        return Err(recording_error(PerfDataError::Empty));
    }
    let mut beside = Beside::of(path, &metadata);
    if metadata.is_dir() {
        let opened = open_folder(path, beside)?;
        return Ok(Source::Recording(Box::new(opened)));
    }
    // A FIFO can be read only once, from its beginning.
    if file.rewind().is_err() {
        let input = file;
        return piped(Pipe { input, cancelled }, beside, path);
    }
    if is_text(&mut file).map_err(file_error)? {
        return Ok(Source::Text(file));
    }
    if is_archive(&mut file).map_err(file_error)? {
        let archive = Archive::open(file).map_err(|error| OpenError::Archive {
            path: shown(),
            error,
        });
        let archive = archive?;
        if archive.is_trace() {
            return Err(OpenError::Trace { path: shown() });
        }
        if !archive.has_recording()
            && let Some(text) = archive.text(&directory_of(path)).map_err(file_error)?
        {
            return Ok(Source::Text(text));
        }
        let (recording, unpacked) = from_archive(archive, path)?;
        file = recording;
        if let Some(unpacked) = unpacked {
            beside = Beside::Unpacked(unpacked);
        }
    }
    let input = BufReader::with_capacity(BUFFER_BYTES, file);
    let reader = Reader::file(input).map_err(recording_error)?;
    match reader.about.is_in_folder {
        true => Err(recording_error(PerfDataError::OneOfMany)),
        false => {
            let opened = Opened::new(reader.boxed(), beside);
            Ok(Source::Recording(Box::new(opened)))
        }
    }
}

/// Opens what can be read only once. A text goes to a file without a name, as it is read twice.
fn piped(mut input: Pipe, beside: Beside, path: &Path) -> Result<Source, OpenError> {
    let shown = || path.display().to_string();
    let mut head = vec![0; TEXT_HEAD_BYTES];
    let read = fill(&mut input, &mut head).map_err(|error| OpenError::File {
        path: shown(),
        error,
    })?;
    head.truncate(read);
    if looks_like_text(&head) {
        let keep = || {
            let mut file = tempfile::tempfile()?;
            io::copy(&mut head.chain(input), &mut file)?;
            file.rewind()?;
            Ok(file)
        };
        return keep().map(Source::Text).map_err(|error| OpenError::File {
            path: format!(
                "a copy of {} in {}",
                shown(),
                std::env::temp_dir().display()
            ),
            error,
        });
    }
    let input = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(head).chain(input));
    let input: Input = Box::new(input);
    let reader = Reader::pipe(input).map_err(|error| OpenError::Recording {
        path: shown(),
        error,
    })?;
    Ok(Source::Recording(Box::new(Opened::new(reader, beside))))
}

/// Opens a folder that `perf record --threads` has made, or `--kcore`, which puts a copy of the kernel into it.
fn open_folder(path: &Path, beside: Beside) -> Result<Opened, OpenError> {
    let open = |path: &Path| {
        // A FIFO would keep us waiting.
        let is_file = path.metadata().map(|metadata| metadata.is_file());
        let file = is_file.and_then(|is_file| match is_file {
            true => File::open(path),
            false => Err(io::Error::other("not a regular file")),
        });
        let file = file.map_err(|error| OpenError::File {
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

/// Whether a file begins as a text does, other than that of a format known to be something else.
fn is_text(file: &mut File) -> io::Result<bool> {
    let mut head = vec![0; TEXT_HEAD_BYTES];
    let read = fill(file, &mut head)?;
    file.rewind()?;
    Ok(looks_like_text(&head[..read]))
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

fn from_archive(archive: Archive, path: &Path) -> Result<(File, Option<TempDir>), OpenError> {
    let directory = directory_of(path);
    let unpack_error = |to: &Path| {
        let path = format!("{}, to unpack to", to.display());
        move |error| OpenError::File { path, error }
    };
    let recording = archive.recording(&directory);
    let recording = recording.map_err(unpack_error(&directory))?;
    let recording = recording.ok_or_else(|| OpenError::NotInArchive {
        path: path.display().to_string(),
        hint: archive.instead(),
    })?;
    let unpacked = archive.beside();
    let unpacked = unpacked.map_err(unpack_error(&std::env::temp_dir()))?;
    Ok((recording, unpacked))
}
