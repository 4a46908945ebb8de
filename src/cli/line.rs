//! From the words of a command line to arguments, also from those of other tools.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use super::arguments::{Action, Arguments};
use super::background::FAILED;
use super::habits::{self, Habit};
use super::symptom_options::{self, ChosenOptions};
use super::{OneLine, busiest, say, spelling};
use crate::output::sanitize::shell_line;

/// Exit status of a line that is not understood.
const USAGE: u8 = 2;

/// A line that is understood.
pub(super) struct Line {
    /// The words, in the spelling of perfcollect.
    pub(super) words: Vec<OsString>,
    pub(super) arguments: Arguments,
}

impl Line {
    /// Parses a line. Otherwise prints why not, or what to do instead, and returns the exit status.
    pub(super) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, ExitCode> {
        let typed: Vec<OsString> = words.into_iter().collect();
        let words = match typed.len() {
            0 | 1 if busiest::can_ask() => chosen()?,
            _ => match habits::translate(&typed) {
                None => typed,
                Some(Ok(Habit::Same(same))) => {
                    say_same(&same);
                    same
                }
                Some(Ok(Habit::Sentence(sentence))) => {
                    say(format_args!("{FAILED}{}", OneLine(&sentence)));
                    return Err(ExitCode::from(USAGE));
                }
                Some(Err(error)) => return Err(refused(error)),
            },
        };
        let words = spelling::normalize(words);
        match parsed(&words) {
            Ok(arguments) => Ok(Self { words, arguments }),
            Err(error) => Err(refused(error)),
        }
    }
}

/// Asks for the process to capture.
fn chosen() -> Result<Vec<OsString>, ExitCode> {
    match busiest::ask() {
        Ok(Some(words)) => {
            say_same(&words);
            Ok(words)
        }
        Ok(None) => {
            say("nothing was captured; `perfcollect --help` lists the commands");
            Err(ExitCode::SUCCESS)
        }
        Err(error) => {
            say(format_args!("{FAILED}{}", OneLine(&error.to_string())));
            Err(ExitCode::FAILURE)
        }
    }
}

/// Prints a command line in the spelling of perfcollect.
fn say_same(words: &[OsString]) {
    if !words
        .iter()
        .any(|word| word == "-quiet" || word == "--help")
    {
        let line = shell_line(words.iter().map(|word| word.to_string_lossy()));
        say(format_args!("the same as: {}", OneLine(&line)));
    }
}

fn parsed(words: &[OsString]) -> Result<Arguments, clap::Error> {
    // An empty command, as of a script with an unset variable, must not sample the whole system.
    if words.last().is_some_and(|last| last == "--") {
        return Err(Arguments::command().error(
            ErrorKind::MissingRequiredArgument,
            "expected a command after `--`",
        ));
    }
    let arguments = Arguments::try_parse_from(words)?;
    match &arguments.action {
        Action::Collect(options) | Action::Start(options) => {
            let refused = |kind, error: &dyn ToString| {
                Err(Arguments::command().error(kind, error.to_string()))
            };
            match ChosenOptions::new(options).map(|chosen| chosen.plan()) {
                Ok(Ok(_)) => match options.pid_as_name() {
                    None => Ok(arguments),
                    Some(error) => refused(ErrorKind::ValueValidation, &error),
                },
                Ok(Err(error)) => refused(ErrorKind::ValueValidation, &error),
                Err(error) => refused(ErrorKind::ArgumentConflict, &error),
            }
        }
        Action::View(options) => match options.conflict() {
            None => Ok(arguments),
            Some(error) => Err(Arguments::command().error(ErrorKind::ArgumentConflict, error)),
        },
        _ => Ok(arguments),
    }
}

/// Prints an error of the parser.
fn refused(mut error: clap::Error) -> ExitCode {
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument => {
            Some(word.clone())
        }
        _ => None,
    };
    if let Some(about) = unknown.as_deref().and_then(habits::about_option) {
        say(format_args!(
            "{FAILED}{}: {about}",
            OneLine(&unknown.unwrap_or_default())
        ));
        return ExitCode::from(USAGE);
    }
    if let Some(about) = symptom_options::about_unknown(&error) {
        let mut lines = about.lines();
        say(format_args!(
            "{FAILED}{}",
            OneLine(lines.next().unwrap_or_default())
        ));
        lines.for_each(|line| say(OneLine(line)));
        return ExitCode::from(USAGE);
    }
    // clap suggests to pass the option after `--`, which here starts a command.
    error.remove(ContextKind::Suggested);
    // A closed terminal is no reason to fail.
    let _ = error.print();
    if unknown.is_some_and(|word| !word.starts_with('-')) {
        say("To run and sample a command, write it after `--`: perfcollect collect -- COMMAND");
    }
    ExitCode::from(error.exit_code() as u8)
}
