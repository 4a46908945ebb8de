//! Spelling of options. The perfcollect script uses one dash and any case (`-CollectSec 10`). Both that and the GNU
//! spelling (`--collectsec=10`) are accepted.

use std::ffi::OsString;

/// Option that has a value in dotnet-trace.
const RUNDOWN: &str = "--rundown";

/// Converts options to the GNU spelling, up to a `--` that starts a command.
pub(super) fn normalize(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut in_command = false;
    let words = arguments
        .into_iter()
        .map(|argument| {
            in_command |= argument == "--";
            match argument.to_str() {
                Some(text) if !in_command => option(text).map_or(argument, OsString::from),
                _ => argument,
            }
        })
        .collect();
    without_value(words)
}

/// Replaces `--rundown true` by `--rundown`, and leaves `--rundown false` out.
fn without_value(mut words: Vec<OsString>) -> Vec<OsString> {
    let command = words.iter().position(|word| word == "--");
    let options = &words[..command.unwrap_or(words.len())];
    for (value, is_wanted) in [("true", true), ("false", false)] {
        let one = format!("{RUNDOWN}={value}");
        let two = [RUNDOWN, value];
        let found = (0..options.len()).find_map(|at| {
            let rest = &options[at..];
            let is_two =
                rest.len() > 1 && two.iter().zip(rest).all(|(a, b)| b.eq_ignore_ascii_case(a));
            let count = if is_two {
                2
            } else {
                usize::from(rest[0] == one.as_str())
            };
            (count > 0).then_some(at..at + count)
        });
        if let Some(range) = found {
            words.splice(range, is_wanted.then(|| RUNDOWN.into()));
            break;
        }
    }
    words
}

/// Returns the GNU spelling of an option of more than one letter, or `None` for other words.
fn option(text: &str) -> Option<String> {
    let name_and_value = text.strip_prefix("--").or_else(|| text.strip_prefix('-'))?;
    let (name, value) = match name_and_value.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (name_and_value, None),
    };
    // `-F99` and `-p12` are short options with their values.
    let has_value = name.chars().nth(1).is_some_and(|c| c.is_ascii_digit());
    let is_short = has_value && !text.starts_with("--");
    let is_word = name.len() > 1 && name.starts_with(|c: char| c.is_ascii_alphabetic());
    (is_word && !is_short).then(|| {
        let name = name.to_ascii_lowercase();
        value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_mean_the_same() {
        let words = |line: &str| normalize(line.split(' ').map(OsString::from));
        let gnu = words("perfcollect collect A --pid 1,2 --collectsec=10");
        assert_eq!(words("perfcollect collect A -pid 1,2 -collectsec=10"), gnu);
        assert_eq!(words("perfcollect collect A -PID 1,2 --CollectSec=10"), gnu);
    }

    #[test]
    fn rundown_may_have_a_value() {
        let words = |line: &str| normalize(line.split(' ').map(OsString::from));
        let with = words("x collect A --rundown -p 1");
        assert_eq!(words("x collect A --rundown True -p 1"), with);
        assert_eq!(words("x collect A -rundown=true -p 1"), with);
        let without = words("x collect A -p 1");
        assert_eq!(words("x collect A -rundown false -p 1"), without);
        assert_eq!(words("x collect A -p 1 --rundown=false"), without);
    }

    #[test]
    fn values_short_options_and_the_command_stay() {
        for line in [
            "x --rundown name",
            "x -- y --rundown false",
            "x -h -V",
            "x -5 - a",
            "x -F99 -p12",
            "x collect A -- ls -Al --All",
        ] {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            assert_eq!(normalize(words.clone()), words);
        }
        assert_eq!(
            normalize(["x".into(), "--Force=A-B".into()]),
            ["x", "--force=A-B"]
        );
    }
}
