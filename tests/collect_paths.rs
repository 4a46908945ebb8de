//! Captures of .NET programs with known call paths: the stacks must contain the whole paths.

#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::{
    Missing, Runtime, children, end_capture, run, run_perfcollect, runtimes, skip, start_capture,
    wait_for_cpu_time, workloads,
};

/// Much longer than any run on a busy system.
const LIMIT: Duration = Duration::from_secs(600);
/// Maximum number of samples of a mode without the whole path, however long it runs: a leaf is called
/// at startup, or a lambda is compiled below its caller, which takes a few milliseconds.
const MAX_AT_START: u64 = 5;
/// The same for a whole run, as a share.
const MAX_SHARE_AT_START: f64 = 0.002;
/// Maximum share of the samples of a mode that are in an outer call of a recursive method.
const MAX_SHARE_IN_OUTER_CALL: f64 = 0.03;
/// Minimum number of samples of a whole run. An idle system takes some 200 in each mode, a busy one
/// in most.
const MIN_SAMPLES: u64 = 500;
/// All modes of `split` in turn.
const SPLIT: [&str; 4] = ["--mode", "all", "--seconds", "12"];

/// A stack, outermost frame first, and its number of samples.
struct Stack {
    frames: Vec<String>,
    samples: u64,
}

/// How to run a program.
#[derive(Clone, Copy)]
struct Launch<'a> {
    runtime: Option<&'a Runtime>,
    /// Whether the runtime writes a perf map. Without one, names come from its memory.
    perf_map: bool,
    /// The CPU time after which a program is ended that runs until then. Its last argument is a
    /// number of seconds.
    cpu: Option<Duration>,
}

impl Launch<'_> {
    /// Sets the environment of a program.
    fn prepare(self, command: &mut Command) {
        command.env("DOTNET_ROLL_FORWARD", "LatestMajor").env(
            "DOTNET_PerfMapEnabled",
            if self.perf_map { "1" } else { "0" },
        );
        if let Some(root) = self.runtime.map(Runtime::root) {
            command.env("DOTNET_ROOT", root);
        }
        if self.cpu.is_some() {
            // Methods are optimized after 30 calls, without a wait for 0.1 s in which no new method
            // is called.
            command.env("DOTNET_TC_CallCountingDelayMs", "0");
        }
    }
}

/// Returns the line of JSON that a program prints at its end.
fn done(stdout: &str) -> Value {
    stdout
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|line| line["event"] == "done")
        .unwrap_or_else(|| panic!("no line `done`: {stdout}"))
}

/// Runs a program under perfcollect. Returns its last line of JSON, the stacks and their quality.
fn capture(command: &[&str], launch: Launch<'_>, directory: &Path) -> (Value, Vec<Stack>, Value) {
    let mut perfcollect = Command::new(support::perfcollect());
    perfcollect
        .args(["collect", "paths", "-force", "--"])
        .args(command)
        .current_dir(directory);
    launch.prepare(&mut perfcollect);
    let done = if let Some(cpu) = launch.cpu {
        let capture = start_capture(&mut perfcollect);
        wait_for_cpu_time(children(capture.pid())[0], cpu);
        end_capture(capture);
        // A program that is ended prints nothing, so another run lists the same modes.
        let (_, arguments) = command.split_last().unwrap();
        let mut list = Command::new(arguments[0]);
        launch.prepare(list.args(&arguments[1..]).arg("0.01"));
        done(&run(&mut list, LIMIT).expect_success().stdout)
    } else {
        done(&run(&mut perfcollect, LIMIT).expect_success().stdout)
    };
    let folded = entry(directory, "stacks.folded");
    let stacks = folded.lines().map(|line| {
        let (frames, samples) = line.rsplit_once(' ').unwrap();
        Stack {
            frames: frames.split(';').map(str::to_owned).collect(),
            samples: samples.parse().unwrap(),
        }
    });
    let summary: Value = serde_json::from_str(&entry(directory, "summary.json")).unwrap();
    (done, stacks.collect(), summary["quality"]["stacks"].clone())
}

