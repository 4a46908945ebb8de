//! What the rules look at: the summary, with its shares of time.

use std::collections::{BTreeMap, BTreeSet};

use crate::output::NameStyle;
use crate::output::sanitize::{folded, truncate_with_ellipsis};
use crate::output::summary::{
    Finding, MethodPair, ProcessSummary, ProgramSummary, RuntimeSummary, Share, Summary, TRACE,
    WorkKind, WorkMethod,
};
use crate::trace::Symptom;

/// Maximum length of a name in a finding, in bytes.
const MAX_NAME_BYTES: usize = 60;
/// CPU time of a process below which no part of it is remarkable.
const MIN_CPU_MS: f64 = 250.0;
/// Part of the samples of a kind of work below which a method is not behind it.
const MIN_BEHIND: f64 = 0.1;

/// A summary whose samples count CPU time, or one without processes to look at.
pub(super) struct Scene<'a> {
    pub(super) summary: &'a Summary,
    /// Length of the capture.
    pub(super) seconds: f64,
    /// Number of CPUs that were sampled.
    pub(super) cpus: f64,
}

impl<'a> Scene<'a> {
    pub(super) fn new(summary: &'a Summary) -> Self {
        let info = &summary.info;
        Self {
            summary,
            seconds: info.seconds(),
            cpus: info.cpus.into(),
        }
    }

    /// Returns whether the capture was for a symptom: its user knows that there is one.
    pub(super) fn is_for(&self, symptom: Symptom) -> bool {
        self.summary.info.symptom == Some(symptom)
    }

    /// Returns the program of a process; `process` if it has no samples.
    pub(super) fn program_of(&self, pid: i32) -> &'a str {
        let mut rows = self.summary.processes.iter();
        let row = rows.find(|row| row.pid == pid);
        row.map_or("process", ProcessSummary::program)
    }

    /// Returns the .NET processes that sent events.
    pub(super) fn runtimes(&self) -> impl Iterator<Item = Runtime<'a>> {
        let has_length = self.seconds > 0.0;
        let runtimes = self.summary.runtimes.iter().filter(move |_| has_length);
        runtimes.map(|summary| Runtime {
            program: match &*summary.program {
                "" => ".NET process",
                program => program,
            },
            summary,
        })
    }

    /// Returns the processes with a kind of work that takes this part of their CPU time, and this
    /// many CPUs, at least.
    pub(super) fn with_work(
        &self,
        kind: WorkKind,
        [min_part, min_cpus]: [f64; 2],
    ) -> impl Iterator<Item = WorkLoad<'a>> {
        let loads = self.notable_programs().map(move |program| {
            let samples = program.process.work.samples(kind);
            WorkLoad {
                kind,
                part: program.part(samples),
                used_cpus: program.cpus_of(samples),
                program,
            }
        });
        loads.filter(move |load| load.part >= min_part && load.used_cpus >= min_cpus)
    }

    /// Returns the programs with more than one process and the CPUs that they used on average, if
    /// samples count time.
    pub(super) fn with_several_processes(&self) -> Vec<(&'a ProgramSummary, f64)> {
        let counts_time = self.summary.info.counts_time() && self.seconds > 0.0;
        let programs = self.summary.programs.iter().filter(|_| counts_time);
        let several = programs.filter(|program| program.processes > 1);
        several
            .map(|program| (program, program.cpu_ms / 1e3 / self.seconds))
            .collect()
    }

    /// Returns the method of the user's code with most samples of all processes of a program, and these.
    /// A method that is not among the first of a process counts too little there.
    pub(super) fn method_of(&self, program: &ProgramSummary) -> Option<(&'a Share, u64)> {
        let processes = self.summary.processes.iter();
        let processes = processes.filter(|process| process.program() == program.name);
        let pids: BTreeSet<i32> = processes.map(|process| process.pid).collect();
        let mut methods: BTreeMap<(&str, &str), (&Share, u64)> = BTreeMap::new();
        let rows = self.summary.shares.own_methods.iter();
        for row in rows.filter(|row| pids.contains(&row.pid)) {
            let method = methods.entry((&row.module, &row.name));
            let (_, samples) = method.or_insert((row, 0));
            *samples = samples.saturating_add(row.samples);
        }
        methods.into_values().max_by_key(|(_, samples)| *samples)
    }

    /// Returns the processes with samples, if these count time.
    pub(super) fn programs(&self) -> impl Iterator<Item = Program<'a>> {
        let counts_time = self.summary.info.counts_time() && self.seconds > 0.0;
        let processes = self.summary.processes.iter().filter(move |_| counts_time);
        let (summary, seconds) = (self.summary, self.seconds);
        processes
            .filter(|process| process.samples > 0)
            .map(move |process| Program {
                summary,
                process,
                cpus: process.cpu_ms / 1e3 / seconds,
            })
    }

    /// Returns those that used enough CPU time for parts of it to be remarkable: what starts and ends is
    /// compiled, loaded and paged in.
    pub(super) fn notable_programs(&self) -> impl Iterator<Item = Program<'a>> {
        self.programs()
            .filter(|program| program.process.cpu_ms >= MIN_CPU_MS)
    }
}

