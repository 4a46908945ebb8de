//! What a summary keeps of a report about threads.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::group::{Group, WaitingThread};
use super::reason::Reason;
use super::report::StackReport;
use crate::output::summary::{
    BlockedGroup, BlockedProcess, BlockedSummary, DeadlockRow, LockRow, MAX_BLOCKED_PROCESSES,
    MAX_DEADLOCKED, MAX_DEADLOCKS, MAX_GROUPS, MAX_LOCK_METHODS, MAX_LOCKS, MAX_TIDS, program_of,
};
use crate::output::variant_name;

/// Part of a capture from which on a thread has waited for long.
const LONG_PART: f64 = 0.5;

/// Returns the summary of a report made when a capture of so many seconds ended.
#[must_use]
pub fn summarize(report: &StackReport, seconds: f64) -> BlockedSummary {
    let mut processes = processes(report, seconds);
    let process_count = processes.len() as u64;
    let is_deadlocked = |pid: i32| report.deadlocks.iter().any(|deadlock| deadlock.pid == pid);
    processes.sort_by_key(|row| (!is_deadlocked(row.pid), row.locked == 0));
    processes.truncate(MAX_BLOCKED_PROCESSES);
    let deadlocks = report.deadlocks.iter().take(MAX_DEADLOCKS);
    let deadlocks = deadlocks.map(|deadlock| {
        let shown = deadlock.threads.iter().take(MAX_DEADLOCKED);
        let method = |tid: &i32| {
            let found = report.thread(*tid);
            let own = found.and_then(|(group, _)| group.place().filter(|frame| frame.own));
            own.map_or_else(String::new, |frame| frame.name.clone())
        };
        DeadlockRow {
            pid: deadlock.pid,
            threads: deadlock.threads.len() as u64,
            tids: shown.clone().copied().collect(),
            methods: shown.map(method).collect(),
        }
    });
    let joined = joined(report);
    let groups = joined.iter().take(MAX_GROUPS).map(|groups| row(groups));
    BlockedSummary {
        processes,
        process_count,
        deadlocks: deadlocks.collect(),
        locks: locks(report, seconds),
        groups: groups.flatten().collect(),
        group_count: joined.len() as u64,
        omitted_threads: report.omitted_threads as u64,
    }
}

fn processes(report: &StackReport, seconds: f64) -> Vec<BlockedProcess> {
    let rows = report.processes.iter().map(|process| BlockedProcess {
        pid: process.pid,
        name: program_of(&process.name, &process.command_line).to_owned(),
        threads: process.threads as u64,
        omitted: process.omitted as u64,
        ..BlockedProcess::default()
    });
    let mut rows: Vec<BlockedProcess> = rows.collect();
    let at: FxHashMap<i32, usize> = rows.iter().map(|row| row.pid).zip(0..).collect();
    for group in &report.groups {
        let Some(row) = at.get(&group.pid).and_then(|index| rows.get_mut(*index)) else {
            continue;
        };
        let threads = group.threads.len() as u64;
        match group.reason {
            Reason::Runs => row.running += threads,
            Reason::Lock => row.locked += threads,
            Reason::Stopped => row.stopped += threads,
            Reason::Ended => row.ended += threads,
            Reason::Idle => row.idle += threads,
            _ => {}
        }
        let since = group.threads.iter().filter_map(|thread| thread.since_s);
        row.always_waiting += since.filter(|since| *since >= seconds).count() as u64;
    }
    rows
}

/// What threads wait for if it is not the same lock: its owner, or else its address, or else their stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum LockKey {
    Owner(Option<i32>, Option<u32>),
    Address(u64),
    Group(usize),
}

