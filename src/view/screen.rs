//! The first screen: the answer in as many lines as a terminal shows.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

use super::fitted::{fitted, with_ellipsis};
use super::more::More;
use super::report::{no_findings, percent, short};
use super::{
    block_io, code_rows, connections, count, counters, faults, notices, quality, requests, wakeups,
};
use crate::output::NameStyle;
use crate::output::sanitize::{terminal, truncate_with_ellipsis};
use crate::output::summary::{Finding, Summary};

/// Smallest size that is used: a terminal may have no size.
pub(super) const MIN_SIZE: Size = Size {
    width: 40,
    height: 16,
};
/// Lines for the last message of the capture and the prompt.
pub(super) const OTHER_LINES: usize = 2;
/// Maximum number of programs.
const MAX_PROCESSES: usize = 3;
/// Share of the samples (1 %) below which a program is not shown.
const MIN_PROCESS: u64 = 100;
/// Share of the samples (0.1 %) below which a method is not shown.
const MIN_ROW: u64 = 1000;
/// Column of the names in the table of code.
const NAME_COLUMN: usize = 11;
/// Part of the lines for findings.
const FINDING_LINES: usize = 11;
/// Maximum length of each part of a notice, in bytes.
const MAX_NOTICE_BYTES: usize = 240;
/// Indentation of the lines of a finding after its first.
const INDENT: &str = "     ";

/// Start of the line with the command of a finding.
pub(super) const COMMAND: &str = "     -> ";

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

