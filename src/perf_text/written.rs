//! The samples of a trace that perfcollect wrote, from its archive.

use std::collections::HashMap;
use std::io::{BufReader, Read};

use thiserror::Error;

use super::error::TextError;
use super::import::{WrittenTrace, import_written};
use super::labels::Labels;
use crate::output::archive::{FAULTS, FAULTS_TEXT, FOLDED, PERF_TEXT, WAKEUPS, WAKEUPS_TEXT};
use crate::output::summary::Summary;
use crate::symbolize::{CancelCheck, CancellableReader};
use crate::trace::Module;
use crate::trace_archive::{TraceArchive, TraceArchiveError};

/// Limit of the text. A capture of a day has less. Reading takes 10 s for each GiB.
const MAX_TEXT_BYTES: u64 = 16 << 30;
const BUFFER_BYTES: usize = 1 << 18;

/// The samples of an archive cannot be read.
#[derive(Debug, Error)]
pub enum WrittenError {
    /// The archive cannot be read.
    #[error(transparent)]
    Archive(#[from] TraceArchiveError),
    /// An entry is not as perfcollect writes it.
    #[error("{PERF_TEXT} in the trace: {0}")]
    Text(#[from] TextError),
}

fn buffered<R: Read>(inner: R) -> BufReader<R> {
    BufReader::with_capacity(BUFFER_BYTES, inner)
}

/// Reads the trace in an archive with this summary.
///
/// Command lines, names of threads and modules are those of the summary. There are no events.
///
/// # Errors
/// See [`WrittenError`].
pub(crate) fn read_written(
    archive: &TraceArchive,
    summary: &Summary,
    cancel: CancelCheck<'_>,
) -> Result<WrittenTrace, WrittenError> {
    let faults = summary.faults.as_ref().map_or(0, |faults| faults.samples);
    let wakeups = summary.wakeups.as_ref();
    let wakeups = wakeups.map_or(0, |wakeups| wakeups.samples);
    let mut labels = Labels::default();
    let stacks = [
        (FOLDED, summary.samples),
        (FAULTS, faults),
        (WAKEUPS, wakeups),
    ];
    for (entry, samples) in stacks {
        if entry == FOLDED || archive.has(entry) {
            let (inner, _) = archive.folded(entry)?;
            labels.read(buffered(CancellableReader { inner, cancel }), samples)?;
        }
    }
    let text = |inner| buffered(CancellableReader { inner, cancel });
    let samples = archive.entry(PERF_TEXT, MAX_TEXT_BYTES)?;
    let mut texts = Vec::new();
    for (entry, samples) in [(FAULTS_TEXT, faults), (WAKEUPS_TEXT, wakeups)] {
        if archive.has(entry) {
            texts.push((text(archive.entry(entry, MAX_TEXT_BYTES)?), samples));
        }
    }
    let mut written = import_written(text(samples), texts, labels, summary.samples)?;
    let trace = &mut written.trace;
    trace.info = summary.info.clone();
    trace.quality = summary.quality.clone();
    for process in &mut trace.processes {
        let mut known = summary.processes.iter();
        if let Some(row) = known.find(|row| row.pid == process.pid.0) {
            process.command_line = row.command_line.as_str().into();
        }
    }
    let modules = summary.modules.iter().map(|module| Module {
        path: (&*module.path).into(),
        build_id: module.build_id.clone(),
        has_symbols: module.has_symbols,
        frames: module.frames,
    });
    trace.modules = modules.collect();
    // Threads without samples are in the second list only.
    let threads = summary.threads.iter().rev();
    let waiting = summary.thread_time.iter().flat_map(|times| &times.threads);
    let waiting = waiting.map(|row| ((row.pid, row.tid), &*row.name));
    let names: HashMap<(i32, i32), &str> = waiting
        .chain(threads.map(|row| ((row.pid, row.tid), &*row.name)))
        .collect();
    for thread in &mut trace.threads {
        let pid = trace.processes[thread.process.index()].pid;
        if let Some(&name) = names.get(&(pid.0, thread.tid.0)) {
            thread.name = name.into();
        }
    }
    Ok(written)
}
