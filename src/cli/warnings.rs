//! Messages that a capture prints once, as soon as their cause appears.

use std::time::Duration;

use crate::capture::Progress;

/// Time for which processes must wait for their event sessions to be worth a message.
const LONG_WAIT: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Warnings {
    has_rundown: bool,
    /// Time since which processes have been waiting for sessions.
    waiting_since: Option<Duration>,
    has_long_wait: bool,
}

impl Warnings {
    /// Returns the message that is due, if any.
    pub(super) fn next(&mut self, progress: &Progress) -> Option<String> {
        self.rundown(progress).or_else(|| self.long_wait(progress))
    }

    fn rundown(&mut self, progress: &Progress) -> Option<String> {
        let pid = progress.rundown_of.filter(|_| !self.has_rundown)?;
        self.has_rundown = true;
        Some(format!(
            "warning: the memory of .NET process {pid} may not be read, so its runtime lists its methods. On .NET 9 and \
             10 this may crash a program that unloads assemblies meanwhile. With CAP_SYS_PTRACE it is not needed."
        ))
    }

    fn long_wait(&mut self, progress: &Progress) -> Option<String> {
        let count = progress.waiting_processes;
        if count == 0 {
            self.waiting_since = None;
            return None;
        }
        let since = *self.waiting_since.get_or_insert(progress.elapsed);
        let is_long = progress.elapsed.saturating_sub(since) >= LONG_WAIT;
        if !is_long || std::mem::replace(&mut self.has_long_wait, true) {
            return None;
        }
        Some(format!(
            ".NET processes that wait for events: {count}. Sessions may take 1 % of the CPUs, which is 10 per CPU at \
             once, then one per CPU every 6 s. Choose some with -pid."
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_a_long_wait_once() {
        let mut warnings = Warnings::default();
        let mut at = |tenths: u64, waiting_processes| {
            let progress = Progress {
                elapsed: Duration::from_millis(tenths * 100),
                samples: 0,
                lost: 0,
                bytes: 0,
                event_bytes: 0,
                waiting_processes,
                rundown_of: None,
            };
            warnings.next(&progress).is_some()
        };
        let crowd = [(0, 7), (5, 3), (6, 0), (11, 9), (20, 9)];
        assert!(
            !crowd
                .into_iter()
                .any(|(tenths, waiting)| at(tenths, waiting))
        );
        assert!(at(21, 8));
        assert!(!at(22, 8) && !at(23, 0) && !at(40, 5) && !at(60, 5));
    }
}
