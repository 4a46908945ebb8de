//! The first screen: the answer in as many lines as a terminal shows.

use std::io::{self, Write};
use std::path::Path;

use super::report::{self, percent, short};
use super::{code_rows, count};
use crate::output::sanitize::{shell_word, terminal};
use crate::output::summary::{Finding, REPORT, Summary};

/// Smallest size that is used: a terminal may have no size.
const MIN_SIZE: Size = Size {
    width: 40,
    height: 16,
};
/// Lines that are there already: the capture's own, and the prompt.
const OTHER_LINES: usize = 4;
/// Maximum number of processes.
const MAX_PROCESSES: usize = 3;
/// Share of the samples (1 %) below which a process is not shown.
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

/// Prints the answer that the trace gives, in the lines of a screen.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn print(
    summary: &Summary,
    trace: Option<&Path>,
    screen: Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    let width = screen.size.width.max(MIN_SIZE.width) - 1;
    let height = screen.size.height.max(MIN_SIZE.height) - OTHER_LINES;
    let mut lines = vec![headline(summary)];
    lines.extend(processes(summary));
    let trace = trace.map(|path| shell_word(&path.to_string_lossy()));
    let end = ending(summary, trace.as_deref());
    let wrapped = |line: &String| textwrap::wrap(line, width).len();
    let end_lines: usize = end.iter().map(wrapped).sum();
    let mut left = height.saturating_sub(lines.len() + end_lines);
    let findings = findings(&summary.findings, trace.as_deref(), width);
    if !findings.is_empty() {
        lines.push(String::new());
        left = left.saturating_sub(1);
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
    if left > 2 {
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
        for part in textwrap::wrap(&line, width) {
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

/// Returns the processes with most CPU time.
fn processes(summary: &Summary) -> Vec<String> {
    let is_notable = |samples: u64| samples.saturating_mul(MIN_PROCESS) >= summary.samples;
    let processes = summary.processes.iter().take(MAX_PROCESSES);
    let processes = processes.filter(|process| is_notable(process.samples));
    let rows = processes.map(|process| {
        format!(
            "{:>9}  {} (pid {})  {}",
            percent(process.samples, summary.samples),
            short(process.program()),
            process.pid,
            short(&process.command_line)
        )
    });
    rows.collect()
}

/// Returns the lines of each finding.
fn findings(findings: &[Finding], trace: Option<&str>, width: usize) -> Vec<Vec<String>> {
    let numbered = (1..).zip(findings);
    let lines = numbered.map(|(number, finding)| {
        let text = format!("{number:>3}. {}", terminal(&finding.text));
        let options = textwrap::Options::new(width).subsequent_indent(INDENT);
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
    let arguments = Some(&*finding.command).filter(|arguments| *arguments != REPORT)?;
    Some(format!(
        "perfcollect {}",
        arguments.replacen("TRACE", trace?, 1)
    ))
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
    let is_notable = |samples: u64| samples.saturating_mul(MIN_ROW) >= summary.samples;
    let own = own.iter().filter(|row| is_notable(row.samples));
    lines.extend(own.take(rows).map(|row| {
        format!(
            "{:>9}  {}!{}",
            percent(row.samples, summary.samples),
            short(&row.module),
            short(&row.name)
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
