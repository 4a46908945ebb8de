//! `perfcollect script perf.data`: prints what `perf script` prints.

use std::io;

use thiserror::Error;

use super::arguments::ScriptOptions;
use super::opened;
use super::recording_options::UnusablePath;
use super::sandbox::{self, directory_of};
use super::{OneLine, say};
use crate::capture::raise_limits;
use crate::perf_data::{self, OpenRecording, OpenRecordingError};
use crate::script::{self, Fields};

#[derive(Debug, Error)]
pub(super) enum ScriptError {
    #[error(transparent)]
    Open(#[from] OpenRecordingError),
    #[error(transparent)]
    Path(#[from] UnusablePath),
    #[error("cannot print: {0}")]
    Print(io::Error),
}

pub(super) fn run(options: &ScriptOptions) -> Result<(), ScriptError> {
    // Each file with code and each debug file stays open until the end.
    raise_limits();
    let source = &options.source;
    let recording = options.input.as_ref().unwrap_or(&source.recording);
    let recording = &*opened::path_of(recording);
    // Archives are unpacked in one of the two.
    sandbox::enter(&[], &[directory_of(recording), &std::env::temp_dir()]);
    let OpenRecording {
        mut reader,
        siblings,
    } = perf_data::open(recording)?;
    let recorded = source.recorded(&siblings)?;
    let kallsyms = source.kallsyms.as_deref();
    let fields = options.fields.unwrap_or_else(Fields::all);
    let out = io::stdout();
    let mut report = |what: &str| say(OneLine(what));
    match script::print(
        &mut reader,
        recorded,
        kallsyms,
        fields,
        !options.no_inline,
        out,
        &mut report,
    ) {
        Ok(printed) => {
            printed.faults.iter().for_each(|fault| report(fault));
            if printed.lost > 0 {
                say(format_args!("the kernel dropped {} records", printed.lost));
            }
        }
        // The reader closed early, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        Err(error) => return Err(ScriptError::Print(error)),
    }
    if reader.malformed > 0 {
        say(format_args!(
            "skipped {} malformed records",
            reader.malformed
        ));
    }
    if reader.without_user_callers() > 0 {
        let samples = reader.without_user_callers();
        say(format_args!(
            "{samples} samples have no user-space callers: they were not recorded"
        ));
    }
    if let Some((at, why)) = &reader.corruption {
        let text = format!("the recording is corrupt: {why}; records up to byte {at} were read");
        say(OneLine(&text));
    }
    Ok(())
}
