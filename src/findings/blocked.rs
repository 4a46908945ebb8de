//! Threads that wait: for each other (a deadlock), for a lock that one of them keeps, or all of them.

use super::scene::{Scene, process_name, short_method, shown};
use crate::output::duration::duration;
use crate::output::summary::{
    BlockedGroup, BlockedProcess, BlockedSummary, Finding, LockRow, TRACE,
};
use crate::trace::Symptom;

/// CPUs that a program uses on average below which its waiting is the answer.
const MAX_CPUS: f64 = 0.02;
/// CPU time that the start of events takes in a .NET process, in seconds, at most.
const EVENTS_CPU_S: f64 = 0.1;
/// Threads that have waited for a lock for half of the capture from which on it is remarkable. One thread is
/// if it has waited for nearly all of it.
const MIN_LOCKED: u64 = 2;
const MIN_ALONE_PART: f64 = 0.9;
/// Shortest time that is shown, in seconds.
const MIN_SINCE: f64 = 1.0;
/// Number of groups in a text.
const MAX_LISTED: usize = 2;
/// Reasons of threads.
const IDLE: &str = "idle";
const CHILD: &str = "child";
const ENDED: &str = "ended";
const STOPPED: &str = "stopped";
/// Rule of programs that hardly ran, and its figure.
const WAITING: &str = "waiting";
const THREADS: &str = "threads";
/// Rule of deadlocks.
pub(super) const DEADLOCK: &str = "deadlock";
/// What no thread shows.
const AWAITS: &str = "; requests and tasks that await are on no thread: -for slow-requests shows those that start while it \
    captures";
/// Command that shows the stacks.
const STACKS: [&str; 4] = ["report", TRACE, "-kind", "blocked"];

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(blocked) = &scene.summary.blocked else {
        return Vec::new();
    };
    let mut findings: Vec<Finding> = deadlocks(blocked).collect();
    findings.extend(locks(scene, blocked));
    // What the other threads do is no news then.
    let is_explained = |pid: i32| findings.iter().any(|finding| finding.pid == Some(pid));
    let processes = blocked.processes.iter();
    let processes = processes.filter(|process| !is_explained(process.pid));
    let waiting = processes.filter_map(|process| waiting(scene, blocked, process));
    let waiting: Vec<Finding> = waiting.collect();
    findings.extend(waiting);
    findings
}

fn is_deadlocked(blocked: &BlockedSummary, pid: i32) -> bool {
    blocked.deadlocks.iter().any(|deadlock| deadlock.pid == pid)
}

fn deadlocks(blocked: &BlockedSummary) -> impl Iterator<Item = Finding> {
    blocked.deadlocks.iter().map(|deadlock| {
        let name = process_name(name_of(blocked, deadlock.pid), deadlock.pid);
        let mut methods: Vec<&str> = deadlock.methods.iter().map(|method| &**method).collect();
        methods.retain(|method| !method.is_empty());
        methods.dedup();
        methods.truncate(MAX_LISTED);
        let methods: Vec<String> = methods.into_iter().map(short_method).collect();
        let place = match methods.is_empty() {
            true => String::new(),
            false => format!(", in {}", methods.join(" and ")),
        };
        let what = match deadlock.threads {
            1 => "a thread waits for a lock that it has itself".to_owned(),
            threads => format!("{threads} threads wait for each other's locks"),
        };
        // Others wait for the same locks.
        let stopped = process_of(blocked, deadlock.pid).map_or(0, |process| process.locked);
        Finding::new(DEADLOCK, format!("deadlock in {name}: {what}{place}"))
            .about(deadlock.pid, name_of(blocked, deadlock.pid))
            .from("blocked.deadlocks")
            .figure("threads", deadlock.threads as f64)
            .more(&STACKS)
            .costing(stopped.max(deadlock.threads) as f64)
    })
}

/// Returns findings about locks for which threads have waited for long.
fn locks(scene: &Scene<'_>, blocked: &BlockedSummary) -> Vec<Finding> {
    let locks = blocked.locks.iter();
    let locks = locks.filter(|lock| !is_deadlocked(blocked, lock.pid));
    let long = locks.filter(|lock| {
        let alone = scene.seconds * MIN_ALONE_PART;
        lock.long_waiting >= MIN_LOCKED
            || lock.long_waiting > 0 && lock.long_s.is_some_and(|least| least >= alone)
    });
    let findings = long.map(|lock| {
        let program = name_of(blocked, lock.pid);
        let (threads, have) = match lock.long_waiting {
            1 => ("1 thread".to_owned(), "has"),
            more => (format!("{more} threads"), "have"),
        };
        let since = lock.long_s.filter(|least| *least >= MIN_SINCE);
        let least = if lock.long_waiting > 1 {
            "at least "
        } else {
            ""
        };
        let since = since.map_or_else(String::new, |since| {
            format!(" for {least}{}", duration(since))
        });
        let text = format!(
            "{threads} of {} {have} waited{since}{} for a lock{}",
            process_name(program, lock.pid),
            places(lock),
            owner(lock),
        );
        Finding::new("blocked-by-lock", text)
            .about(lock.pid, program)
            .from("blocked.locks")
            .figure("threads", lock.long_waiting as f64)
            .more(&STACKS)
            .costing(lock.long_waiting as f64)
    });
    findings.collect()
}