/// A process with samples.
pub(super) struct Program<'a> {
    summary: &'a Summary,
    pub(super) process: &'a ProcessSummary,
    /// CPUs that the process used, on average.
    pub(super) cpus: f64,
}

impl<'a> Program<'a> {
    /// Returns a part of the samples of the process, from 0 to 1.
    pub(super) fn part(&self, samples: u64) -> f64 {
        samples as f64 / self.process.samples as f64
    }

    /// Returns the CPUs that a part of the samples of the process used, on average.
    pub(super) fn cpus_of(&self, samples: u64) -> f64 {
        self.cpus * self.part(samples)
    }

    /// Returns the name of the program and the process id.
    pub(super) fn name(&self) -> String {
        process_name(self.process.program(), self.process.pid)
    }

    /// Returns the rows of the process.
    pub(super) fn rows(&self, rows: &'a [Share]) -> impl Iterator<Item = &'a Share> {
        let pid = self.process.pid;
        rows.iter().filter(move |row| row.pid == pid)
    }

    /// Returns the method of the user's code with most samples, counting what it calls.
    pub(super) fn own_method(&self) -> Option<&'a Share> {
        self.rows(&self.summary.shares.own_methods).next()
    }

    /// Names the method of the user's code with most samples of a kind of work, and its part of
    /// them. Empty if there is none.
    pub(super) fn behind(&self, kind: WorkKind) -> String {
        self.method_behind(kind)
            .map_or_else(String::new, |(row, part)| {
                let method = short_method(&row.name);
                format!("; {} of it by {method}", percent(part))
            })
    }

    /// Starts a finding about the process.
    pub(super) fn finding(&self, rule: &str, text: String) -> Finding {
        Finding::new(rule, text).about(self.process.pid, self.process.program())
    }

    /// Returns the command for more about a method of the process, or about all of it.
    pub(super) fn more(&self, method: Option<&str>) -> Vec<String> {
        let pattern = method.map(pattern).filter(|pattern| !pattern.is_empty());
        let words = match &pattern {
            Some(pattern) => ["view", TRACE, "-method", pattern],
            None => ["report", TRACE, "-kind", "cpu"],
        };
        let pid = self.process.pid.to_string();
        let words = words.into_iter().chain(["-process", &*pid]);
        words.map(str::to_owned).collect()
    }

    /// Returns the method of the user's code with most samples of a kind of work, and its part of them.
    pub(super) fn method_behind(&self, kind: WorkKind) -> Option<(&'a WorkMethod, f64)> {
        let all = self.process.work.samples(kind).max(1);
        let mut methods = self.summary.shares.work_methods.iter();
        let row = methods.find(|row| row.pid == self.process.pid && row.work == kind)?;
        let part = (row.samples as f64 / all as f64).min(1.0);
        (part >= MIN_BEHIND).then_some((row, part))
    }
}

