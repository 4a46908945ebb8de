//! Opens a recording: a file, a directory, standard input, or an archive of the perfcollect script.

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
use super::magic::looks_like_text;
use super::pipe::{CancelCheck, Pipe};
use super::{PerfDataError, Reader};
use crate::bytes::fill;

/// Size of the read buffer.
const BUFFER_BYTES: usize = 1 << 18;
/// The file with the header, if a recording is a directory.
const MAIN_FILE: &str = "data";
/// Number of leading bytes that are checked to detect text.
const TEXT_HEAD_BYTES: usize = 4096;
const ZIP_MAGIC: &[u8] = b"PK\x03\x04";

/// The bytes of a recording.
pub type Input = Box<dyn Read>;

/// An open recording.
pub struct OpenRecording {
    /// Reader of its records.
    pub reader: Reader<Input>,
    /// Directory that may contain the perf maps and jitdumps of its processes.
    pub siblings: SiblingFiles,
}

impl OpenRecording {
    fn new(reader: Reader<Input>, siblings: SiblingFiles) -> Self {
        Self { reader, siblings }
    }
}

/// Files in the directory of a recording, or unpacked from its archive.
#[derive(Debug)]
pub enum SiblingFiles {
    /// The recording came through a pipe.
    Nothing,
    /// The directory that contains the recording, and the user id of the recording's owner.
    Directory(PathBuf, u32),
    /// A temporary directory with the files from the archive, removed when the value is dropped.
    Unpacked(TempDir),
}

impl SiblingFiles {
    fn in_directory_of(recording: &Path, metadata: &Metadata) -> Self {
        Self::Directory(directory_of(recording), metadata.uid())
    }

    /// Returns the directory and the user whose files in it can be trusted like the recording.
    #[must_use]
    pub fn place(&self) -> Option<(&Path, u32)> {
        match self {
            Self::Nothing => None,
            Self::Directory(path, owner) => Some((path, *owner)),
            Self::Unpacked(directory) => Some((directory.path(), geteuid().as_raw())),
        }
    }
}

/// Reason why a recording cannot be opened.
#[derive(Debug, Error)]
pub enum OpenRecordingError {
    /// The file cannot be opened or read.
    #[error("{path}: {error}")]
    File {
        /// Path.
        path: String,
        /// Cause.
        error: io::Error,
    },
    /// The file is not a readable recording.
    #[error("cannot read {path} as a perf.data recording: {error}")]
    Recording {
        /// Path.
        path: String,
        /// Cause.
        error: PerfDataError,
    },
    /// The archive cannot be read.
    #[error("{path}: {error}")]
    Archive {
        /// Path.
        path: String,
        /// Cause.
        error: rawzip::Error,
    },
    /// The file is the output of perfcollect.
    #[error(
        "cannot read {path} as a recording: it is a perfcollect trace; open it with `perfcollect view {path}`"
    )]
    Trace {
        /// Path.
        path: String,
    },
    /// The archive contains no recording.
    #[error("cannot import {path}: it contains neither perf.data nor perf.data.txt{hint}")]
    NotInArchive {
        /// Path.
        path: String,
        /// Other content of the archive and programs that open it, to append to the message.
        hint: &'static str,
    },
}

impl OpenRecordingError {
    /// Returns whether the file is of another kind than a recording.
    #[must_use]
    pub fn is_other_file(&self) -> bool {
        matches!(
            self,
            Self::Recording {
                error: PerfDataError::Magic(_),
                ..
            } | Self::NotInArchive { .. }
                | Self::Trace { .. }
        )
    }
}

/// An opened input.
pub enum Source {
    /// A perf.data recording.
    Recording(Box<OpenRecording>),
    /// The output of `perf script`, positioned at the start.
    Text(File),
    /// A trace of perfcollect.
    Trace(File),
}

/// Opens a recording. The path `-` is standard input.
///
/// # Errors
/// Returns [`OpenRecordingError`] if the recording cannot be read or the input is text.
pub fn open(path: &Path) -> Result<OpenRecording, OpenRecordingError> {
    match source(path, Arc::new(|| false))? {
        Source::Recording(opened) => Ok(*opened),
        Source::Text(_) => Err(OpenRecordingError::Recording {
            path: path.display().to_string(),
            error: PerfDataError::Text,
        }),
        Source::Trace(_) => Err(OpenRecordingError::Trace {
            path: path.display().to_string(),
        }),
    }
}