/// Returns the functions in which threads wait for a lock.
fn places(lock: &LockRow) -> String {
    let named = lock.methods.iter().take(MAX_LISTED);
    let named: Vec<String> = named.map(|method| short_method(method)).collect();
    let more = lock.method_count.saturating_sub(named.len() as u64);
    match (&named[..], more) {
        ([], _) => String::new(),
        ([one], 0) => format!(" in {one}"),
        (some, 0) => format!(" in {}", some.join(" and ")),
        (some, more) => format!(" in {} and {more} more places", some.join(", ")),
    }
}

/// Returns who has a lock, and what that thread does.
pub(super) fn owner(lock: &LockRow) -> String {
    match (lock.owner, lock.foreign_owner) {
        (Some(owner), _) if lock.tids == [owner] => " that it has itself".to_owned(),
        (Some(owner), _) => {
            let place = match &*lock.owner_method {
                "" => String::new(),
                method => format!(" in {}", short_method(method)),
            };
            match &*lock.owner_words {
                "" => format!(" that thread {owner} has"),
                words => format!(" that thread {owner} has, which {}{place}", shown(words)),
            }
        }
        (None, Some(foreign)) => {
            format!(" that {foreign} has, which is no thread of this process")
        }
        (None, None) => " whose owner is unknown: a deadlock is possible".to_owned(),
    }
}

/// Returns a finding about a process that is stopped or hardly ran: what its threads wait for.
fn waiting(
    scene: &Scene<'_>,
    blocked: &BlockedSummary,
    process: &BlockedProcess,
) -> Option<Finding> {
    let groups = blocked.groups.iter();
    let groups = groups.filter(|group| group.pid == process.pid && group.reason != ENDED);
    let threads = process.threads.saturating_sub(process.ended);
    let name = process_name(&process.name, process.pid);
    let text = if threads == 0 {
        return None;
    } else if process.stopped == threads {
        let first = groups.clone().find(|group| group.reason == STOPPED);
        let place = first.map_or_else(String::new, place_of);
        let part = first.map_or(0, |group| group.threads);
        let all = match threads {
            1 => String::new(),
            threads if part == threads || place.is_empty() => format!(", all {threads} threads"),
            threads => format!(", all {threads} threads: {part} of them"),
        };
        format!("{name} is stopped{all}{place}")
    } else {
        let used = used_cpus(scene, process.pid);
        let is_busy = used >= max_cpus(scene, process.pid) || !used.is_finite();
        if process.running > 0 || is_busy {
            return None;
        }
        // Its child is the answer.
        let mut others = blocked.processes.iter();
        let has_child = others.any(|other| other.pid != process.pid && other.threads > other.ended);
        if has_child && threads == 1 && groups.clone().any(|group| group.reason == CHILD) {
            return None;
        }
        let what = what(process, threads, groups.clone());
        let awaits = match scene.is_for(Symptom::Hang) && may_await(process, groups) {
            true => AWAITS,
            false => "",
        };
        format!("{name} hardly ran ({used:.2} CPUs): {what}{awaits}")
    };
    Some(
        Finding::new(WAITING, text)
            .about(process.pid, &process.name)
            .from("blocked.processes")
            .from("blocked.groups")
            .figure(THREADS, process.threads as f64)
            .figure("always_waiting", process.always_waiting as f64)
            .more(&STACKS)
            .costing(0.0),
    )
}

/// Returns whether no thread of a .NET program but the main one waits for something in its code: what hangs may be a
/// task.
fn may_await<'a>(
    process: &BlockedProcess,
    mut groups: impl Iterator<Item = &'a BlockedGroup> + Clone,
) -> bool {
    let is_dotnet = groups.clone().any(|group| group.name.starts_with(".NET "));
    is_dotnet && groups.all(|group| group.reason == IDLE || group.tids == [process.pid])
}

