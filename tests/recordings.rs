//! Recordings of all kinds, converted, sample by sample against the installed perf: those made by
//! this test with common sets of options, and those of other people, from old kernels, other
//! processors and pipes.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;
#[path = "recordings/bytes.rs"]
mod bytes;
#[path = "recordings/compare.rs"]
mod compare;
#[path = "recordings/dialects.rs"]
mod dialects;
#[path = "recordings/refused.rs"]
mod refused;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use compare::{Compared, compare};
use perfcollect::trace::NoticeKind;
use support::recording::{can_record, native_words, record, record_pipe, run_with_tracefs};
use support::{Missing, skip};

/// Time limit of one run of perf or perfcollect.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Recordings by others, which are not in this repository.
const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared");
const HYBRID: &str = "fixtures/perf-data/perf.data.hybrid_topology";

macro_rules! need_perf {
    () => {
        need!(can_record());
    };
}

/// Common sets of options, and whether the recording is piped.
const OPTIONS: [(&str, &[&str], bool); 20] = [
    ("plain", &["-F", "999"], false),
    ("frame pointers", &["-F", "999", "-g"], false),
    (
        "stack copies",
        &["-F", "199", "--call-graph", "dwarf"],
        false,
    ),
    ("whole machine", &["-F", "499", "-a"], false),
    ("whole machine, callers", &["-F", "499", "-a", "-g"], false),
    ("each thread", &["-F", "999", "--per-thread"], false),
    ("pipe", &["-F", "999"], true),
    ("pipe, callers", &["-F", "999", "-g"], true),
    ("compressed", &["-F", "999", "-g", "-z"], false),
    ("compressed pipe", &["-F", "999", "-z"], true),
    ("times", &["-F", "999", "-T"], false),
    ("counts", &["-F", "999", "-s"], false),
    ("period", &["-c", "2000000"], false),
    (
        "two events",
        &["-F", "999", "-e", "page-faults,cpu-clock"],
        false,
    ),
    (
        "two events of one kind",
        &["-F", "499", "-e", "cpu-clock:u,cpu-clock"],
        false,
    ),
    (
        "group",
        &["-F", "999", "-e", "{cpu-clock,page-faults}:S"],
        false,
    ),
    (
        "kernel callers",
        &["-F", "999", "-g", "--kernel-callchains"],
        false,
    ),
    (
        "user callers",
        &["-F", "999", "-g", "--user-callchains"],
        false,
    ),
    ("build ids", &["-F", "999", "--buildid-mmap"], false),
    (
        "switches",
        &["-F", "999", "--switch-events", "--namespaces", "-R"],
        false,
    ),
];

#[test]
#[ignore = "slow"]
fn every_way_to_record_gives_the_samples_of_perf() {
    need_perf!();
    let command = need!(native_words("native-fp"));
    for (name, options, is_piped) in OPTIONS {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("perf.data");
        match is_piped {
            true => record_pipe(&file, options, &command),
            false => record(&file, options, &command),
        }
        let compared = compare(&file, None);
        println!("{name}: {compared}");
        assert!(compared.samples > 30, "{name}: {compared}");
        expect_same(name, &compared);
        // The substitute for a stack in each kind of recording.
        let is_copied = options.contains(&"dwarf");
        let has_callers = options.contains(&"-g") || is_copied;
        let is_partial = options.contains(&"--kernel-callchains");
        let stacks = compared.quality;
        let without = stacks.as_recorded;
        assert_eq!(stacks.empty, 0, "{name}: {stacks:?}");
        match has_callers && !is_partial {
            true => assert_eq!(without, 0, "{name}: {stacks:?}"),
            false => assert_eq!(without, compared.samples, "{name}: {stacks:?}"),
        }
        let mut notices = compared.notices.iter();
        // `None`: of all samples.
        let is_reported =
            notices.any(|notice| notice.kind == NoticeKind::NoCallers && notice.count == 0);
        assert_eq!(
            is_reported,
            !has_callers || is_partial,
            "{name}: {:?}",
            compared.notices
        );
    }
}

