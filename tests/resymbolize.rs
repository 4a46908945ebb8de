//! `perfcollect symbols NAME.trace.zip` symbolizes a trace that is already written.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use perfcollect::nettrace::Reader;
use perfcollect::output::summary::Summary;
use support::{
    Missing, children, compiled, end_capture, file_names, perfcollect, run, start_capture,
    unnamed_files, wait_for_cpu_time, workloads, zip,
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
/// No server answers there.
const NO_SERVER: [&str; 2] = ["-server", "http://127.0.0.1:1"];
const PROGRAM: &str = "program";

/// A recording of a stripped program, whose debug file is in `symbols/`.
struct Recording {
    directory: TempDir,
}

impl Recording {
    fn new() -> Result<Self, Missing> {
        let original = workloads::chains("chains-cpp")?;
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("symbols")).unwrap();
        let (program, debug) = (at(PROGRAM), at("symbols/program.debug"));
        let objcopy = |options: &[&str], from: &Path, to: &Path| {
            let mut command = Command::new("objcopy");
            let done = command.args(options).args([from, to]).status();
            match done {
                Ok(status) => {
                    assert!(status.success());
                    Ok(())
                }
                Err(_) => Err(Missing::Command("objcopy")),
            }
        };
        objcopy(&["--only-keep-debug"], &original, &debug)?;
        objcopy(&["--strip-all"], &original, &program)?;
        support::recording::can_record()?;
        support::recording::record(
            &at("perf.data"),
            &["-F", "2000", "--call-graph", "dwarf,16384"],
            [program.as_os_str(), "1".as_ref()],
        );
        Ok(Self { directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs perfcollect in the directory, which has the only cache and home that it may use.
    fn perfcollect(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(perfcollect());
        command
            .args(arguments)
            .current_dir(&self.directory)
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("HOME", self.path("home"))
            .env_remove("DEBUGINFOD_URLS")
            .env_remove("_NT_SYMBOL_PATH");
        command
    }

    fn convert(&self, name: &str, options: &[&str]) {
        let fixed = ["convert", "perf.data", "-quiet", "-o", name];
        let mut command = self.perfcollect(&[&fixed, options].concat());
        run(&mut command, LIMIT).expect_success();
    }

    /// Returns what is printed. The status is 1: libraries of the system have no debug files.
    fn symbols(&self, name: &str) -> String {
        let fixed = ["symbols", name, "-symbols", "symbols"];
        let mut command = self.perfcollect(&[&fixed[..], &NO_SERVER].concat());
        let output = command.output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    fn entry(&self, name: &str, entry: &str) -> Vec<u8> {
        let archive = fs::read(self.path(&format!("{name}.trace.zip"))).unwrap();
        zip::entry(&archive, &format!("{name}.trace/{entry}"))
    }

    fn summary(&self, name: &str) -> Summary {
        serde_json::from_slice(&self.entry(name, "summary.json")).unwrap()
    }
}

/// Names are inlined functions of the program, too.
#[test]
fn equals_a_trace_that_was_written_with_the_debug_file() {
    let recording = need!(Recording::new());
    for style in [&[][..], &["-shortnames"]] {
        recording.convert("late", &[style, &["-force"]].concat());
        let with = ["-force", "-symbols", "symbols"];
        recording.convert("with", &[style, &with].concat());
        let before = recording.entry("late", "perf.data.txt");
        let with = recording.entry("with", "perf.data.txt");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let named = |text: &str| {
            let frames = text.lines().filter(|line| line.ends_with(" (program)"));
            let unnamed = |line: &&str| line.contains(" 0x") || line.contains("@plt");
            frames.filter(|line| !unnamed(line)).count()
        };
        assert_eq!(named(&text(&before)), 0);
        assert!(named(&text(&with)) > 1000);

        let old_nettrace = fs::read(recording.path("late.nettrace")).unwrap();
        let printed = recording.symbols("late.trace.zip");
        assert!(printed.contains("symbolized program ("), "{printed}");
        for file in ["late.nettrace", "late.flamegraph.svg"] {
            assert!(printed.contains(&format!("{file}: updated")), "{printed}");
        }
        let nettrace = |name: &str| fs::read(recording.path(name)).unwrap();
        assert!(nettrace("late.nettrace") == nettrace("with.nettrace"));
        for entry in ["perf.data.txt", "stacks.folded"] {
            let (late, with) = (
                recording.entry("late", entry),
                recording.entry("with", entry),
            );
            assert!(late == with, "{entry} differs");
        }
        let svg = |name: &str| text(&recording.entry(name, "flamegraph.svg"));
        // The title is the name of the trace.
        assert_eq!(svg("late").replace(">late<", ">with<"), svg("with"));
        let beside = fs::read_to_string(recording.path("late.flamegraph.svg")).unwrap();
        assert_eq!(beside, svg("late"));
        let (late, with) = (recording.summary("late"), recording.summary("with"));
        assert_eq!(late.methods, with.methods);
        assert_eq!(late.method_count, with.method_count);
        assert_eq!(late.quality.names, with.quality.names);
        assert_eq!(late.modules, with.modules);

        let bytes = fs::read(recording.path("late.trace.zip")).unwrap();
        for is_left_behind in [false, true] {
            if is_left_behind {
                fs::write(recording.path("late.nettrace"), &old_nettrace).unwrap();
            }
            let printed = recording.symbols("late.trace.zip");
            assert!(printed.contains("late.trace.zip: unchanged"), "{printed}");
            let is_updated = printed.contains("late.nettrace: updated");
            assert_eq!(is_updated, is_left_behind, "{printed}");
            assert!(nettrace("late.nettrace") == nettrace("with.nettrace"));
            assert!(fs::read(recording.path("late.trace.zip")).unwrap() == bytes);
        }
    }
}

/// The archive is the last file that is replaced.
const REPLACED: [&str; 3] = ["late.nettrace", "late.flamegraph.svg", "late.trace.zip"];
/// Two turns of each kind.
const MIN_KILLS: u32 = 12;
/// Much longer than all turns on a busy system.
const MAX_KILLING: Duration = Duration::from_secs(600);

/// Number of new files that are open when the first and when the archive is written. They have no
/// names yet.
const ANY: usize = 1;
const ARCHIVE: usize = 2;

/// The moment of a kill.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// After a fraction of the time of a whole run.
    After(f64),
    /// So many new files are open, and a fraction of the time of a whole run later.
    Writing(usize, f64),
    /// The first of the files has changed.
    Changed,
}

impl Moment {
    /// Returns a moment of the next kind, with a fraction that differs from turn to turn.
    fn of_turn(turn: u32) -> Self {
        // Multiples of the golden ratio fill an interval evenly.
        let fraction = (f64::from(turn) * 0.618_034).fract();
        match turn % 6 {
            0 => Self::After(fraction),
            1 => Self::Writing(ANY, fraction),
            2 => Self::Writing(ARCHIVE, 0.0),
            3 => Self::Writing(ARCHIVE, fraction / 2.0),
            _ => Self::Changed,
        }
    }
}

#[test]
fn a_killed_run_leaves_each_file_old_or_new() {
    let recording = need!(Recording::new());
    recording.convert("late", &[]);
    let read = || REPLACED.map(|file| fs::read(recording.path(file)).unwrap());
    let status = || {
        REPLACED.map(|file| {
            let metadata = fs::metadata(recording.path(file)).unwrap();
            (metadata.ino(), metadata.len())
        })
    };
    let directory = recording.path("").canonicalize().unwrap();
    let mut symbols = recording.perfcollect(&["symbols", "late.trace.zip", "-quiet"]);
    symbols
        .args(["-symbols", "symbols"])
        .args(NO_SERVER)
        .stderr(Stdio::null());

    let old = read();
    let start = Instant::now();
    // The status is 1: libraries of the system have no debug files.
    symbols.status().unwrap();
    let usual = start.elapsed();
    let new = read();
    assert!(old.iter().zip(&new).all(|(old, new)| old != new));

    // By the number of open files.
    let mut killed_while_writing = [0; 4];
    let mut mixed = 0;
    // On a busy system, a run may end before it is killed, so that more turns are needed.
    for turn in 0.. {
        let is_enough = killed_while_writing[ANY] > 0 && killed_while_writing[ARCHIVE..] != [0, 0];
        if turn >= MIN_KILLS && is_enough {
            break;
        }
        assert!(start.elapsed() < MAX_KILLING, "{killed_while_writing:?}");
        for (file, bytes) in REPLACED.iter().zip(&old) {
            fs::write(recording.path(file), bytes).unwrap();
        }
        let before = status();
        let moment = Moment::of_turn(turn);
        let mut child = symbols.spawn().unwrap();
        let pid = child.id();
        let mut wait_for = |condition: &dyn Fn() -> bool| {
            while !condition() && child.try_wait().unwrap().is_none() {
                sleep(Duration::from_micros(100));
            }
        };
        match moment {
            Moment::After(fraction) => sleep(usual.mul_f64(fraction)),
            Moment::Writing(files, fraction) => {
                wait_for(&|| unnamed_files(pid, &directory) >= files);
                sleep(usual.mul_f64(fraction));
            }
            Moment::Changed => wait_for(&|| status() != before),
        }
        let open = unnamed_files(pid, &directory);
        child.kill().unwrap();
        child.wait().unwrap();

        let now = read();
        let files = REPLACED.iter().zip(now.iter().zip(old.iter().zip(&new)));
        let is_new = files.map(|(file, (now, (old, new)))| {
            assert!(now == old || now == new, "{moment:?}: {file}");
            now == new
        });
        let is_new: Vec<bool> = is_new.collect();
        killed_while_writing[open.min(3)] += u32::from(is_new == [false; 3]);
        assert!(is_new == [true; 3] || !is_new[2], "{moment:?}: {is_new:?}");
        assert!(!zip::unzip(&now[2]).is_empty());
        mixed += u32::from(!is_new[2] && is_new[0]);

        // The next run does what is left.
        if is_new[0] || open > 0 {
            symbols.status().unwrap();
            for ((file, now), new) in REPLACED.iter().zip(read()).zip(&new) {
                assert!(now == *new, "{moment:?}, {is_new:?}: {file}");
            }
        }
        let mut partial = file_names(&directory);
        partial.retain(|name| name.ends_with(".partial"));
        // At most the one that was to replace the older file at that moment.
        assert!(partial.len() <= 1, "{moment:?}: {partial:?}");
        for partial in partial {
            fs::remove_file(directory.join(partial)).unwrap();
        }
    }
    println!("killed while writing: {killed_while_writing:?}, between two replacements: {mixed}");
}

/// A program that touches pages and sleeps.
const FAULTS: &str = include_str!("workloads/native/faults.c");

#[test]
fn names_the_flame_graphs_of_page_faults_and_of_time_without_a_cpu() {
    need_capture!();
    need_command!("cc");
    need_command!("objcopy");
    let directory = tempfile::tempdir().unwrap();
    let recording = Recording { directory };
    let original = compiled(
        recording.directory.path(),
        "original",
        FAULTS,
        &["-pthread"],
    );
    let program = recording.path(PROGRAM);
    fs::create_dir(recording.path("symbols")).unwrap();
    let debug = recording.path("symbols/program.debug");
    for (option, file) in [("--only-keep-debug", &debug), ("--strip-all", &program)] {
        let mut objcopy = Command::new("objcopy");
        run(objcopy.arg(option).args([&original, file]), LIMIT).expect_success();
    }
    let words = [
        "collect",
        "late",
        "-faults",
        "-threadtime",
        "-nolttng",
        "--",
    ];
    let mut collect = recording.perfcollect(&words);
    run(collect.arg(&program).arg("60"), LIMIT).expect_success();
    let graphs = [
        ("flamegraph.svg", "touch_pages"),
        ("blocked.svg", "run_rounds"),
        ("faults.svg", "touch_pages"),
    ];
    let texts = |entry: &str| {
        let beside = fs::read(recording.path(&format!("late.{entry}"))).unwrap();
        assert!(beside == recording.entry("late", entry), "{entry} differs");
        String::from_utf8(beside).unwrap()
    };
    for (entry, function) in graphs {
        assert!(!texts(entry).contains(function), "{entry}");
    }
    // This one was changed.
    fs::write(recording.path("late.blocked.svg"), "<svg/>").unwrap();
    let printed = recording.symbols("late.trace.zip");
    assert!(printed.contains("late.faults.svg: updated"), "{printed}");
    assert!(
        printed.contains("late.blocked.svg: not updated: "),
        "{printed}"
    );
    let blocked = recording.entry("late", "blocked.svg");
    fs::write(recording.path("late.blocked.svg"), blocked).unwrap();
    for (entry, function) in graphs {
        assert!(texts(entry).contains(function), "{entry}: {printed}");
    }
}

#[test]
fn keeps_events_and_other_names_of_a_dotnet_trace() {
    need_capture!();
    let compress = need!(workloads::compress());
    let dotnet = support::cache().join("dotnet-8-aspnet/dotnet");
    let symbols = support::cache().join("dotnet-8-native-symbols");
    if !dotnet.exists() || !symbols.exists() {
        skip!(Missing::Cached("dotnet-8-native-symbols".into()));
    }
    let directory = tempfile::tempdir().unwrap();
    let recording = Recording { directory };
    let mut collect = recording.perfcollect(&["collect", "late", "--"]);
    collect.arg(&dotnet).arg(&compress);
    let capture = start_capture(collect.args(["--seconds", "6000"]));
    wait_for_cpu_time(children(capture.pid())[0], Duration::from_secs(2));
    end_capture(capture);
    let archive = fs::read(recording.path("late.trace.zip")).unwrap();
    let nettrace = fs::read(recording.path("late.nettrace")).unwrap();
    std::os::unix::fs::symlink(&symbols, recording.path("symbols")).unwrap();
    let printed = recording.symbols("late.trace.zip");
    assert!(printed.contains("symbolized libSystem."), "{printed}");
    let named = fs::read(recording.path("late.trace.zip")).unwrap();

    let (before, after) = (zip::unzip(&archive), zip::unzip(&named));
    let names = |entries: &[(String, Vec<u8>)]| -> Vec<String> {
        entries.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&before), names(&after));
    let changed = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| before != after);
    let changed: Vec<_> = changed
        .map(|((name, _), _)| name.split_once('/').unwrap().1)
        .collect();
    let expected = [
        "perf.data.txt",
        "stacks.folded",
        "flamegraph.svg",
        "summary.json",
    ];
    assert_eq!(changed, expected);
    // All lines but those of the modules that were named are as before.
    let lines = |archive: &[u8]| {
        let text = String::from_utf8(zip::entry(archive, "late.trace/perf.data.txt")).unwrap();
        let lines = text.lines().filter(|line| !line.ends_with(".Native.so)"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&archive), lines(&named));
    let stacks = |archive: &[u8]| {
        let text = String::from_utf8(zip::entry(archive, "late.trace/stacks.folded")).unwrap();
        let stacks = support::stacks_of(&text);
        stacks.into_values().sum::<u64>()
    };
    assert_eq!(stacks(&archive), stacks(&named));

    assert!(printed.contains("late.nettrace: updated"), "{printed}");
    let new_nettrace = fs::read(recording.path("late.nettrace")).unwrap();
    assert_ne!(nettrace, new_nettrace);
    let (before, after) = (Events::read(&nettrace), Events::read(&new_nettrace));
    assert_eq!(before.events, after.events);
    assert!(before.events.len() > 1000);
    assert!(before.symbols < after.symbols);
}

/// The events of a `.nettrace` without the definitions of functions.
#[derive(Default)]
struct Events {
    /// Kind, time, thread and payload.
    events: Vec<(String, u64, String, Vec<u8>)>,
    symbols: usize,
}

impl Events {
    fn read(nettrace: &[u8]) -> Self {
        let mut reader = Reader::open(nettrace).unwrap();
        let mut events = Self::default();
        while let Some(event) = reader.next_event().unwrap() {
            match &*event.metadata.name {
                "ProcessSymbol" => events.symbols += 1,
                "ProcessMapping" => {}
                name => events.events.push((
                    format!("{} {} {name}", event.metadata.provider, event.metadata.id),
                    event.time.0,
                    format!("{:?} {}", event.thread, event.thread_name),
                    event.payload.to_vec(),
                )),
            }
        }
        events
    }
}

#[test]
fn keeps_files_of_others() {
    let recording = need!(Recording::new());
    let another = need!(Recording::new());
    another.convert("other", &[]);
    let other = fs::read(another.path("other.nettrace")).unwrap();
    // Less than the first chunk.
    let (first, rest) = other.split_at(100);
    let drawing = b"<svg/>";
    for (file, bytes, reason) in [
        (
            "late.nettrace",
            &other[..],
            "its samples are not those of the trace",
        ),
        ("late.nettrace", first, "the stream is truncated"),
        ("late.nettrace", rest, "not a nettrace stream"),
        (
            "late.flamegraph.svg",
            drawing,
            "it is not the flame graph of the trace; the new one is in the trace",
        ),
    ] {
        recording.convert("late", &["-force"]);
        fs::write(recording.path(file), bytes).unwrap();
        let printed = recording.symbols("late.trace.zip");
        let kept = |line: &str| {
            line.starts_with(&format!("{file}: not updated: ")) && line.ends_with(reason)
        };
        assert!(printed.lines().any(kept), "{printed}");
        assert!(printed.contains("symbolized program"), "{printed}");
        assert!(
            printed.contains("1 of 1 traces, or the files beside them, are incomplete"),
            "{printed}"
        );
        assert!(fs::read(recording.path(file)).unwrap() == bytes);
    }
    // Its own file, damaged or a link.
    recording.convert("late", &["-force"]);
    let own = fs::read(recording.path("late.nettrace")).unwrap();
    fs::write(recording.path("late.nettrace"), &own[..own.len() / 2]).unwrap();
    let printed = recording.symbols("late.trace.zip");
    assert!(printed.contains("the stream is truncated"), "{printed}");
    fs::remove_file(recording.path("late.nettrace")).unwrap();
    std::os::unix::fs::symlink("with.nettrace", recording.path("late.nettrace")).unwrap();
    let printed = recording.symbols("late.trace.zip");
    assert!(
        printed.contains(
            "late.nettrace: not updated: it belongs to another user or is no regular file"
        ),
        "{printed}"
    );
}