/// Returns the processes that hardly ran with one thread.
pub(super) fn waits_of_one_thread(findings: &[Finding]) -> impl Iterator<Item = Option<i32>> {
    let waiting = findings.iter().filter(|finding| finding.rule == WAITING);
    let of_one = waiting.filter(|finding| finding.figures.get(THREADS) == Some(&1.0));
    of_one.map(|finding| finding.pid)
}

/// Returns the CPUs that a process used, on average.
fn used_cpus(scene: &Scene<'_>, pid: i32) -> f64 {
    let programs = scene.programs();
    programs
        .filter(|program| program.process.pid == pid)
        .map(|program| program.cpus)
        .fold(0.0, |sum, cpus| sum + cpus)
}

/// Returns the CPUs below which a process hardly ran: perfcollect's requests take some in a short capture.
fn max_cpus(scene: &Scene<'_>, pid: i32) -> f64 {
    let has_events = scene.runtimes().any(|runtime| runtime.summary.pid == pid);
    match has_events {
        true => MAX_CPUS + EVENTS_CPU_S / scene.seconds,
        false => MAX_CPUS,
    }
}

/// Returns what the threads of a process wait for.
fn what<'a>(
    process: &BlockedProcess,
    threads: u64,
    groups: impl Iterator<Item = &'a BlockedGroup>,
) -> String {
    let groups: Vec<&BlockedGroup> = groups.filter(|group| group.reason != IDLE).collect();
    let all = match (process.omitted, threads) {
        (0, 1) => "its only thread".to_owned(),
        (0, all) => format!("all {all} threads"),
        (more, read) => format!("{read} of its {} threads", read.saturating_add(more)),
    };
    let is_alone = (process.omitted, threads) == (0, 1);
    match &groups[..] {
        [] if is_alone => format!("{all} is idle"),
        [] => format!("{all} are idle"),
        [one, ..] if is_alone => format!("{all} {}", does(one)),
        [one] if one.threads == threads => format!("{all} {}", does(one)),
        _ => {
            let listed = groups.iter().take(MAX_LISTED);
            let mut parts: Vec<String> = listed.clone().map(|group| described(group)).collect();
            let listed: u64 = listed.map(|group| group.threads).sum();
            let more = threads.saturating_sub(listed).saturating_sub(process.idle);
            parts.extend((more > 0).then(|| format!("{more} more")));
            parts.extend(match process.idle {
                0 => None,
                1 => Some("1 is idle".to_owned()),
                idle => Some(format!("{idle} are idle")),
            });
            format!("{all} wait: {}", parts.join("; "))
        }
    }
}

fn process_of(blocked: &BlockedSummary, pid: i32) -> Option<&BlockedProcess> {
    let mut processes = blocked.processes.iter();
    processes.find(|process| process.pid == pid)
}

fn name_of(blocked: &BlockedSummary, pid: i32) -> &str {
    process_of(blocked, pid).map_or("process", |process| &process.name)
}

/// Returns who waits for what, and where.
fn described(group: &BlockedGroup) -> String {
    let who = match (group.threads, &group.tids[..]) {
        (1, [tid]) if *tid == group.pid => "the main thread".to_owned(),
        (1, _) => format!("thread {}", shown(&group.name)),
        (threads, _) => format!("{threads} threads"),
    };
    format!("{who} {}", does(group))
}

/// Returns what the threads of a group wait for, where, and for how long.
fn does(group: &BlockedGroup) -> String {
    let owner = match (group.owner, &group.tids[..]) {
        (Some(owner), [tid]) if owner == *tid => " that it has itself".to_owned(),
        (Some(owner), _) => format!(" that thread {owner} has"),
        (None, _) => String::new(),
    };
    let what = match &*group.waits_for {
        "" => String::new(),
        what => format!(" ({})", in_parts(what)),
    };
    let (words, place) = (shown(&group.words), place_of(group));
    format!("{words}{owner}{what}{place}{}", since(group))
}

fn place_of(group: &BlockedGroup) -> String {
    match &*group.method {
        "" => String::new(),
        name => format!(" in {}", short_method(name)),
    }
}

/// Shortens a list of files between two of them.
fn in_parts(what: &str) -> String {
    let short = shown(what);
    let end = match short != what {
        true => short.rfind(", "),
        false => None,
    };
    match end {
        Some(end) => format!("{}, ...", short.get(..end).unwrap_or_default()),
        None => short,
    }
}

/// Returns for how long the threads of a group have waited, at least.
fn since(group: &BlockedGroup) -> String {
    match group.since_s {
        Some([least, most]) if least >= MIN_SINCE => match (duration(least), duration(most)) {
            (least, most) if least == most => format!(", for {least}"),
            (least, _) => format!(", for at least {least}"),
        },
        _ => String::new(),
    }
}