fn entry(directory: &Path, name: &str) -> String {
    let archive = std::fs::read(directory.join("paths.trace.zip")).unwrap();
    let entry = support::zip::entry(&archive, &format!("paths.trace/{name}"));
    String::from_utf8(entry).unwrap()
}

/// Returns the modes of a program and their call paths, outermost method first.
fn modes(done: &Value) -> Vec<(&str, Vec<Vec<String>>)> {
    let strings = |list: &Value| {
        let frames = list.as_array().unwrap().iter();
        // Frames are spelled as in the runtime's perf map, or as perfcollect spells them.
        frames
            .map(|frame| frame.as_str().unwrap().replace("::", "."))
            .collect()
    };
    let modes = done["modes"].as_array().unwrap().iter();
    modes
        .map(|mode| {
            let paths = mode["paths"].as_array().unwrap().iter();
            let paths = paths.map(|path| strings(&path["frames"])).collect();
            (mode["mode"].as_str().unwrap(), paths)
        })
        .collect()
}

/// Returns whether a stack contains a whole path, in order.
fn shows(stack: &Stack, path: &[String]) -> bool {
    let mut frames = stack.frames.iter();
    path.iter()
        .all(|part| frames.any(|frame| frame.contains(part)))
}

/// Counts of the samples in the innermost method of a mode's paths, or in its callees.
#[derive(Default)]
struct PathCounts {
    inside: u64,
    whole: u64,
    /// Samples in an outer call of a recursive method, which takes little time.
    in_outer_call: u64,
    /// Stacks larger than the stack copy, which must be marked as truncated.
    short: u64,
    /// The other stacks without the whole path, for messages.
    broken: Vec<String>,
}

/// Classifies the stacks by mode. Panics if a stack fits no mode.
fn classify(what: &str, done: &Value, stacks: &[Stack]) -> BTreeMap<String, PathCounts> {
    let modes = modes(done);
    let mut counts = BTreeMap::<String, PathCounts>::new();
    for stack in stacks {
        expect_possible(what, stack);
        let has = |part: &String| stack.frames.iter().any(|frame| frame.contains(part));
        // Several modes end in one method: the stack belongs to the mode with the longest match.
        let parts_shown = |paths: &[Vec<String>]| {
            let touched = paths.iter().filter(|path| path.last().is_some_and(has));
            touched
                .map(|path| path.iter().filter(|part| has(part)).count())
                .max()
        };
        let shown = modes
            .iter()
            .filter_map(|(mode, paths)| Some((parts_shown(paths)?, mode, paths)));
        let Some((_, mode, paths)) = shown.max_by_key(|(parts, ..)| *parts) else {
            continue;
        };
        let is_whole = paths.iter().any(|path| shows(stack, path));
        let counts = counts.entry((*mode).to_owned()).or_default();
        if !is_whole && is_in_outer_call(stack, paths) {
            counts.in_outer_call += stack.samples;
            continue;
        }
        if !is_whole && prepares_callee(stack, paths) {
            continue;
        }
        counts.inside += stack.samples;
        if is_whole {
            counts.whole += stack.samples;
        } else if stack.frames[1] == "[truncated: stack copy ended]" {
            counts.short += stack.samples;
        } else {
            let frames = stack.frames.join(";");
            counts.broken.push(format!("{frames} {}", stack.samples));
        }
    }
    counts
}

/// Returns whether a method of a path has called the runtime, which compiles the next one or
/// allocates what the call needs. A page fault there takes long on a busy system.
///
/// The runtime of Native AOT is part of the program: its helpers begin with `Rhp`.
fn prepares_callee(stack: &Stack, paths: &[Vec<String>]) -> bool {
    let is_on_path = |frame: &String| paths.iter().flatten().any(|part| frame.contains(part));
    let innermost = stack.frames.iter().rposition(is_on_path);
    let callees = innermost.map_or(&[][..], |index| &stack.frames[index + 1..]);
    let of_runtime = |frame: &String| frame.contains("libcoreclr.so") || frame.starts_with("Rhp");
    callees.iter().any(of_runtime)
}

