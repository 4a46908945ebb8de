//! Captures that follow where threads spend the time without a CPU, compared with what the threads measured
//! themselves, and with what PerfView's reader shows.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use perfcollect::output::summary::{PlaceTime, Summary, ThreadTime};
use perfcollect::trace::NoticeKind;
use support::{
    Finished, LimitedGroup, Missing, Running, Runtime, Workload, compiled, notices_of, perfcollect,
    perfview_json, perfview_text, run, run_perfcollect, runtimes, start, wait_until, workloads,
    zip,
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(90);
/// `tests/workloads/native/waiting_times.c`.
const WAITING: &str = include_str!("workloads/native/waiting_times.c");
/// Threads that wait in many places for random times: `tests/workloads/native/waiting_places.c`.
const PLACES: &str = include_str!("workloads/native/waiting_places.c");
/// Threads that end before most looks: `tests/workloads/native/short_threads.c`.
const SHORT: &str = include_str!("workloads/native/short_threads.c");
/// Seconds for which the program runs.
const SECONDS: &str = "4";

struct Traced {
    directory: TempDir,
    /// What the command printed.
    printed: String,
}

impl Traced {
    /// Captures a command until it ends.
    fn command(directory: TempDir, command: &[&str]) -> Self {
        let options = ["collect", "x", "-threadtime", "--"];
        let words = options.iter().chain(command).copied();
        let finished = run_perfcollect(words, directory.path(), LIMIT).expect_success();
        Self {
            printed: finished.stdout,
            directory,
        }
    }

    /// Captures the program that measures its waits, with threads that spin.
    fn waiting(spinners: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = ["-O1", "-g", "-pthread"];
        let program = compiled(directory.path(), "waiting", WAITING, &options);
        Self::command(
            directory,
            &[program.to_str().unwrap(), SECONDS, spinners, "synced"],
        )
    }

    fn entry(&self, archive: &str, name: &str) -> String {
        let file = self.directory.path().join(format!("{archive}.trace.zip"));
        let archived = std::fs::read(file).unwrap();
        String::from_utf8(zip::entry(&archived, &format!("{archive}.trace/{name}"))).unwrap()
    }

    fn summary(&self) -> Summary {
        serde_json::from_str(&self.entry("x", "summary.json")).unwrap()
    }

    fn times(&self) -> ThreadTime {
        self.summary().thread_time.unwrap()
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> Finished {
        run_perfcollect(words.iter().copied(), self.directory.path(), LIMIT).expect_success()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }
}

/// Milliseconds below a function of the program, by reason.
fn below(folded: &str, function: &str) -> BTreeMap<String, f64> {
    let mut reasons = BTreeMap::new();
    for line in folded.lines() {
        let (stack, us) = line.rsplit_once(' ').unwrap();
        let frames: Vec<&str> = stack.split(';').collect();
        if frames.contains(&function) {
            let leaf = frames.last().unwrap().trim_start_matches('[');
            let reason = leaf.split([':', ']']).next().unwrap();
            *reasons.entry(reason.to_owned()).or_default() += us.parse::<f64>().unwrap() / 1e3;
        }
    }
    reasons
}

#[test]
fn times_are_those_that_threads_measured() {
    for spinners in ["0", "2"] {
        let traced = Traced::waiting(spinners);
        let folded = traced.entry("x", "blocked.folded");
        // What is between two looks at a thread is known by chance only: more so for the lock, whose waits
        // are as long as the sleeps between them.
        for (function, reason, tolerance) in [
            ("wait_for_sleep", "sleep", 0.05),
            ("wait_for_lock", "lock", 0.25),
            ("wait_for_socket", "socket", 0.05),
            ("wait_for_pipe", "pipe", 0.05),
        ] {
            let mut lines = traced.printed.lines();
            let measured = lines.find_map(|line| line.strip_prefix(function)).unwrap();
            let measured: f64 = measured.trim().parse().unwrap();
            let found = below(&folded, function);
            let waited = found.get(reason).copied().unwrap_or_default();
            let error = (waited - measured).abs();
            assert!(
                error < measured * tolerance + 50.0,
                "{function} with {spinners} spinners: {measured} ms, {found:?}"
            );
            // Nothing but waits for a CPU is there otherwise.
            let others = found.keys().filter(|name| *name != reason);
            let others: Vec<_> = others
                .filter(|name| !["ready", "preempted", "throttled"].contains(&name.as_str()))
                .collect();
            assert_eq!(others, Vec::<&String>::new(), "{function}");
        }
    }
}

/// The looks take the places in their true proportions: the total variation distance to what the threads
/// measured is small.
#[test]
fn places_have_the_shares_that_threads_measured() {
    need_capture!();
    need_command!("cc");
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(
        directory.path(),
        "places",
        PLACES,
        &["-O1", "-g", "-pthread"],
    );
    // The build for tests takes more CPU time for a look.
    let options = ["collect", "x", "-threadtime", "-budget", "20", "--"];
    let words = options
        .into_iter()
        .chain([program.to_str().unwrap(), SECONDS]);
    let finished = run_perfcollect(words, directory.path(), LIMIT).expect_success();
    let traced = Traced {
        printed: finished.stdout,
        directory,
    };
    let folded = traced.entry("x", "blocked.folded");
    let places = traced.printed.lines().filter_map(|line| {
        let (function, ms) = line.split_once(' ')?;
        let measured: f64 = ms.parse().unwrap();
        let mut found = below(&folded, function);
        found.retain(|reason, _| !["ready", "preempted", "throttled"].contains(&&**reason));
        Some((measured, found.values().sum::<f64>()))
    });
    let places: Vec<_> = places.collect();
    assert_eq!(places.len(), 24, "{}", traced.printed);
    let measured: f64 = places.iter().map(|(measured, _)| measured).sum();
    let found: f64 = places.iter().map(|(_, found)| found).sum();
    let differences = places.iter().map(|(m, f)| (m / measured - f / found).abs());
    let distance = differences.sum::<f64>() / 2.0;
    println!("total variation {:.2} %", distance * 100.0);
    // Beside eight compilers it was 8 %; if all places had the same time, it would be 34 %.
    assert!(distance < 0.15, "{distance}: {places:?}");
}

/// Few of the threads are looked at. The others have their time, and their function.
#[test]
fn short_threads_have_their_times() {
    need_capture!();
    need_command!("cc");
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path(), "short", SHORT, &["-O1", "-g", "-pthread"]);
    let traced = Traced::command(directory, &[program.to_str().unwrap(), SECONDS]);
    let mut lines = traced.printed.lines();
    let lived = lines.find_map(|line| line.strip_prefix("short_life "));
    let lived: f64 = lived.unwrap().parse().unwrap();
    let found = below(&traced.entry("x", "blocked.folded"), "short_life");
    let sum: f64 = found.values().sum();
    assert!((sum - lived).abs() < lived * 0.15, "{lived} ms, {found:?}");
    let threads = traced.times().threads;
    let short = threads.iter().filter(|row| row.name == "short");
    assert!(short.count() > 50, "{threads:?}");
}

#[test]
fn times_of_a_thread_add_up_to_the_length_of_the_capture() {
    let traced = Traced::waiting("3");
    let summary = traced.summary();
    let times = summary.thread_time.clone().unwrap();
    let sum: f64 = times.threads.iter().map(|row| row.ms).sum();
    assert!((sum - times.ms).abs() < 1.0, "{sum} {}", times.ms);
    let reasons: f64 = times.reasons.iter().map(|row| row.ms).sum();
    assert!((reasons - times.ms).abs() < 1.0);
    for name in ["sleeper", "locker", "receiver", "reader", "spinner"] {
        let row = times.threads.iter().find(|row| row.name == name).unwrap();
        let all = row.cpu_ms + row.ms;
        // It starts a moment after the capture, and its CPU time is sampled.
        let length = SECONDS.parse::<f64>().unwrap() * 1e3;
        assert!((all - length).abs() < length * 0.05, "{row:?}");
    }
    // Threads that only wait for CPUs are not blocked.
    let spinner = times.threads.iter().find(|row| row.name == "spinner");
    let waits = ["ready", "preempted", "throttled"];
    let of_cpu = |rows: &[perfcollect::output::summary::ReasonTime]| -> f64 {
        let of_cpu = rows.iter().filter(|row| waits.contains(&&*row.reason));
        of_cpu.map(|row| row.ms).sum()
    };
    let spinner = spinner.unwrap();
    assert!(of_cpu(&spinner.reasons) > spinner.ms - 40.0, "{spinner:?}");
}

#[test]
fn perfview_shows_the_same_times() {
    let traced = Traced::waiting("1");
    let times = traced.times();
    for file in ["x.trace.zip", "x.nettrace"] {
        let Some(shown) = perfview_json("threadtime", &traced.path(file), &[]) else {
            return;
        };
        assert_eq!(shown["negativeSamples"], 0, "{file}");
        let processes = shown["processes"].as_array().unwrap().iter();
        let threads = processes.flat_map(|process| process["threads"].as_array().unwrap());
        let blocked: BTreeMap<i64, f64> = threads
            .map(|thread| {
                let tid = thread["tid"].as_i64().unwrap();
                (
                    tid,
                    thread["ms"]["BLOCKED_TIME"].as_f64().unwrap_or_default(),
                )
            })
            .collect();
        for row in &times.threads {
            let shown = blocked[&i64::from(row.tid)];
            assert!((shown - row.ms).abs() < 1.0, "{file}: {shown} {row:?}");
        }
    }
}

/// PerfView looks at what a thread works for at each event of an activity: it has a CPU then.
#[test]
fn perfview_shows_no_negative_times_beside_activities() {
    need_capture!();
    let program = need!(workloads::shared("webapi/webapi.dll"));
    let Some(runtime) = runtimes().into_iter().rfind(|runtime| runtime.aspnet) else {
        skip!(Missing::AspNet(0));
    };
    let directory = tempfile::tempdir().unwrap();
    let mut command = runtime.command(&program);
    command.args(["--load", "60"]);
    let workload = Workload::start(&mut command);
    let pid = workload.pid().to_string();
    let options = ["collect", "x", "-threadtime", "-requests", "-awaits"];
    let words = options
        .into_iter()
        .chain(["-collectsec", "2", "-pid", &pid]);
    let finished = run_perfcollect(words, directory.path(), LIMIT).expect_success();
    drop(workload);
    let traced = Traced {
        printed: finished.stdout,
        directory,
    };
    let times = traced.times();
    for file in ["x.trace.zip", "x.nettrace"] {
        let Some(shown) = perfview_json("threadtime", &traced.path(file), &["--process", &pid])
        else {
            return;
        };
        assert_eq!(shown["negativeSamples"], 0, "{file}");
        let blocked = shown["ms"]["BLOCKED_TIME"].as_f64().unwrap();
        assert!((blocked - times.ms).abs() < times.ms * 0.001, "{file}");
    }
}

#[test]
fn processes_that_start_meanwhile_are_looked_at() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let script = "for i in $(seq 25); do sleep 0.1; done";
    let traced = Traced::command(directory, &["sh", "-c", script]);
    let times = traced.times();
    let of = |reason: &str| {
        let rows = times.reasons.iter().filter(|row| row.reason == reason);
        rows.map(|row| row.ms).sum::<f64>()
    };
    let (asleep, unseen) = (of("sleep"), of("unseen"));
    // The kernel reports each some 25 ms later.
    assert!(asleep > 1500.0 && unseen < 1000.0, "{:?}", times.reasons);
}

