//! A trace that views show: an archive, or what is selected of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::archive::{self, ViewError};
use super::call_tree::{CallTree, CallTreeBuilder};
use super::events;
use super::more::More;
use crate::findings;
use crate::output::folded;
use crate::output::sanitize::terminal;
use crate::output::summary::{BlockedSummary, Summary};
use crate::perf_text;
use crate::selection::Selection;
use crate::trace::{EventStreams, Notice, NoticeKind, Trace};
use crate::trace_archive::TraceArchive;
use crate::waits::StackReport;

/// Maximum number of processes that a message lists.
const MAX_LISTED: usize = 10;

/// A trace that views show.
pub struct OpenTrace {
    /// Path of its file.
    pub(super) path: PathBuf,
    /// Command lines that show more of the same.
    pub(super) more: More,
    /// Its summary.
    pub summary: Summary,
    /// Whether a selection hides what threads waited for at the end.
    pub(super) hides_threads: bool,
    /// Whether a selection hides the requests to disks.
    pub(super) hides_block_io: bool,
    /// Whether it has connections of the whole capture only.
    pub(super) hides_connections: bool,
    pub(super) stacks: Stacks,
    /// The archive of a trace of which a part is selected.
    selected: Option<TraceArchive>,
}

/// Where the stacks are.
pub(super) enum Stacks {
    Archive(TraceArchive),
    Trace(Box<Trace>),
}

impl OpenTrace {
    /// Opens the trace at `path`, or what is selected of it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is no trace, see [`ViewError`].
    pub fn open(path: &Path, selection: &Selection) -> Result<Self, ViewError> {
        let archive = TraceArchive::open(path)?;
        let whole = archive.summary()?;
        if selection.is_whole() {
            return Ok(Self {
                path: path.to_owned(),
                more: More::new(path, selection),
                summary: whole,
                hides_threads: false,
                hides_block_io: false,
                hides_connections: false,
                stacks: Stacks::Archive(archive),
                selected: None,
            });
        }
        let trace = perf_text::read_written(&archive, &whole, &|| false)?.trace;
        Ok(Self {
            selected: Some(archive),
            ..Self::selected(path, trace, whole, selection)?
        })
    }

    /// Selects from a trace at `path` that has no archive, such as a recording.
    ///
    /// # Errors
    /// No sample is selected.
    pub fn of_trace(path: &Path, trace: Trace, selection: &Selection) -> Result<Self, ViewError> {
        let whole = Summary::new(&trace);
        Self::selected(path, trace, whole, selection)
    }

    /// Selects from a trace of an event stream at `path`. PerfView's views of it start at its session.
    ///
    /// # Errors
    /// The stream is of another process, or has samples and none is selected.
    pub fn of_events(path: &Path, trace: Trace, selection: &Selection) -> Result<Self, ViewError> {
        let whole = events::summary(&trace);
        events::check_process(&whole, &trace.events, selection.process.as_deref())?;
        // A stream has one process.
        let selection = Selection {
            process: None,
            ..selection.clone()
        };
        Self::selected(path, trace, whole, &selection)
    }

    fn selected(
        path: &Path,
        mut trace: Trace,
        whole: Summary,
        selection: &Selection,
    ) -> Result<Self, ViewError> {
        let had_threads = whole.blocked.is_some();
        let had_block_io = whole.info.block_io.is_some();
        let had_connections = whole.info.connections.is_some();
        let mut summary = match selection.is_whole() {
            true => whole,
            false => Self::apply(selection, &mut trace, &whole)?,
        };
        // A rule takes the selected samples of a process for all of them.
        if !selection.selects_code() {
            summary.findings = findings::find(&summary);
        }
        Ok(Self {
            path: path.to_owned(),
            more: More::new(path, selection),
            hides_threads: summary.blocked.is_none() && had_threads,
            hides_block_io: summary.info.block_io.is_none() && had_block_io,
            hides_connections: summary.info.connections.is_none() && had_connections,
            summary,
            stacks: Stacks::Trace(Box::new(trace)),
            selected: None,
        })
    }

