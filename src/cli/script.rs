//! `perfcollect script perf.data`: what `perf script` prints.

use std::fs::File;
use std::io;

use thiserror::Error;

use super::OneLine;
use super::arguments::ScriptOptions;
use crate::machine::Recorded;
use crate::perf_data::{self, OpenError, Opened};
use crate::script::{self, Fields};

#[derive(Debug, Error)]
pub(super) enum ScriptError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{path}: {error}")]
    Path { path: String, error: io::Error },
    #[error("cannot print: {0}")]
    Print(io::Error),
}

pub(super) fn run(options: &ScriptOptions) -> Result<(), ScriptError> {
    let source = &options.source;
    let recording = options.input.as_ref().unwrap_or(&source.recording);
    let Opened { mut reader, beside } = perf_data::open(recording)?;
    let sysroot = source.sysroot.as_deref();
    let recorded = Recorded::new(sysroot, beside.place());
    let recorded = recorded.map_err(|error| ScriptError::Path {
        path: sysroot.map_or_else(String::new, |path| path.display().to_string()),
        error,
    })?;
    let kallsyms = source.kallsyms.as_deref();
    if let Some(path) = kallsyms {
        File::open(path).map_err(|error| ScriptError::Path {
            path: path.display().to_string(),
            error,
        })?;
    }
    let fields = options.fields.unwrap_or_else(Fields::all);
    let out = io::stdout();
    match script::print(&mut reader, recorded, kallsyms, fields, out) {
        Ok(printed) => {
            if let Some(why) = &printed.foreign_kernel {
                eprintln!("kernel frames have no names: {}", OneLine(why));
            }
            if printed.lost > 0 {
                eprintln!("the kernel dropped {} records", printed.lost);
            }
        }
        // Whoever reads only the beginning (`| head`) has what it wanted.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        Err(error) => return Err(ScriptError::Print(error)),
    }
    if let Some((at, why)) = &reader.damage {
        let text = format!("the recording is damaged: {why}; its records up to byte {at} are here");
        eprintln!("{}", OneLine(&text));
    }
    Ok(())
}