/// A group that may run for a tenth of a CPU, with one thread that needs all of it.
#[test]
fn cpu_limits_of_control_groups_are_reasons() {
    let group = need!(LimitedGroup::new(10_000));
    let directory = tempfile::tempdir().unwrap();
    let spin = "int main(void) { for (volatile long i = 0;; i++) {} }";
    let spin = compiled(directory.path(), "spin", spin, &["-O1"]);
    let limited = group.start(&[spin.to_str().unwrap()]);
    let pid = limited.pid().to_string();
    let options = ["collect", "x", "-threadtime", "-collectsec", "3"];
    let words = options.into_iter().chain(["-pid", &pid]);
    let finished = run_perfcollect(words, directory.path(), LIMIT).expect_success();
    let traced = Traced {
        printed: finished.stdout,
        directory,
    };
    let summary = traced.summary();
    let times = summary.thread_time.as_ref().unwrap();
    let mut reasons = times.reasons.iter();
    let throttled = reasons.find(|row| row.reason == "throttled").unwrap();
    let pressure = summary.info.cpu_pressure.as_ref().unwrap();
    assert!(pressure.throttled_group.contains(group.name()));
    // The capture starts and ends within a period.
    let error = (throttled.ms - pressure.throttled_ms).abs();
    let tolerance = pressure.throttled_ms * 0.02 + 100.0;
    assert!(error < tolerance, "{pressure:?} {:?}", times.reasons);
    let mut findings = summary.findings.iter();
    let found = findings.find(|finding| finding.rule == "thread-time");
    let text = &found.unwrap().text;
    assert!(
        text.contains("CPU limit") && text.contains("raise"),
        "{text}"
    );
    let leaf = "throttled: CPU limit of the control group";
    let folded = traced.entry("x", "blocked.folded");
    assert!(folded.contains(&format!("[{leaf}]")), "{folded}");
    let leaf = format!("{leaf}}};BLOCKED_TIME");
    for file in ["x.trace.zip", "x.nettrace"] {
        let Some(shown) = perfview_text("threadtime", &traced.path(file), &["--folded=ms"]) else {
            return;
        };
        let lines = shown.lines().filter(|line| line.contains(&leaf));
        let ms = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap());
        let ms: f64 = ms.sum();
        assert!(
            (ms - throttled.ms).abs() < 1.0,
            "{file}: {ms} {throttled:?}"
        );
    }
}