/// Returns whether the sample is in an outer call of a recursive method, and the stack reaches the
/// caller of the recursion.
fn is_in_outer_call(stack: &Stack, paths: &[Vec<String>]) -> bool {
    let is_recursion = |path: &&Vec<String>| path.windows(2).all(|pair| pair[0] == pair[1]);
    let mut recursions = paths.iter().filter(is_recursion).flatten();
    let leaf = stack.frames.last().map_or("", String::as_str);
    let has_caller = stack.frames.iter().any(|frame| frame.contains("Round"));
    has_caller && recursions.any(|method| leaf.contains(method))
}

/// Returns the class of the mode that a frame's method belongs to.
fn class_of(frame: &str) -> Option<&str> {
    let behind = |prefix| frame.split_once(prefix).map(|(_, rest)| rest);
    let rest = behind("Split.Modes.").or_else(|| behind("_Split_Modes_"))?;
    let class = &rest[..rest.find(|c: char| !c.is_alphanumeric())?];
    (!["AsyncChain", "DynamicCode"].contains(&class)).then_some(class)
}

/// Checks that a stack contains no invented frames.
///
/// Each mode has separate methods and never calls those of another one. Only one mode is recursive,
/// 33 deep. Exceptions: the next mode continues where the async methods end, and three modes share
/// the code that generates methods. The `finally` of an unoptimized `AsyncMethodBuilderCore.Start`
/// is called, and has a frame.
fn expect_possible(what: &str, stack: &Stack) {
    let frames = &stack.frames;
    let classes: BTreeSet<_> = frames.iter().filter_map(|frame| class_of(frame)).collect();
    assert!(classes.len() <= 1, "{what}: {frames:?}");
    let descends = |frame: &str| frame.contains("Descend");
    let depth = frames.iter().filter(|frame| descends(frame)).count();
    assert!(depth <= 33, "{what}: {frames:?}");
    let may_repeat = |frame: &str| descends(frame) || frame.contains("AsyncMethodBuilderCore");
    let twice =
        |pair: &[String]| pair[0] == pair[1] && pair[0].contains("Split.") && !may_repeat(&pair[0]);
    assert!(!frames.windows(2).any(twice), "{what}: {frames:?}");
}

/// Captures a program with known paths and checks the stacks.
///
/// Modes in `short` have frames larger than the stack copy: frame pointers show their callers, or
/// the stack is marked as truncated.
fn check(what: &str, command: &[&str], launch: Launch<'_>, short: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let (done, stacks, quality) = capture(command, launch, directory.path());
    let counts = classify(what, &done, &stacks);
    assert_eq!(
        counts.len(),
        modes(&done).len(),
        "{what}: {:?}",
        counts.keys()
    );
    let (mut inside, mut whole) = (0, 0);
    for (mode, counts) in &counts {
        let (of, good) = if short.contains(&mode.as_str()) {
            let ended = quality["stack_copy_ended"].as_u64().unwrap();
            // A sample before the frame is set up has a small stack.
            assert!(ended * 2 > counts.inside, "{what} {mode}: {quality}");
            (counts.inside, counts.whole + counts.short)
        } else {
            (counts.inside, counts.whole)
        };
        println!("{what} {mode}: {good} of {of} whole");
        let in_outer_call = counts.in_outer_call as f64;
        assert!(
            in_outer_call <= of as f64 * MAX_SHARE_IN_OUTER_CALL,
            "{what} {mode}: {in_outer_call}"
        );
        assert!(
            good + MAX_AT_START >= of,
            "{what} {mode}: {good} of {of}; {:#?}",
            counts.broken
        );
        inside += of;
        whole += good;
    }
    println!("{what}: {whole} of {inside} whole, {quality}");
    assert!(inside >= MIN_SAMPLES, "{what}: only {inside} samples");
    let at_start = (inside as f64 * MAX_SHARE_AT_START) as u64;
    assert!(
        whole + at_start.max(MAX_AT_START) >= inside,
        "{what}: {whole} of {inside}"
    );
}