/// A process that is already running, and a tracepoint beside the clock.
#[test]
fn a_running_process_and_a_tracepoint() {
    need_perf!();
    let command = need!(native_words("native-fp"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let mut target = Command::new(&command[0])
        .args(["--mode", "shares", "--seconds", "30"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = target.id().to_string();
    record(&file, &["-F", "999", "-p", &pid], ["sleep", "1"]);
    target.kill().unwrap();
    target.wait().unwrap();
    let compared = compare(&file, None);
    println!("{compared}");
    assert!(compared.samples > 30, "{compared}");
    expect_same("-p", &compared);

    let script = format!(
        "perf record -q --no-buildid-cache -e sched:sched_switch -e cpu-clock -a -o - -- sh -c 'ls -lR /etc' >{}",
        file.display()
    );
    if !run_with_tracefs(&script) {
        skip!(Missing::Tracepoints);
    }
    let compared = compare(&file, Some("sched:sched_switch"));
    println!("{compared}");
    assert!(compared.samples > 10, "{compared}");
    expect_same("tracepoint", &compared);
}

/// Lists what this machine cannot record. On a machine that can, add it to the table above.
#[test]
fn what_cannot_be_recorded_here() {
    need_perf!();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    for options in ["-e cycles", "--call-graph lbr", "-b", "-e intel_pt//u"] {
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "--no-buildid-cache"])
            .args(options.split(' '))
            .arg("-o")
            .arg(&file)
            .args(["--", "true"]);
        match perf.output().unwrap().status.success() {
            true => {
                let compared = compare(&file, None);
                println!("{options:?}: {compared}");
                expect_same("hardware", &compared);
            }
            false => skip(Missing::PerfRecord(options)),
        }
    }
}

/// Samples, times and leaves are equal to perf's, and all frames except for the listed reasons.
#[track_caller]
fn expect_same(name: &str, compared: &Compared) {
    let Compared {
        samples,
        of_perf,
        leaves,
        differences,
        ..
    } = compared;
    assert_eq!(samples, of_perf, "{name}: {compared}");
    assert_eq!(leaves, samples, "{name}: {compared} {differences:#?}");
    assert!(differences.is_empty(), "{name}: {differences:#?}");
}

/// Recordings that perf 6.1 cannot read, and why.
const BEYOND_PERF: [(&str, &str); 6] = [
    ("sleep.data", "attributes of a later perf"),
    ("sleep.compressed.data", "attributes of a later perf"),
    ("sleep.compressed2.data", "attributes of a later perf"),
    ("sleep.compressed2.pipe.data", "PERF_RECORD_COMPRESSED2"),
    ("fibo.compressed2.pipe.data", "PERF_RECORD_COMPRESSED2"),
    (
        "perf_with_callchain_record.data",
        "attributes that simpleperf writes",
    ),
];

#[test]
fn recordings_of_others_give_the_samples_of_perf() {
    need_perf!();
    let files = by_others();
    if files.is_empty() {
        skip!(Missing::Shared("fixtures/perf-data"));
    }
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let beyond = BEYOND_PERF.iter().find(|(known, _)| *known == name);
        if let Some((_, why)) = beyond {
            println!("{name}: perf 6.1 cannot read it: {why}");
            compare::expect_all_of_script(&file);
            continue;
        }
        for event in compare::events(&file) {
            let compared = compare(&file, Some(&event));
            println!("{name}, {event}: {compared}");
            expect_same(&name, &compared);
        }
    }
}

/// Two kinds of CPUs, one event.
#[test]
fn events_of_a_hybrid_processor_are_one() {
    need_perf!();
    let file = Path::new(SHARED).join(HYBRID);
    if !file.exists() {
        skip!(Missing::Shared(HYBRID));
    }
    let compared = compare(&file, None);
    assert_eq!(
        (compared.event.as_str(), compared.samples),
        ("cycles:ppp", 7)
    );
    let has = |kind| compared.notices.iter().any(|notice| notice.kind == kind);
    assert!(has(NoticeKind::EventsMerged), "{:?}", compared.notices);
    assert!(!has(NoticeKind::EventOmitted), "{:?}", compared.notices);
}

fn by_others() -> Vec<PathBuf> {
    let directories =
        ["fixtures", "fixtures/perf-data"].map(|directory| Path::new(SHARED).join(directory));
    let entries = directories
        .iter()
        .filter_map(|directory: &PathBuf| directory.read_dir().ok());
    let paths = entries.flatten().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            path.is_file() && (name.ends_with(".data") || name.starts_with("perf.data"))
        })
        .collect();
    files.sort();
    files
}
