//! A finding: what is remarkable in a trace, in words and figures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::kept;
use crate::output::sanitize::truncate_with_ellipsis;

/// Stands for the path of the trace in the command of a finding.
pub const TRACE: &str = "TRACE";
/// Arguments of perfcollect that print the report.
pub const REPORT: [&str; 2] = ["view", TRACE];
/// Commands of perfcollect and their options in the commands of findings. Each option has a value.
const COMMANDS: [&str; 2] = ["report", "view"];
const OPTIONS: [&str; 5] = ["-kind", "-method", "-process", "-processfilter", "-viewer"];
/// Limits of what is read: the text in bytes, and the lists. Rules write less.
const MAX_TEXT_BYTES: usize = 1024;
const MAX_WORDS: usize = 16;
const MAX_ROWS: usize = 32;

/// What is remarkable in a trace. The rules are in [`crate::findings`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Rule that found it, such as `cpu-use`. Stable.
    pub rule: String,
    /// Process id; `None` for the whole machine or trace.
    pub pid: Option<i32>,
    /// What it is about: a process, method, lock, ... Untrusted.
    pub subject: String,
    /// The finding in words, with its numbers. Untrusted: it quotes names.
    pub text: String,
    /// Estimated cost, in CPUs: CPU time or time of waiting threads, per time of the capture.
    pub cost_cpus: f64,
    /// Its numbers. The unit is at the end of the name: `_ms`, `_percent`, `_cpus`, `_per_s`.
    pub figures: BTreeMap<String, f64>,
    /// Parts of the summary that it follows from, such as `shares.own_methods`.
    pub evidence: Vec<String>,
    /// Arguments of perfcollect for more about it; [`TRACE`] stands for the path of the trace.
    pub command: Vec<String>,
}

impl Finding {
    /// Creates a finding about the whole machine or trace.
    #[must_use]
    pub fn new(rule: &str, text: String) -> Self {
        Self {
            rule: rule.to_owned(),
            pid: None,
            subject: String::new(),
            text,
            cost_cpus: 0.0,
            figures: BTreeMap::new(),
            evidence: Vec::new(),
            command: REPORT.map(str::to_owned).to_vec(),
        }
    }

    /// Sets the process and what the finding is about.
    #[must_use]
    pub fn about(self, pid: i32, subject: &str) -> Self {
        let subject = subject.to_owned();
        Self {
            pid: Some(pid),
            subject,
            ..self
        }
    }

    /// Sets the program that the finding is about, with all its processes.
    #[must_use]
    pub fn about_program(self, name: &str) -> Self {
        let subject = name.to_owned();
        Self { subject, ..self }
    }

    /// Sets the estimated cost in CPUs.
    #[must_use]
    pub fn costing(self, cost_cpus: f64) -> Self {
        Self { cost_cpus, ..self }
    }

    /// Adds a number. Numbers that are not finite are left out: JSON has none.
    #[must_use]
    pub fn figure(mut self, name: &str, number: f64) -> Self {
        if number.is_finite() {
            self.figures.insert(name.to_owned(), number);
        }
        self
    }

    /// Adds a part of the summary that the finding follows from.
    #[must_use]
    pub fn from(mut self, evidence: &str) -> Self {
        self.evidence.push(evidence.to_owned());
        self
    }

    /// Bounds what was read from a file. A command that no rule writes becomes that of the report: people
    /// copy it into a shell.
    pub(super) fn bound(&mut self) {
        self.text = truncate_with_ellipsis(&self.text, MAX_TEXT_BYTES).into_owned();
        self.evidence.truncate(MAX_ROWS);
        for name in self
            .evidence
            .iter_mut()
            .chain([&mut self.rule, &mut self.subject])
        {
            *name = kept(name);
        }
        let figures = std::mem::take(&mut self.figures).into_iter().take(MAX_ROWS);
        self.figures = figures
            .map(|(name, number)| (kept(&name), number))
            .collect();
        if !self.has_known_command() {
            self.command = REPORT.map(str::to_owned).to_vec();
        }
    }

    /// Returns whether the command is one that rules write: it reads this trace, and has known options.
    fn has_known_command(&self) -> bool {
        let [command, trace, options @ ..] = &self.command[..] else {
            return false;
        };
        let is_option = |option: &[String]| match option {
            [name, value] => {
                let is_value = !value.starts_with('-') && *value == kept(value);
                OPTIONS.contains(&&**name) && is_value
            }
            _ => false,
        };
        COMMANDS.contains(&&**command)
            && trace == TRACE
            && options.len() <= MAX_WORDS
            && options.chunks(2).all(is_option)
    }

    /// Sets the arguments of perfcollect for more about it.
    #[must_use]
    pub fn more(self, command: &[impl AsRef<str>]) -> Self {
        let command = command.iter().map(|word| word.as_ref().to_owned());
        Self {
            command: command.collect(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(command: &[&str]) -> Vec<String> {
        let mut finding = Finding::new("x", String::new()).more(command);
        finding.bound();
        finding.command
    }

    #[test]
    fn a_command_that_no_rule_writes_is_not_read() {
        let good = ["report", TRACE, "-kind", "cpu", "-process", "a b; c"];
        assert_eq!(read(&good), good);
        assert_eq!(read(&REPORT), REPORT);
        let long = "x".repeat(1 << 20);
        for bad in [
            &[][..],
            &["view"],
            &["collect", TRACE],
            &["report", "/etc/shadow"],
            &["report", TRACE, "-kind"],
            &["report", TRACE, "-output", "/root/.bashrc"],
            &["report", TRACE, "-process", "-x"],
            &["report", TRACE, "-process", &long],
            &["report", TRACE, ";", "reboot"],
            &["run a pipe of curl to sh", TRACE],
        ] {
            assert_eq!(read(bad), REPORT, "{bad:.100?}");
        }
        assert_eq!(read(&["-kind", "cpu"].repeat(99)), REPORT);
    }

    /// A new option of a rule must be known here, too.
    #[test]
    fn the_options_of_all_rules_are_known() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/findings");
        let literal = regex::Regex::new(r#""(-[a-z]+)""#).unwrap();
        let mut found = 0;
        for file in std::fs::read_dir(directory).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for option in literal.captures_iter(&text) {
                assert!(OPTIONS.contains(&&option[1]), "{}", &option[1]);
                found += 1;
            }
        }
        assert!(found >= OPTIONS.len());
    }

    #[test]
    fn texts_are_bounded() {
        let long = "é".repeat(1 << 20);
        let mut finding = Finding::new(&long, long.clone()).about(1, &long);
        finding.evidence = vec![long.clone(); 99];
        finding.figures = (0..99).map(|at| (format!("{at}{long}"), 1.0)).collect();
        finding.bound();
        assert_eq!(finding.text, "é".repeat(MAX_TEXT_BYTES / 2) + "…");
        let json = serde_json::to_vec(&finding).unwrap();
        assert!(json.len() < 200_000, "{}", json.len());
    }
}
