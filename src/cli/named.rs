//! Names: of the processes that `-n` selects, and of captures that have none.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use thiserror::Error;

use super::arguments::CollectOptions;
use crate::machine::{self, ProcError};
use crate::output::summary::{is_program, program_of};
use crate::output::utc::UtcTime;
use crate::trace::Pid;

/// Name of a capture of the whole machine that has none.
const MACHINE: &str = "machine";
/// Maximum length of the program in the name of a capture, in bytes.
const MAX_PROGRAM_BYTES: usize = 40;
/// Suffix of the files of dotnet-trace, which is not a part of a capture's name.
const SUFFIX: &str = ".nettrace";

#[derive(Debug, Error)]
pub(super) enum NamedError {
    #[error(transparent)]
    Proc(#[from] ProcError),
    #[error(
        "no process has the name or program {name}: `perfcollect ps` lists the .NET processes, `ps -e` all"
    )]
    None { name: String },
}

/// Returns the processes with this name or program (such as app.dll), but perfcollect itself.
pub(super) fn processes(name: &str) -> Result<Vec<Pid>, NamedError> {
    let own = std::process::id();
    let is_other = |pid: &Pid| u32::try_from(pid.0) != Ok(own);
    let is_named = |pid: &Pid| {
        let command_line = machine::command_line(*pid);
        let process_name = machine::process_name(*pid).unwrap_or_default();
        is_program(&process_name, &String::from_utf8_lossy(&command_line), name)
    };
    let pids = machine::pids()?.into_iter();
    let pids: Vec<Pid> = pids.filter(is_other).filter(is_named).collect();
    match pids.is_empty() {
        true => Err(NamedError::None { name: name.into() }),
        false => Ok(pids),
    }
}

/// Returns the name of a capture: that of the option or argument, or else PROGRAM_DATE_TIME, in UTC.
pub(super) fn capture(options: &CollectOptions) -> PathBuf {
    let given = options.output.as_ref().or(options.name.as_ref());
    if let Some(given) = given {
        return without_suffix(given);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ns = since.map_or(0, |since| since.as_nanos() as u64);
    let time = UtcTime::from_unix_ns(ns);
    format!("{}_{}", program(options), time.compact()).into()
}

/// Returns the name of a capture for a name that may have the suffix of its stream.
pub(super) fn without_suffix(name: &Path) -> PathBuf {
    let text = name.to_string_lossy();
    let stem = text.strip_suffix(SUFFIX);
    match stem.filter(|stem| !stem.is_empty() && !stem.ends_with('/')) {
        Some(stem) => stem.into(),
        None => name.to_owned(),
    }
}

/// Returns the name of the program that is captured, with the characters of a file name.
fn program(options: &CollectOptions) -> String {
    let command: Vec<_> = options
        .command
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    let name = match (&options.process_name, options.pid.first(), command.first()) {
        (Some(name), ..) => name.clone(),
        (None, Some(&pid), _) => {
            let name = machine::process_name(pid).unwrap_or_default();
            let command_line = machine::command_line(pid);
            program_of(&name, &String::from_utf8_lossy(&command_line)).to_owned()
        }
        (None, None, Some(file)) => {
            let name = file.rsplit('/').next().unwrap_or_default();
            program_of(name, &command.join(" ")).to_owned()
        }
        (None, None, None) => MACHINE.into(),
    };
    let plain = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => c,
        _ => '_',
    };
    let name: String = name.chars().map(plain).take(MAX_PROGRAM_BYTES).collect();
    let name = name.trim_start_matches(['.', '-']);
    match name {
        "" => MACHINE.into(),
        name => name.into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::super::arguments::{Action, Arguments};
    use super::*;

    fn named(name: Option<&str>, output: Option<&str>, command: &[&str]) -> String {
        let output = output.map(|output| format!("--output={output}"));
        let words = ["perfcollect", "collect"].into_iter();
        let words = words.chain(name).chain(output.as_deref()).chain(["--"]);
        let words = words.chain(command.iter().copied());
        let Action::Collect(options) = Arguments::try_parse_from(words).unwrap().action else {
            unreachable!()
        };
        capture(&options).display().to_string()
    }

    #[test]
    fn captures_have_the_name_of_their_program() {
        assert_eq!(named(Some("x"), None, &[]), "x");
        assert_eq!(named(None, Some("/a/x.nettrace"), &[]), "/a/x");
        assert_eq!(named(None, Some(".nettrace"), &[]), ".nettrace");
        for (command, program) in [
            (&["/bin/ls", "-l"][..], "ls"),
            (&["dotnet", "/app/Web.Api.dll"], "Web.Api"),
            (&["../-rf *"], "rf__"),
            (&["…"], "_"),
            (&["/"], "machine"),
            (&[], "machine"),
        ] {
            let name = named(None, None, command);
            let (found, time) = name.split_at(program.len());
            assert_eq!(found, program);
            assert_eq!(time.len(), "_20260102_030405".len(), "{name}");
        }
    }
}
