//! Captures of real .NET programs whose call paths are known: the stacks show them whole.

#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::{Runtime, run, run_perfcollect, runtimes, workloads};

const LIMIT: Duration = Duration::from_secs(180);
/// Of the samples that belong to a path in a whole run; what lacks was taken while a method was being compiled.
const MIN_SHARE: f64 = 0.998;
/// Of those of one mode, which are few: a start-up call of a leaf, or a lambda that is being compiled below its caller.
const MIN_SHARE_OF_MODE: f64 = 0.99;
/// All modes of `split` in turn.
const SPLIT: [&str; 4] = ["--mode", "all", "--seconds", "12"];

/// A stack, outermost frame first, and its samples.
struct Stack {
    frames: Vec<String>,
    samples: u64,
}

/// How a program is run.
#[derive(Clone, Copy)]
struct Host<'a> {
    runtime: Option<&'a Runtime>,
    /// Whether the runtime writes a perf map. Names come from its memory without.
    perf_map: bool,
}

/// Runs a program under perfcollect; its last line of JSON, the stacks and the quality of them.
fn capture(command: &[&str], host: Host<'_>, folder: &Path) -> (Value, Vec<Stack>, Value) {
    let mut perfcollect = Command::new(support::perfcollect());
    perfcollect
        .args(["collect", "paths", "-force", "--"])
        .args(command)
        .current_dir(folder)
        .env("DOTNET_ROLL_FORWARD", "LatestMajor")
        .env(
            "DOTNET_PerfMapEnabled",
            if host.perf_map { "1" } else { "0" },
        );
    if let Some(root) = host.runtime.map(Runtime::root) {
        perfcollect.env("DOTNET_ROOT", root);
    }
    let finished = run(&mut perfcollect, LIMIT).expect_success();
    let done = finished
        .stdout
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|line| line["event"] == "done")
        .unwrap_or_else(|| panic!("no line `done`: {}", finished.stdout));
    let folded = entry(folder, "stacks.folded");
    let stacks = folded.lines().map(|line| {
        let (frames, samples) = line.rsplit_once(' ').unwrap();
        Stack {
            frames: frames.split(';').map(str::to_owned).collect(),
            samples: samples.parse().unwrap(),
        }
    });
    let summary: Value = serde_json::from_str(&entry(folder, "summary.json")).unwrap();
    (done, stacks.collect(), summary["quality"]["stacks"].clone())
}

fn entry(folder: &Path, name: &str) -> String {
    let archive = std::fs::read(folder.join("paths.trace.zip")).unwrap();
    let entry = support::zip::entry(&archive, &format!("paths.trace/{name}"));
    String::from_utf8(entry).unwrap()
}

