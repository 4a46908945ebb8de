//! From a capture to its files: names, writing, printing.

use std::fmt::{self, Write as _};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread::{self, ScopedJoinHandle};

use thiserror::Error;

use super::OneLine;
use super::arguments::ResultOptions;
use super::downloads;
use super::formats::Formats;
use super::progress::Reporter;
use super::working::Working;
use crate::capture::{Capture, Signals};
use crate::naming::{self, Stopped};
use crate::output::archive::{self, ArchiveError, Contents};
use crate::output::file::{self, OutputError, OutputFile};
use crate::output::spool_file::recover_command;
use crate::output::summary::Summary;
use crate::output::{Pictures, ctf, nettrace};
use crate::trace::Trace;
use crate::view::report;

/// Rows of the table at the end.
const TOP_METHODS: usize = 10;

/// Why a trace is not there.
#[derive(Debug, Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("stopped by a signal")]
    Stopped,
    #[error("{error}; the samples are kept: `{recover}` makes the trace{lost}")]
    Kept {
        error: Box<WriteError>,
        recover: String,
        /// What of them is not, in words.
        lost: &'static str,
    },
    #[error("cannot print the summary: {0}")]
    Print(io::Error),
}

/// What is to become of a capture.
pub(super) struct Wanted<'a> {
    /// The name of the trace.
    pub(super) name: &'a Path,
    /// The name of the capture, for which the spool stands; `None`: what the spool was made of is still there.
    pub(super) spooled: Option<&'a Path>,
    pub(super) naming: naming::Options,
    /// Whether to get debug files that are not here.
    pub(super) download: bool,
    pub(super) results: ResultOptions,
    /// Whether the streams of events are kept as they came.
    pub(super) raw_events: bool,
    /// Whether standard output belongs to a command.
    pub(super) beside_command: bool,
    /// For maintainers: what was asked and granted.
    pub(super) asked: &'a str,
}

impl Wanted<'_> {
    /// Names the capture, writes its files and removes the spool; without the files, the spool stays.
    pub(super) fn make(
        &self,
        mut capture: Capture,
        working: &Working,
        signals: &Signals,
    ) -> Result<(), WriteError> {
        let end = capture.end.to_string();
        let spool_bytes = capture.recording.bytes;
        let unwritten = std::mem::take(&mut capture.unwritten);
        if self.download {
            let reporter = Reporter::new(self.results.quiet || self.results.json);
            let wanted = naming::without_symbols(&capture, &self.naming);
            let stop = || stopped(signals);
            let notice = downloads::get_for_capture(&wanted, &reporter, stop);
            capture.notices.extend(notice);
        }
        let trace = naming::name(capture, &self.naming, &|| stopped(signals))
            .map_err(|Stopped| self.kept(WriteError::Stopped, working, &unwritten))?;
        let log = log(self.asked, &end, spool_bytes, &trace);
        let paths = Paths::of(self.name, self.results.format);
        let pictures = Pictures::new(&trace, self.results.names(), &paths.name);
        let summary = thread::scope(|scope| {
            scope.spawn(|| pictures.prepare());
            Summary::new(&trace)
        });
        paths
            .create(self.results.force)
            .map_err(WriteError::from)
            .and_then(|outputs| {
                let contents = Contents {
                    summary: &summary,
                    pictures: &pictures,
                    name: &paths.name,
                    log: log.as_bytes(),
                    raw_events: self.raw_events,
                };
                outputs.write(&trace, &contents, signals)
            })
            .map_err(|error| self.kept(error, working, &unwritten))?;
        let removed = working.remove();
        self.print(&summary, &paths)?;
        if let Err(error) = removed {
            let path = working.spool_path().display().to_string();
            eprintln!("cannot remove {}: {error}", OneLine(&path));
        }
        Ok(())
    }

    /// What failed, and how to get the trace nevertheless.
    fn kept(&self, error: WriteError, working: &Working, unwritten: &[u8]) -> WriteError {
        let Some(spooled) = self.spooled else {
            let _ = working.remove();
            return error;
        };
        // The files that were begun are gone by now, so there may be room again.
        let whole = unwritten.is_empty() || working.append(unwritten).is_ok();
        let lost = match whole {
            true => "",
            false => " but for the last moment, for which there is no room",
        };
        let mut recover = recover_command(spooled);
        match error {
            WriteError::Output(OutputError::Full { .. }) => {
                recover.push_str(" -o DIRECTORY_ON_ANOTHER_DISK/NAME");
            }
            // The flame graph may be there.
            WriteError::Stopped => recover.push_str(" -force"),
            _ => recover.push_str(" -o ANOTHER_NAME"),
        }
        WriteError::Kept {
            error: Box::new(error),
            recover,
            lost,
        }
    }

    fn print(&self, summary: &Summary, paths: &Paths) -> Result<(), WriteError> {
        if self.results.quiet && !self.results.json {
            return Ok(());
        }
        let mut text = Vec::new();
        if self.results.json {
            serde_json::to_writer_pretty(&mut text, summary)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(text))
        } else {
            report::summary(summary, &mut text)
                .and_then(|()| report::methods(summary, TOP_METHODS, &mut text))
                .and_then(|()| {
                    report::missing_symbols(summary, paths.archive.as_deref(), &mut text)
                })
                .and_then(|()| writeln!(text, "\n{}", OneLine(&paths.to_string())))
        }
        .and_then(|()| {
            if self.beside_command {
                io::stderr().write_all(&text)
            } else {
                super::print(&text)
            }
        })
        .map_err(WriteError::Print)
    }
}

/// The files of a trace.
pub(super) struct Paths {
    name: String,
    archive: Option<PathBuf>,
    nettrace: Option<PathBuf>,
    flame_graph: PathBuf,
}