/// Returns the locks for which threads wait, those with most threads first.
fn locks(report: &StackReport, seconds: f64) -> Vec<LockRow> {
    let groups = report.groups.iter().enumerate();
    let groups = groups.filter(|(_, group)| group.reason == Reason::Lock);
    let waiting = groups.flat_map(|(index, group)| {
        let threads = group.threads.iter();
        threads.map(move |thread| (index, group, thread))
    });
    let mut addresses: FxHashMap<(i32, u64), usize> = FxHashMap::default();
    for (_, group, thread) in waiting.clone() {
        if let Some(lock) = thread.lock {
            *addresses.entry((group.pid, lock.address)).or_default() += 1;
        }
    }
    let key = |index: usize, group: &Group, thread: &WaitingThread| match thread.lock {
        Some(lock) if lock.owner.is_some() || lock.foreign_owner.is_some() => {
            LockKey::Owner(lock.owner, lock.foreign_owner)
        }
        Some(lock) if addresses.get(&(group.pid, lock.address)) > Some(&1) => {
            LockKey::Address(lock.address)
        }
        _ => LockKey::Group(index),
    };
    let mut at: FxHashMap<(i32, LockKey), usize> = FxHashMap::default();
    let mut locks: Vec<(LockRow, Vec<(&str, usize)>)> = Vec::new();
    for (index, group, thread) in waiting {
        let next = locks.len();
        let found = *at
            .entry((group.pid, key(index, group, thread)))
            .or_insert(next);
        if found == next {
            locks.push((new_lock(report, group, thread), Vec::new()));
        }
        let Some((row, methods)) = locks.get_mut(found) else {
            continue;
        };
        row.threads += 1;
        if row.tids.len() < MAX_TIDS {
            row.tids.push(thread.tid);
        }
        let long = thread.since_s.filter(|since| *since >= seconds * LONG_PART);
        if let Some(since) = long {
            row.long_waiting += 1;
            row.long_s = Some(row.long_s.map_or(since, |least| least.min(since)));
        }
        let method = group.place().map_or("", |frame| &*frame.name);
        match methods.iter_mut().find(|(known, _)| *known == method) {
            Some((_, threads)) => *threads += 1,
            None => methods.push((method, 1)),
        }
    }
    locks.sort_by_key(|(row, _)| Reverse(row.threads));
    let rows = locks.into_iter().take(MAX_LOCKS).map(|(row, mut methods)| {
        methods.retain(|(method, _)| !method.is_empty());
        methods.sort_by_key(|(_, threads)| Reverse(*threads));
        let shown = methods.iter().take(MAX_LOCK_METHODS);
        LockRow {
            method_count: methods.len() as u64,
            methods: shown.map(|(method, _)| (*method).to_owned()).collect(),
            ..row
        }
    });
    rows.collect()
}

/// Returns the row of the lock of a thread, without any thread.
fn new_lock(report: &StackReport, group: &Group, thread: &WaitingThread) -> LockRow {
    let owner = thread.lock.and_then(|lock| lock.owner);
    let does = owner.and_then(|owner| report.thread(owner));
    let does = does.map(|(group, _)| group);
    let method = does.and_then(Group::place);
    LockRow {
        pid: group.pid,
        owner,
        foreign_owner: thread.lock.and_then(|lock| lock.foreign_owner),
        owner_words: does.map_or_else(String::new, |group| group.reason.words(1).to_owned()),
        owner_method: method.map_or_else(String::new, |frame| frame.name.clone()),
        ..LockRow::default()
    }
}

/// Joins the groups whose threads do the same in the same function.
fn joined(report: &StackReport) -> Vec<Vec<&Group>> {
    let mut joined: Vec<Vec<&Group>> = Vec::new();
    let mut at = FxHashMap::default();
    for group in &report.groups {
        let place = group.place().map(|frame| (&*frame.module, &*frame.name));
        let owner = group.threads.first().map(|one| one.lock?.owner);
        let key = (group.pid, group.reason, owner, place);
        let index = *at.entry(key).or_insert(joined.len());
        match joined.get_mut(index) {
            Some(same) => same.push(group),
            None => joined.push(vec![group]),
        }
    }
    joined
}

/// Returns the row of threads that do the same in the same function.
fn row(groups: &[&Group]) -> Option<BlockedGroup> {
    let group = groups.first()?;
    let threads = || groups.iter().flat_map(|group| &group.threads);
    let first = threads().next();
    let frame = group.place();
    let times = threads().filter_map(|thread| thread.since_s);
    let since_s = times.fold(None, |range: Option<[f64; 2]>, time| {
        let [least, most] = range.unwrap_or([time, time]);
        Some([least.min(time), most.max(time)])
    });
    let count = threads().count();
    Some(BlockedGroup {
        pid: group.pid,
        reason: variant_name(group.reason),
        words: group.reason.words(count).to_owned(),
        threads: count as u64,
        tids: threads().take(MAX_TIDS).map(|one| one.tid).collect(),
        name: first.map_or_else(String::new, |one| one.name.clone()),
        module: frame.map_or_else(String::new, |frame| frame.module.clone()),
        method: frame.map_or_else(String::new, |frame| frame.name.clone()),
        own: frame.is_some_and(|frame| frame.own),
        waits_for: waits_for(threads()),
        owner: first.and_then(|one| one.lock?.owner),
        since_s,
    })
}

/// Returns what threads wait for, if it is known of the first one.
fn waits_for<'a>(mut threads: impl Iterator<Item = &'a WaitingThread>) -> String {
    let first = threads.next().and_then(|one| one.waits_for.as_ref());
    let Some(first) = first else {
        return String::new();
    };
    match threads.all(|one| one.waits_for.as_ref() == Some(first)) {
        true => first.clone(),
        false => format!("{first}, and others"),
    }
}
