//! The symptom that a capture was for (`-for`): findings that answer it come first. If there is none, a
//! finding says what was measured instead.

use super::gc::allocates;
use super::scene::{Scene, percent, process_name, short_method, shown};
use super::thread_time;
use crate::output::duration::duration;
use crate::output::summary::{Finding, PlaceTime, RequestDirection, RequestRoute, TRACE};
use crate::output::variant_name;
use crate::trace::{NoticeKind, Symptom};

/// What answers a symptom.
struct Row {
    symptom: Symptom,
    /// Rules that answer it, in the order of their findings.
    answers: &'static [&'static str],
    /// Rules about frequent causes. They follow.
    causes: &'static [&'static str],
    /// Table of `report` that shows what was measured.
    table: &'static str,
    /// What was measured, if there is no answer.
    measured: fn(&Scene<'_>) -> String,
    /// Symptoms that are worth a try then.
    next: &'static str,
}

const ROWS: [Row; 8] = [
    Row {
        symptom: Symptom::HighCpu,
        answers: &["cpu-use", "throttled", "run-queue"],
        causes: &[
            "spinning",
            "kernel-time",
            "gc",
            "jit",
            "exceptions",
            "page-faults",
            "sync-over-async",
            "debug-build",
        ],
        table: "processes",
        measured: busiest,
        next: "-for slow-requests or -for hang",
    },
    Row {
        symptom: Symptom::SlowRequests,
        answers: &[
            "slow-requests",
            "stuck-requests",
            "deadlock",
            "blocked-by-lock",
            "thread-pool",
        ],
        causes: &[
            "lock-contention",
            "sync-over-async",
            "gc",
            "throttled",
            "run-queue",
            "thread-time",
            "exceptions",
        ],
        table: "requests",
        measured: requests,
        next: "-for hang, -for networking or -for high-cpu",
    },
    Row {
        symptom: Symptom::Hang,
        answers: &["deadlock", "blocked-by-lock", "waiting", "thread-time"],
        causes: &[
            "spinning",
            "cpu-use",
            "thread-time",
            "run-queue",
            "throttled",
        ],
        table: "blocked",
        measured: running,
        next: "-for high-cpu or -for slow-requests",
    },
    Row {
        symptom: Symptom::MemoryLeak,
        answers: &["memory-growth"],
        causes: &["gc", "page-faults"],
        table: "gc",
        measured: super::memory_growth::measured,
        next: "a longer capture or -for gc",
    },
    Row {
        symptom: Symptom::Gc,
        answers: &["gc"],
        causes: &["page-faults"],
        table: "gc",
        measured: collections,
        next: "-for memory-leak or -for high-cpu",
    },
    Row {
        symptom: Symptom::Networking,
        answers: &["network", super::connections::RULE, thread_time::RULE],
        causes: &[
            "slow-requests",
            "stuck-requests",
            "thread-time",
            "exceptions",
        ],
        table: "requests",
        measured: super::network::measured,
        next: "-for slow-requests or -for hang",
    },
    Row {
        symptom: Symptom::Startup,
        answers: &["startup"],
        causes: &[
            "jit",
            "thread-time",
            "page-faults",
            "exceptions",
            "debug-build",
        ],
        table: "processes",
        measured: not_started,
        next: "-for high-cpu",
    },
    Row {
        symptom: Symptom::LockContention,
        answers: &["deadlock", "blocked-by-lock", "lock-contention"],
        causes: &["spinning", "thread-pool", "sync-over-async", "thread-time"],
        table: "contention",
        measured: locks,
        next: "-for slow-requests or -for high-cpu",
    },
];