/// 300 threads that sleep.
const SLEEPERS: &str = "
#include <pthread.h>
#include <unistd.h>
static void *rest(void *x) { for (;;) usleep(50000); return x; }
int main(void) {
    pthread_t thread;
    for (int i = 0; i < 300; i++) if (pthread_create(&thread, 0, rest, 0)) return 1;
    pause();
}
";

/// Starts the program with 301 threads.
fn sleepers(directory: &TempDir) -> Running {
    let options = ["-O1", "-pthread"];
    let program = compiled(directory.path(), "sleepers", SLEEPERS, &options);
    let sleepers = start(&mut Command::new(program));
    let tasks = format!("/proc/{}/task", sleepers.pid());
    let threads = || std::fs::read_dir(&tasks).unwrap().count();
    wait_until("all threads are there", || threads() == 301);
    sleepers
}

/// The next look would come long after the end.
#[test]
fn a_small_budget_is_kept_and_all_time_is_there() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let sleepers = sleepers(&directory);
    let pid = sleepers.pid().to_string();
    let options = ["collect", "x", "-threadtime", "-budget", "0.1"];
    let words = options
        .into_iter()
        .chain(["-collectsec", "1", "-pid", &pid]);
    let finished = run_perfcollect(words, directory.path(), LIMIT).expect_trace();
    let traced = Traced {
        printed: finished.stdout,
        directory,
    };
    let summary = traced.summary();
    let [notice] = &notices_of(&summary, NoticeKind::NoThreadTime)[..] else {
        panic!("{:?}", summary.quality.notices);
    };
    assert!(notice.what.contains("at most 0.1 % of a CPU"), "{notice:?}");
    assert!(notice.remedy.contains("-budget"), "{notice:?}");
    let times = summary.thread_time.unwrap();
    assert_eq!(times.threads.len(), 301);
    let shortest = times.threads.iter().map(|row| row.ms + row.cpu_ms);
    let shortest = shortest.fold(f64::INFINITY, f64::min);
    // All are known before the capture starts.
    assert!(shortest > 985.0, "{shortest} ms");
}