    /// Drops what is not selected from a trace, and returns the summary of the rest.
    fn apply(
        selection: &Selection,
        trace: &mut Trace,
        whole: &Summary,
    ) -> Result<Summary, ViewError> {
        drop_others(selection, trace, whole)?;
        let mut summary = Summary::with_modules(trace, whole.modules.clone());
        summary.time_zero_ns = whole.time_zero_ns;
        summary.incomplete = whole.incomplete;
        summary.blocked = blocked(selection, whole);
        // One that waited has no samples.
        let waiting = summary
            .blocked
            .iter()
            .flat_map(|blocked| &blocked.processes);
        let sampled = trace.processes.iter().map(|row| row.pid.0);
        let pids: Vec<i32> = sampled.chain(waiting.map(|row| row.pid)).collect();
        let notices = &mut summary.quality.notices;
        notices.retain(|notice| may_concern(notice, &pids));
        if selection.selects_samples_only() {
            let events = "the selection is of samples: what .NET processes reported is left out";
            let remedy = "select by process only, or print the events: view -viewer events";
            let code =
                "the selection is of threads or frames: findings are about all that a process does";
            let about = match whole.runtimes.is_empty() {
                false => Some((events, remedy)),
                true => selection.selects_code().then_some((code, "")),
            };
            let notice =
                about.map(|(what, remedy)| Notice::new(NoticeKind::Selection, what, remedy));
            summary.quality.notices.extend(notice);
        } else {
            let runtimes = whole.runtimes.iter();
            let selected = runtimes.filter(|runtime| pids.contains(&runtime.pid));
            summary.runtimes = selected.cloned().collect();
        }
        Ok(summary)
    }

    /// Reads the threads of the selected processes when the capture ended. Returns `None` if the trace does not
    /// have them, or they are not selected.
    ///
    /// # Errors
    /// They are malformed.
    pub(super) fn threads(&self) -> Result<Option<StackReport>, ViewError> {
        let archive = match (&self.stacks, &self.selected) {
            (Stacks::Archive(archive), _) => archive,
            (Stacks::Trace(_), Some(archive)) if self.summary.blocked.is_some() => archive,
            (Stacks::Trace(_), _) => return Ok(None),
        };
        let Some(json) = archive.threads()? else {
            return Ok(None);
        };
        let mut report = StackReport::read(&json).map_err(ViewError::Threads)?;
        if let (Stacks::Trace(_), Some(blocked)) = (&self.stacks, &self.summary.blocked) {
            let pids: Vec<i32> = blocked.processes.iter().map(|row| row.pid).collect();
            report.retain_processes(&pids);
        }
        Ok(Some(report))
    }

    /// Returns the summary and the samples.
    ///
    /// # Errors
    /// Returns an error if the samples cannot be read.
    pub(super) fn into_trace(self) -> Result<(Summary, Trace), ViewError> {
        let trace = match self.stacks {
            Stacks::Archive(archive) => {
                perf_text::read_written(&archive, &self.summary, &|| false)?.trace
            }
            Stacks::Trace(trace) => *trace,
        };
        Ok((self.summary, trace))
    }

    /// Passes the folded stacks to `take`, which returns the samples of all lines until now, or `None`
    /// if a line is malformed.
    ///
    /// # Errors
    /// Returns an error if the stacks cannot be read or are not those of the summary.
    pub(super) fn each_stack(
        &self,
        mut take: impl FnMut(&str) -> Option<u64>,
    ) -> Result<(), ViewError> {
        match &self.stacks {
            Stacks::Archive(opened) => archive::each_stack(opened, self.summary.samples, take),
            Stacks::Trace(trace) => {
                folded::each(trace, |line| {
                    take(line);
                });
                Ok(())
            }
        }
    }