/// Moves the findings that answer the symptom of the capture to the front, if it is for one.
pub(super) fn sort(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    let symptom = scene.summary.info.symptom;
    let Some(row) = ROWS.iter().find(|row| Some(row.symptom) == symptom) else {
        return;
    };
    findings.sort_by_key(|finding| row.rank(finding));
    let first = findings.first().map(|first| row.rank(first));
    let is_answered = first.is_some_and(|rank| rank < row.answers.len());
    if !is_answered && !lacks_events(scene) {
        let has_causes = first == Some(row.answers.len());
        findings.insert(0, row.not_found(scene, has_causes));
    }
}

/// Returns whether a selection left out what a symptom may be about.
fn lacks_events(scene: &Scene<'_>) -> bool {
    let mut notices = scene.summary.quality.notices.iter();
    notices.any(|notice| notice.kind == NoticeKind::Selection)
}

impl Row {
    /// Returns the place of a finding. Threads that wait for a CPU only do not hang, those that wait for no socket
    /// have no trouble with the network.
    fn rank(&self, finding: &Finding) -> usize {
        let rule = &*finding.rule;
        let answer = self.answers.iter().position(|answer| *answer == rule);
        let waits = finding.figures.get(match self.symptom {
            Symptom::Networking => thread_time::SOCKET_MS,
            _ => thread_time::BLOCKED_MS,
        });
        let answer = answer.filter(|_| waits.is_none_or(|ms| *ms > 0.0));
        let is_cause = self.causes.contains(&rule);
        answer.unwrap_or(self.answers.len() + usize::from(!is_cause))
    }

    fn not_found(&self, scene: &Scene<'_>, has_causes: bool) -> Finding {
        let causes = match has_causes {
            true => "frequent causes follow, or ",
            false => "",
        };
        let text = format!(
            "nothing found for {}: {}; {causes}try {}",
            variant_name(self.symptom),
            (self.measured)(scene),
            self.next
        );
        let finding = Finding::new("not-found", text).from("info.symptom");
        let connections = scene.summary.info.connections.is_some();
        let table = match self.symptom {
            // There are no requests either.
            Symptom::Networking if connections && scene.summary.runtimes.is_empty() => {
                "connections"
            }
            _ => self.table,
        };
        finding.more(&["report", TRACE, "-kind", table])
    }
}

fn busiest(scene: &Scene<'_>) -> String {
    let most = scene.programs().max_by(|a, b| a.cpus.total_cmp(&b.cpus));
    most.map_or_else(
        || "no process used a CPU".to_owned(),
        |most| format!("{} used most, {:.2} CPUs", most.name(), most.cpus),
    )
}

fn requests(scene: &Scene<'_>) -> String {
    let (mut answered, mut open) = (0_u64, 0_u64);
    let (mut slowest, mut oldest_ms) = (None::<&RequestRoute>, 0.0);
    let rows = scene.summary.runtimes.iter();
    for requests in rows.filter_map(|runtime| runtime.requests.as_ref()) {
        let incoming = &requests.incoming;
        let ended = incoming.count.saturating_sub(incoming.unended);
        answered = answered.saturating_add(ended);
        open = open.saturating_add(incoming.unended);
        let routes = requests.routes.iter();
        for route in routes.filter(|route| route.direction == RequestDirection::In) {
            let all = slowest.into_iter().chain([route]);
            slowest = all.max_by(|a, b| a.p99_ms.total_cmp(&b.p99_ms));
            oldest_ms = f64::max(oldest_ms, route.unended_ms.unwrap_or_default());
        }
    }
    let not_ended = match open {
        0 => String::new(),
        open => format!(
            "{open} had not ended, the oldest after {}",
            duration(oldest_ms / 1e3)
        ),
    };
    match slowest {
        _ if scene.runtimes().next().is_none() => no_runtime(),
        None => {
            "ASP.NET Core got no request while the capture ran, and those that were open at its start are not seen"
                .to_owned()
        }
        Some(_) if answered == 0 => format!("no request was answered, {not_ended}"),
        Some(route) => {
            let slowest = format!(
                "{answered} requests answered, the slowest 1 % of {} in {:.0} ms or more",
                shown(&route.name),
                route.p99_ms
            );
            match open {
                0 => slowest,
                _ => format!("{slowest}, {not_ended}"),
            }
        }
    }
}