/// The modes of a program and their call paths, outermost method first.
fn modes(done: &Value) -> Vec<(&str, Vec<Vec<String>>)> {
    let strings = |list: &Value| {
        let frames = list.as_array().unwrap().iter();
        // As the perf map of the runtime spells it, or as we do.
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

/// Whether all of a path is in a stack, in order.
fn shows(stack: &Stack, path: &[String]) -> bool {
    let mut frames = stack.frames.iter();
    path.iter()
        .all(|part| frames.any(|frame| frame.contains(part)))
}

/// What is said of the samples that are in the innermost method of a mode's paths, or in what it calls.
#[derive(Default)]
struct Judged {
    inside: u64,
    whole: u64,
    /// Stacks that the stack copy was too short for. They must say so.
    short: u64,
}

/// Judges the stacks by mode, and fails at one that cannot be.
fn judge(what: &str, done: &Value, stacks: &[Stack]) -> BTreeMap<String, Judged> {
    let modes = modes(done);
    let mut judged = BTreeMap::<String, Judged>::new();
    for stack in stacks {
        expect_possible(what, stack);
        let has = |part: &String| stack.frames.iter().any(|frame| frame.contains(part));
        // Several modes end in one method: the stack is of the one that it shows most of.
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
        let judged = judged.entry((*mode).to_owned()).or_default();
        judged.inside += stack.samples;
        if paths.iter().any(|path| shows(stack, path)) {
            judged.whole += stack.samples;
        } else if stack.frames[1] == "[truncated: stack copy ended]" {
            judged.short += stack.samples;
        }
    }
    judged
}

/// The class of a mode that a frame's method belongs to.
fn class_of(frame: &str) -> Option<&str> {
    let behind = |prefix| frame.split_once(prefix).map(|(_, rest)| rest);
    let rest = behind("Split.Modes.").or_else(|| behind("_Split_Modes_"))?;
    let class = &rest[..rest.find(|c: char| !c.is_alphanumeric())?];
    (!["AsyncChain", "DynamicCode"].contains(&class)).then_some(class)
}

/// Nothing in a stack was invented: a mode has methods of its own and never calls those of another, and none but one calls
/// itself, 33 deep. (Where the async methods end the next mode goes on, and three share what makes methods. Where the code of
/// `AsyncMethodBuilderCore.Start` is not optimized, its `finally` is called, and has a frame.)
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

/// Captures a program with known paths and holds the stacks against them. Modes in `short` have frames larger than the
/// copy of the stack.
fn check(what: &str, command: &[&str], host: Host<'_>, short: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let (done, stacks, quality) = capture(command, host, folder.path());
    let judged = judge(what, &done, &stacks);
    assert_eq!(
        judged.len(),
        modes(&done).len(),
        "{what}: {:?}",
        judged.keys()
    );
    let (mut inside, mut whole) = (0, 0);
    for (mode, judged) in &judged {
        let (of, good) = if short.contains(&mode.as_str()) {
            assert!(judged.short > 0, "{what} {mode}");
            (judged.inside, judged.whole + judged.short)
        } else {
            (judged.inside, judged.whole)
        };
        println!("{what} {mode}: {good} of {of} whole");
        assert!(of > 50, "{what} {mode}: only {of} samples");
        assert!(
            good as f64 >= of as f64 * MIN_SHARE_OF_MODE,
            "{what} {mode}: {good} of {of}"
        );
        inside += of;
        whole += good;
    }
    println!("{what}: {whole} of {inside} whole, {quality}");
    assert!(
        whole as f64 >= inside as f64 * MIN_SHARE,
        "{what}: {whole} of {inside}"
    );
}

/// The newest runtime of a major version: the perf map of 8.0.4 lacks the last letter of some names.
fn newest(major: u32) -> Option<Runtime> {
    let patch = |runtime: &Runtime| {
        let mut numbers = runtime.version.split('.');
        numbers.nth(2).and_then(|patch| patch.parse::<u32>().ok())
    };
    let of_major = runtimes().into_iter().filter(|r| r.major() == major);
    of_major.max_by_key(patch)
}

/// A program in IL on each runtime whose structures are known.
fn check_on_runtimes(program: &Path, arguments: &[&str], short: &[&str]) {
    for major in [8, 9, 10] {
        let Some(runtime) = newest(major) else {
            support::say_skipped(&format!(
                "there is no .NET {major}; scripts/runtimes prepares it"
            ));
            continue;
        };
        let start = [runtime.dotnet.to_str().unwrap(), program.to_str().unwrap()];
        let command = [&start, arguments].concat();
        for perf_map in [true, false] {
            let what = format!("{}, perf map: {perf_map}", runtime.version);
            let runtime = Some(&runtime);
            check(&what, &command, Host { runtime, perf_map }, short);
        }
    }
}

#[test]
fn stacks_of_dotnet_show_whole_paths() {
    need_capture!();
    let program = need!(workloads::shared("split/split.dll"));
    check_on_runtimes(&program, &SPLIT, &[]);
}

#[test]
fn stacks_of_other_deployments_show_whole_paths() {
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
        let host = Host {
            runtime: None,
            perf_map: false,
        };
        check(name, &command, host, &[]);
    }
}

/// Frames of all forms: with large locals, dynamic ones, funclets, tail calls and so on.
#[test]
fn methods_of_all_shapes_show_whole_paths() {
    need_capture!();
    let program = need!(workloads::shared("shapes/shapes.dll"));
    check_on_runtimes(&program, &["6"], &["f200k"]);
}

/// A runtime whose structures are not known is walked by rbp, and the summary says so.
#[test]
fn guesses_are_told() {
    let program = need!(workloads::cpu());
    let Some(runtime) = runtimes().into_iter().find(|r| r.major() == 3) else {
        skip!("there is no .NET 3.1; scripts/runtimes prepares it");
    };
    need_capture!();
    let folder = tempfile::tempdir().unwrap();
    let command = [runtime.dotnet.to_str().unwrap(), program.to_str().unwrap()];
    let command = [&command[..], &["--mode", "all", "--seconds", "1.4"]].concat();
    let host = Host {
        runtime: Some(&runtime),
        perf_map: true,
    };
    let (_, _, quality) = capture(&command, host, folder.path());
    assert!(quality["guessed"].as_u64().unwrap() > 100, "{quality}");
    let view = run_perfcollect(["view", "paths.trace.zip"], folder.path(), LIMIT).expect_success();
    assert!(
        view.stdout.contains("guessed by the frame pointer"),
        "{}",
        view.stdout
    );
}
