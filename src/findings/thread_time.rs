//! Where threads spend the time without a CPU.

use super::blocked;
use super::scene::{Scene, process_name, short_method, shown};
use crate::output::duration::duration;
use crate::output::summary::{Finding, PlaceTime, TRACE};
use crate::trace::Symptom;

pub(super) const RULE: &str = "thread-time";
/// Waiting threads on average below which it is not remarkable.
const MIN_WAITING: f64 = 0.05;
/// Number of places that are named.
const MAX_NAMED: usize = 3;
/// Reasons for which a thread waits because it has no work, or is asked to wait.
const HARMLESS: [&str; 3] = ["idle", SLEEP, "stopped"];
const SLEEP: &str = "sleep";
/// Reasons for which the entry point of a program waits for its end, and its names.
const UNTIL_END: [&str; 4] = ["task", "event", "thread", "signal"];
const ENTRY_POINTS: [&str; 4] = ["Main", "<Main>", "<Main>$", NATIVE_MAIN];
/// Reasons for which that of a .NET program waits for input, such as a key that ends it. A native one may have all
/// of the program.
const FOR_INPUT: [&str; 3] = ["io", "file", "pipe"];
const NATIVE_MAIN: &str = "main";
/// Reasons of a process that has nothing to do: a service waits for its clients like that.
const WITHOUT_WORK: [&str; 8] = [
    "io", "socket", "pipe", "event", "task", "thread", "signal", "child",
];
/// CPUs that a process uses on average below which it hardly runs.
const MIN_CPUS: f64 = 0.01;
/// Reason of a process that waits for another to end.
const CHILD: &str = "child";
/// Reasons of threads that wait in another way or cannot be read, and that ended before a look.
const UNKNOWN: [&str; 2] = ["blocked", "unseen"];
/// Reasons of threads that can run and have no CPU.
const FOR_A_CPU: [&str; 3] = ["ready", "preempted", THROTTLED];
/// Reason of threads that a control group kept from the CPUs.
const THROTTLED: &str = "throttled";
/// Figure: the time of threads that could not.
pub(super) const BLOCKED_MS: &str = "blocked_ms";
/// Figure: the time of threads that waited for sockets.
pub(super) const SOCKET_MS: &str = "socket_ms";
const SOCKET: &str = "socket";
/// Reason of threads that wait for a lock.
const LOCK: &str = "lock";

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(times) = &scene.summary.thread_time else {
        return Vec::new();
    };
    let mut pids: Vec<i32> = Vec::new();
    for place in &times.places {
        if !pids.contains(&place.pid) {
            pids.push(place.pid);
        }
    }
    let of_process = |pid: i32| {
        let places = times.places.iter();
        let is_at_rest = is_at_rest(scene, pid);
        let places = places.filter(|place| place.pid == pid && place.reason != "idle");
        // Where the threads wait that may not be read is unknown, or only that they are in the C library.
        let is_known = |place: &&PlaceTime| !UNKNOWN.contains(&&*place.reason) || place.own;
        let places = places.filter(is_known);
        // Nobody asked about a process of a capture of the machine.
        let is_harmless = |place: &PlaceTime| {
            let is_usual = WITHOUT_WORK.contains(&&*place.reason);
            is_harmless(scene, place) || scene.summary.info.system_wide && is_usual
        };
        let mut places = joined(places.filter(|place| !(is_at_rest && is_harmless(place))));
        // What is worth a look first.
        places.sort_by(|a, b| {
            let order = is_harmless(a).cmp(&is_harmless(b));
            order.then_with(|| b.ms.total_cmp(&a.ms))
        });
        let waiting = |place: &PlaceTime| place.ms / 1e3 / scene.seconds;
        let cost: f64 = places
            .iter()
            .filter(|place| !is_harmless(place))
            .map(waiting)
            .sum();
        places.retain(|place| waiting(place) >= MIN_WAITING);
        // Its child is the answer.
        let is_parent = !places.is_empty() && places.iter().all(|place| place.reason == CHILD);
        if places.is_empty() || is_parent || !cost.is_finite() {
            return None;
        }
        let blocked = places.iter().filter(|place| is_blocked(scene, place));
        let blocked_ms: f64 = blocked.map(|place| place.ms).sum();
        let of_sockets = places.iter().filter(|place| place.reason == SOCKET);
        let socket_ms = of_sockets.fold(0.0, |sum, place| sum + place.ms);
        let named: Vec<String> = places.iter().take(MAX_NAMED).map(described).collect();
        let mut rows = scene.summary.processes.iter();
        let row = rows.find(|row| row.pid == pid);
        // One that only waits has no samples, and so no row.
        let name = row.map_or(&*places[0].process, |row| row.program());
        let mut text = format!(
            "threads of {} wait: {}",
            process_name(name, pid),
            named.join(", ")
        );
        if places
            .iter()
            .take(MAX_NAMED)
            .any(|place| place.reason == LOCK)
            && let Some(owner) = owner_at_end(scene, pid)
        {
            text += &format!("; at the end, {owner}");
        }
        if let Some(waker) = waker_of(scene, pid) {
            text += &format!("; mostly woken by {waker}");
        }
        let mut named = places.iter().take(MAX_NAMED);
        if named.any(|place| place.reason == THROTTLED) {
            text += "; raise the limit, or use less CPU time";
        }
        Some(
            Finding::new(RULE, text)
                .about(pid, name)
                .from("thread_time.places")
                .figure("waiting_ms", places.iter().map(|place| place.ms).sum())
                .figure(BLOCKED_MS, blocked_ms)
                .figure(SOCKET_MS, socket_ms)
                .more(&["report", TRACE, "-kind", "threadtime"])
                .costing(cost),
        )
    };
    pids.into_iter().filter_map(of_process).collect()
}

