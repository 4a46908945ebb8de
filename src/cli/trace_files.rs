//! The files of a trace: their names, and writing them in parallel. A file appears only when it is complete.

use std::fmt;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::{self, ScopedJoinHandle};

use super::arguments::OutputOptions;
use super::background::SAVED;
use super::write_error::WriteError;
use crate::capture::Signals;
use crate::output::archive::{self, ArchiveError, Contents, GRAPHS};
use crate::output::exports::Export;
use crate::output::file::{self, OutputError};
use crate::output::nettrace;
use crate::output::output_file::OutputFile;
use crate::output::perf_data::{self, SymbolDirectory};
use crate::output::{Measure, NameStyle};
use crate::symbolize::CancellableWriter;
use crate::trace::Trace;

/// Paths of the files of a trace.
pub(super) struct Paths {
    pub(super) name: String,
    pub(super) archive: Option<PathBuf>,
    nettrace: Option<PathBuf>,
    perf_data: Option<PathBuf>,
    /// Directory with the symbols of the perf.data.
    symbols: Option<PathBuf>,
    /// Flame graphs of what the trace has.
    graphs: Vec<(Measure, PathBuf)>,
    /// Flame graphs that an older trace may have had and this one has not, if it replaces one.
    older_graphs: Vec<PathBuf>,
    /// Files for other viewers. None without samples.
    exports: Vec<(PathBuf, Export)>,
    /// Whether exports were asked for, which need samples.
    lacks_exports: bool,
}

/// Returns whether two paths lead to one file, which exists.
pub(super) fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = path.metadata().ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    identity(one).is_some_and(|found| identity(other) == Some(found))
}

impl Paths {
    fn of(name: &Path, results: OutputOptions) -> Self {
        let archive = file::trace_path(name);
        let name = file::capture_name(&archive);
        let beside = |suffix: &str| archive.with_file_name(format!("{name}.{suffix}"));
        let OutputOptions {
            format, perfdata, ..
        } = results;
        let exports = format.exports().map(|export| {
            let suffix = export.suffix().trim_start_matches('.');
            (beside(suffix), export)
        });
        Self {
            nettrace: format.nettrace.then(|| beside("nettrace")),
            perf_data: perfdata.then(|| beside("perf.data")),
            symbols: perfdata.then(|| beside("perf.symbols")),
            graphs: GRAPHS
                .iter()
                .map(|&(measure, entry)| (measure, beside(entry)))
                .collect(),
            older_graphs: Vec::new(),
            exports: exports.collect(),
            lacks_exports: false,
            archive: format.zip.then_some(archive),
            name,
        }
    }

    /// Paths for a trace. There are only flame graphs of what it has, and without samples no exports.
    pub(super) fn of_trace(name: &Path, results: OutputOptions, trace: &Trace) -> Self {
        let mut paths = Self::of(name, results);
        let lacks = |(measure, _): &mut (Measure, PathBuf)| measure.is_empty(trace);
        let lacking = paths.graphs.extract_if(.., lacks).map(|(_, path)| path);
        paths.older_graphs = lacking.filter(|_| results.force).collect();
        if trace.samples.is_empty() {
            paths.lacks_exports = !paths.exports.is_empty();
            paths.exports.clear();
        }
        paths
    }

    /// Removes the flame graphs of an older trace that this one replaced.
    pub(super) fn remove_older(&self) -> Result<(), OutputError> {
        let mut older = self.older_graphs.iter();
        older.try_for_each(|path| OutputFile::remove_older(path))
    }

    /// Drops an export that was not written.
    pub(super) fn remove_export(&mut self, at: usize) {
        self.exports.remove(at);
    }

    /// Reports a bad name and existing files at the start, although files are created at the end: a killed capture leaves
    /// its spool and no empty files.
    pub(super) fn checked(name: &Path, results: OutputOptions) -> Result<Self, OutputError> {
        file::check_name(name)?;
        let paths = Self::of(name, results);
        paths.check(results.force)?;
        Ok(paths)
    }

