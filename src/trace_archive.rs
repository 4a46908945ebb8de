//! Reading of a `NAME.trace.zip`, from its first byte to an entry.
//!
//! The file is untrusted: sizes are bounded, and nothing is ever extracted to a path of the
//! archive.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::output::archive::{FOLDER_SUFFIX, SUMMARY, THREADS};
use crate::output::sanitize::{entry_name, terminal};
use crate::output::summary::{FORMAT_VERSION, Summary};
use crate::regular_file;
use crate::zip::Zip;

/// Limit of the summary. perfcollect writes less than 1 MB, as its lists are truncated.
const MAX_SUMMARY_BYTES: u64 = 16 << 20;

/// Limit of the values in the summary: a row takes more memory than the three bytes that it may have.
const MAX_SUMMARY_VALUES: usize = 1 << 19;

/// Limit of the threads: 131 072 frames have some 40 MB.
const MAX_THREADS_BYTES: u64 = 64 << 20;

/// Limit of the folded stacks, in bytes: a capture of a minute with 120 000 samples has 120 MB. They are
/// read line by line, so this bounds time, not memory.
const MAX_FOLDED_BYTES: u64 = 1 << 30;
/// Bytes of folded stacks or events by byte in the archive. Traces have 5 to 40.
const MAX_RATIO: u64 = 512;
/// Bytes of folded stacks or events that any archive may have.
const MIN_LIMIT: u64 = 64 << 20;

/// A trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceArchiveError {
    /// The file cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// Path of the trace.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is no archive, or a corrupt one.
    #[error("{} is not a trace: {source}; `view` reads NAME.trace.zip, recordings of perf, text of `perf script` and NAME.nettrace of dotnet-trace", path.display())]
    Zip {
        /// Path of the trace.
        path: PathBuf,
        /// Cause.
        source: rawzip::Error,
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
    /// An entry is larger than those that are read.
    #[error(
        "{entry} in the trace has more than {limit} bytes, the limit for an archive of this size"
    )]
    TooLarge {
        /// Name of the entry.
        entry: &'static str,
        /// Limit in bytes.
        limit: u64,
    },
    /// The summary has more values than any that perfcollect writes.
    #[error(
        "{SUMMARY} in the trace has more than {MAX_SUMMARY_VALUES} values: perfcollect did not write this trace"
    )]
    TooManyValues,
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
}

/// An open trace.
pub(crate) struct TraceArchive {
    /// All entries.
    pub(crate) zip: Zip,
    /// Directory of perfcollect's entries in the archive.
    pub(crate) directory: String,
}

impl TraceArchive {
    /// Opens the trace at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, TraceArchiveError> {
        Self::from_file(path, open_file(path)?)
    }

    /// Reads the directory of an open file; `path` appears in errors.
    pub(crate) fn from_file(path: &Path, file: File) -> Result<Self, TraceArchiveError> {
        let zip = Zip::open(file).map_err(|source| TraceArchiveError::Zip {
            path: path.to_owned(),
            source,
        })?;
        Self::new(zip)
    }

    fn new(zip: Zip) -> Result<Self, TraceArchiveError> {
        let directory = directory_of(&zip)?;
        Ok(Self { zip, directory })
    }

    /// Opens an entry.
    ///
    /// The size that an entry declares may be wrong, so the reader stops one byte after the limit.
    pub(crate) fn entry(
        &self,
        entry: &'static str,
        limit: u64,
    ) -> Result<impl Read + use<'_>, TraceArchiveError> {
        let found = self.zip.entry(&format!("{}/{entry}", self.directory));
        let found = found.ok_or(TraceArchiveError::Missing { entry })?;
        if found.size() > limit {
            return Err(TraceArchiveError::TooLarge { entry, limit });
        }
        let unpacked = self.zip.unpack(found);
        let unpacked = unpacked.map_err(|source| TraceArchiveError::Entry { entry, source })?;
        Ok(unpacked.take(limit + 1))
    }

    /// Returns whether there is an entry.
    pub(crate) fn has(&self, entry: &str) -> bool {
        let path = format!("{}/{entry}", self.directory);
        self.zip.entry(&path).is_some()
    }

    /// Opens an entry with folded stacks. Returns their limit, too.
    pub(crate) fn folded(
        &self,
        entry: &'static str,
    ) -> Result<(impl Read + use<'_>, u64), TraceArchiveError> {
        let found = self.zip.entry(&format!("{}/{entry}", self.directory));
        let packed = found.map_or(0, |entry| self.zip.packed_size(entry));
        let limit = plausible_bytes(packed, MAX_FOLDED_BYTES);
        Ok((self.entry(entry, limit)?, limit))
    }

    /// Reads the JSON of the threads when the capture ended, if the trace has it.
    pub(crate) fn threads(&self) -> Result<Option<Vec<u8>>, TraceArchiveError> {
        match self.entry(THREADS, MAX_THREADS_BYTES) {
            Err(TraceArchiveError::Missing { .. }) => Ok(None),
            entry => whole(entry?, THREADS, MAX_THREADS_BYTES).map(Some),
        }
    }

    /// Reads the summary.
    pub(crate) fn summary(&self) -> Result<Summary, TraceArchiveError> {
        read_summary(self.entry(SUMMARY, MAX_SUMMARY_BYTES)?)
    }
}

