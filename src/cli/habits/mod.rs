//! Command lines of other tools in the spelling of perfcollect: those of perf, dotnet-trace, dotnet-stack and
//! Microsoft's perfcollect script.

mod dotnet_trace;
mod perf;
mod sentences;

use std::ffi::{OsStr, OsString};

use super::arguments::Arguments;
use clap::CommandFactory;

pub(super) use sentences::about_option;

/// A command line of another tool.
#[derive(Debug)]
pub(super) enum Habit {
    /// The same in the spelling of perfcollect, with the name of the program.
    Same(Vec<OsString>),
    /// It has no counterpart: a sentence that says what has.
    Sentence(String),
}

/// What a command line of another tool becomes. A malformed one is an error of its parser.
type Translated = Result<Habit, clap::Error>;

/// Translates the words of a command line, as they were typed. Returns `None` if it is one of perfcollect.
pub(super) fn translate(words: &[OsString]) -> Option<Translated> {
    let (command, rest) = words.get(1..)?.split_first()?;
    let command = command.to_str()?.to_ascii_lowercase();
    match command.as_str() {
        "record" => Some(perf::record(rest)),
        "report" => dotnet_trace::report(rest)
            .or_else(|| dotnet_trace::stacks(rest))
            .or_else(|| perf::report(rest)),
        "convert" => dotnet_trace::convert(rest),
        "collect-linux" => Some(Ok(same("collect", rest.iter()))),
        "help" => Some(Ok(help(rest))),
        other => Some(Ok(Habit::Sentence(sentences::about_command(other)?.into()))),
    }
}

/// `help COMMAND`. Help is of the same command, in whatever words it is called.
fn help(rest: &[OsString]) -> Habit {
    let of = rest.first().and_then(|word| word.to_str());
    let known = Arguments::command();
    match of {
        Some(name) if known.find_subcommand(name).is_none() => {
            let about = match name {
                "record" => {
                    Some("`record` is perf's word for `collect`: perfcollect collect --help")
                }
                other => sentences::about_command(other),
            };
            match about {
                Some(sentence) => Habit::Sentence(sentence.into()),
                None => same("--help", []),
            }
        }
        Some(name) => same(name, [&OsString::from("--help")]),
        None => same("--help", []),
    }
}

/// Returns a command line of perfcollect.
fn same<'a>(command: &str, rest: impl IntoIterator<Item = &'a OsString>) -> Habit {
    let words = [OsString::from("perfcollect"), command.into()];
    Habit::Same(words.into_iter().chain(rest.into_iter().cloned()).collect())
}

/// Words of a command line that is being translated.
struct Line(Vec<OsString>);

impl Line {
    fn new(command: &str) -> Self {
        Self(vec!["perfcollect".into(), command.into()])
    }

    fn word(&mut self, word: impl AsRef<OsStr>) {
        self.0.push(word.as_ref().to_owned());
    }

    fn option(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.word(name);
        self.word(value);
    }

    fn option_if(&mut self, name: &str, value: Option<impl AsRef<OsStr>>) {
        if let Some(value) = value {
            self.option(name, value);
        }
    }

    fn done(self) -> Translated {
        Ok(Habit::Same(self.0))
    }
}

fn sentence(text: impl Into<String>) -> Translated {
    Ok(Habit::Sentence(text.into()))
}