    fn check(&self, force: bool) -> Result<(), OutputError> {
        self.files()
            .try_for_each(|path| OutputFile::check(path, force))?;
        match &self.symbols {
            Some(path) => SymbolDirectory::in_the_way(path, force).map(drop),
            None => Ok(()),
        }
    }

    /// Returns whether one of the paths is this file.
    pub(super) fn is_one(&self, file: &Path) -> bool {
        self.files()
            .chain(self.symbols.as_deref())
            .any(|path| is_same_file(path, file))
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        self.traces()
            .chain(self.graphs.iter().map(|(_, path)| &**path))
            .chain(self.perf_data.as_deref())
            .chain(self.exports.iter().map(|(path, _)| &**path))
    }

    fn traces(&self) -> impl Iterator<Item = &Path> {
        [&self.archive, &self.nettrace]
            .into_iter()
            .filter_map(|path| path.as_deref())
    }

    pub(super) fn create(&self, force: bool) -> Result<Outputs, OutputError> {
        let create = |path: &Option<PathBuf>| {
            let path = path.as_deref();
            path.map(|path| OutputFile::create(path, force)).transpose()
        };
        Ok(Outputs {
            archive: create(&self.archive)?,
            nettrace: create(&self.nettrace)?,
            perf_data: create(&self.perf_data)?,
            symbols: match &self.symbols {
                Some(path) => Some(SymbolDirectory::create(path, force)?),
                None => None,
            },
            graphs: self
                .graphs
                .iter()
                .map(|(measure, path)| Ok((*measure, OutputFile::create(path, force)?)))
                .collect::<Result<_, OutputError>>()?,
            exports: self
                .exports
                .iter()
                .map(|(path, export)| Ok((OutputFile::create(path, force)?, *export)))
                .collect::<Result<_, OutputError>>()?,
        })
    }
}

impl fmt::Display for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let traces: Vec<_> = self
            .traces()
            .map(|path| path.display().to_string())
            .collect();
        write!(f, "{SAVED}{} (PerfView)", traces.join(" and "))?;
        for (at, (measure, path)) in self.graphs.iter().enumerate() {
            let (graph, viewer) = match at {
                0 => (" flame graph", " (any browser)"),
                _ => ("", ""),
            };
            let what = match measure {
                Measure::Samples => "",
                Measure::BlockedTime | Measure::WaitingTime => " of time without a CPU",
                Measure::Faults => " of page faults",
                Measure::Wakeups => " of wake-ups",
            };
            write!(f, ",{graph}{what} to {}{viewer}", path.display())?;
        }
        for (path, export) in &self.exports {
            write!(f, ", {} ({})", path.display(), export.viewer())?;
        }
        if self.lacks_exports {
            write!(
                f,
                ", and nothing for other viewers, as there are no samples"
            )?;
        }
        match &self.perf_data {
            Some(path) => write!(f, ", and {} (perf report, samply)", path.display()),
            None => Ok(()),
        }
    }
}

pub(super) struct Outputs {
    archive: Option<OutputFile>,
    nettrace: Option<OutputFile>,
    perf_data: Option<OutputFile>,
    symbols: Option<SymbolDirectory>,
    graphs: Vec<(Measure, OutputFile)>,
    exports: Vec<(OutputFile, Export)>,
}

/// Cost of writing a sample, in events: its stack is written in full.
const SAMPLE_COST: u64 = 8;