    /// Reads the call tree of the frames with at least this part of the samples, from 0 to 1.
    ///
    /// # Errors
    /// See [`Self::each_stack`].
    pub(super) fn call_tree(&self, min_part: f64) -> Result<CallTree, ViewError> {
        let min_samples = (self.summary.samples as f64 * min_part).ceil();
        let mut tree = CallTreeBuilder::new(min_samples as u64);
        self.each_stack(|line| tree.push_line(line))?;
        Ok(tree.finish())
    }
}

/// Returns whether a notice may concern some of these processes: it does not name others only.
fn may_concern(notice: &Notice, pids: &[i32]) -> bool {
    // A long list ends with dots, so that there may be others.
    let numbers = notice.subject.split(|c: char| !c.is_ascii_digit());
    let named: Vec<i32> = numbers.filter_map(|number| number.parse().ok()).collect();
    let is_all = named.len() as u64 >= notice.count;
    !notice.kind.is_about_processes()
        || named.is_empty()
        || !is_all
        || named.iter().any(|pid| pids.contains(pid))
}

/// Drops what is not selected from a trace.
///
/// # Errors
/// No sample is selected.
pub fn select(trace: &mut Trace, selection: &Selection) -> Result<(), ViewError> {
    let whole = Summary::new(trace);
    drop_others(selection, trace, &whole)
}

/// Drops what is not selected from a trace whose summary is `whole`.
fn drop_others(selection: &Selection, trace: &mut Trace, whole: &Summary) -> Result<(), ViewError> {
    let paths = whole.modules.iter().map(|module| &*module.path);
    selection.apply(trace, paths);
    let waits = blocked(selection, whole).is_some_and(|blocked| !blocked.processes.is_empty());
    let has_some = match selection.selects_samples_only() {
        true => whole.samples > 0,
        false => whole.samples > 0 || whole.blocked.is_some(),
    };
    let has_tables = trace.info.has_input_or_output();
    let others = [&trace.faults, &trace.wakeups, &trace.blocked];
    let others = others.iter().any(|samples| !samples.is_empty());
    let has_others = waits || others || (has_tables && !selection.selects_samples_only());
    if trace.samples.is_empty() && has_some && !has_others {
        return Err(nothing_selected(whole));
    }
    if selection.selects_samples_only() {
        trace.events = EventStreams::default();
    }
    Ok(())
}

/// Returns what the threads of the selected processes waited for at the end. A part of the samples has no end.
fn blocked(selection: &Selection, whole: &Summary) -> Option<BlockedSummary> {
    let blocked = whole.blocked.as_ref();
    let blocked = blocked.filter(|_| !selection.selects_samples_only())?;
    Some(blocked.of_processes(|row| selection.selects_process(row.pid, &row.name, "")))
}

/// Returns an error that says what could be selected.
fn nothing_selected(whole: &Summary) -> ViewError {
    let info = &whole.info;
    let processes = whole.processes.iter();
    let processes = processes.map(|process| (process.pid, process.program()));
    let waiting = whole.blocked.iter().flat_map(|blocked| &blocked.processes);
    let waiting = waiting.map(|process| (process.pid, &*process.name));
    let woken = whole.wakeups.iter().flat_map(|wakeups| &wakeups.rows);
    let woken = woken.map(|row| (row.pid, &*row.woken));
    let mut processes: Vec<(i32, &str)> = processes.chain(waiting).chain(woken).collect();
    let mut known = BTreeSet::new();
    processes.retain(|(pid, _)| known.insert(*pid));
    let processes = processes.iter().take(MAX_LISTED);
    let processes = processes.map(|(pid, program)| format!("{pid} {program}"));
    ViewError::NothingSelected {
        samples: whole.samples,
        seconds: info.seconds(),
        processes: terminal(&processes.collect::<Vec<_>>().join(", ")).into_owned(),
    }
}