/// Returns the newest runtime of a major version. The perf map of 8.0.4 lacks the last letter of
/// some names.
fn newest(major: u32) -> Option<Runtime> {
    let patch = |runtime: &Runtime| {
        let mut numbers = runtime.version.split('.');
        numbers.nth(2).and_then(|patch| patch.parse::<u32>().ok())
    };
    let of_major = runtimes().into_iter().filter(|r| r.major() == major);
    of_major.max_by_key(patch)
}

/// Checks an IL program on each runtime whose structures are known.
fn check_on_runtimes(program: &Path, arguments: &[&str], cpu: Option<Duration>, short: &[&str]) {
    for major in [8, 9, 10] {
        let Some(runtime) = newest(major) else {
            skip(Missing::Dotnet(major));
            continue;
        };
        let start = [runtime.dotnet.to_str().unwrap(), program.to_str().unwrap()];
        let command = [&start, arguments].concat();
        for perf_map in [true, false] {
            let what = format!("{}, perf map: {perf_map}", runtime.version);
            let runtime = Some(&runtime);
            let launch = Launch {
                runtime,
                perf_map,
                cpu,
            };
            check(&what, &command, launch, short);
        }
    }
}

#[test]
#[ignore = "slow"]
fn dotnet_stacks_contain_whole_paths() {
    need_capture!();
    let program = need!(workloads::shared("split/split.dll"));
    check_on_runtimes(&program, &SPLIT, None, &[]);
}

#[test]
#[ignore = "slow"]
fn stacks_of_other_deployments_contain_whole_paths() {
    need_capture!();
    for name in [
        "split-single",
        "split-compressed",
        "split-trimmed",
        "split-composite",
        "split-aot",
        "split-aot-events",
    ] {
        let program = need!(workloads::shared(&format!("{name}/{name}")));
        let command = [&[program.to_str().unwrap()], &SPLIT[..]].concat();
        let launch = Launch {
            runtime: None,
            perf_map: false,
            cpu: None,
        };
        check(name, &command, launch, &[]);
    }
}

/// The program has all kinds of frames: large locals, dynamic frames, funclets, tail calls and so
/// on.
#[test]
fn stacks_of_all_frame_shapes_contain_whole_paths() {
    need_capture!();
    let program = need!(workloads::shared("shapes/shapes.dll"));
    // Its 23 modes take turns.
    let cpu = Some(Duration::from_secs(5));
    check_on_runtimes(&program, &["6000"], cpu, &["f200k"]);
}

/// A runtime with unknown structures is unwound by its instructions, which the summary reports.
#[test]
fn reports_doubtful_callers() {
    let program = need!(workloads::cpu());
    let Some(runtime) = runtimes().into_iter().find(|r| r.major() == 3) else {
        skip!(Missing::Cached("dotnet-3.1".into()));
    };
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let command = [runtime.dotnet.to_str().unwrap(), program.to_str().unwrap()];
    let command = [&command[..], &["--mode", "all", "--cpu-seconds", "1.4"]].concat();
    let launch = Launch {
        runtime: Some(&runtime),
        perf_map: true,
        cpu: None,
    };
    let (_, _, quality) = capture(&command, launch, directory.path());
    let stacks = |counter: &str| quality[counter].as_u64().unwrap();
    assert!(stacks("likely") + stacks("guessed") > 100, "{quality}");
    let view =
        run_perfcollect(["view", "paths.trace.zip"], directory.path(), LIMIT).expect_success();
    assert!(
        view.stdout.contains("in callers of JIT code of process"),
        "{}",
        view.stdout
    );
}
