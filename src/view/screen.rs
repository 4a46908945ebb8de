//! The first screen: the answer in as many lines as a terminal shows.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::path::Path;

use super::report::{self, percent, short};
use super::{code_rows, count};
use crate::output::NameStyle;
use crate::output::sanitize::{shell_word, terminal};
use crate::output::summary::{Finding, ProcessSummary, REPORT, Share, Summary, TRACE};

/// Smallest size that is used: a terminal may have no size.
const MIN_SIZE: Size = Size {
    width: 40,
    height: 16,
};
/// Lines for the last message of the capture and the prompt.
const OTHER_LINES: usize = 2;
/// Maximum number of programs.
const MAX_PROCESSES: usize = 3;
/// Share of the samples (1 %) below which a program is not shown.
const MIN_PROCESS: u64 = 100;
/// Share of the samples (0.1 %) below which a method is not shown.
const MIN_ROW: u64 = 1000;
/// Part of the lines for findings.
const FINDING_LINES: usize = 11;
/// Indentation of the lines of a finding after its first.
const INDENT: &str = "     ";

/// Start of the line with the command of a finding.
const COMMAND: &str = "     -> ";

/// Size of a terminal, in characters.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Columns.
    pub width: usize,
    /// Lines.
    pub height: usize,
}

/// A terminal that shows a report.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Its size.
    pub size: Size,
    /// Whether it shows bold text.
    pub bold: bool,
}

/// Prints the answer that the trace gives, in the lines of a screen. `saved` says where the trace is;
/// it may be empty.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn print(
    summary: &Summary,
    trace: Option<&Path>,
    saved: &str,
    screen: Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    let width = screen.size.width.max(MIN_SIZE.width) - 1;
    let height = screen.size.height.max(MIN_SIZE.height) - OTHER_LINES;
    let mut lines = vec![headline(summary)];
    lines.extend(processes(summary, width));
    let trace = trace.map(|path| shell_word(&path.to_string_lossy()));
    let mut end = ending(summary, trace.as_deref());
    end.extend((!saved.is_empty()).then(|| saved.to_owned()));
    // Paths and commands must be whole to be copied.
    let words = textwrap::Options::new(width)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    let wrapped = |line: &String| textwrap::wrap(line, &words).len();
    let end_lines: usize = end.iter().map(wrapped).sum();
    let mut left = height.saturating_sub(lines.len() + end_lines);
    let findings = findings(&summary.findings, trace.as_deref(), width);
    if !findings.is_empty() {
        lines.push(String::new());
        left = left.saturating_sub(1);
    }
    if findings.is_empty() {
        lines.extend([
            String::new(),
            "No findings: nothing exceeds a threshold.".to_owned(),
        ]);
        left = left.saturating_sub(2);
    }
    let budget = FINDING_LINES.min(left.saturating_sub(1));
    let mut shown = 0;
    let mut used = 0;
    for finding in &findings {
        let rows: usize = finding.iter().map(|line| rows(line, width)).sum();
        if used + rows > budget && shown > 0 {
            break;
        }
        used += rows;
        shown += 1;
        lines.extend(finding.iter().cloned());
    }
    if shown < findings.len() {
        lines.push(format!("     ... and {} more", findings.len() - shown));
        used += 1;
    }
    left = left.saturating_sub(used);
    // A blank line, the heading and a row at least.
    if left > 2 && summary.samples > 0 {
        lines.push(String::new());
        lines.extend(code(summary, left - 2));
    }
    for (row, line) in lines.iter().enumerate() {
        // A command must be whole to be copied.
        let line = match line.starts_with(COMMAND) {
            true => line.clone(),
            false => cut(line, width),
        };
        match screen.bold && row == 0 {
            true => writeln!(out, "\x1b[1m{line}\x1b[0m")?,
            false => writeln!(out, "{line}")?,
        }
    }
    for line in end {
        for part in textwrap::wrap(&line, &words) {
            writeln!(out, "{part}")?;
        }
    }
    Ok(())
}

/// Returns the number of rows that a line takes.
fn rows(line: &str, width: usize) -> usize {
    textwrap::core::display_width(line).div_ceil(width).max(1)
}

/// Cuts a line at the width of the screen.
fn cut(line: &str, width: usize) -> String {
    let mut taken = 0;
    let fits = |c: &char| {
        taken += textwrap::core::display_width(c.encode_utf8(&mut [0; 4]));
        taken <= width
    };
    line.chars().take_while(fits).collect()
}

/// Returns how busy the CPUs were.
fn headline(summary: &Summary) -> String {
    let info = &summary.info;
    let seconds = info.end_ns.saturating_sub(info.start_ns) as f64 / 1e9;
    if summary.has_only_events() {
        return format!("no samples, only events, in {seconds:.1} s");
    }
    let samples = count(summary.samples, "sample", "samples");
    let processes = count(summary.process_count, "process", "processes");
    if !info.counts_time() || info.cpus == 0 || seconds == 0.0 {
        let event = short(&info.event);
        return format!("{samples} of {event} in {seconds:.1} s, {processes}");
    }
    let busy = summary.cpu_ms / 1e3 / seconds;
    format!(
        "{busy:.2} of {} CPUs busy for {seconds:.1} s: {samples}, {processes} ({})",
        info.cpus,
        short(&info.target)
    )
}

