//! The threads that a snapshot did not read.

use std::collections::BTreeMap;

use super::MAX_THREADS;
use crate::trace::{Notice, NoticeKind, Pid};

/// Reason why threads were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Threads,
    Time,
    Signal,
}

/// The threads that a snapshot did not read.
#[derive(Clone, Debug, Default)]
pub struct OmittedThreads {
    /// Their number by process.
    pub by_process: BTreeMap<Pid, usize>,
    /// Why the first one was not read.
    limit: Option<Limit>,
}

impl OmittedThreads {
    /// Counts a thread.
    pub(super) fn add(&mut self, pid: Pid, limit: Limit) {
        *self.by_process.entry(pid).or_default() += 1;
        self.limit.get_or_insert(limit);
    }

    /// Returns the number of all.
    #[must_use]
    pub fn count(&self) -> usize {
        self.by_process.values().sum()
    }

    /// Returns a notice about a snapshot at the end of a capture, if there are any.
    pub(in crate::capture) fn notice(&self) -> Option<Notice> {
        let why = match self.limit? {
            Limit::Threads => format!("perfcollect reads {MAX_THREADS} at most"),
            Limit::Time => "reading them took too long".to_owned(),
            Limit::Signal => "a signal ended it".to_owned(),
        };
        let all = self.count();
        let processes = self.by_process.keys().map(ToString::to_string);
        let processes: Vec<String> = processes.take(MAX_LISTED).collect();
        let more = match self.by_process.len() > processes.len() {
            true => ", ...",
            false => "",
        };
        let processes = processes.join(", ");
        let what =
            format!("{all} threads of process {processes}{more} were not read at the end: {why}");
        let remedy = "what they waited for is missing";
        Some(Notice::new(NoticeKind::NoThreadTime, what, remedy).counting(all))
    }
}

/// Maximum number of processes in a notice.
const MAX_LISTED: usize = 5;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_notice_counts_the_threads_of_all_processes() {
        let mut omitted = OmittedThreads::default();
        assert_eq!(omitted.notice(), None);
        for pid in [3, 3, 4, 5, 6, 7, 8] {
            omitted.add(Pid(pid), Limit::Time);
        }
        let notice = omitted.notice().unwrap();
        assert_eq!(notice.count, 7);
        let expected = "7 threads of process 3, 4, 5, 6, 7, ... were not read at the end: \
                        reading them took too long";
        assert_eq!(notice.what, expected);
    }
}
