//! Reading of a `.trace.zip`.
//!
//! The file is untrusted: sizes are bounded, and nothing is ever extracted to a path of the
//! archive.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use zip::ZipArchive;
use zip::result::ZipError;

use super::hot_path::{HotPath, Step};
use crate::output::archive::{FLAME_GRAPH, FOLDED, FOLDER_SUFFIX, RAW_EVENTS, SUMMARY};
use crate::output::sanitize::{entry_name, terminal};
use crate::output::summary::{FORMAT_VERSION, Summary};

/// Limit of the summary. perfcollect writes less than 1 MB, as its lists are truncated.
pub(super) const MAX_SUMMARY_BYTES: u64 = 16 << 20;
/// Limit of the folded stacks. They are read line by line, so this bounds time, not memory.
const MAX_FOLDED_BYTES: u64 = 4 << 30;
/// Limit of a folded stack: a thousand frames with the longest names.
const MAX_LINE_BYTES: u64 = 4 << 20;
/// Maximum depth of the hot path; deeper frames are ignored.
const MAX_DEPTH: usize = 4096;

/// Reason why a trace cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The file cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// Path of the trace.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is no archive, or a corrupt one.
    #[error("{} is not a trace: {source}; `view` reads NAME.trace.zip, PerfView also reads NAME.nettrace", path.display())]
    Zip {
        /// Path of the trace.
        path: PathBuf,
        /// Cause.
        source: ZipError,
    },
    /// An entry would be extracted outside the archive's directory.
    #[error(
        "the trace has an entry with the unsafe name '{name}': perfcollect did not write this trace"
    )]
    UnsafeName {
        /// Name of the entry, escaped.
        name: String,
    },
    /// An entry is missing.
    #[error(
        "the trace has no entry *{FOLDER_SUFFIX}/{entry}: this version of perfcollect did not write it; try PerfView"
    )]
    Missing {
        /// Name of the entry.
        entry: &'static str,
    },
    /// An entry is larger than any that perfcollect writes.
    #[error(
        "{entry} in the trace has more than {limit} bytes: perfcollect did not write this trace"
    )]
    TooLarge {
        /// Name of the entry.
        entry: &'static str,
        /// Limit in bytes.
        limit: u64,
    },
    /// There is no room for the event streams.
    #[error("cannot unpack the events into {}: {source}; set TMPDIR to a directory with room for them", directory.display())]
    Unpack {
        /// Directory of the temporary files.
        directory: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// An entry cannot be read.
    #[error("cannot read {entry} in the trace: {source}")]
    Entry {
        /// Name of the entry.
        entry: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// The summary is malformed.
    #[error("{SUMMARY} in the trace is corrupt: {0}")]
    Summary(#[source] serde_json::Error),
    /// A newer perfcollect wrote the trace.
    #[error(
        "the trace has format {found}, this perfcollect reads formats up to {FORMAT_VERSION}: use a newer one"
    )]
    NewerFormat {
        /// Format of the trace.
        found: u32,
    },
    /// A folded stack is malformed.
    #[error("{FOLDED} in the trace is corrupt in line {line}")]
    Folded {
        /// Line number, from 1.
        line: u64,
    },
    /// The folded stacks belong to another trace.
    #[error("the trace is corrupt: {folded} samples in {FOLDED}, {summary} in {SUMMARY}")]
    Mismatch {
        /// Samples in the stacks.
        folded: u64,
        /// Samples in the summary.
        summary: u64,
    },
    /// No process with events has this id or name.
    #[error("the trace has no events of process {process}; it has events of: {available}")]
    NoProcess {
        /// Requested id or name.
        process: String,
        /// Ids and names of the processes with events.
        available: String,
    },
    /// The capture requested no events, or did not keep their streams.
    #[error(
        "the trace has no event streams ({RAW_EVENTS}): it was captured with -nolttng, -noraw or a profile without events, \
     or no .NET process ran; open it in PerfView to see its other content"
    )]
    NoEvents,
    /// The report could not be printed.
    #[error("cannot print the report: {0}")]
    Print(#[source] io::Error),
}

/// Content of a trace that the reports show.
#[derive(Debug)]
pub struct ReportData {
    /// Summary of the trace.
    pub summary: Summary,
    /// Path from the process with most samples down its most sampled callees.
    pub hot_path: Vec<Step>,
    /// Name of the entry that contains the flame graph.
    pub flame_graph: String,
}

/// Reads the trace at `path`.
///
/// # Errors
/// Returns an error if the file cannot be read or is no trace, see [`ViewError`].
pub fn read(path: &Path) -> Result<ReportData, ViewError> {
    read_zip(open_zip(path, open_file(path)?)?)
}

/// Reads only the summary of an open trace; `path` appears in errors.
///
/// # Errors
/// Returns an error if the file cannot be read or is no trace, see [`ViewError`].
pub fn summary(path: &Path, file: &File) -> Result<Summary, ViewError> {
    let mut zip = open_zip(path, file)?;
    let directory = directory_of(&zip)?;
    read_summary(open(&mut zip, &directory, SUMMARY, MAX_SUMMARY_BYTES)?)
}

