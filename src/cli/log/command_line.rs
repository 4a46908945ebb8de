//! The command line of this run, for the log.

use std::ffi::OsString;

use crate::output::sanitize::shell_line;

/// Returns the command line, quoted for a shell.
pub(super) fn own() -> String {
    quoted(std::env::args_os())
}

/// Quotes the words. The words of a background capture are those that `start` passed on.
fn quoted(words: impl IntoIterator<Item = OsString>) -> String {
    let words: Vec<OsString> = words.into_iter().collect();
    let (start, rest) = match &words[..] {
        [_, command, background, rest @ ..]
            if command == "collect" && background == "--background" =>
        {
            (vec!["perfcollect".to_owned(), "start".to_owned()], rest)
        }
        rest => (Vec::new(), rest),
    };
    let rest = rest.iter().map(|word| word.to_string_lossy().into_owned());
    shell_line(start.into_iter().chain(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_words_for_a_shell() {
        let of = |words: &[&str]| quoted(words.iter().map(OsString::from));
        assert_eq!(
            of(&["perfcollect", "collect", "a b", "--", "sh", "-c", "echo $X"]),
            "perfcollect collect 'a b' -- sh -c 'echo $X'"
        );
        assert_eq!(
            of(&[
                "/proc/self/exe",
                "collect",
                "--background",
                "x",
                "--pid",
                "1"
            ]),
            "perfcollect start x --pid 1"
        );
        assert_eq!(of(&[]), "");
    }
}