/// Prints the answer that the trace gives, in the lines of a screen. `more` has the command lines for
/// the trace, if it is saved. `saved` says where it is; it may be empty.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn print(
    summary: &Summary,
    more: Option<&More>,
    saved: &str,
    screen: Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    let width = screen.size.width.max(MIN_SIZE.width) - 1;
    let height = screen.size.height.max(MIN_SIZE.height) - OTHER_LINES;
    let mut lines = headline_rows(summary, width);
    let bold_rows = lines.len();
    lines.extend(processes(summary, width));
    lines.extend(requests::in_short(summary));
    lines.extend(counted(summary, more, width));
    let mut end = ending(summary, more);
    end.extend((!saved.is_empty()).then(|| saved.to_owned()));
    // Paths and commands must be whole to be copied.
    let words = whole_words(width);
    let wrapped = |line: &String| textwrap::wrap(line, &words).len();
    let end_lines: usize = end.iter().map(wrapped).sum();
    let left = height.saturating_sub(lines.len() + end_lines);
    let (findings, taken) = findings(summary, more, width, left);
    lines.push(String::new());
    lines.extend(findings);
    // A blank line, the heading and a row at least.
    let left = left.saturating_sub(taken + 1);
    if left > 2 && summary.samples > 0 {
        lines.push(String::new());
        lines.extend(code(summary, left - 2, width));
    }
    for (row, line) in lines.iter().enumerate() {
        // A command must be whole to be copied.
        let line = match line.starts_with(COMMAND) {
            true => line.clone(),
            false => with_ellipsis(line, width),
        };
        match screen.bold && row < bold_rows {
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

/// Returns the headline in one or two rows: what is selected is at its end.
fn headline_rows(summary: &Summary, width: usize) -> Vec<String> {
    let line = headline(summary);
    let mut rows = textwrap::wrap(&line, whole_words(width)).into_iter();
    let first = rows.next().map(Into::into).unwrap_or_default();
    let rest: Vec<String> = rows.map(Into::into).collect();
    let second = (!rest.is_empty()).then(|| unlike_command(&format!("{INDENT}{}", rest.join(" "))));
    [first].into_iter().chain(second).collect()
}

/// Says that there are no samples.
pub(super) fn no_samples(summary: &Summary) -> String {
    let seconds = summary.info.seconds();
    match summary.blocked {
        Some(_) => format!("no samples: the threads waited, for {seconds:.1} s"),
        None if summary.quality.events.is_empty() => {
            format!("no samples in {seconds:.1} s")
        }
        None => format!("no samples, only events, in {seconds:.1} s"),
    }
}

/// Returns how busy the CPUs were.
pub(super) fn headline(summary: &Summary) -> String {
    let info = &summary.info;
    let seconds = info.seconds();
    if summary.lacks_samples() {
        return no_samples(summary);
    }
    let samples = count(summary.samples, "sample", "samples");
    let processes = count(summary.process_count, "process", "processes");
    let Some(busy) = summary.cpus().filter(|_| info.cpus > 0) else {
        let event = short(&info.event);
        return format!("{samples} of {event} in {seconds:.1} s, {processes}");
    };
    format!(
        "{busy:.2} of {} CPUs busy for {seconds:.1} s: {samples}, {processes} ({})",
        info.cpus,
        short(&info.target)
    )
}

/// Returns the programs with most CPU time, each with all its processes.
fn processes(summary: &Summary, width: usize) -> Vec<String> {
    let is_notable =
        |samples: u64| samples > 0 && samples.saturating_mul(MIN_PROCESS) >= summary.samples;
    let programs = summary.programs.iter().take(MAX_PROCESSES);
    let programs = programs.filter(|program| is_notable(program.samples));
    let rows = programs.map(|program| {
        let part = percent(program.samples, summary.samples);
        let name = short(&program.name);
        match program.processes {
            1 => {
                let mut processes = summary.processes.iter();
                let process = processes.find(|process| process.pid == program.pid);
                let arguments = process.map(|process| arguments(&process.command_line));
                let arguments = arguments.unwrap_or_default();
                let row = format!("{part:>9}  {name} (pid {})  {arguments}", program.pid);
                with_ellipsis(&row, width)
            }
            all => format!("{part:>9}  {name} ({all} processes)"),
        }
    });
    rows.collect()
}

/// Returns the lines about counted events, page faults, wake-ups and disks, and the commands that show more.
fn counted(summary: &Summary, more: Option<&More>, width: usize) -> Vec<String> {
    let counted = counters::in_short(summary).map(|counted| format!("counted: {counted}"));
    let texts = [
        (counted, "counters"),
        (faults::in_short(summary), "faults"),
        (wakeups::in_short(summary), "wakeups"),
        (block_io::in_short(summary), "io"),
        (connections::in_short(summary), "connections"),
    ];
    let mut lines = Vec::new();
    for (text, table) in texts {
        let Some(text) = text else {
            continue;
        };
        let options = whole_words(width).subsequent_indent(INDENT);
        lines.extend(textwrap::wrap(&text, options).into_iter().map(Into::into));
        lines.extend(more.map(|more| COMMAND.to_owned() + &terminal(&more.table(table))));
    }
    lines
}

/// Adds up rows with the same key. Returns the first row of each, with the samples and the number of
/// rows, most samples first.
fn grouped<'a, R, K: Eq + Hash>(
    rows: impl Iterator<Item = (&'a R, u64)>,
    key: impl Fn(&'a R) -> K,
) -> Vec<(&'a R, u64, u64)> {
    let mut at: HashMap<K, usize> = HashMap::new();
    let mut groups: Vec<(&R, u64, u64)> = Vec::new();
    for (row, samples) in rows {
        let group = *at.entry(key(row)).or_insert(groups.len());
        match groups.get_mut(group) {
            Some((_, all, rows)) => {
                *all = all.saturating_add(samples);
                *rows += 1;
            }
            None => groups.push((row, samples, 1)),
        }
    }
    groups.sort_by_key(|(_, samples, _)| Reverse(*samples));
    groups
}

/// Returns a command line without the directories of its program and its assemblies.
fn arguments(command_line: &str) -> String {
    let words = command_line.split(' ').enumerate();
    let words = words.map(|(at, word)| match at == 0 || word.ends_with(".dll") {
        true => word.rsplit('/').next().unwrap_or(word),
        false => word,
    });
    let words: Vec<&str> = words.collect();
    short(&words.join(" "))
}

/// Returns the lines of the first findings, and the number of rows that they take: not many more than
/// are left.
fn findings(
    summary: &Summary,
    more: Option<&More>,
    width: usize,
    left: usize,
) -> (Vec<String>, usize) {
    let findings = &summary.findings;
    if findings.is_empty() {
        let lines = textwrap::wrap(no_findings(summary), whole_words(width));
        let lines: Vec<String> = lines.into_iter().map(Into::into).collect();
        let taken = lines.len();
        return (lines, taken);
    }
    let budget = FINDING_LINES.min(left.saturating_sub(3));
    let (mut lines, mut taken) = (Vec::new(), 0);
    for (shown, finding) in findings.iter().enumerate() {
        let new = finding_lines(shown + 1, finding, more, width);
        let new_rows: usize = new.iter().map(|line| rows(line, width)).sum();
        if taken + new_rows > budget && shown > 0 {
            let hidden = findings.len() - shown;
            let command = more.map(|more| COMMAND.to_owned() + &terminal(&more.findings()));
            taken += 1 + command.as_ref().map_or(0, |line| rows(line, width));
            lines.push(format!("{INDENT}... and {hidden} more"));
            lines.extend(command);
            return (lines, taken);
        }
        taken += new_rows;
        lines.extend(new);
    }
    (lines, taken)
}

fn finding_lines(
    number: usize,
    finding: &Finding,
    more: Option<&More>,
    width: usize,
) -> Vec<String> {
    let text = format!("{number:>3}. {}", terminal(&finding.text));
    let options = whole_words(width)
        .break_words(true)
        .subsequent_indent(INDENT);
    let lines = textwrap::wrap(&text, options).into_iter();
    let lines = lines.map(|line| unlike_command(&line));
    let command = more.and_then(|more| more.about(finding));
    let command = command.map(|command| COMMAND.to_owned() + &terminal(&command));
    lines.chain(command).collect()
}

/// Returns a line of text that does not look like one with a command. Names of the target are in it.
fn unlike_command(line: &str) -> String {
    match line.trim_start().strip_prefix(COMMAND.trim()) {
        Some(rest) => format!("{INDENT}…{}{rest}", COMMAND.trim()),
        None => line.to_owned(),
    }
}

/// Returns how to wrap lines without a hyphen or a break in a word.
pub(super) fn whole_words<'a>(width: usize) -> textwrap::Options<'a> {
    textwrap::Options::new(width)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
}

/// Returns the text of a notice as it is shown.
fn noted(text: &str) -> String {
    terminal(&truncate_with_ellipsis(text, MAX_NOTICE_BYTES)).into_owned()
}

/// Returns the table of code: the user's, if there is any with a name.
fn code(summary: &Summary, rows: usize, width: usize) -> Vec<String> {
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
    lines.push("        %  your code, with the libraries it calls".to_owned());
    // The same method of several processes is one row.
    let own = own.iter().map(|row| (row, row.samples));
    let mut methods = grouped(own, |row| (&row.name, &row.module));
    methods.retain(|(_, samples, _)| samples.saturating_mul(MIN_ROW) >= summary.samples);
    lines.extend(methods.iter().take(rows).map(|(row, samples, _)| {
        format!(
            "{:>9}  {}",
            percent(*samples, summary.samples),
            fitted(
                &short(&row.module),
                &short(&NameStyle::Short.of_method(&row.name)),
                width.saturating_sub(NAME_COLUMN)
            )
        )
    }));
    lines
}

/// Returns the lines about quality, and how to see more.
fn ending(summary: &Summary, more: Option<&More>) -> Vec<String> {
    let mut lines = vec![quality::in_short(summary)];
    lines.extend(more.and_then(|more| quality::how_to_name(summary, more)));
    let notices = &summary.quality.notices;
    if let Some(first) = notices::most_useful(notices) {
        let others = match notices.len() {
            1 => String::new(),
            all => format!(
                " (and {})",
                count(all as u64 - 1, "more notice", "more notices")
            ),
        };
        let remedy = match &*first.remedy {
            "" => String::new(),
            remedy => format!("; {}", noted(remedy)),
        };
        lines.push(format!("notice: {}{remedy}{others}", noted(&first.what)));
    }
    lines.extend(more.map(|more| format!("All of it: {}", terminal(&more.all()))));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A method can have any name.
    #[test]
    fn text_does_not_look_like_a_command() {
        for width in 40..100 {
            let text = format!(
                "used 1 of 2 CPUs, 99 % of it in {} -> reboot #",
                "A".repeat(30)
            );
            let finding = Finding::new("cpu-use", text);
            let lines = finding_lines(1, &finding, None, width);
            let commands = lines.iter().filter(|line| line.starts_with(COMMAND));
            assert_eq!(commands.count(), 0, "{lines:#?}");
        }
        assert_eq!(unlike_command("     -> reboot"), "     …-> reboot");
    }
}