pub(super) fn open_file(path: &Path) -> Result<File, ViewError> {
    // Opening a FIFO would wait for a writer.
    let is_file = std::fs::metadata(path).map(|metadata| metadata.is_file());
    let file = match is_file {
        Ok(false) => Err(io::Error::other("not a regular file")),
        Ok(true) => File::open(path),
        Err(error) => Err(error),
    };
    file.map_err(|source| ViewError::Open {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn open_zip<R: Read + Seek>(
    path: &Path,
    file: R,
) -> Result<ZipArchive<BufReader<R>>, ViewError> {
    ZipArchive::new(BufReader::new(file)).map_err(|source| ViewError::Zip {
        path: path.to_owned(),
        source,
    })
}

fn read_zip<R: Read + Seek>(mut zip: ZipArchive<R>) -> Result<ReportData, ViewError> {
    let directory = directory_of(&zip)?;
    let summary = read_summary(open(&mut zip, &directory, SUMMARY, MAX_SUMMARY_BYTES)?)?;
    let folded = open(&mut zip, &directory, FOLDED, MAX_FOLDED_BYTES)?;
    let (samples, hot_path) = read_folded(BufReader::new(folded))?;
    if samples != summary.samples {
        return Err(ViewError::Mismatch {
            folded: samples,
            summary: summary.samples,
        });
    }
    Ok(ReportData {
        summary,
        hot_path,
        flame_graph: format!("{directory}/{FLAME_GRAPH}"),
    })
}

/// Returns the directory of perfcollect's entries, after a check that all names are harmless.
pub(super) fn directory_of<R: Read + Seek>(zip: &ZipArchive<R>) -> Result<String, ViewError> {
    let mut directory = None;
    for name in zip.file_names_raw() {
        let name = String::from_utf8_lossy(name);
        let unsafe_part = |part| matches!(part, "" | "." | "..");
        let parts = name.trim_end_matches('/');
        if parts.split('/').any(unsafe_part) || name.contains(['\\', ':', '\0']) {
            return Err(ViewError::UnsafeName {
                name: terminal(&name).into_owned(),
            });
        }
        if let Some((before, entry)) = name.split_once('/')
            && entry == SUMMARY
            && let Some(capture) = before.strip_suffix(FOLDER_SUFFIX)
        {
            // The name becomes part of a command that perfcollect prints.
            if entry_name(capture) != capture {
                return Err(ViewError::UnsafeName {
                    name: terminal(&name).into_owned(),
                });
            }
            directory.get_or_insert_with(|| before.to_owned());
        }
    }
    directory.ok_or(ViewError::Missing { entry: SUMMARY })
}

/// Opens an entry.
///
/// The size that an entry declares may be wrong, so the reader stops one byte after the limit.
pub(super) fn open<'a, R: Read + Seek>(
    zip: &'a mut ZipArchive<R>,
    directory: &str,
    entry: &'static str,
    limit: u64,
) -> Result<impl Read + use<'a, R>, ViewError> {
    let found = zip.by_name(&format!("{directory}/{entry}"));
    let file = found.map_err(|error| match error {
        ZipError::FileNotFound => ViewError::Missing { entry },
        other => ViewError::Entry {
            entry,
            source: other.into(),
        },
    })?;
    if file.size() > limit {
        return Err(ViewError::TooLarge { entry, limit });
    }
    Ok(file.take(limit + 1))
}

pub(super) fn read_summary(mut entry: impl Read) -> Result<Summary, ViewError> {
    #[derive(Deserialize)]
    struct Version {
        format_version: u32,
    }
    let mut json = Vec::new();
    let read = entry.read_to_end(&mut json);
    read.map_err(|source| ViewError::Entry {
        entry: SUMMARY,
        source,
    })?;
    if json.len() as u64 > MAX_SUMMARY_BYTES {
        return Err(ViewError::TooLarge {
            entry: SUMMARY,
            limit: MAX_SUMMARY_BYTES,
        });
    }
    let Version {
        format_version: found,
    } = serde_json::from_slice(&json).map_err(ViewError::Summary)?;
    if found > FORMAT_VERSION {
        return Err(ViewError::NewerFormat { found });
    }
    serde_json::from_slice(&json).map_err(ViewError::Summary)
}

fn read_folded(mut entry: impl BufRead) -> Result<(u64, Vec<Step>), ViewError> {
    let mut path = HotPath::new(MAX_DEPTH);
    let mut line = Vec::new();
    let mut total = 0;
    for line_number in 1.. {
        line.clear();
        let read = (&mut entry)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line);
        total += read.map_err(|source| ViewError::Entry {
            entry: FOLDED,
            source,
        })? as u64;
        if total > MAX_FOLDED_BYTES {
            return Err(ViewError::TooLarge {
                entry: FOLDED,
                limit: MAX_FOLDED_BYTES,
            });
        }
        if line.is_empty() {
            break;
        }
        let string = line
            .strip_suffix(b"\n")
            .and_then(|line| std::str::from_utf8(line).ok());
        string
            .and_then(|string| path.push_line(string))
            .ok_or(ViewError::Folded { line: line_number })?;
    }
    Ok(path.finish())
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