impl Paths {
    pub(super) fn of(name: &Path, formats: Formats) -> Self {
        let archive = file::trace_path(name);
        let name = file::capture_name(&archive);
        let nettrace = archive.with_file_name(format!("{name}.nettrace"));
        Self {
            flame_graph: archive.with_file_name(format!("{name}.flamegraph.svg")),
            archive: formats.zip.then_some(archive),
            nettrace: formats.nettrace.then_some(nettrace),
            name,
        }
    }

    /// What stands in the way is known at once, though the files are made at the end: a collector that is killed
    /// leaves its spool and no empty files.
    pub(super) fn check(&self, force: bool) -> Result<(), OutputError> {
        self.traces()
            .chain([&*self.flame_graph])
            .try_for_each(|path| OutputFile::check(path, force))
    }

    fn traces(&self) -> impl Iterator<Item = &Path> {
        [&self.archive, &self.nettrace]
            .into_iter()
            .filter_map(|path| path.as_deref())
    }

    fn create(&self, force: bool) -> Result<Outputs, OutputError> {
        let create = |path: &Option<PathBuf>| {
            let path = path.as_deref();
            path.map(|path| OutputFile::create(path, force)).transpose()
        };
        Ok(Outputs {
            archive: create(&self.archive)?,
            nettrace: create(&self.nettrace)?,
            flame_graph: OutputFile::create(&self.flame_graph, force)?,
        })
    }
}

impl fmt::Display for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let traces: Vec<_> = self
            .traces()
            .map(|path| path.display().to_string())
            .collect();
        write!(
            f,
            "Trace saved to {} (PerfView), flame graph to {} (any browser)",
            traces.join(" and "),
            self.flame_graph.display()
        )
    }
}

struct Outputs {
    archive: Option<OutputFile>,
    nettrace: Option<OutputFile>,
    flame_graph: OutputFile,
}

impl Outputs {
    fn write(
        mut self,
        trace: &Trace,
        contents: &Contents<'_>,
        signals: &Signals,
    ) -> Result<(), WriteError> {
        let Self {
            archive,
            nettrace,
            flame_graph,
        } = &mut self;
        // Side by side: none needs another, but for what is drawn, and none much memory.
        let (drawn, written) = thread::scope(|scope| {
            let draw = || {
                write_file(flame_graph, signals, |mut out| {
                    out.write_all(contents.pictures.flame_graph()?)?;
                    Ok(out.flush()?)
                })
            };
            let merge = || match nettrace {
                Some(file) => write_file(file, signals, |mut out| {
                    Ok(nettrace::write(trace, &mut out)?)
                }),
                None => Ok(()),
            };
            let (drawing, merging) = (scope.spawn(draw), scope.spawn(merge));
            let archived = archive.as_mut().map_or(Ok(()), |file| {
                write_file(file, signals, |out| archive::write(trace, contents, out))
            });
            (joined(drawing), archived.and(joined(merging)))
        });
        drawn?;
        // A picture without its trace is kept only by who is in a hurry.
        if let Ok(()) | Err(WriteError::Stopped) = written {
            self.flame_graph.commit()?;
        }
        written?;
        let traces = [self.archive, self.nettrace].into_iter().flatten();
        Ok(traces.into_iter().try_for_each(OutputFile::commit)?)
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn write_file<'a>(
    file: &'a mut OutputFile,
    signals: &'a Signals,
    write: impl FnOnce(BufWriter<Stoppable<'_>>) -> Result<(), ArchiveError>,
) -> Result<(), WriteError> {
    let out = BufWriter::new(Stoppable::new(file, signals));
    let written = write(out);
    check(file, written, signals)
}

fn check(
    file: &OutputFile,
    written: Result<(), ArchiveError>,
    signals: &Signals,
) -> Result<(), WriteError> {
    match written {
        Ok(()) => Ok(()),
        Err(_) if stopped(signals) => Err(WriteError::Stopped),
        Err(ArchiveError::Io(error)) => Err(file.explain(error).into()),
        Err(error) => Err(error.into()),
    }
}

fn stopped(signals: &Signals) -> bool {
    signals.pending()
}

/// Fails all writing once a second signal has come.
struct Stoppable<'a> {
    file: &'a mut OutputFile,
    signals: &'a Signals,
}

impl<'a> Stoppable<'a> {
    fn new(file: &'a mut OutputFile, signals: &'a Signals) -> Self {
        Self { file, signals }
    }
}

impl Write for Stoppable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if stopped(self.signals) {
            return Err(io::Error::other("stopped"));
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Stoppable<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// For maintainers: what was asked, granted, refused and seen.
fn log(asked: &str, end: &str, spool_bytes: u64, trace: &Trace) -> String {
    let info = &trace.info;
    let seconds = info.end_ns.saturating_sub(info.start_ns) as f64 / 1e9;
    let mut log = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        log,
        "perfcollect {}\n{asked}\nended: {end}\nspool: {spool_bytes} bytes, {:.0} a second, {:.1} a sample\n{info:#?}\n{:#?}\n",
        info.version,
        spool_bytes as f64 / seconds.max(1e-9),
        spool_bytes as f64 / trace.samples.len().max(1) as f64,
        trace.quality
    );
    for stream in trace.events.streams() {
        let _ = writeln!(
            log,
            "events of {}: {} bytes",
            stream.name, stream.counts.bytes
        );
        for (kind, count) in &stream.counts.by_kind {
            let known = match ctf::is_written(kind) {
                true => "",
                false => ", not in the CTF part",
            };
            let (provider, id, version) = (&kind.provider, kind.id, kind.version);
            let _ = writeln!(
                log,
                "  {count} {provider}/{id} v{version} {}{known}",
                kind.name
            );
        }
    }
    log
}