fn open_file(path: &Path) -> Result<File, TraceArchiveError> {
    regular_file::open(path).map_err(|source| TraceArchiveError::Open {
        path: path.to_owned(),
        source,
    })
}

/// Returns the limit of text or events that take `packed` bytes in the archive, at most `max`.
pub(crate) fn plausible_bytes(packed: u64, max: u64) -> u64 {
    let plausible = packed.saturating_mul(MAX_RATIO);
    plausible.clamp(MIN_LIMIT, max)
}

/// Returns the directory of perfcollect's entries, after a check that all names are harmless.
fn directory_of(zip: &Zip) -> Result<String, TraceArchiveError> {
    let mut directory = None;
    for entry in zip.entries() {
        let name = &entry.name;
        let unsafe_part = |part| matches!(part, "" | "." | "..");
        let parts = name.trim_end_matches('/');
        if parts.split('/').any(unsafe_part) || name.contains(['\\', ':', '\0']) {
            return Err(TraceArchiveError::UnsafeName {
                name: terminal(name).into_owned(),
            });
        }
        if let Some((before, entry)) = name.split_once('/')
            && entry == SUMMARY
            && let Some(capture) = before.strip_suffix(FOLDER_SUFFIX)
        {
            // The name becomes part of a command that perfcollect prints.
            if entry_name(capture) != capture {
                return Err(TraceArchiveError::UnsafeName {
                    name: terminal(name).into_owned(),
                });
            }
            directory.get_or_insert_with(|| before.to_owned());
        }
    }
    directory.ok_or(TraceArchiveError::Missing { entry: SUMMARY })
}

/// Reads all of an entry, which may have declared a wrong size.
fn whole(
    mut content: impl Read,
    entry: &'static str,
    limit: u64,
) -> Result<Vec<u8>, TraceArchiveError> {
    let mut bytes = Vec::new();
    let read = content.read_to_end(&mut bytes);
    read.map_err(|source| TraceArchiveError::Entry { entry, source })?;
    match bytes.len() as u64 > limit {
        true => Err(TraceArchiveError::TooLarge { entry, limit }),
        false => Ok(bytes),
    }
}

