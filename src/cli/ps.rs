//! `perfcollect ps`: lists the .NET processes of the machine.

use std::io::{self, IsTerminal};

use serde::Serialize;
use thiserror::Error;

use super::arguments::PsOptions;
use super::{OneLine, print};
use crate::dotnet::diagnostics::{DiagnosticsError, PortError};
use crate::dotnet::{Deployment, DiagnosticStatus, DotnetProcess, list_dotnet_processes};
use crate::machine::ProcError;

/// Width of a table that is not printed to a terminal: lines are not truncated.
const UNLIMITED: usize = usize::MAX;
/// Column separator.
const GAP: &str = "  ";

#[derive(Debug, Error)]
pub(super) enum PsError {
    #[error(transparent)]
    Proc(#[from] ProcError),
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    #[error("cannot write: {0}")]
    Json(#[from] serde_json::Error),
}

pub(super) fn run(options: &PsOptions) -> Result<(), PsError> {
    let processes = list_dotnet_processes()?;
    let rows: Vec<PsRow> = processes.iter().map(PsRow::of).collect();
    let text = if options.json {
        serde_json::to_string_pretty(&rows)? + "\n"
    } else {
        let is_root = rustix::process::geteuid().is_root();
        table(&rows, terminal_width(), is_root)
    };
    Ok(print(text.as_bytes())?)
}

/// A row of the table. The field names are the keys of `ps -json`.
#[derive(Debug, Serialize)]
struct PsRow {
    pid: i32,
    namespace_pid: Option<i32>,
    container: Option<String>,
    version: Option<String>,
    flavour: Deployment,
    diagnostics: &'static str,
    reason: Option<String>,
    command_line: String,
}

impl PsRow {
    fn of(process: &DotnetProcess) -> Self {
        let is_native = process.runtime.flavour == Deployment::NativeAot;
        let (diagnostics, reason) = match &process.reach {
            DiagnosticStatus::Answers => ("ready", None),
            DiagnosticStatus::Suspended => (
                "suspended",
                Some("the runtime is suspended at startup until a tool resumes it; no managed code has run".to_owned()),
            ),
            DiagnosticStatus::NoPort(error) => (
                match error {
                    PortError::SwitchedOff(_) => "off",
                    PortError::Environment(_) | PortError::Root(_) | PortError::Proc(_) => "hidden",
                    _ => "none",
                },
                Some(match error {
                    PortError::NoSocket { .. } if is_native => {
                        "a NativeAOT program has a diagnostic port only if built with EventSourceSupport".to_owned()
                    }
                    error => error.to_string(),
                }),
            ),
            DiagnosticStatus::NotQueried => (
                "not asked",
                Some("too many other diagnostic ports did not respond in time".to_owned()),
            ),
            DiagnosticStatus::NoAnswer(error) => (
                match error {
                    DiagnosticsError::Stopped => "stopped",
                    DiagnosticsError::Squatted { .. } => "foreign",
                    DiagnosticsError::Connect(_) => "refused",
                    _ => "silent",
                },
                Some(error.to_string()),
            ),
        };
        Self {
            pid: process.pid.0,
            namespace_pid: process.namespace_pid.map(|pid| pid.0),
            container: process.container.clone(),
            version: process.runtime.version.clone(),
            flavour: process.runtime.flavour,
            diagnostics,
            reason,
            command_line: String::from_utf8_lossy(&process.command_line).into_owned(),
        }
    }

    fn cells(&self) -> [String; 7] {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let flavour = match self.flavour {
            Deployment::Framework => "framework",
            Deployment::SelfContained => "self-contained",
            Deployment::SingleFile => "single file",
            Deployment::NativeAot => "NativeAOT",
            Deployment::Unknown => "-",
        };
        [
            self.pid.to_string(),
            or_dash(self.namespace_pid.map(|pid| pid.to_string())),
            or_dash(self.container.clone()),
            or_dash(self.version.clone()),
            flavour.to_owned(),
            self.diagnostics.to_owned(),
            self.command_line.clone(),
        ]
        .map(|text| OneLine(&text).to_string())
    }
}

const HEADINGS: [&str; 7] = [
    "PID",
    "NSPID",
    "CONTAINER",
    "VERSION",
    "RUNTIME",
    "DIAGNOSTICS",
    "COMMAND",
];
/// Columns of numbers, which are right-aligned.
const NUMBERS: usize = 2;

/// Formats the table, truncated to `width` characters, then the reasons why diagnostic ports are unavailable.
fn table(rows: &[PsRow], width: usize, is_root: bool) -> String {
    let mut text = String::new();
    if rows.is_empty() {
        text += "No .NET process is running.\n";
    } else {
        let lines: Vec<_> = std::iter::once(HEADINGS.map(str::to_owned))
            .chain(rows.iter().map(PsRow::cells))
            .collect();
        for line in &lines {
            text += &truncated(&aligned(line, &lines), width);
            text.push('\n');
        }
    }
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for row in rows {
        let Some(reason) = row.reason.as_deref() else {
            continue;
        };
        let pid = row.pid.to_string();
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, pids)) => pids.push(pid),
            None => reasons.push((reason, vec![pid])),
        }
    }
    if !reasons.is_empty() {
        text.push('\n');
    }
    for (reason, pids) in reasons {
        text += &format!("{}: {}\n", pids.join(", "), OneLine(reason));
    }
    if !is_root {
        text += "\nProcesses of other users are detected by thread name only. Run as root to see all.\n";
    }
    text
}

