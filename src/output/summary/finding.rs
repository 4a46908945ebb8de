//! A finding: what is remarkable in a trace, in words and figures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Stands for the path of the trace in the command of a finding.
pub const TRACE: &str = "TRACE";
/// Arguments of perfcollect that print the report.
pub const REPORT: [&str; 2] = ["view", TRACE];

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

    /// Sets the arguments of perfcollect for more about it.
    #[must_use]
    pub fn more(self, command: &[&str]) -> Self {
        let command = command.iter().map(|&word| word.to_owned());
        Self {
            command: command.collect(),
            ..self
        }
    }
}
