//! The command line: one file per command.

// It panics if standard error is closed or full.
#![deny(clippy::print_stderr)]

mod arguments;
mod background;
mod busiest;
mod capture_files;
mod collect;
mod convert;
mod convert_error;
mod convert_export;
mod convert_trace;
mod diff;
mod downloads;
mod event_options;
mod formats;
mod habits;
mod line;
mod log;
mod meanwhile;
mod named;
mod opened;
mod outputs;
mod progress;
mod ps;
mod recorded;
mod recording_options;
mod recover;
mod report;
mod sandbox;
mod screen;
mod script;
mod selection_options;
mod shell;
mod spelling;
mod stacks;
mod symbols;
mod symbols_options;
mod symbols_traces;
mod symptom_fit;
mod symptom_options;
mod table_options;
mod top;
mod trace_files;
mod values;
mod view;
mod warnings;
mod write_error;

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::process::ExitCode;

use arguments::Action;
use line::Line;

use crate::download;
use crate::output::sanitize::is_unprintable;

/// Runs a command. Returns exit status 0 for success, 1 for failure, 2 for an invalid command line and 3 for a trace that
/// lacks what was asked for, or that of the command that was captured.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Line { words, arguments } = match Line::parse(arguments) {
        Ok(line) => line,
        Err(status) => return status,
    };
    let result = match &arguments.action {
        Action::Collect(options) => match collect::run(options) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => Err(error.to_string()),
        },
        Action::Start(options) => {
            background::start(options, &words).map_err(|error| error.to_string())
        }
        Action::Stop(options) => match background::stop(options) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => Err(error.to_string()),
        },
        Action::Recover(options) => recover::run(options).map_err(|error| error.to_string()),
        Action::Convert(options) => convert::run(options).map_err(|error| error.to_string()),
        Action::Script(options) => script::run(options).map_err(|error| error.to_string()),
        Action::View(options) => view::run(options).map_err(|error| error.to_string()),
        Action::Report(options) => report::run(options).map_err(|error| error.to_string()),
        Action::Diff(options) => diff::run(options).map_err(|error| error.to_string()),
        Action::Stacks(options) => stacks::run(options).map_err(|error| error.to_string()),
        Action::Top(options) => top::run(options).map_err(|error| error.to_string()),
        Action::Ps(options) => ps::run(options).map_err(|error| error.to_string()),
        Action::Symbols(options) => symbols::run(options).map_err(|error| error.to_string()),
        Action::Completions(options) => shell::complete(options).map_err(|error| error.to_string()),
        Action::Man(options) => shell::man(options).map_err(|error| error.to_string()),
        Action::SymbolsWorker => return download::serve(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            say(format_args!("{}{}", background::FAILED, OneLine(&message)));
            ExitCode::FAILURE
        }
    }
}

/// Displays a string with characters replaced that change a line: it may quote untrusted names.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let printable = |c: char| if is_unprintable(c) { '\u{fffd}' } else { c };
        self.0.chars().try_for_each(|c| f.write_char(printable(c)))
    }
}

/// Writes a line to standard error.
fn say(line: impl fmt::Display) {
    print_error(&format!("{line}\n"));
}

/// Writes to standard error. A terminal that is gone or a full disk is not an error: the trace is worth more.
fn print_error(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes to standard output. A reader that closes early (`| head`) is not an error.
fn print(text: &[u8]) -> io::Result<()> {
    match io::stdout().write_all(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