impl Outputs {
    /// Returns how much of a trace the writers have read from now on, as a part of all that they
    /// read.
    pub(super) fn progress<'t>(
        &self,
        trace: &'t Trace,
        raw_events: bool,
    ) -> impl Fn() -> Option<f64> + use<'t> {
        let read = move || trace.samples.decoded() * SAMPLE_COST + trace.events.read();
        let before = read();
        let passes = |files: &[bool]| files.iter().filter(|is_read| **is_read).count() as u64;
        let (archive, nettrace) = (self.archive.is_some(), self.nettrace.is_some());
        let samples = passes(&[archive, nettrace, nettrace, self.perf_data.is_some()])
            + self.exports.len() as u64;
        let events = passes(&[archive, archive && raw_events, nettrace]);
        let all = (trace.samples.len() as u64 * SAMPLE_COST)
            .saturating_mul(samples)
            .saturating_add(trace.events.count().saturating_mul(events));
        move || (all > 0).then(|| (read() - before) as f64 / all as f64)
    }

    /// Writes the files. Returns which exports are missing, and why: the trace has what they would have.
    pub(super) fn write(
        mut self,
        trace: &Trace,
        contents: &Contents<'_>,
        names: NameStyle,
        signals: &Signals,
    ) -> Result<Vec<(usize, WriteError)>, WriteError> {
        let Self {
            archive,
            nettrace,
            perf_data,
            symbols,
            graphs,
            ..
        } = &mut self;
        // In parallel: the files depend only on the trace and its shared views, and none needs much
        // memory.
        let (drawn, written) = thread::scope(|scope| {
            let draw = |measure, file| {
                write_file(file, signals, |mut out| {
                    out.write_all(contents.pictures.graph(measure)?)?;
                    Ok(out.flush()?)
                })
            };
            let merge = || match nettrace {
                Some(file) => write_file(file, signals, |mut out| {
                    Ok(nettrace::write(trace, &mut out)?)
                }),
                None => Ok(()),
            };
            let record = || match (perf_data, symbols) {
                (Some(file), Some(symbols)) => write_file(file, signals, |mut out| {
                    let keep = |name: &str, content: &[u8]| symbols.put(name, content);
                    let directory = symbols.absolute()?;
                    Ok(perf_data::write(trace, &directory, keep, &mut out)?)
                }),
                _ => Ok(()),
            };
            let drawing: Vec<_> = graphs
                .iter_mut()
                .map(|(measure, file)| scope.spawn(move || draw(*measure, file)))
                .collect();
            let (merging, recording) = (scope.spawn(merge), scope.spawn(record));
            let archived = archive.as_mut().map_or(Ok(()), |file| {
                write_file(file, signals, |out| archive::write(trace, contents, out))
            });
            let others = joined(merging).and(joined(recording));
            let drawn: Vec<_> = drawing.into_iter().map(joined).collect();
            (drawn, archived.and(others))
        });
        let unread = trace.samples.read_error().or(trace.events.read_error());
        if let Some(error) = unread {
            return Err(WriteError::Unread(error.to_string()));
        }
        drawn.into_iter().collect::<Result<(), _>>()?;
        let pictures = self.graphs.into_iter().map(|(_, file)| file);
        // A flame graph without its trace stays only if the user stopped the writing.
        if let Err(WriteError::Stopped) = written {
            OutputFile::commit_all(pictures)?;
            return Err(WriteError::Stopped);
        }
        written?;
        // The perf.data refers to the directory.
        if let Some(symbols) = &mut self.symbols {
            symbols.publish()?;
        }
        let traces = [self.archive, self.nettrace, self.perf_data];
        OutputFile::commit_all(traces.into_iter().flatten().chain(pictures))?;
        if let Some(symbols) = self.symbols {
            symbols.commit();
        }
        // They must not take the space of the trace.
        let exported = self.exports.into_iter().map(|(mut file, export)| {
            write_file(&mut file, signals, |mut out| {
                export.write(trace, names, contents.name, &mut out)?;
                Ok(out.flush()?)
            })?;
            Ok(file.commit()?)
        });
        let lacking = exported
            .enumerate()
            .filter_map(|(at, done): (usize, Result<(), WriteError>)| Some((at, done.err()?)));
        Ok(lacking.collect())
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Writes a file until a signal comes.
pub(super) fn write_file(
    file: &mut OutputFile,
    signals: &Signals,
    write: impl FnOnce(BufWriter<CancellableWriter<'_, &mut OutputFile>>) -> Result<(), ArchiveError>,
) -> Result<(), WriteError> {
    let cancel = || stopped(signals);
    let out = CancellableWriter {
        inner: &mut *file,
        cancel: &cancel,
    };
    let written = write(BufWriter::new(out));
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

pub(super) fn stopped(signals: &Signals) -> bool {
    signals.pending()
}
