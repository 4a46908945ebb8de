//! Reads a `.trace.zip`. It may come from anyone, so sizes are bounded and nothing is ever extracted to a path.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::hot_path::{HotPath, Step};
use crate::output::archive::{FLAME_GRAPH, FOLDED, FOLDER_SUFFIX, RAW_EVENTS, SUMMARY};
use crate::output::sanitize::{entry_name, terminal};
use crate::output::summary::{FORMAT_VERSION, Summary};
use crate::zip::Zip;

/// Ours is below 1 MB: its lists are cut.
pub(super) const MAX_SUMMARY_BYTES: u64 = 16 << 20;
/// It is read line by line, so this bounds time, not memory.
const MAX_FOLDED_BYTES: u64 = 4 << 30;
/// A stack of a thousand frames with the longest names.
const MAX_LINE_BYTES: u64 = 4 << 20;
/// Deeper frames are not followed.
const MAX_DEPTH: usize = 4096;

/// Why a trace cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The file cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is no archive, or a damaged one.
    #[error("{} is not a trace: {source}; view reads the .trace.zip, PerfView also the .nettrace", path.display())]
    Zip {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rawzip::Error,
    },
    /// An entry would be extracted outside the archive's folder.
    #[error(
        "the trace has an entry with the unsafe name '{name}'; it was not written by perfcollect"
    )]
    UnsafeName {
        /// The name, escaped.
        name: String,
    },
    /// An entry is missing.
    #[error(
        "the trace has no entry *{FOLDER_SUFFIX}/{entry}; it was not written by this perfcollect, try PerfView"
    )]
    Missing {
        /// Its name.
        entry: &'static str,
    },
    /// An entry is larger than any that perfcollect writes.
    #[error("{entry} in the trace has more than {limit} bytes; it was not written by perfcollect")]
    TooLarge {
        /// Its name.
        entry: &'static str,
        /// Bytes allowed.
        limit: u64,
    },
    /// There is no room for the streams of events.
    #[error("cannot unpack the events into {}: {source}; set TMPDIR to a directory with room for them", directory.display())]
    Unpack {
        /// Where they would have been.
        directory: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// An entry cannot be read.
    #[error("cannot read {entry} in the trace: {source}")]
    Entry {
        /// Its name.
        entry: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The summary is none.
    #[error("{SUMMARY} in the trace is damaged: {0}")]
    Summary(#[source] serde_json::Error),
    /// A newer perfcollect wrote the trace.
    #[error(
        "the trace has format {found}, this perfcollect reads up to {FORMAT_VERSION}: use a newer one"
    )]
    NewerFormat {
        /// Its version.
        found: u32,
    },
    /// A folded stack is none.
    #[error("{FOLDED} in the trace is damaged in line {line}")]
    Folded {
        /// The line, from 1.
        line: u64,
    },
    /// The folded stacks are those of another trace.
    #[error("the trace is damaged: {folded} samples in {FOLDED}, {summary} in {SUMMARY}")]
    Mismatch {
        /// Samples in the stacks.
        folded: u64,
        /// Samples in the summary.
        summary: u64,
    },
    /// No process of the trace has this id or name.
    #[error("the trace has no events of a process {wanted}; it has those of: {there}")]
    NoProcess {
        /// What was asked for.
        wanted: String,
        /// What there is: ids and names.
        there: String,
    },
    /// It was captured without events, or without keeping them.
    #[error(
        "the trace holds no streams of events ({RAW_EVENTS}): it was captured with -nolttng, -noraw or a profile without events, \
         or no .NET process ran; PerfView shows what else there is"
    )]
    NoEvents,
    /// The report could not be printed.
    #[error("cannot print the report: {0}")]
    Print(#[source] io::Error),
}

/// What the reports need of a trace.
#[derive(Debug)]
pub struct Capture {
    /// Its summary.
    pub summary: Summary,
    /// From the process with most samples down its most sampled callees.
    pub hot_path: Vec<Step>,
    /// Name of the entry with the flame graph.
    pub flame_graph: String,
}

/// Reads the trace at `path`.
///
/// # Errors
/// See [`ViewError`].
pub fn read(path: &Path) -> Result<Capture, ViewError> {
    read_zip(&open_zip(path, open_file(path)?)?)
}

/// The summary alone of a trace that is open; `path` is what it is called.
///
/// # Errors
/// See [`ViewError`].
pub fn summary(path: &Path, file: &File) -> Result<Summary, ViewError> {
    let file = file.try_clone().map_err(|source| ViewError::Open {
        path: path.to_owned(),
        source,
    })?;
    let zip = open_zip(path, file)?;
    let folder = folder_of(&zip)?;
    read_summary(open(&zip, &folder, SUMMARY, MAX_SUMMARY_BYTES)?)
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

pub(super) fn open_zip(path: &Path, file: File) -> Result<Zip, ViewError> {
    Zip::open(file).map_err(|source| ViewError::Zip {
        path: path.to_owned(),
        source,
    })
}

fn read_zip(zip: &Zip) -> Result<Capture, ViewError> {
    let folder = folder_of(zip)?;
    let summary = read_summary(open(zip, &folder, SUMMARY, MAX_SUMMARY_BYTES)?)?;
    let folded = open(zip, &folder, FOLDED, MAX_FOLDED_BYTES)?;
    let (samples, hot_path) = read_folded(BufReader::new(folded))?;
    if samples != summary.samples {
        return Err(ViewError::Mismatch {
            folded: samples,
            summary: summary.samples,
        });
    }
    Ok(Capture {
        summary,
        hot_path,
        flame_graph: format!("{folder}/{FLAME_GRAPH}"),
    })
}

/// The folder our entries are in, once all names are known to be harmless.
pub(super) fn folder_of(zip: &Zip) -> Result<String, ViewError> {
    let mut folder = None;
    for entry in zip.entries() {
        let name = &entry.name;
        let unsafe_part = |part| matches!(part, "" | "." | "..");
        let parts = name.trim_end_matches('/');
        if parts.split('/').any(unsafe_part) || name.contains(['\\', ':', '\0']) {
            return Err(ViewError::UnsafeName {
                name: terminal(name).into_owned(),
            });
        }
        if let Some((before, entry)) = name.split_once('/')
            && entry == SUMMARY
            && let Some(capture) = before.strip_suffix(FOLDER_SUFFIX)
        {
            // It becomes part of a command the user is told to run.
            if entry_name(capture) != capture {
                return Err(ViewError::UnsafeName {
                    name: terminal(name).into_owned(),
                });
            }
            folder.get_or_insert_with(|| before.to_owned());
        }
    }
    folder.ok_or(ViewError::Missing { entry: SUMMARY })
}

/// Opens an entry. The size it declares may be a lie, so what is read is bounded too; one byte more tells.
pub(super) fn open<'a>(
    zip: &'a Zip,
    folder: &str,
    entry: &'static str,
    limit: u64,
) -> Result<impl Read + use<'a>, ViewError> {
    let found = zip.entry(&format!("{folder}/{entry}"));
    let found = found.ok_or(ViewError::Missing { entry })?;
    if found.size() > limit {
        return Err(ViewError::TooLarge { entry, limit });
    }
    let unpacked = zip.unpack(found);
    let unpacked = unpacked.map_err(|source| ViewError::Entry { entry, source })?;
    Ok(unpacked.take(limit + 1))
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
    for number in 1.. {
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
        let text = line
            .strip_suffix(b"\n")
            .and_then(|line| std::str::from_utf8(line).ok());
        text.and_then(|text| path.line(text))
            .ok_or(ViewError::Folded { line: number })?;
    }
    Ok(path.finish())
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
