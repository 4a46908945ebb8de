//! Command lines that show more of a trace, to be copied into a shell.

use std::path::Path;

use crate::output::sanitize::shell_word;
use crate::output::summary::{Finding, REPORT, TRACE};
use crate::selection::Selection;

/// A trace in command lines, with what a view selected of it.
#[derive(Clone, Debug)]
pub struct More {
    /// Path of the trace, quoted for a shell.
    trace: String,
    /// Options of the selection, each with its value if it has one.
    selection: Vec<Vec<String>>,
}

impl More {
    /// The command lines for a trace at `path`.
    #[must_use]
    pub fn new(path: &Path, selection: &Selection) -> Self {
        Self {
            trace: shell_word(&path.to_string_lossy()),
            selection: selection.options(),
        }
    }

    /// Shows more about a finding than the report does. A finding about one process selects that one.
    pub(super) fn about(&self, finding: &Finding) -> Option<String> {
        if finding.command == REPORT {
            return None;
        }
        let own = &finding.command;
        // A method may have the name that stands for the trace.
        let words = own.iter().enumerate().map(|(at, word)| match at {
            1 if word == TRACE => self.trace.clone(),
            _ => shell_word(word),
        });
        let selection = self.selection.iter();
        let selection = selection.filter(|option| !own.contains(&option[0]));
        Some(line(words, selection.flatten()))
    }

    /// Shows all tables.
    pub(super) fn all(&self) -> String {
        self.of(&["view", "-full"])
    }

    /// Shows all findings.
    pub(super) fn findings(&self) -> String {
        self.table("findings")
    }

    /// Shows a table.
    pub(super) fn table(&self, kind: &str) -> String {
        self.of(&["report", "-kind", kind])
    }

    /// Downloads debug files and symbolizes the trace again.
    pub(super) fn symbols(&self) -> String {
        format!("perfcollect symbols {}", self.trace)
    }

    /// Writes all functions to a file.
    pub(super) fn functions(&self) -> String {
        format!("{} -o functions.csv", self.of(&["convert"]))
    }

    /// Draws the flame graph.
    pub(super) fn flame_graph(&self) -> String {
        format!("{} -o flamegraph.svg", self.of(&["convert"]))
    }

    fn of(&self, words: &[&str]) -> String {
        let words = words.iter().map(|&word| word.to_owned());
        let words = words.chain([self.trace.clone()]);
        line(words, self.selection.iter().flatten())
    }
}

/// Returns a command line of quoted words, and the words of options.
fn line<'a>(
    words: impl Iterator<Item = String>,
    options: impl Iterator<Item = &'a String>,
) -> String {
    let options = options.map(|word| shell_word(word));
    let words: Vec<String> = words.chain(options).collect();
    format!("perfcollect {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::selection::{CodePatterns, GroupPatterns, Patterns, Times};

    #[test]
    fn command_lines_keep_the_selection() {
        let selection = Selection {
            times: Times {
                from: Some(1.5),
                to: None,
            },
            process: Some("my app".to_owned()),
            thread: None,
            patterns: CodePatterns {
                include: Patterns::parse("a;b|c").unwrap(),
                group: GroupPatterns::parse("[by module] {%}!=>module $1").unwrap(),
                just_my_code: true,
                ..CodePatterns::default()
            },
        };
        let more = More::new(Path::new("/tmp/a b.trace.zip"), &selection);
        let options = "-from 1.5 -process 'my app' -include 'a;b|c' \
            -group '[by module] {%}!=>module $1' -justmycode";
        assert_eq!(
            more.all(),
            format!("perfcollect view -full '/tmp/a b.trace.zip' {options}")
        );
        let finding = Finding::new("cpu-use", String::new());
        assert_eq!(more.about(&finding), None);
        let finding = finding.more(&["view", TRACE, "-method", "A.B", "-process", "7"]);
        let options = options.replace("-process 'my app' ", "");
        assert_eq!(
            more.about(&finding).unwrap(),
            format!("perfcollect view '/tmp/a b.trace.zip' -method A.B -process 7 {options}")
        );
    }
}