/// Says that there are no events.
pub(super) fn no_runtime() -> String {
    "no .NET process sent events".to_owned()
}

fn running(scene: &Scene<'_>) -> String {
    let Some(blocked) = &scene.summary.blocked else {
        let mut notices = scene.summary.quality.notices.iter();
        let is_refused = notices.any(|notice| notice.kind == NoticeKind::NoThreadTime);
        let why = match is_refused {
            true => "what the threads waited for could not be read, see the notices",
            false => {
                "what threads wait for is read at the end of a capture with -pid, -n or a command"
            }
        };
        return why.to_owned();
    };
    let running = blocked.processes.iter().map(|row| row.running);
    let running = running.fold(0, u64::saturating_add);
    match running {
        0 => "no thread waited for a lock for long".to_owned(),
        1 => "one thread ran at the end, and none waited for a lock for long".to_owned(),
        some => format!("{some} threads ran at the end, and none waited for a lock for long"),
    }
}

fn collections(scene: &Scene<'_>) -> String {
    let rows = scene.runtimes();
    let rows = rows.filter_map(|runtime| {
        let gc = runtime.summary.gc.as_ref()?;
        Some((runtime, gc))
    });
    let most = rows.max_by(|(_, a), (_, b)| a.paused_percent.total_cmp(&b.paused_percent));
    match most {
        Some((runtime, gc)) => format!(
            "{} collections paused {} for {} of the time, at most for {:.0} ms{}",
            gc.count,
            runtime.name(),
            percent(gc.paused_percent / 100.0),
            gc.max_pause_ms,
            allocates(runtime.summary)
        ),
        None if scene.runtimes().next().is_none() => no_runtime(),
        None => "no collection ended".to_owned(),
    }
}

fn not_started(scene: &Scene<'_>) -> String {
    match super::startup::has_started_before(scene) {
        true => "the process had started long before the capture".to_owned(),
        false => "no process used enough CPU time".to_owned(),
    }
}

fn locks(scene: &Scene<'_>) -> String {
    let waits = scene.runtimes();
    let waits = waits.filter_map(|runtime| {
        let waits = runtime.summary.contention.as_ref()?;
        let ms = waits.ms + waits.unended_ms;
        Some((
            runtime.name(),
            waits.count.saturating_add(waits.unended),
            ms,
        ))
    });
    let most = waits.max_by(|(_, _, a), (_, _, b)| a.total_cmp(b));
    let name = |place: &PlaceTime| process_name(scene.program_of(place.pid), place.pid);
    let known = match (most, longest(scene, "lock")) {
        (Some((name, count, ms)), _) => {
            format!("threads of {name} waited {count} times for locks, {ms:.0} ms in all")
        }
        (None, Some(place)) => {
            format!(
                "threads of {} waited {:.0} ms for locks",
                name(place),
                place.ms
            )
        }
        (None, None) => "no thread waited for what is known as a lock".to_owned(),
    };
    // A mutex of .NET and a semaphore are waits for another thread.
    match longest(scene, "event").filter(|place| !thread_time::is_entry_point(place)) {
        Some(place) => format!(
            "{known}; threads of {} waited {} for other threads in {}",
            name(place),
            duration(place.ms / 1e3),
            short_method(&place.method)
        ),
        None => known,
    }
}

/// Returns the place where threads waited longest for a reason, in code of the user.
fn longest<'a>(scene: &Scene<'a>, reason: &str) -> Option<&'a PlaceTime> {
    let places = scene.summary.thread_time.iter();
    let places = places.flat_map(|times| &times.places);
    let places = places.filter(|place| place.reason == reason && place.own);
    places.max_by(|a, b| a.ms.total_cmp(&b.ms))
}
