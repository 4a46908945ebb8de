//! Events of runtimes that die, stop, flood or never answer, and of killed captures: received
//! events are in the trace, missing ones are reported.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;
#[path = "events/damage.rs"]
mod damage;

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use damage::expect_damage_is_reported_first;
use perfcollect::output::summary::Summary;
use perfcollect::trace::NoticeKind;
use rustix::process::Signal;
use support::events::{entries, merged_runtime_events, raw_runtime_events, wait_for_events};
use support::{
    Finished, Missing, Running, Runtime, Workload, finish, notices_of, perfcollect, run, runtimes,
    start, workloads,
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
const EXCEPTION: u32 = 80;

/// The oldest and the newest runtime, with the workload that uses a bit of everything.
fn mixed(seconds: u32) -> Vec<(Runtime, Command)> {
    let program = need!(workloads::mixed());
    let mut runtimes = runtimes();
    if runtimes.is_empty() {
        skip!(Missing::Dotnet(0));
    }
    let chosen = [runtimes.remove(0)].into_iter().chain(runtimes.pop());
    let with_command = |runtime: Runtime| {
        let mut command = runtime.command(&program);
        command.args(["--seconds", &seconds.to_string()]);
        (runtime, command)
    };
    chosen.map(with_command).collect()
}

fn collect(pid: u32, directory: &Path) -> Command {
    let mut command = Command::new(perfcollect());
    command
        .args(["collect", "x", "-quiet", "-pid", &pid.to_string()])
        .current_dir(directory);
    command
}

fn summary(trace: &Path) -> Summary {
    serde_json::from_slice(&entries(trace, "/summary.json")[0].1).unwrap()
}

/// A program, and a capture that has received events of it.
fn under_way(command: &mut Command) -> (Workload, TempDir, Running) {
    let workload = Workload::start(command);
    let directory = tempfile::tempdir().unwrap();
    let collector = start(&mut collect(workload.pid(), directory.path()));
    wait_for_events(directory.path(), 60_000);
    (workload, directory, collector)
}

fn left_behind(directory: &Path) -> Vec<String> {
    let files = std::fs::read_dir(directory).unwrap().flatten();
    let names = files.map(|file| file.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('.')).collect()
}

#[test]
fn a_target_that_is_killed_leaves_its_events() {
    need_capture!();
    for (runtime, mut command) in mixed(60) {
        println!("on .NET {}", runtime.version);
        let (workload, directory, collector) = under_way(&mut command);
        workload.signal(Signal::KILL);
        finish(collector, LIMIT).expect_success();
        let trace = directory.path().join("x.trace.zip");
        let quality = summary(&trace).quality;
        let events = &quality.events;
        assert_eq!(events.len(), 1);
        assert!(
            events[0].events > 1000 && events[0].dropped == 0,
            "{events:?}"
        );
        // The stream ends early, which is reported.
        assert_ne!(events[0].truncated, "");
        let mut notices = quality.notices.iter();
        assert!(notices.any(|notice| {
            notice.kind == NoticeKind::EventsTruncated
                && notice.subject == events[0].pid.to_string()
        }));
        let mut view = Command::new(perfcollect());
        let report = run(view.arg("view").arg(&trace), LIMIT).expect_success();
        assert!(report.stdout.contains("; 1 stream ends early\n"));
        assert!(raw_runtime_events(&trace)[&EXCEPTION] > 100);
        assert_eq!(left_behind(directory.path()), [""; 0]);
        expect_damage_is_reported_first(&trace, &events[0]);
    }
}

#[test]
fn a_collector_that_is_killed_leaves_what_had_come() {
    need_capture!();
    for (runtime, mut command) in mixed(60) {
        println!("on .NET {}", runtime.version);
        let (workload, directory, collector) = under_way(&mut command);
        // Samples are written to disk twice a second.
        sleep(Duration::from_millis(700));
        collector.signal(Signal::KILL);
        finish(collector, LIMIT);
        let copy = tempfile::tempdir().unwrap();
        let mut copying = Command::new("cp");
        copying.args(["-r", ".x.trace.spool", ".x.trace.events"]);
        run(copying.arg(copy.path()).current_dir(&directory), LIMIT).expect_success();
        let mut recover = Command::new(perfcollect());
        recover.args(["recover", "x"]).current_dir(&directory);
        let Finished { stdout, .. } = run(&mut recover, LIMIT).expect_success();
        assert!(stdout.contains("events   "), "{stdout}");
        let trace = directory.path().join("x.trace.zip");
        let summary = summary(&trace);
        assert!(summary.samples > 0);
        assert!(summary.quality.events[0].events > 1000);
        assert_eq!(entries(&trace, "/lttngTrace/").len(), 2);
        let raw = raw_runtime_events(&trace);
        assert!(raw[&EXCEPTION] > 100);
        assert_eq!(left_behind(directory.path()), [""; 0]);
        // The same for the file alone.
        let mut recover = Command::new(perfcollect());
        recover
            .args(["recover", "x", "-format", "nettrace"])
            .current_dir(&copy);
        run(&mut recover, LIMIT).expect_success();
        let merged = copy.path().join("x.nettrace");
        assert_eq!(merged_runtime_events(&merged), raw);
        assert!(!copy.path().join("x.trace.zip").exists());
        assert_eq!(left_behind(copy.path()), [""; 0]);
        // The runtime has only noticed that its session was closed.
        workload.signal(Signal::TERM);
    }
}

/// A stopped process does not respond yet, and a process whose socket has no listener never will.
#[test]
fn whoever_does_not_answer_costs_a_notice() {
    need_capture!();
    let Some((_, mut command)) = mixed(10).pop() else {
        return;
    };
    let stopped = Workload::start(&mut command);
    stopped.signal(Signal::STOP);
    sleep(Duration::from_millis(100));
    let running = Workload::start(&mut command);
    let directory = tempfile::tempdir().unwrap();
    let mut collector = collect(running.pid(), directory.path());
    let both = format!("{},{}", running.pid(), stopped.pid());
    collector.args(["-pid", &both, "-collectsec", "1"]);
    let begin = Instant::now();
    run(&mut collector, LIMIT).expect_success();
    // A session may take a minute to start, but nothing waits for it.
    assert!(begin.elapsed() < Duration::from_secs(40));
    stopped.signal(Signal::CONT);
    let summary = summary(&directory.path().join("x.trace.zip"));
    let missing = notices_of(&summary, NoticeKind::EventsMissing);
    let subjects: Vec<_> = missing
        .iter()
        .map(|notice| notice.subject.clone())
        .collect();
    assert_eq!(subjects, [stopped.pid().to_string()]);
    let [events] = &summary.quality.events[..] else {
        panic!("{:?}", summary.quality.events);
    };
    assert_eq!(events.pid, running.pid() as i32);
}

/// After attaching to a running process, the trace contains the events since then.
#[test]
fn a_process_that_runs_already_gets_a_session() {
    need_capture!();
    for (runtime, mut command) in mixed(6) {
        println!("on .NET {}", runtime.version);
        let workload = Workload::start(&mut command);
        let directory = tempfile::tempdir().unwrap();
        let mut collector = collect(workload.pid(), directory.path());
        run(collector.args(["-collectsec", "2"]), LIMIT).expect_success();
        let done = workload.done(LIMIT);
        let trace = directory.path().join("x.trace.zip");
        let raw = raw_runtime_events(&trace);
        let counted = done["runtime"]["exceptions"].as_u64().unwrap();
        assert!(raw[&EXCEPTION] * 10 > counted && raw[&EXCEPTION] < counted);
    }
}

/// If perfcollect gets no CPU for seconds, events that do not fit into the runtime's buffers are
/// lost, and counted up to the last one.
#[test]
#[ignore = "slow"]
fn what_a_storm_drops_is_counted_exactly() {
    need_capture!();
    let program = need!(workloads::storm());
    let runtime = need!(Runtime::newest());
    let directory = tempfile::tempdir().unwrap();
    let storm = runtime.command(&program);
    let mut command = Command::new(perfcollect());
    command
        .args(["collect", "x", "-noperf", "-providers"])
        // Exceptions only: at the error level, the provider sends no other events.
        .args(["Microsoft-Windows-DotNETRuntime:0x8000:2"])
        .args(["-eventbuffer", "16", "--"])
        .arg(storm.get_program())
        .args(storm.get_args())
        .args(["--seconds", "9"])
        .env("DOTNET_ROLL_FORWARD", "LatestMajor")
        .current_dir(&directory);
    let collector = start(&mut command);
    wait_for_events(directory.path(), 150_000);
    collector.signal(Signal::STOP);
    sleep(Duration::from_secs(6));
    collector.signal(Signal::CONT);
    let finished = finish(collector, LIMIT).expect_success();
    let done = finished.stdout.lines().find(|line| line.contains("done"));
    let done: serde_json::Value = serde_json::from_str(done.unwrap()).unwrap();
    let trace = directory.path().join("x.trace.zip");
    let events = &summary(&trace).quality.events[0];
    let seen = raw_runtime_events(&trace)[&EXCEPTION];
    println!(
        "{seen} events of {}, {} dropped",
        done["thrown"], events.dropped
    );
    assert_eq!(seen + events.dropped, done["thrown"].as_u64().unwrap());
    assert!(events.dropped > 0, "there was room for all");
    assert!(
        finished.stderr.contains("dropped by their runtime"),
        "{}",
        finished.stderr
    );
    // Memory does not grow with the number of events.
    let info = summary(&trace).info;
    assert!(
        info.collector_peak_kib < 64 << 10,
        "{} KiB",
        info.collector_peak_kib
    );
}

/// If events fill the disk, the trace contains what was saved before, written to another disk.
#[test]
fn a_full_disk_costs_no_event_that_is_on_it() {
    need_capture!();
    let Some((_, mut command)) = mixed(60).pop() else {
        return;
    };
    let can_mount = run(Command::new("unshare").args(["-m", "true"]), LIMIT);
    if can_mount.status.code() != Some(0) {
        skip!(Missing::Unshare("-m"));
    }
    let workload = Workload::start(&mut command);
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("small")).unwrap();
    // The mount ends with the shell.
    let script = "mount -t tmpfs -o size=1m none small && cd small || exit 9; \
        \"$0\" collect x -maxsize 0 -collectsec 50 -pid $1; echo status $?; \
        \"$0\" recover x -quiet -o ../x && ls -A";
    let mut shell = Command::new("unshare");
    shell
        .args(["-m", "sh", "-c", script])
        .arg(perfcollect())
        .arg(workload.pid().to_string())
        .current_dir(&directory);
    let finished = run(&mut shell, LIMIT).expect_success();
    println!("{}", finished.stderr);
    assert_eq!(finished.stdout, "status 1\n");
    assert!(
        finished.stderr.contains("`perfcollect recover x -o "),
        "{}",
        finished.stderr
    );
    let trace = directory.path().join("x.trace.zip");
    let summary = summary(&trace);
    let events = &summary.quality.events[0];
    assert!(events.events > 1000, "{events:?}");
    // The spool or the stream finds the disk full first.
    let ended_by_stream = finished.stderr.contains("events cannot be kept");
    assert!(
        !ended_by_stream || !events.truncated.is_empty(),
        "{events:?}"
    );
    let raw = raw_runtime_events(&trace);
    assert!(raw[&EXCEPTION] > 100);
    let merged = directory.path().join("x.nettrace");
    assert_eq!(merged_runtime_events(&merged), raw);
    assert!(summary.samples > 0);
}