fn aligned(cells: &[String; 7], all: &[[String; 7]]) -> String {
    let mut line = String::new();
    for (column, cell) in cells.iter().enumerate() {
        let longest = all.iter().map(|line| line[column].chars().count()).max();
        let blanks = " ".repeat(longest.unwrap_or(0) - cell.chars().count());
        if column < NUMBERS {
            line += &blanks;
        }
        line += cell;
        if column + 1 < cells.len() {
            if column >= NUMBERS {
                line += &blanks;
            }
            line += GAP;
        }
    }
    line
}

fn truncated(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    line.chars().take(width - 1).chain(['…']).collect()
}

fn terminal_width() -> usize {
    let stdout = io::stdout();
    let size = rustix::termios::tcgetwinsize(&stdout).ok();
    size.filter(|size| size.ws_col > 1 && stdout.is_terminal())
        .map_or(UNLIMITED, |size| size.ws_col.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: i32, reason: Option<&str>, command_line: &str) -> PsRow {
        PsRow {
            pid,
            namespace_pid: Some(1),
            container: None,
            version: Some("8.0.4".into()),
            flavour: Deployment::Framework,
            diagnostics: "ready",
            reason: reason.map(str::to_owned),
            command_line: command_line.into(),
        }
    }

    #[test]
    fn aligns_columns_and_truncates_lines() {
        let rows = [
            row(7, None, "dotnet a.dll"),
            row(123_456, Some("it is stopped"), "dotnet\x1b[2Jb\nc"),
            row(9, Some("it is stopped"), "x"),
        ];
        let text = table(&rows, UNLIMITED, true);
        assert_eq!(
            text,
            "   PID  NSPID  CONTAINER  VERSION  RUNTIME    DIAGNOSTICS  COMMAND\n     \
                  7      1  -          8.0.4    framework  ready        dotnet a.dll\n\
             123456      1  -          8.0.4    framework  ready        dotnet\u{fffd}[2Jb\u{fffd}c\n     \
                  9      1  -          8.0.4    framework  ready        x\n\
             \n123456, 9: it is stopped\n"
        );
        let narrow = table(&rows, 40, true);
        assert!(
            narrow
                .lines()
                .take(4)
                .all(|line| line.chars().count() <= 40)
        );
        assert!(narrow.contains("123456, 9: it is stopped"));
    }

    #[test]
    fn reports_an_empty_list() {
        assert_eq!(table(&[], 80, true), "No .NET process is running.\n");
        assert!(table(&[], 80, false).contains("Run as root"));
    }
}