/// Two files of each thread may take half of the descriptors.
#[test]
fn threads_whose_files_cannot_be_opened_are_counted() {
    need_capture!();
    need_command!("prlimit");
    need_command!("setpriv");
    let directory = tempfile::tempdir().unwrap();
    let sleepers = sleepers(&directory);
    let mut command = Command::new("prlimit");
    command.args([
        "--nofile=256:256",
        "setpriv",
        "--bounding-set=-sys_resource",
    ]);
    command.args([perfcollect(), "collect".as_ref(), "x".as_ref()]);
    command.args(["-threadtime", "-collectsec", "1", "-format", "zip", "-pid"]);
    command.arg(sleepers.pid().to_string());
    command.current_dir(&directory);
    let printed = run(&mut command, LIMIT).expect_trace().stdout;
    let traced = Traced { directory, printed };
    let summary = traced.summary();
    let notices = notices_of(&summary, NoticeKind::NoThreadTime);
    let mut notices = notices.iter();
    let missing = notices.find(|notice| notice.what.contains("too many files were open"));
    let missing = missing.unwrap();
    assert!(missing.remedy.contains("ulimit -n"), "{missing:?}");
    let followed = summary.thread_time.as_ref().unwrap().threads.len() as u64;
    assert!((20..64).contains(&followed), "{followed}");
    // A file may have been closed for another one meanwhile.
    assert!(
        (301 - followed..=281).contains(&missing.count),
        "{missing:?}"
    );
}