fn read_summary(entry: impl Read) -> Result<Summary, TraceArchiveError> {
    #[derive(Deserialize)]
    struct Version {
        format_version: u32,
    }
    let json = whole(entry, SUMMARY, MAX_SUMMARY_BYTES)?;
    // Commas separate values. Some may be in names.
    if memchr::memchr_iter(b',', &json).count() > MAX_SUMMARY_VALUES {
        return Err(TraceArchiveError::TooManyValues);
    }
    let Version {
        format_version: found,
    } = serde_json::from_slice(&json).map_err(TraceArchiveError::Summary)?;
    if found > FORMAT_VERSION {
        return Err(TraceArchiveError::NewerFormat { found });
    }
    let mut summary: Summary = serde_json::from_slice(&json).map_err(TraceArchiveError::Summary)?;
    summary.truncate();
    Ok(summary)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;

    use super::*;
    use crate::output::summary::{Finding, REPORT, RuntimeSummary, Share};
    use crate::trace::{Notice, NoticeKind, Trace};
    use crate::zip::made::zip_of;

    fn open(entries: &[(&str, &[u8])]) -> Result<TraceArchive, TraceArchiveError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&zip_of(entries.iter().copied())).unwrap();
        TraceArchive::from_file(Path::new("x.trace.zip"), file)
    }

    fn summary_error(json: &[u8]) -> TraceArchiveError {
        let archive = open(&[("x.trace/summary.json", json)]).unwrap();
        archive.summary().unwrap_err()
    }

    #[test]
    fn reads_no_more_rows_than_are_written() {
        let mut summary = Summary::new(&Trace::default());
        summary.runtimes = vec![RuntimeSummary::default(); 1000];
        summary.shares.own_methods = vec![Share::default(); 1000];
        let long = "x".repeat(9000);
        summary.findings = vec![Finding::new("x", long.clone()).more(&["stop"]); 1000];
        let notice = Notice::new(NoticeKind::Selection, &*long, &*long);
        summary.quality.notices = vec![notice];
        let json = serde_json::to_vec(&summary).unwrap();
        let archive = open(&[("x.trace/summary.json", &json)]).unwrap();
        let read = archive.summary().unwrap();
        assert_eq!(read.runtimes.len(), 100);
        assert_eq!(read.shares.own_methods.len(), 50);
        assert_eq!(read.findings.len(), 50);
        assert_eq!(read.findings[0].command, REPORT);
        assert!(read.findings[0].text.len() < 1100);
        assert!(read.quality.notices[0].what.len() < 4200);
    }

    #[test]
    fn rejects_unsafe_names() {
        for name in [
            "../x",
            "/etc/x",
            "a/../../x",
            "a\\b",
            "c:x",
            "a//b",
            "x/./y",
            "\u{1b}/..",
            "a'; reboot '.trace/summary.json",
        ] {
            let error = open(&[(name, b"")]).err().unwrap();
            assert!(
                matches!(error, TraceArchiveError::UnsafeName { .. }),
                "{name:?}: {error}"
            );
            assert!(!error.to_string().contains('\u{1b}'));
        }
    }

    #[test]
    fn names_missing_and_corrupt_summaries() {
        let error = open(&[("x/readme", b"")]).err().unwrap();
        assert!(error.to_string().contains("summary.json"));
        assert!(summary_error(b"{").to_string().contains("corrupt"));
        let mut newer = Summary::new(&Trace::default());
        newer.format_version = FORMAT_VERSION + 1;
        let newer = summary_error(&serde_json::to_vec(&newer).unwrap());
        assert!(newer.to_string().contains("use a newer one"));
    }

    #[test]
    fn bounds_the_rows_of_the_summary() {
        let rows = "{},".repeat(MAX_SUMMARY_VALUES + 1);
        let error = summary_error(format!("{{\"findings\":[{rows}{{}}]}}").as_bytes());
        assert!(matches!(error, TraceArchiveError::TooManyValues), "{error}");
    }

    #[test]
    fn folded_stacks_unpack_to_what_is_plausible() {
        for (packed, limit) in [
            (0, MIN_LIMIT),
            (1 << 20, 1 << 29),
            (3 << 20, MAX_FOLDED_BYTES),
            (u64::MAX, MAX_FOLDED_BYTES),
        ] {
            assert_eq!(plausible_bytes(packed, MAX_FOLDED_BYTES), limit);
        }
    }

    #[test]
    fn bounds_the_size_of_unpacked_entries() {
        let error = summary_error(&vec![b' '; MAX_SUMMARY_BYTES as usize + 1]);
        assert!(
            matches!(error, TraceArchiveError::TooLarge { .. }),
            "{error}"
        );
    }
}
