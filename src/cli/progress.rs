//! Progress of a capture: one line that is rewritten on a terminal, separate lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use super::OneLine;
use crate::capture::Progress;

/// Interval of separate lines.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of updates on a terminal.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(200);

/// Prints to standard error: standard output may belong to a command.
pub(super) enum Reporter {
    Quiet,
    /// Prints messages, but no progress.
    Brief,
    Terminal {
        next: Duration,
    },
    Plain {
        next: Duration,
    },
}

impl Reporter {
    pub(super) fn new(quiet: bool) -> Self {
        if quiet {
            Self::Quiet
        } else if std::io::stderr().is_terminal() {
            Self::Terminal {
                next: Duration::ZERO,
            }
        } else {
            Self::Plain {
                next: PLAIN_INTERVAL,
            }
        }
    }

    /// Prints a message on a separate line.
    pub(super) fn say(&self, text: &str) {
        if !matches!(self, Self::Quiet) {
            print(&format!("{}\n", OneLine(text)));
        }
    }

    /// Prints the progress of a capture.
    pub(super) fn progress(&mut self, progress: &Progress) {
        match self {
            Self::Quiet | Self::Brief => {}
            Self::Terminal { next } if progress.elapsed >= *next => {
                *next = progress.elapsed + TERMINAL_INTERVAL;
                print(&format!("\r  {}\x1b[K", line(progress)));
            }
            Self::Plain { next } if progress.elapsed >= *next => {
                *next = progress.elapsed + PLAIN_INTERVAL;
                print(&format!("{}\n", line(progress)));
            }
            Self::Terminal { .. } | Self::Plain { .. } => {}
        }
    }

    /// Prints the progress of a download, with the total size if it is known.
    pub(super) fn transfer(&self, what: &str, bytes: u64, total: Option<u64>) {
        if let Self::Terminal { .. } = self {
            let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
            let of = total.map_or_else(String::new, |total| format!(" of {}", mib(total)));
            print(&format!(
                "\r  {}: {}{of} MiB\x1b[K",
                OneLine(what),
                mib(bytes)
            ));
        }
    }

    /// Clears the progress line.
    pub(super) fn clear(&self) {
        if matches!(self, Self::Terminal { .. }) {
            print("\r\x1b[K");
        }
    }

    /// Ends the progress line.
    pub(super) fn end(&self) {
        if matches!(self, Self::Terminal { .. }) {
            print("\n");
        }
    }
}

fn line(progress: &Progress) -> String {
    let Progress {
        elapsed,
        samples,
        lost,
        bytes,
        event_bytes,
        waiting_processes,
        rundown_of: _,
    } = progress;
    let kib = bytes.div_ceil(1024);
    let events = match event_bytes.div_ceil(1024) {
        0 => String::new(),
        kib => format!(", events {kib} KiB"),
    };
    let waiting = match waiting_processes {
        0 => String::new(),
        count => format!(", {count} await events"),
    };
    format!(
        "{:.1} s, {samples} samples, {lost} lost, {kib} KiB{events}{waiting}",
        elapsed.as_secs_f64()
    )
}

fn print(text: &str) {
    // A closed standard error must not end the capture.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