/// Returns which thread had the lock for which most threads waited when the capture ended, and what it did.
fn owner_at_end(scene: &Scene<'_>, pid: i32) -> Option<String> {
    let locks = scene
        .summary
        .blocked
        .iter()
        .flat_map(|blocked| &blocked.locks);
    let owned = locks.filter(|lock| lock.pid == pid && lock.owner.is_some());
    let most = owned.max_by_key(|lock| lock.threads)?;
    Some(format!(
        "{} waited for a lock{}",
        threads(most.threads),
        blocked::owner(most)
    ))
}

fn threads(count: u64) -> String {
    match count {
        1 => "1 thread".to_owned(),
        several => format!("{several} threads"),
    }
}

/// Returns who wakes the threads of a process more often than all others do together.
fn waker_of(scene: &Scene<'_>, pid: i32) -> Option<String> {
    let rows = scene
        .summary
        .wakeups
        .iter()
        .flat_map(|wakeups| &wakeups.rows);
    let rows = rows.filter(|row| row.pid == pid);
    let all: u64 = rows.clone().map(|row| row.wakeups).sum();
    let most = rows.max_by_key(|row| row.wakeups)?;
    let place = match &*most.method {
        "" => String::new(),
        method => format!(" in {}", short_method(method)),
    };
    (most.wakeups > all / 2).then(|| format!("{}{place}", shown(&most.waker)))
}

/// Joins the places where a process waited for a CPU, as it could run in any of them, and those in one method,
/// which may have been compiled several times.
fn joined<'a>(places: impl Iterator<Item = &'a PlaceTime>) -> Vec<PlaceTime> {
    let mut joined: Vec<PlaceTime> = Vec::new();
    for place in places {
        let is_throttled = place.reason == THROTTLED;
        let waits_for_a_cpu = FOR_A_CPU.contains(&&*place.reason);
        let same = |other: &&mut PlaceTime| match waits_for_a_cpu {
            true => {
                let waits = FOR_A_CPU.contains(&&*other.reason);
                waits && (other.reason == THROTTLED) == is_throttled
            }
            false => (&other.reason, &other.method) == (&place.reason, &place.method),
        };
        match joined.iter_mut().find(same) {
            Some(other) => {
                other.ms += place.ms;
                other.pool_threads = other.pool_threads.max(place.pool_threads);
            }
            None => joined.push(place.clone()),
        }
    }
    for place in &mut joined {
        if FOR_A_CPU.contains(&&*place.reason) && !place.own {
            place.method.clear();
        }
    }
    joined
}

/// Returns whether a process of a capture of the machine hardly runs.
fn is_at_rest(scene: &Scene<'_>, pid: i32) -> bool {
    let mut rows = scene.summary.processes.iter();
    let cpu_ms = rows
        .find(|row| row.pid == pid)
        .map_or(0.0, |row| row.cpu_ms);
    scene.summary.info.system_wide && cpu_ms / 1e3 / scene.seconds < MIN_CPUS
}

/// Returns whether threads at a place wait for something that must come, not for a CPU.
fn is_blocked(scene: &Scene<'_>, place: &PlaceTime) -> bool {
    !is_harmless(scene, place) && !FOR_A_CPU.contains(&&*place.reason)
}

/// Returns whether the time at a place is as it should be: it costs nothing.
fn is_harmless(scene: &Scene<'_>, place: &PlaceTime) -> bool {
    let reason = &*place.reason;
    HARMLESS.contains(&reason) && !delays_work(scene, place)
        || is_entry_point(place) && UNTIL_END.contains(&reason)
        || is_entry_point(place)
            && FOR_INPUT.contains(&reason)
            && name_of(&place.method) != NATIVE_MAIN
}

/// Returns whether threads of the pool sleep in the user's code, in a capture for work that takes too long.
fn delays_work(scene: &Scene<'_>, place: &PlaceTime) -> bool {
    let symptoms = [Symptom::SlowRequests, Symptom::Hang];
    let is_slow = symptoms.iter().any(|symptom| scene.is_for(*symptom));
    is_slow && place.reason == SLEEP && place.own && place.pool_threads > 0
}

/// Returns whether threads wait in the entry point of a program.
pub(super) fn is_entry_point(place: &PlaceTime) -> bool {
    ENTRY_POINTS.contains(&&*name_of(&place.method))
}

/// Returns the name of a method without its type.
fn name_of(method: &str) -> String {
    let method = short_method(method);
    method.rsplit('.').next().unwrap_or_default().to_owned()
}

/// Returns how long threads waited at a place, for what and where.
fn described(place: &PlaceTime) -> String {
    let time = duration(place.ms / 1e3);
    let what = match &*place.reason {
        "ready" | "preempted" => "for a CPU",
        THROTTLED => "at the CPU limit of their control group",
        LOCK => "for locks",
        SOCKET => "for sockets",
        "pipe" => "for pipes",
        "file" => "for files",
        "io" => "for input or output",
        "task" => "for tasks",
        "event" => "for other threads",
        "thread" => "for threads to end",
        "child" => "for child processes",
        "signal" => "for signals",
        "page fault" => "in page faults",
        "sleep" => "asleep",
        "stopped" => "stopped",
        _ => "in the kernel",
    };
    match &*place.method {
        "" => format!("{time} {what}"),
        method => format!("{time} {what} in {}", short_method(method)),
    }
}
