//! Progress of a capture: one line that is rewritten on a terminal, separate lines elsewhere.

use std::fs::File;
use std::io::{IsTerminal, Seek};
use std::time::{Duration, Instant};

use super::meanwhile::meanwhile;
use super::{OneLine, print_error};
use crate::capture::Progress;

/// Interval of separate lines.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of updates on a terminal.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of lines about the work after a capture, which takes seconds.
const WORK_INTERVAL: Duration = Duration::from_millis(900);
/// Start of such a line in the messages of a background capture, from which `stop` shows the last.
///
/// The output of a command in the same file does not start like this.
pub(super) const WORK: &str = "\u{1}progress: ";

/// How much of some work is done, from 0 to 1, if it is known.
pub(super) type Done<'a> = &'a (dyn Fn() -> Option<f64> + Sync);

/// Prints to standard error: standard output may belong to a command.
pub(super) enum Reporter {
    Quiet,
    /// Prints messages, and the progress of the work after the capture for `stop`.
    Background,
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
            print_error(&format!("{}\n", OneLine(text)));
        }
    }

    /// Prints the progress of a capture.
    pub(super) fn progress(&mut self, progress: &Progress) {
        match self {
            Self::Quiet | Self::Background => {}
            Self::Terminal { next } if progress.elapsed >= *next => {
                *next = progress.elapsed + TERMINAL_INTERVAL;
                print_error(&format!("\r  {}\x1b[K", line(progress)));
            }
            Self::Plain { next } if progress.elapsed >= *next => {
                *next = progress.elapsed + PLAIN_INTERVAL;
                print_error(&format!("{}\n", line(progress)));
            }
            Self::Terminal { .. } | Self::Plain { .. } => {}
        }
    }

    /// Does some work and prints its progress meanwhile.
    pub(super) fn during<T>(&self, what: &str, done: Done<'_>, work: impl FnOnce() -> T) -> T {
        let interval = match self {
            Self::Quiet => return work(),
            Self::Terminal { .. } => TERMINAL_INTERVAL,
            Self::Background | Self::Plain { .. } => WORK_INTERVAL,
        };
        let start = Instant::now();
        let status = || self.status(&work_line(what, start.elapsed(), done()));
        let result = meanwhile(interval, status, work);
        self.clear();
        result
    }

    /// Prints a line that the next one replaces on a terminal.
    pub(super) fn status(&self, line: &str) {
        let line = OneLine(line);
        match self {
            Self::Quiet => {}
            // The output of a command may end within a line.
            Self::Background => print_error(&format!("\n{WORK}{line}\n")),
            Self::Terminal { .. } => print_error(&format!("\r  {line}\x1b[K")),
            Self::Plain { .. } => print_error(&format!("{line}\n")),
        }
    }

    /// Prints the progress of a download, with the total size if it is known.
    pub(super) fn transfer(&self, what: &str, bytes: u64, total: Option<u64>) {
        if let Self::Terminal { .. } = self {
            let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
            let of = total.map_or_else(String::new, |total| format!(" of {}", mib(total)));
            print_error(&format!(
                "\r  {}: {}{of} MiB\x1b[K",
                OneLine(what),
                mib(bytes)
            ));
        }
    }

    /// Clears the progress line.
    pub(super) fn clear(&self) {
        if matches!(self, Self::Terminal { .. }) {
            print_error("\r\x1b[K");
        }
    }

    /// Ends the progress line.
    pub(super) fn end(&self) {
        if matches!(self, Self::Terminal { .. }) {
            print_error("\n");
        }
    }
}

/// Returns how much of a file its other handles have read, if it has a size.
pub(super) fn fraction_read(mut file: &File) -> Option<f64> {
    let size = file.metadata().ok()?.len();
    let at = file.stream_position().ok()?;
    (size > 0).then(|| at as f64 / size as f64)
}

/// Returns the progress of some work, with the time left if it can be estimated.
fn work_line(what: &str, elapsed: Duration, done: Option<f64>) -> String {
    let seconds = elapsed.as_secs_f64();
    match done.map(|done| done.clamp(0.0, 0.99)) {
        Some(done) if (0.01..0.99).contains(&done) => {
            let left = seconds * (1.0 - done) / done;
            format!("{what}: {:.0} %, {left:.0} s left", done * 100.0)
        }
        Some(done) if done >= 0.99 => format!("{what}: {:.0} %", done * 100.0),
        _ => format!("{what}: {seconds:.0} s"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_has_a_percentage_and_the_time_left_if_known() {
        let line = |done| work_line("Writing", Duration::from_secs(3), done);
        assert_eq!(line(None), "Writing: 3 s");
        assert_eq!(line(Some(0.0)), "Writing: 3 s");
        assert_eq!(line(Some(0.25)), "Writing: 25 %, 9 s left");
        assert_eq!(line(Some(1.7)), "Writing: 99 %");
    }
}
