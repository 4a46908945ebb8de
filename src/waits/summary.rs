//! What a summary keeps of a report about threads.

use super::group::{Group, StackFrame};
use super::reason::Reason;
use super::report::StackReport;
use crate::output::summary::{
    BlockedGroup, BlockedProcess, BlockedSummary, DeadlockRow, MAX_DEADLOCKED, MAX_DEADLOCKS,
    MAX_GROUPS, MAX_TIDS, program_of,
};
use crate::output::variant_name;

/// Returns the summary of a report made when a capture of so many seconds ended.
#[must_use]
pub fn summarize(report: &StackReport, seconds: f64) -> BlockedSummary {
    let processes = report.processes.iter().map(|process| {
        let groups = report.groups.iter().filter(|row| row.pid == process.pid);
        let mut row = BlockedProcess {
            pid: process.pid,
            name: program_of(&process.name, &process.command_line).to_owned(),
            threads: process.threads as u64,
            ..BlockedProcess::default()
        };
        for group in groups {
            let threads = group.threads.len() as u64;
            match group.reason {
                Reason::Runs => row.running += threads,
                Reason::Lock => row.locked += threads,
                Reason::Idle => row.idle += threads,
                _ => {}
            }
            let since = group.threads.iter().filter_map(|thread| thread.since_s);
            let always = since.filter(|since| *since >= seconds);
            row.always_waiting += always.count() as u64;
        }
        row
    });
    let deadlocks = report.deadlocks.iter().take(MAX_DEADLOCKS);
    let deadlocks = deadlocks.map(|deadlock| {
        let shown = deadlock.threads.iter().take(MAX_DEADLOCKED);
        let method = |tid: &i32| {
            let found = report.thread(*tid);
            let own = found.and_then(|(group, _)| own(group));
            own.map_or_else(String::new, |frame| frame.name.clone())
        };
        DeadlockRow {
            pid: deadlock.pid,
            threads: deadlock.threads.len() as u64,
            tids: shown.clone().copied().collect(),
            methods: shown.map(method).collect(),
        }
    });
    BlockedSummary {
        processes: processes.collect(),
        deadlocks: deadlocks.collect(),
        groups: report.groups.iter().take(MAX_GROUPS).map(row).collect(),
        group_count: report.groups.len() as u64,
        omitted_threads: report.omitted_threads as u64,
    }
}

/// Returns the innermost function of the user.
fn own(group: &Group) -> Option<&StackFrame> {
    group.frames.iter().find(|frame| frame.own)
}

fn row(group: &Group) -> BlockedGroup {
    let threads = &group.threads;
    let first = threads.first();
    let frame = own(group).or(group.frames.first());
    let times = threads.iter().filter_map(|thread| thread.since_s);
    let since_s = times.fold(None, |range: Option<[f64; 2]>, time| {
        let [least, most] = range.unwrap_or([time, time]);
        Some([least.min(time), most.max(time)])
    });
    BlockedGroup {
        pid: group.pid,
        reason: variant_name(group.reason),
        words: group.reason.words(threads.len()).to_owned(),
        threads: threads.len() as u64,
        tids: threads.iter().take(MAX_TIDS).map(|one| one.tid).collect(),
        name: first.map_or_else(String::new, |one| one.name.clone()),
        module: frame.map_or_else(String::new, |frame| frame.module.clone()),
        method: frame.map_or_else(String::new, |frame| frame.name.clone()),
        own: frame.is_some_and(|frame| frame.own),
        waits_for: first
            .and_then(|one| one.waits_for.clone())
            .unwrap_or_default(),
        owner: first.and_then(|one| one.lock?.owner),
        since_s,
    }
}