/// A kind of work of a process.
pub(super) struct WorkLoad<'a> {
    kind: WorkKind,
    pub(super) program: Program<'a>,
    /// Part of the CPU time of the process, from 0 to 1.
    pub(super) part: f64,
    /// CPUs that it used, on average.
    pub(super) used_cpus: f64,
}

impl WorkLoad<'_> {
    /// Returns its part of the CPU time of the process.
    pub(super) fn percent(&self) -> String {
        percent(self.part)
    }

    /// Returns the CPUs that it used, on average.
    pub(super) fn cpus(&self) -> String {
        cpus(self.used_cpus)
    }

    /// Starts a finding about the work, with the method of the user's code behind it. `evidence` is
    /// where the summary counts it.
    pub(super) fn finding(&self, rule: &str, evidence: &str, mut text: String) -> Finding {
        text.push_str(&self.program.behind(self.kind));
        let method = self.program.method_behind(self.kind);
        let finding = self.program.finding(rule, text);
        finding
            .more(&self.program.more(method.map(|(row, _)| &*row.name)))
            .from(evidence)
            .from("shares.work_methods")
            .figure("cpu_percent", self.part * 100.0)
            .figure("used_cpus", self.used_cpus)
            .costing(self.used_cpus)
    }
}

/// A .NET process that sent events.
pub(super) struct Runtime<'a> {
    program: &'a str,
    pub(super) summary: &'a RuntimeSummary,
}

impl Runtime<'_> {
    /// Returns the name of the program and the process id.
    pub(super) fn name(&self) -> String {
        process_name(self.program, self.summary.pid)
    }

    /// Starts a finding about the process.
    pub(super) fn finding(&self, rule: &str, text: String) -> Finding {
        Finding::new(rule, text).about(self.summary.pid, self.program)
    }
}

pub(super) fn process_name(program: &str, pid: i32) -> String {
    format!("{} (pid {pid})", shown(program))
}

/// Returns the user's method of two, or else the innermost one.
pub(super) fn named(methods: &MethodPair) -> Option<String> {
    let method = methods.own.as_ref().or(methods.leaf.as_ref())?;
    Some(short_method(&method.name))
}

/// Returns a name as it is shown in a finding.
pub(super) fn shown(name: &str) -> String {
    truncate_with_ellipsis(name, MAX_NAME_BYTES).into_owned()
}

/// Returns the name of a method with its type, or of a function with its module.
pub(super) fn method(row: &Share) -> String {
    short_method(&row.name)
}

/// Returns the name of a method with its type as it is shown in a finding.
pub(super) fn short_method(name: &str) -> String {
    shown(&NameStyle::Short.of_method(name))
}

/// Returns a share of 1 as percent, without decimals above 10 %.
pub(super) fn percent(part: f64) -> String {
    match part * 100.0 {
        percent if percent >= 10.0 => format!("{percent:.0} %"),
        percent => format!("{percent:.1} %"),
    }
}

/// Returns a number of CPUs with its unit.
pub(super) fn cpus(cpus: f64) -> String {
    format!("{cpus:.2} CPUs")
}

/// Returns the name of a method as a pattern: type and name, without parameters.
fn pattern(name: &str) -> String {
    let short = NameStyle::Short.of_method(name);
    // A method of Go has its receiver in brackets: `sort.(*StringSlice).Less`.
    let mut brackets = short.match_indices('(');
    let parameters = brackets.find(|(at, _)| !short[..*at].ends_with('.'));
    let plain = parameters.map_or(&*short, |(at, _)| &short[..at]);
    // As it is in the stacks. It must not look like an option.
    folded(plain).trim_start_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_names_without_parameters() {
        for (name, expected) in [
            ("Shop.Cart.Add(int)", "Cart.Add"),
            ("hash_block(char*)", "hash_block"),
            ("sort.(*StringSlice).Less", "sort.(*StringSlice).Less"),
            ("main.(*Server).serve(int)", "main.(*Server).serve"),
            ("app::hash::<[u8; 32]>", "app::hash::<[u8: 32]>"),
            ("-method", "method"),
        ] {
            assert_eq!(pattern(name), expected);
        }
    }
}