/// An event stream that cannot grow ends the capture, as a spool does: on a full disk and at the
/// file size limit.
#[test]
fn a_stream_that_cannot_grow_ends_the_capture() {
    need_capture!();
    let program = need!(workloads::storm());
    need!(Runtime::at_least(8));
    let can_mount = run(Command::new("unshare").args(["-m", "true"]), LIMIT);
    if can_mount.status.code() != Some(0) {
        skip!(Missing::Unshare("-m"));
    }
    let mut runtimes = runtimes();
    // .NET 8 and 9 have a second stream, which can still grow.
    runtimes.retain(|runtime| runtime.major() >= 8);
    runtimes.dedup_by_key(|runtime| runtime.major());
    for runtime in runtimes {
        println!("on .NET {}", runtime.version);
        let mut command = runtime.command(&program);
        let workload = Workload::start(command.args(["--seconds", "60"]));
        expect_end_without_room(workload.pid());
    }
}

#[track_caller]
fn expect_end_without_room(pid: u32) {
    let collect = "\"$0\" collect x -noperf -maxsize 0 -pid $1";
    for (limit, why) in [
        (
            "mount -t tmpfs -o size=1m none . && cd \"$PWD\"",
            "No space left",
        ),
        ("ulimit -f 600", "File too large"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let script = format!("{limit} || exit 9; {collect}");
        let mut shell = Command::new("unshare");
        shell
            .args(["-m", "sh", "-c", &script])
            .arg(perfcollect())
            .arg(pid.to_string())
            .current_dir(&directory);
        let said = run(&mut shell, LIMIT).stderr;
        let stopped = format!("...STOPPED (events cannot be kept: {why}");
        assert!(said.contains(&stopped), "{said}");
    }
}

/// An unknown provider is reported, although the rundown has events.
#[test]
fn a_provider_that_sends_nothing_is_told_of() {
    need_capture!();
    let Some((_, mut command)) = mixed(60).pop() else {
        return;
    };
    let workload = Workload::start(&mut command);
    let directory = tempfile::tempdir().unwrap();
    let collect = |options: &[&str]| {
        let mut command = collect(workload.pid(), directory.path());
        run(command.args(["-collectsec", "0.5"]).args(options), LIMIT)
    };
    let nothing = collect(&["-noperf", "-providers", "Nope"]);
    assert_eq!(nothing.status.code(), Some(1));
    let why = "no events: no events from Nope; check the provider";
    assert!(nothing.stderr.contains(why), "{}", nothing.stderr);
    assert_eq!(left_behind(directory.path()), [""; 0]);
    let runtime = "Microsoft-Windows-DotNETRuntime:0x8000:2";
    let providers = format!("Nope:1:5,{runtime},None");
    collect(&["-noperf", "-providers", &providers]).expect_success();
    let summary = summary(&directory.path().join("x.trace.zip"));
    let [notice] = &summary.quality.notices[..] else {
        panic!("{:?}", summary.quality.notices);
    };
    let notice = (notice.kind, notice.subject.as_str(), notice.count);
    assert_eq!(notice, (NoticeKind::ProviderSilent, "Nope, None", 2));
}