#[test]
fn a_program_that_only_waits_has_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let traced = Traced::command(directory, &["sleep", "1.5"]);
    let times = traced.times();
    let [sleep] = &times.reasons[..1] else {
        panic!("{times:?}");
    };
    assert_eq!(sleep.reason, "sleep");
    assert!((1300.0..1600.0).contains(&sleep.ms), "{times:?}");
    let rows = traced.run(&["report", "x", "-kind", "threadtime", "-format", "csv"]);
    assert!(rows.stdout.contains(",sleep,1,"), "{}", rows.stdout);
}

#[test]
fn commands_keep_and_select_the_times() {
    let traced = Traced::waiting("0");
    let times = traced.times();
    traced.run(&["convert", "x.trace.zip", "-o", "y"]);
    let again: Summary = serde_json::from_str(&traced.entry("y", "summary.json")).unwrap();
    assert_eq!(again.thread_time.as_ref(), Some(&times));
    let stacks = |name| traced.entry(name, "blocked.folded");
    assert_eq!(stacks("x"), stacks("y"));
    for name in ["x", "y"] {
        let graph = std::fs::read_to_string(traced.path(&format!("{name}.blocked.svg"))).unwrap();
        assert_eq!(graph, traced.entry(name, "blocked.svg"));
        assert!(graph.contains("[sleep: clock_nanosleep]"));
        assert!(!graph.contains("[idle:"));
    }
    let of_thread = |words: &[&str]| {
        let all = ["report", "x", "-kind", "summary", "-format", "json"];
        let words: Vec<&str> = all.iter().chain(words).copied().collect();
        let summary: Summary = serde_json::from_str(&traced.run(&words).stdout).unwrap();
        summary.thread_time.unwrap()
    };
    let receiver = of_thread(&["-thread", "receiver"]);
    let [row] = &receiver.threads[..] else {
        panic!("{receiver:?}");
    };
    let whole = times.threads.iter().find(|row| row.name == "receiver");
    assert_eq!(Some(row), whole);
    let second = of_thread(&["-thread", "receiver", "-from", "1", "-to", "2"]);
    let all = second.threads[0].ms + second.threads[0].cpu_ms;
    assert!((all - 1000.0).abs() < 20.0, "{second:?}");
}

/// Before .NET 10, the functions of the runtime that wait for a monitor have no names.
#[test]
fn locks_of_dotnet_are_reasons() {
    let program = need!(workloads::trouble());
    let newest = need!(Runtime::newest());
    let nameless = runtimes().into_iter().find(|runtime| runtime.major() == 8);
    for runtime in nameless.into_iter().chain([newest]) {
        expect_locks(&runtime, &program);
    }
}

fn expect_locks(runtime: &Runtime, program: &Path) {
    let mut command = runtime.command(program);
    command.args(["--mode", "lock", "--seconds", "60"]);
    let workload = Workload::start(&mut command);
    let directory = tempfile::tempdir().unwrap();
    let pid = workload.pid().to_string();
    let words = [
        "collect",
        "x",
        "-threadtime",
        "-collectsec",
        "2",
        "-pid",
        &pid,
    ];
    let finished = run_perfcollect(words, directory.path(), LIMIT).expect_success();
    let traced = Traced {
        printed: finished.stdout,
        directory,
    };
    let times = traced.times();
    let lock = times.places.iter().find(|place| place.reason == "lock");
    let lock = lock.unwrap_or_else(|| panic!("{times:?}"));
    assert!(lock.own && lock.threads > 1, "{lock:?}");
    let other = |place: &&PlaceTime| place.own && place.reason == "event";
    let other: f64 = times.places.iter().filter(other).map(|row| row.ms).sum();
    assert!(other < lock.ms / 4.0, "{times:?}");
    assert!(
        Path::new(&lock.module)
            .file_stem()
            .is_some_and(|name| name == "trouble"),
        "{lock:?}"
    );
    let findings = traced.summary().findings;
    let finding = findings
        .iter()
        .find(|finding| finding.rule == "thread-time");
    let text = &finding.unwrap().text;
    assert_eq!(text.matches("for locks in").count(), 1, "{findings:?}");
    // The threads of the runtime have no work, but for the moment until its code is analyzed, which takes the longer in
    // a build for tests: not known of two threads for a tenth of the time.
    let runtime = |place: &&PlaceTime| ["io", "pipe"].contains(&&*place.reason) && place.ms > 400.0;
    assert_eq!(times.places.iter().find(runtime), None);
}
