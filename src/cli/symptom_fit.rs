//! Whether the target of a capture fits the symptom that the capture is for.

use std::time::Duration;

use super::arguments::CollectOptions;
use crate::machine;
use crate::output::duration::duration;
use crate::trace::{Notice, NoticeKind, Pid, Symptom};

/// Age of a process whose start is over.
const STARTED: Duration = Duration::from_secs(10);
/// Maximum number of processes that a notice lists.
const MAX_LISTED: usize = 8;

/// Returns a notice if the processes of a capture, or that it has none, do not fit its symptom.
pub(super) fn unfit(options: &CollectOptions, pids: &[Pid]) -> Option<Notice> {
    match options.symptom? {
        Symptom::Startup => started(pids),
        Symptom::Hang if pids.is_empty() && options.command.is_empty() => Some(Notice::new(
            NoticeKind::SymptomUnfit,
            "-for hang: the stacks at the end, and deadlocks, are those of named processes only",
            "name one with -pid or -n",
        )),
        Symptom::MemoryLeak if pids.is_empty() && options.command.is_empty() => Some(Notice::new(
            NoticeKind::SymptomUnfit,
            "-for memory-leak: resident memory, and so native memory, is that of named processes only",
            "name one with -pid or -n",
        )),
        _ => None,
    }
}

/// Returns a notice about the processes that started long ago.
fn started(pids: &[Pid]) -> Option<Notice> {
    let ages = pids
        .iter()
        .filter_map(|&pid| Some((pid, machine::age(pid)?)));
    let old: Vec<(Pid, Duration)> = ages.filter(|(_, age)| *age >= STARTED).collect();
    let (_, oldest) = old.iter().max_by_key(|(_, age)| *age)?;
    let listed = old.iter().take(MAX_LISTED).map(|(pid, _)| pid.to_string());
    let listed: Vec<String> = listed.collect();
    let (which, ago) = (listed.join(", "), duration(oldest.as_secs_f64()));
    let what = match &old[..] {
        [_] => format!("-for startup: process {which} started {ago} ago, so its start is over"),
        _ => format!(
            "-for startup: processes {which} started long ago, up to {ago}, so their start is over"
        ),
    };
    let remedy = "capture a command from its first instruction: `perfcollect collect NAME -for startup -- COMMAND`";
    let notice = Notice::new(NoticeKind::SymptomUnfit, what, remedy);
    Some(notice.about(which).counting(old.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_started_just_now_fits() {
        assert_eq!(started(&[Pid(std::process::id() as i32)]), None);
        let first = Pid(1);
        if machine::age(first).is_some_and(|age| age >= STARTED) {
            let notice = started(&[first, Pid(0)]).unwrap();
            assert_eq!((&*notice.subject, notice.count), ("1", 1));
        }
    }
}
