//! Captures of real .NET programs whose call paths are known: the stacks show them whole.

#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::{Runtime, run, run_perfcollect, runtimes, workloads};

const LIMIT: Duration = Duration::from_secs(120);
/// What is missing to all was taken while a method of the path was being compiled, or in a start-up call of a leaf.
const MIN_SHARE: f64 = 0.99;
/// Modes whose path a walk along frame pointers loses in 40 to 100 % of the samples.
const MODES: [&str; 4] = ["frameless", "chain", "leaves", "native"];

/// A stack, outermost frame first, and its samples.
struct Stack {
    frames: Vec<String>,
    samples: u64,
}

/// Runs a program under perfcollect; its last line of JSON, the stacks and the quality of them.
fn capture(
    command: &[&str],
    runtime: Option<&Runtime>,
    folder: &Path,
) -> (Value, Vec<Stack>, Value) {
    let mut perfcollect = Command::new(support::perfcollect());
    perfcollect
        .args(["collect", "paths", "-force", "--"])
        .args(command)
        .current_dir(folder)
        .env("DOTNET_ROLL_FORWARD", "LatestMajor")
        .env_remove("DOTNET_PerfMapEnabled");
    if let Some(root) = runtime.and_then(|runtime| runtime.dotnet.parent()) {
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
    let file = std::fs::File::open(folder.join("paths.trace.zip")).unwrap();
    let mut archive = zip::ZipArchive::new(file).unwrap();
    let path = format!("paths.trace/{name}");
    let mut text = String::new();
    archive
        .by_name(&path)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    text
}

/// Whether all of a path is in a stack, in order.
fn shows(stack: &Stack, path: &[&str]) -> bool {
    let mut frames = stack.frames.iter();
    path.iter()
        .all(|part| frames.any(|frame| frame.contains(part)))
}

/// Of the samples that are in the innermost method of a path, or in what it calls: the share that show a whole path, how many
/// there are, and in how many of them a method calls itself.
fn whole_paths(mode: &Value, stacks: &[Stack]) -> (f64, u64, u64) {
    let paths: Vec<Vec<&str>> = mode["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| {
            let frames = path["frames"].as_array().unwrap().iter();
            frames.map(|frame| frame.as_str().unwrap()).collect()
        })
        .collect();
    let (mut inside, mut whole, mut doubled) = (0, 0, 0);
    for stack in stacks {
        let touches = |frame: &String| {
            frame.contains("Split.Kernel.")
                || paths
                    .iter()
                    .filter_map(|path| path.last())
                    .any(|innermost| frame.contains(innermost))
        };
        if !stack.frames.iter().any(touches) {
            continue;
        }
        inside += stack.samples;
        if paths.iter().any(|path| shows(stack, path)) {
            whole += stack.samples;
        }
        // None of these methods calls itself; walks along rbp invent that in on-stack-replacement methods.
        let twice = |pair: &[String]| pair[0] == pair[1] && pair[0].contains("Split.");
        if stack.frames.windows(2).any(twice) {
            doubled += stack.samples;
        }
    }
    (
        whole as f64 / f64::from(inside.max(1) as u32),
        inside,
        doubled,
    )
}

fn check(what: &str, command: &[&str], runtime: Option<&Runtime>, modes: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    for mode in modes {
        let command = [command, &["--mode", mode, "--seconds", "2"]].concat();
        let (done, stacks, quality) = capture(&command, runtime, folder.path());
        let (share, inside, doubled) = whole_paths(&done["modes"][0], &stacks);
        println!(
            "{what} {mode}: {:.2} % of {inside}, {quality}",
            share * 100.0
        );
        assert!(inside > 200, "{what} {mode}: only {inside} samples");
        assert!(share >= MIN_SHARE, "{what} {mode}: {share}");
        assert_eq!(doubled, 0, "{what} {mode}");
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn stacks_of_dotnet_show_whole_paths() {
    let Some(program) = workloads::shared("split/split.dll") else {
        skip!("split is not beside this repository");
    };
    if !is_root() {
        skip!("not root");
    }
    for major in [8, 9, 10] {
        let Some(runtime) = runtimes().into_iter().find(|r| r.major() == major) else {
            support::say_skipped(&format!(
                "there is no .NET {major}; scripts/runtimes prepares it"
            ));
            continue;
        };
        let command = [runtime.dotnet.to_str().unwrap(), program.to_str().unwrap()];
        check(&runtime.version, &command, Some(&runtime), &MODES);
    }
}

#[test]
fn stacks_of_other_deployments_show_whole_paths() {
    if !is_root() {
        skip!("not root");
    }
    for name in ["split-composite", "split-single", "split-compressed"] {
        let Some(program) = workloads::shared(&format!("{name}/{name}")) else {
            skip!("{name} is not beside this repository");
        };
        check(name, &[program.to_str().unwrap()], None, &["frameless"]);
    }
}

/// A runtime whose structures are not known is walked by rbp, and the summary says so.
#[test]
fn guesses_are_told() {
    let Some(program) = workloads::cpu() else {
        skip!("cpu.dll is not built; scripts/workloads builds it");
    };
    let Some(runtime) = runtimes().into_iter().find(|r| r.major() == 3) else {
        skip!("there is no .NET 3.1; scripts/runtimes prepares it");
    };
    if !is_root() {
        skip!("not root");
    }
    let folder = tempfile::tempdir().unwrap();
    let command = [runtime.dotnet.to_str().unwrap(), program.to_str().unwrap()];
    let command = [&command[..], &["--mode", "all", "--seconds", "1.4"]].concat();
    let (_, _, quality) = capture(&command, Some(&runtime), folder.path());
    assert!(quality["guessed"].as_u64().unwrap() > 100, "{quality}");
    let view = run_perfcollect(["view", "paths.trace.zip"], folder.path(), LIMIT).expect_success();
    assert!(
        view.stdout.contains("guessed by the frame pointer"),
        "{}",
        view.stdout
    );
}
