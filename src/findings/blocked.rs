//! Threads that wait: for each other (a deadlock), for a lock that one of them keeps, or all of them.

use super::scene::{Scene, process_name, short_method, shown};
use crate::output::summary::{BlockedGroup, BlockedProcess, BlockedSummary, Finding, TRACE};

/// CPUs that a program uses on average below which its waiting is the answer.
const MAX_CPUS: f64 = 0.02;
/// Threads that wait for one lock, and the part of the capture for which they have waited, from which on it
/// is remarkable.
const MIN_LOCKED: u64 = 2;
const MIN_LOCKED_PART: f64 = 0.5;
/// Number of groups in a text.
const MAX_LISTED: usize = 2;
/// Reasons of threads that wait for work, for a lock, and for a child process.
const IDLE: &str = "idle";
const LOCK: &str = "lock";
const CHILD: &str = "child";

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(blocked) = &scene.summary.blocked else {
        return Vec::new();
    };
    let mut findings: Vec<Finding> = deadlocks(blocked).collect();
    findings.extend(locks(scene, blocked));
    let processes = blocked.processes.iter();
    let processes = processes.filter(|process| !is_deadlocked(blocked, process.pid));
    findings.extend(processes.filter_map(|process| waiting(scene, blocked, process)));
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
        Finding::new("deadlock", format!("deadlock in {name}: {what}{place}"))
            .about(deadlock.pid, name_of(blocked, deadlock.pid))
            .from("blocked.deadlocks")
            .figure("threads", deadlock.threads as f64)
            .more(&["report", TRACE, "-kind", "blocked"])
            .costing(stopped.max(deadlock.threads) as f64)
    })
}

/// Returns findings about locks for which threads have waited for long.
fn locks(scene: &Scene<'_>, blocked: &BlockedSummary) -> Vec<Finding> {
    let groups = blocked.groups.iter();
    let locks = groups.filter(|group| group.reason == LOCK && group.threads >= MIN_LOCKED);
    let locks = locks.filter(|group| !is_deadlocked(blocked, group.pid));
    let long = locks.filter(|group| {
        let most = group.since_s.map(|[_, most]| most);
        most.is_some_and(|most| most >= scene.seconds * MIN_LOCKED_PART)
    });
    let findings = long.map(|group| {
        let program = name_of(blocked, group.pid);
        let owner = match group.owner {
            Some(owner) => format!(" that thread {owner} has"),
            None => String::new(),
        };
        let text = format!(
            "{} threads of {} wait for a lock{owner}, in {}{}",
            group.threads,
            process_name(program, group.pid),
            short_method(&group.method),
            since(group)
        );
        Finding::new("blocked-by-lock", text)
            .about(group.pid, program)
            .from("blocked.groups")
            .figure("threads", group.threads as f64)
            .more(&["report", TRACE, "-kind", "blocked"])
            .costing(group.threads as f64)
    });
    findings.collect()
}

/// Returns a finding about a process that hardly ran: what its threads wait for.
fn waiting(
    scene: &Scene<'_>,
    blocked: &BlockedSummary,
    process: &BlockedProcess,
) -> Option<Finding> {
    let programs = scene.programs();
    let used: f64 = programs
        .filter(|program| program.process.pid == process.pid)
        .map(|program| program.cpus)
        .fold(0.0, |sum, cpus| sum + cpus);
    let is_whole = blocked.omitted_threads == 0 && process.threads > 0;
    let waits = is_whole && process.running == 0 && used < MAX_CPUS;
    if !waits || !used.is_finite() {
        return None;
    }
    let groups = blocked.groups.iter();
    let groups = groups.filter(|group| group.pid == process.pid && group.reason != IDLE);
    // Its child is the answer.
    if process.threads == 1 && groups.clone().any(|group| group.reason == CHILD) {
        return None;
    }
    let shown: Vec<String> = groups.take(MAX_LISTED).map(described).collect();
    let what = match shown.is_empty() {
        true => "all are idle".to_owned(),
        false => shown.join("; "),
    };
    let threads = match process.threads {
        1 => "its thread waits".to_owned(),
        all => format!("all {all} threads wait"),
    };
    let text = format!(
        "{} hardly ran ({used:.2} CPUs): {threads}: {what}",
        process_name(&process.name, process.pid)
    );
    Some(
        Finding::new("waiting", text)
            .about(process.pid, &process.name)
            .from("blocked.processes")
            .from("blocked.groups")
            .figure("threads", process.threads as f64)
            .figure("always_waiting", process.always_waiting as f64)
            .more(&["report", TRACE, "-kind", "blocked"])
            .costing(0.0),
    )
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
    let who = match group.threads {
        1 => shown(&group.name),
        threads => format!("{threads} threads"),
    };
    let place = match &*group.method {
        "" => String::new(),
        name => format!(" in {}", short_method(name)),
    };
    let what = match &*group.waits_for {
        "" => String::new(),
        what => format!(" ({})", shown(what)),
    };
    format!("{who} {}{what}{place}{}", shown(&group.words), since(group))
}

/// Returns for how long the threads of a group have waited at most.
fn since(group: &BlockedGroup) -> String {
    match group.since_s {
        Some([_, most]) if most >= 1.0 => format!(", for {most:.0} s"),
        _ => String::new(),
    }
}
