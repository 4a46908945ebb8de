//! Spelling of options. The perfcollect script uses one dash and any case (`-CollectSec 10`). Both that and the GNU
//! spelling (`--collectsec=10`) are accepted.

use std::ffi::OsString;

/// Converts options to the GNU spelling, up to a `--` that starts a command.
pub(super) fn normalize(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut in_command = false;
    arguments
        .into_iter()
        .map(|argument| {
            in_command |= argument == "--";
            match argument.to_str() {
                Some(text) if !in_command => option(text).map_or(argument, OsString::from),
                _ => argument,
            }
        })
        .collect()
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
    fn values_short_options_and_the_command_stay() {
        for line in [
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
