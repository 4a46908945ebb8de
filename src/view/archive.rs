//! Content of an archive that the reports show.

use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use crate::output::archive::{FOLDED, RAW_EVENTS, SUMMARY, THREADS};
use crate::perf_text::WrittenError;
use crate::trace_archive::{TraceArchive, TraceArchiveError};
use crate::waits::ReadError;

/// Limit of a folded stack: a thousand frames with the longest names.
const MAX_LINE_BYTES: u64 = 4 << 20;

/// Reason why a trace cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The trace cannot be read.
    #[error(transparent)]
    Archive(#[from] TraceArchiveError),
    /// The threads of the trace cannot be read.
    #[error("{THREADS} in the trace is {0}")]
    Threads(#[source] ReadError),
    /// The samples of the trace cannot be selected.
    #[error(transparent)]
    Samples(WrittenError),
    /// No sample is selected.
    #[error(
        "none of the {samples} samples is selected; the trace has {seconds:.1} s and the processes {processes}"
    )]
    NothingSelected {
        /// Samples of the trace.
        samples: u64,
        /// Length of the capture.
        seconds: f64,
        /// Ids and names of the first processes.
        processes: String,
    },
    /// A trace that is compared has no samples.
    #[error("{path} has no samples, only events: there is no CPU time to compare")]
    NoSamples {
        /// Path of the trace.
        path: String,
    },
    /// What .NET processes reported cannot be selected like samples.
    #[error(
        "{table} is of the whole capture: select it by process only, not by time, thread or frames"
    )]
    NotSelected {
        /// Name of the table.
        table: &'static str,
    },
    /// There is no room for the event streams.
    #[error("cannot unpack the events into {}: {source}; set TMPDIR to a directory with room for them", directory.display())]
    Unpack {
        /// Directory of the temporary files.
        directory: PathBuf,
        /// Cause.
        source: io::Error,
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

impl From<WrittenError> for ViewError {
    fn from(error: WrittenError) -> Self {
        match error {
            WrittenError::Archive(error) => Self::Archive(error),
            error => Self::Samples(error),
        }
    }
}

/// Passes the folded stacks, of at most as many samples as the summary has, to `take`.
///
/// It returns `None` if a line is malformed.
///
/// # Errors
/// Returns an error if the stacks cannot be read or are not those of the summary.
pub(super) fn each_stack(
    archive: &TraceArchive,
    samples: u64,
    take: impl FnMut(&str) -> Option<u64>,
) -> Result<(), ViewError> {
    let (folded, max_bytes) = archive.folded(FOLDED)?;
    let folded = read_folded(BufReader::new(folded), (samples, max_bytes), take)?;
    match folded == samples {
        true => Ok(()),
        false => Err(ViewError::Mismatch {
            folded,
            summary: samples,
        }),
    }
}

/// Reads folded stacks, of at most this many samples and bytes: a small archive may contain any number of
/// lines.
///
/// `take` returns the samples of all lines until now.
fn read_folded(
    mut entry: impl BufRead,
    (max_samples, max_bytes): (u64, u64),
    mut take: impl FnMut(&str) -> Option<u64>,
) -> Result<u64, ViewError> {
    let mut line = Vec::new();
    let mut total = 0;
    let mut samples = 0;
    for line_number in 1.. {
        line.clear();
        let read = (&mut entry)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line);
        total += read.map_err(|source| TraceArchiveError::Entry {
            entry: FOLDED,
            source,
        })? as u64;
        if total > max_bytes {
            let too_large = TraceArchiveError::TooLarge {
                entry: FOLDED,
                limit: max_bytes,
            };
            return Err(too_large.into());
        }
        if line.is_empty() || samples > max_samples {
            break;
        }
        let string = line
            .strip_suffix(b"\n")
            .and_then(|line| std::str::from_utf8(line).ok());
        samples = string
            .and_then(&mut take)
            .ok_or(ViewError::Folded { line: line_number })?;
    }
    Ok(samples)
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