/// Returns the programs with most CPU time, each with all its processes.
fn processes(summary: &Summary, width: usize) -> Vec<String> {
    let mut programs: Vec<(&ProcessSummary, u64, u64)> = Vec::new();
    for process in &summary.processes {
        let mut rows = programs.iter_mut();
        let name = process.program();
        match rows.find(|(first, ..)| first.program() == name) {
            Some((_, samples, processes)) => {
                *samples = samples.saturating_add(process.samples);
                *processes += 1;
            }
            None => programs.push((process, process.samples, 1)),
        }
    }
    programs.sort_by_key(|(_, samples, _)| Reverse(*samples));
    let is_notable =
        |samples: u64| samples > 0 && samples.saturating_mul(MIN_PROCESS) >= summary.samples;
    let programs = programs.iter().take(MAX_PROCESSES);
    let programs = programs.filter(|(_, samples, _)| is_notable(*samples));
    let rows = programs.map(|(process, samples, processes)| {
        let part = percent(*samples, summary.samples);
        let name = short(process.program());
        match processes {
            1 => {
                let arguments = arguments(&process.command_line);
                let row = format!("{part:>9}  {name} (pid {})  {arguments}", process.pid);
                with_ellipsis(&row, width)
            }
            all => format!("{part:>9}  {name} ({all} processes)"),
        }
    });
    rows.collect()
}

/// Returns a command line without the directory of its program.
fn arguments(command_line: &str) -> String {
    let (program, rest) = match command_line.split_once(' ') {
        Some((program, rest)) => (program, rest),
        None => (command_line, ""),
    };
    let file = program.rsplit('/').next().unwrap_or(program);
    short(format!("{file} {rest}").trim_end())
}

/// Cuts a line at the width of the screen, with a sign that there is more.
fn with_ellipsis(line: &str, width: usize) -> String {
    match textwrap::core::display_width(line) <= width {
        true => line.to_owned(),
        false => cut(line, width - 1) + "…",
    }
}

/// Returns the lines of each finding.
fn findings(findings: &[Finding], trace: Option<&str>, width: usize) -> Vec<Vec<String>> {
    let numbered = (1..).zip(findings);
    let lines = numbered.map(|(number, finding)| {
        let text = format!("{number:>3}. {}", terminal(&finding.text));
        let options = textwrap::Options::new(width)
            .word_splitter(textwrap::WordSplitter::NoHyphenation)
            .subsequent_indent(INDENT);
        let lines = textwrap::wrap(&text, options).into_iter();
        let mut lines: Vec<String> = lines.map(Into::into).collect();
        if let Some(command) = command(finding, trace) {
            lines.push(format!("{COMMAND}{}", terminal(&command)));
        }
        lines
    });
    lines.collect()
}

/// Returns the command line that shows more about a finding than the report.
pub(super) fn command(finding: &Finding, trace: Option<&str>) -> Option<String> {
    let trace = trace.filter(|_| finding.command != REPORT)?;
    let words = finding.command.iter().map(|word| match &**word {
        TRACE => trace.to_owned(),
        word => shell_word(word),
    });
    let words: Vec<String> = words.collect();
    Some(format!("perfcollect {}", words.join(" ")))
}

/// Returns the table of code: the user's, if there is any with a name.
fn code(summary: &Summary, rows: usize) -> Vec<String> {
    let own = &summary.shares.own_methods;
    let mut lines = Vec::new();
    if own.is_empty() {
        lines.push("   self %  total %  code".to_owned());
        let code = code_rows::of(summary, false);
        lines.extend(code.iter().take(rows).map(|row| {
            format!(
                "{:>9}{:>9}  {}",
                percent(row.self_samples, summary.samples),
                percent(row.total_samples, summary.samples),
                row.name
            )
        }));
        return lines;
    }
    lines.push("        %  your code, with what it calls".to_owned());
    // The same method of several processes is one row.
    let mut methods: Vec<(&Share, u64)> = Vec::new();
    for row in own {
        let is_same = |other: &&Share| (&other.name, &other.module) == (&row.name, &row.module);
        let mut rows = methods.iter_mut();
        match rows.find(|(first, _)| is_same(first)) {
            Some((_, samples)) => *samples = samples.saturating_add(row.samples),
            None => methods.push((row, row.samples)),
        }
    }
    methods.sort_by_key(|(_, samples)| Reverse(*samples));
    methods.retain(|(_, samples)| samples.saturating_mul(MIN_ROW) >= summary.samples);
    lines.extend(methods.iter().take(rows).map(|(row, samples)| {
        format!(
            "{:>9}  {}!{}",
            percent(*samples, summary.samples),
            short(&row.module),
            short(&NameStyle::Short.of_method(&row.name))
        )
    }));
    lines
}

/// Returns the lines about quality, and how to see more.
fn ending(summary: &Summary, trace: Option<&str>) -> Vec<String> {
    let mut lines = vec![report::quality_in_short(summary)];
    let notices = &summary.quality.notices;
    if let Some(first) = notices.first() {
        let more = match notices.len() {
            1 => String::new(),
            all => format!(
                " (and {})",
                count(all as u64 - 1, "more notice", "more notices")
            ),
        };
        lines.push(format!("notice: {}{more}", short(&first.what)));
    }
    if let Some(trace) = trace {
        lines.push(format!(
            "All of it: perfcollect view -full {}",
            terminal(trace)
        ));
    }
    lines
}
