//! Reading of a report about threads from an archive, which may contain anything.

use serde::Deserialize;

use super::group::{Group, MAX_FRAMES, MAX_NAME_BYTES, MIN_FRAMES, StackFrame, WaitingThread};
use super::report::{FORMAT_VERSION, StackReport};
use crate::capture::MAX_THREADS;
use crate::output::sanitize::truncate;

/// Maximum length of a text that is no name, in bytes.
const MAX_TEXT_BYTES: usize = 4096;
/// Maximum number of notices.
const MAX_NOTICES: usize = 1000;
/// Longest time for which a thread may have waited, in seconds: 300 years.
const MAX_SINCE_S: f64 = 1e10;

/// Reason why a report cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The report is malformed.
    #[error("corrupt: {0}")]
    Corrupt(#[from] serde_json::Error),
    /// A newer perfcollect wrote it.
    #[error(
        "in format {found}, and this perfcollect reads format {FORMAT_VERSION}: use a newer one"
    )]
    Newer {
        /// Format of the report.
        found: u32,
    },
}

impl StackReport {
    /// Reads a report, without what is beyond the limits of perfcollect's own reports.
    ///
    /// # Errors
    /// It is malformed, or has a newer format.
    pub fn read(json: &[u8]) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct Version {
            format_version: u32,
        }
        let Version {
            format_version: found,
        } = serde_json::from_slice(json)?;
        if found > FORMAT_VERSION {
            return Err(ReadError::Newer { found });
        }
        let mut report: Self = serde_json::from_slice(json)?;
        report.bound();
        Ok(report)
    }

    fn bound(&mut self) {
        self.processes.truncate(MAX_THREADS);
        for process in &mut self.processes {
            cut(&mut process.name, MAX_NAME_BYTES);
            cut(&mut process.command_line, MAX_TEXT_BYTES);
        }
        let mut left = MAX_THREADS;
        self.deadlocks.truncate(MAX_THREADS);
        for deadlock in &mut self.deadlocks {
            deadlock.threads.truncate(left);
            left -= deadlock.threads.len();
        }
        self.deadlocks
            .retain(|deadlock| !deadlock.threads.is_empty());
        self.groups.truncate(MAX_THREADS);
        let (mut threads, mut frames) = (MAX_THREADS, MAX_FRAMES + MIN_FRAMES * MAX_THREADS);
        for group in &mut self.groups {
            let Group {
                threads: of_group,
                frames: stack,
                truncated,
                ..
            } = group;
            of_group.truncate(threads);
            threads -= of_group.len();
            of_group.iter_mut().for_each(bound_thread);
            stack.truncate(frames);
            frames -= stack.len();
            for StackFrame { module, name, .. } in stack {
                cut(module, MAX_NAME_BYTES);
                cut(name, MAX_NAME_BYTES);
            }
            truncated
                .iter_mut()
                .for_each(|why| cut(why, MAX_TEXT_BYTES));
        }
        self.groups.retain(|group| !group.threads.is_empty());
        self.notices.truncate(MAX_NOTICES);
        for notice in &mut self.notices {
            for text in [&mut notice.subject, &mut notice.what, &mut notice.remedy] {
                cut(text, MAX_TEXT_BYTES);
            }
        }
    }
}

fn bound_thread(thread: &mut WaitingThread) {
    let WaitingThread {
        name,
        waits_for,
        system_call,
        kernel_function,
        since_s,
        ..
    } = thread;
    cut(name, MAX_NAME_BYTES);
    for text in [waits_for, system_call, kernel_function] {
        text.iter_mut().for_each(|text| cut(text, MAX_TEXT_BYTES));
    }
    *since_s = since_s.filter(|since| (0.0..=MAX_SINCE_S).contains(since));
}

fn cut(text: &mut String, bytes: usize) {
    text.truncate(truncate(text, bytes).len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::Reason;

    /// A report with a thread that does `reason`, in some format.
    fn report(format: u32, reason: &str, name: &str, since: f64) -> String {
        format!(
            r#"{{"format_version":{format},"time":"","processes":[],"deadlocks":[{{"pid":1,"threads":{threads:?}}}],
            "groups":[{{"pid":1,"reason":"{reason}","frames":[],"truncated":null,"threads":[{{"tid":1,
            "namespace_tid":null,"name":"{name}","since_s":{since},"waits_for":"{name}","lock":null,
            "system_call":null,"kernel_function":null,"has_moved":false}}]}}],"omitted_threads":0,"notices":[]}}"#,
            threads = [1; MAX_THREADS + 1],
        )
    }

    #[test]
    fn drops_what_is_beyond_the_limits() {
        let long = "x".repeat(MAX_TEXT_BYTES + 1);
        let read = StackReport::read(report(1, "io", &long, 1e300).as_bytes()).unwrap();
        assert_eq!(read.deadlocks[0].threads.len(), MAX_THREADS);
        let thread = &read.groups[0].threads[0];
        assert_eq!(thread.name.len(), MAX_NAME_BYTES);
        assert_eq!(
            thread.waits_for.as_ref().map(String::len),
            Some(MAX_TEXT_BYTES)
        );
        assert_eq!(thread.since_s, None);
    }

    #[test]
    fn a_newer_format_is_not_read_and_a_newer_reason_is_unknown() {
        let newer = StackReport::read(report(2, "io", "x", 1.0).as_bytes());
        assert!(
            matches!(newer, Err(ReadError::Newer { found: 2 })),
            "{newer:?}"
        );
        let read = StackReport::read(report(1, "new", "x", 1.0).as_bytes()).unwrap();
        assert_eq!(read.groups[0].reason, Reason::Unknown);
    }
}
