//! Runs the commands of docs/reading.md on captures of the programs that it names.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use regex::Regex;
use support::{
    Missing, Runtime, ServiceClient, Workload, perfcollect, run, run_perfcollect, workloads,
};

const LIMIT: Duration = Duration::from_secs(300);
const SECONDS: &str = "3";
const PROMPT: &str = "$ perfcollect ";
const SUFFIX: &str = ".trace.zip";
const CUT: char = '…';

/// A command, and lines of its output.
struct Example {
    words: Vec<String>,
    lines: Vec<String>,
}

/// The commands in the fenced blocks of the page.
fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let blocks = page.split("```console\n").skip(1);
    for line in blocks.flat_map(|block| block.split("```").next().unwrap().lines()) {
        match line.strip_prefix(PROMPT) {
            Some(words) => examples.push(Example {
                words: words.split(' ').map(str::to_owned).collect(),
                lines: Vec::new(),
            }),
            None => examples.last_mut().unwrap().lines.push(line.to_owned()),
        }
    }
    examples
}

/// The line with one space between words, and `#` for each number or lower bound of one (`>625.0`).
fn shape(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let numbers = Regex::new(r"(>|\b)[0-9]+(\.[0-9]+)?").unwrap();
    numbers.replace_all(&words.join(" "), "#").into_owned()
}

/// Captures a service that answers requests meanwhile.
fn capture_service(name: &str, runtime: &Runtime, directory: &Path) {
    let program = workloads::service().unwrap_or_else(|missing| panic!("{missing}"));
    let service = Workload::start(&mut runtime.command(&program));
    let client = ServiceClient::new(&service);
    let is_over = AtomicBool::new(false);
    let pid = service.pid().to_string();
    let words = ["collect", name, "-quiet", "-pid", &pid, "-requests"];
    let words = [&words[..], &["-collectsec", SECONDS]].concat();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                client.get(["/call/600", "/burn/100"].map(str::to_owned).into_iter());
            }
        });
        let finished = run_perfcollect(words, directory, LIMIT);
        is_over.store(true, Ordering::Relaxed);
        finished.expect_success();
    });
}

/// Captures a program with a trouble as NAME.trace.zip, in the working directory.
fn capture(name: &str, runtime: &Runtime, directory: &Path) {
    let program = match name {
        "debug" => workloads::trouble_debug(),
        _ => workloads::trouble(),
    };
    let program = program.unwrap_or_else(|missing| panic!("{missing}"));
    let (mode, options): (&str, &[&str]) = match name {
        "alloc" => ("gc", &["-gconly"]),
        "starved" => ("spin", &[]),
        "debug" => ("healthy", &[]),
        mode => (mode, &[]),
    };
    let dotnet = runtime.command(&program);
    let mut command = match name {
        // Its threads share a CPU.
        "starved" => {
            let mut command = Command::new("taskset");
            command.args(["-c", "0"]).arg(dotnet.get_program());
            command.args(dotnet.get_args());
            let set = dotnet
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?)));
            command.envs(set);
            command
        }
        _ => dotnet,
    };
    command.args(["--mode", mode, "--seconds", "6000"]);
    command.env("DOTNET_GCgen0size", "0x400000");
    let workload = Workload::start(&mut command);
    std::thread::sleep(Duration::from_secs(1));
    let pid = workload.pid().to_string();
    let words = [
        "collect",
        name,
        "-quiet",
        "-pid",
        &pid,
        "-collectsec",
        SECONDS,
    ];
    run_perfcollect([&words, options].concat(), directory, LIMIT).expect_success();
}

#[test]
fn every_command_prints_what_the_page_shows() {
    need_capture!();
    need_command!("taskset");
    let runtime = need!(Runtime::newest());
    need!(workloads::trouble());
    need!(workloads::trouble_debug());
    need!(workloads::service());
    if !runtime.aspnet {
        skip!(Missing::AspNet(8));
    }
    let page = include_str!("../docs/reading.md");
    let questions = page.lines().filter(|line| line.starts_with("### ")).count();
    let examples = examples(page);
    assert!(questions > 20 && examples.len() >= questions, "{questions}");
    let mut of_traces: BTreeMap<&str, Vec<&Example>> = BTreeMap::new();
    for example in &examples {
        let mut words = example.words.iter();
        let trace = words.find_map(|word| word.strip_suffix(SUFFIX)).unwrap();
        of_traces.entry(trace).or_default().push(example);
    }
    let directory = tempfile::tempdir().unwrap();
    for (trace, examples) in of_traces {
        match trace {
            "web" => capture_service(trace, &runtime, directory.path()),
            _ => capture(trace, &runtime, directory.path()),
        }
        for example in examples {
            let mut command = Command::new(perfcollect());
            command.args(&example.words).current_dir(&directory);
            let output = run(&mut command, LIMIT).expect_success().stdout;
            expect_lines(example, &output);
        }
    }
}

/// The output has lines of these shapes, in any order.
#[track_caller]
fn expect_lines(example: &Example, output: &str) {
    let printed: Vec<String> = output.lines().map(shape).collect();
    assert!(!example.lines.is_empty(), "{:?}", example.words);
    for line in &example.lines {
        let is_printed = match line.strip_suffix(CUT) {
            Some(start) => printed.iter().any(|line| line.starts_with(&shape(start))),
            None => printed.contains(&shape(line)),
        };
        assert!(is_printed, "{:?}: no {line}\n{output}", example.words);
    }
}