/// Opens a recording, the output of `perf script`, or a trace. The path `-` is standard input.
///
/// Reading from a pipe fails once `cancelled` returns true.
///
/// # Errors
/// Returns [`OpenRecordingError`] if the input cannot be read.
pub fn source(path: &Path, cancelled: CancelCheck) -> Result<Source, OpenRecordingError> {
    let shown = || path.display().to_string();
    let file_error = |error| OpenRecordingError::File {
        path: shown(),
        error,
    };
    let recording_error = |error| OpenRecordingError::Recording {
        path: shown(),
        error,
    };
    if path == Path::new("-") {
        let input = io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(file_error)?;
        let input = File::from(input);
        return piped(Pipe { input, cancelled }, SiblingFiles::Nothing, path);
    }
    let mut file = File::open(path).map_err(file_error)?;
    let metadata = file.metadata().map_err(file_error)?;
    if metadata.is_file() && metadata.len() == 0 {
        return Err(recording_error(PerfDataError::Empty));
    }
    let mut siblings = SiblingFiles::in_directory_of(path, &metadata);
    if metadata.is_dir() {
        let opened = open_directory(path, siblings)?;
        return Ok(Source::Recording(Box::new(opened)));
    }
    // A FIFO cannot seek.
    if file.rewind().is_err() {
        let input = file;
        return piped(Pipe { input, cancelled }, siblings, path);
    }
    if is_text(&mut file).map_err(file_error)? {
        return Ok(Source::Text(file));
    }
    if is_archive(&mut file).map_err(file_error)? {
        let trace = file.try_clone().map_err(file_error)?;
        let archive = Archive::open(file).map_err(|error| OpenRecordingError::Archive {
            path: shown(),
            error,
        });
        let archive = archive?;
        if archive.is_trace() {
            return Ok(Source::Trace(trace));
        }
        if !archive.has_recording()
            && let Some(text) = archive.perf_text(&directory_of(path)).map_err(file_error)?
        {
            return Ok(Source::Text(text));
        }
        let (recording, unpacked) = unpack(archive, path)?;
        file = recording;
        if let Some(unpacked) = unpacked {
            siblings = SiblingFiles::Unpacked(unpacked);
        }
    }
    let input = BufReader::with_capacity(BUFFER_BYTES, file);
    let reader = Reader::file(input).map_err(recording_error)?;
    match reader.info.is_in_directory {
        true => Err(recording_error(PerfDataError::PartOfDirectory)),
        false => {
            let opened = OpenRecording::new(reader.boxed(), siblings);
            Ok(Source::Recording(Box::new(opened)))
        }
    }
}

/// Opens an input that cannot seek.
///
/// Text is read twice, so it is copied to an anonymous temporary file.
fn piped(
    mut input: Pipe,
    siblings: SiblingFiles,
    path: &Path,
) -> Result<Source, OpenRecordingError> {
    let shown = || path.display().to_string();
    let mut head = vec![0; TEXT_HEAD_BYTES];
    let read = fill(&mut input, &mut head).map_err(|error| OpenRecordingError::File {
        path: shown(),
        error,
    })?;
    head.truncate(read);
    if looks_like_text(&head) {
        let copy = || {
            let mut file = tempfile::tempfile()?;
            io::copy(&mut head.chain(input), &mut file)?;
            file.rewind()?;
            Ok(file)
        };
        return copy()
            .map(Source::Text)
            .map_err(|error| OpenRecordingError::File {
                path: format!(
                    "temporary copy of {} in {}",
                    shown(),
                    std::env::temp_dir().display()
                ),
                error,
            });
    }
    let input = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(head).chain(input));
    let input: Input = Box::new(input);
    let reader = Reader::pipe(input).map_err(|error| OpenRecordingError::Recording {
        path: shown(),
        error,
    })?;
    Ok(Source::Recording(Box::new(OpenRecording::new(
        reader, siblings,
    ))))
}

/// Opens a directory that `perf record --threads` or `--kcore` wrote.
///
/// `--kcore` adds a copy of the kernel, which is not read.
fn open_directory(
    path: &Path,
    siblings: SiblingFiles,
) -> Result<OpenRecording, OpenRecordingError> {
    let open = |path: &Path| {
        // Opening a FIFO would block.
        let is_file = path.metadata().map(|metadata| metadata.is_file());
        let file = is_file.and_then(|is_file| match is_file {
            true => File::open(path),
            false => Err(io::Error::other("not a regular file")),
        });
        let file = file.map_err(|error| OpenRecordingError::File {
            path: path.display().to_string(),
            error,
        });
        Ok(BufReader::with_capacity(BUFFER_BYTES, file?))
    };
    let reader = Reader::file(open(&path.join(MAIN_FILE))?);
    let reader = reader.map_err(|error| OpenRecordingError::Recording {
        path: path.display().to_string(),
        error,
    })?;
    let files = thread_files(path).map_err(|error| OpenRecordingError::File {
        path: path.display().to_string(),
        error,
    })?;
    let mut threads: Vec<Input> = Vec::new();
    for path in files {
        threads.push(Box::new(open(&path)?));
    }
    Ok(OpenRecording::new(
        reader.boxed().with_threads(threads),
        siblings,
    ))
}

/// Returns the per-thread files of a directory (`data.INDEX`), by ascending index.
fn thread_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in directory.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let index = name.to_str().and_then(|name| name.strip_prefix("data."));
        if let Some(index) = index.and_then(|index| index.parse::<u32>().ok())
            && entry.file_type()?.is_file()
        {
            files.push((index, entry.path()));
        }
    }
    files.sort_unstable();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Whether a file starts with text, except text of a known other format.
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

fn unpack(archive: Archive, path: &Path) -> Result<(File, Option<TempDir>), OpenRecordingError> {
    let directory = directory_of(path);
    let unpack_error = |to: &Path| {
        let path = format!("unpacking to {}", to.display());
        move |error| OpenRecordingError::File { path, error }
    };
    let recording = archive.recording(&directory);
    let recording = recording.map_err(unpack_error(&directory))?;
    let recording = recording.ok_or_else(|| OpenRecordingError::NotInArchive {
        path: path.display().to_string(),
        hint: archive.content_hint(),
    })?;
    let unpacked = archive.unpack_jit_files();
    let unpacked = unpacked.map_err(unpack_error(&std::env::temp_dir()))?;
    Ok((recording, unpacked))
}
