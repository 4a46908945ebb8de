//! The events of real .NET processes in a trace, against what each process has counted of itself, as PerfView's reader and
//! babeltrace see them.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::events::{babeltrace, entries, for_each_raw_event, raw_runtime_events};
use support::{Runtime, Workload, captured, perfcollect, perfview_json, run, runtimes, workloads};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
/// Numbers of the runtime's events.
const GC_START: u32 = 1;
const ALLOCATION_TICK: u32 = 10;
const EXCEPTION: u32 = 80;
const CONTENTION_STOP: u32 = 91;
const METHOD_LOADED: u32 = 143;
const JITTING: u32 = 145;

/// A capture of a program from its start to its end, and what it says of itself there.
struct Captured {
    folder: TempDir,
    done: Value,
}

impl Captured {
    #[track_caller]
    fn run(runtime: &Runtime, program: &Path, arguments: &[&str], options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let command = runtime.command(program);
        let mut collect = Command::new(perfcollect());
        collect
            .args(["collect", "x", "-quiet"])
            .args(options)
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args())
            .args(arguments)
            .current_dir(&folder);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => collect.env(name, value),
                None => collect.env_remove(name),
            };
        }
        let finished = run(&mut collect, LIMIT).expect_success();
        let lines = finished.stdout.lines().rev();
        let done = lines
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|line| line["event"] == "done");
        let done = done.unwrap_or_else(|| panic!("{}", finished.stdout));
        Self { folder, done }
    }

    fn trace(&self) -> PathBuf {
        self.folder.path().join("x.trace.zip")
    }

    /// The part of a mode of PerfView's reader that is about the process.
    fn in_perfview(&self, mode: &str) -> Option<Value> {
        let all = perfview_json(mode, &self.trace(), &[])?;
        let rows = all["processes"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{rows:?}");
        Some(rows[0].clone())
    }

    fn summary(&self) -> Value {
        let (_, json) = entries(&self.trace(), "/summary.json").remove(0);
        serde_json::from_slice(&json).unwrap()
    }
}

/// One of each version, or those with ASP.NET Core.
fn one_of_each(has_what_is_needed: impl Fn(&Runtime) -> bool) -> Vec<Runtime> {
    let mut runtimes = runtimes();
    runtimes.retain(has_what_is_needed);
    runtimes.dedup_by_key(|runtime| runtime.major());
    runtimes
}

/// PerfView's views tell the same as the process, and nothing is lost on the way.
fn expect_same_collections(captured: &Captured, counted: &Value) {
    let Some(gc) = captured.in_perfview("gc") else {
        return;
    };
    for (generation, count) in counted.as_array().unwrap().iter().enumerate() {
        assert_eq!(&gc[format!("gen{generation}")], count, "{gc:#}");
    }
    assert_eq!(gc["incomplete"], 0, "{gc:#}");
    // Our own table tells the same as PerfView's.
    let table = view(&captured.trace(), "gc");
    let numbers = |key: &str| gc[key].as_f64().unwrap();
    let counted = format!(
        "{} collections (gen0 {}, gen1 {}, gen2 {}), paused ",
        gc["gcs"], gc["gen0"], gc["gen1"], gc["gen2"]
    );
    let (_, rest) = table
        .split_once(&counted)
        .unwrap_or_else(|| panic!("{counted}\n{table}"));
    let (paused, _) = rest.split_once(" ms in all").unwrap();
    let paused: f64 = paused.parse().unwrap();
    // A collection in the foreground may begin within the pause of one in the background: the two tables part them
    // in different ways.
    let total = numbers("totalPauseMs");
    assert!((paused - total).abs() <= total * 0.15, "{total}\n{table}");
}

/// What `perfcollect view` prints.
#[track_caller]
fn view(trace: &Path, viewer: &str) -> String {
    let mut command = Command::new(perfcollect());
    command.arg("view").arg(trace).args(["-viewer", viewer]);
    run(&mut command, LIMIT).expect_success().stdout
}

/// Events of exceptions for what a program has counted. From .NET 9 on the runtime sends none when one is thrown again,
/// which every fifth is that this workload throws.
fn exception_events(runtime: &Runtime, counted: &Value) -> u64 {
    let counted = counted.as_u64().unwrap();
    match runtime.major() {
        ..9 => counted,
        _ => counted / 5 * 4,
    }
}

/// The CTF part holds what PerfView knows of the raw streams, in order of time, for every reader.
fn expect_same_in_all_readers(trace: &Path) {
    let mut lines = Vec::new();
    for program in ["babeltrace", "babeltrace2"] {
        lines.extend(babeltrace(program, trace).into_iter().flatten());
    }
    let times: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.split(']').next())
        .collect();
    let Some(events) = perfview_json("events", trace, &[]) else {
        return;
    };
    assert_eq!(
        (&events["lost"], &events["truncated"]),
        (&0.into(), &false.into())
    );
    let in_ctf = events["ctf"]["events"].as_u64().unwrap() as usize;
    for chunk in times.chunks(in_ctf) {
        assert_eq!(chunk.len(), in_ctf);
        assert!(chunk.is_sorted());
    }
    let raw = raw_runtime_events(trace);
    let shown = |name: &str| {
        let rows = events["byEvent"].as_array().unwrap();
        let row = rows.iter().find(|row| row["event"] == name);
        row.and_then(|row| row["count"].as_u64()).unwrap_or(0)
    };
    for (id, name) in [
        (GC_START, "GC/Start"),
        (ALLOCATION_TICK, "GC/AllocationTick"),
        (EXCEPTION, "Exception/Start"),
        (CONTENTION_STOP, "Contention/Stop"),
        (METHOD_LOADED, "Method/LoadVerbose"),
        (JITTING, "Method/JittingStarted"),
    ] {
        assert_eq!(shown(name), raw.get(&id).copied().unwrap_or(0), "{name}");
    }
}

/// The merged file holds the samples of the summary and the events of the raw streams, with their stacks.
fn expect_same_in_nettrace(captured: &Captured, collections: &Value) {
    let path = captured.folder.path().join("x.nettrace");
    let Some(all) = perfview_json("nettrace", &path, &[]) else {
        return;
    };
    let summary = captured.summary();
    let (cpu, events) = (&all["cpu"], &all["events"]);
    assert_eq!(cpu["samples"], summary["samples"]);
    // What is over of a thread's time is less than a millisecond.
    let (told, is) = (&cpu["totalMs"], &summary["cpu_ms"]);
    let difference = (told.as_f64().unwrap() - is.as_f64().unwrap()).abs();
    let threads = cpu["processes"].as_array().unwrap().iter();
    let threads: usize = threads
        .map(|p| p["threads"].as_array().unwrap().len())
        .sum();
    assert!(difference <= threads as f64, "{told} {is}");
    assert_eq!(
        (&events["lost"], &events["truncated"]),
        (&0.into(), &false.into())
    );
    // Events, and those of them with a stack.
    let mut raw: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for_each_raw_event(&captured.trace(), |event| {
        if event.kind.provider == "Microsoft-Windows-DotNETRuntime" {
            let counts = raw.entry(event.kind.id).or_default();
            counts.0 += 1;
            counts.1 += u64::from(event.stack.addresses().next().is_some());
        }
    });
    assert!(
        raw[&EXCEPTION].1 > 0 && raw[&ALLOCATION_TICK].1 > 0,
        "{raw:?}"
    );
    for (id, name) in [
        (GC_START, "GC/Start"),
        (ALLOCATION_TICK, "GC/AllocationTick"),
        (EXCEPTION, "Exception/Start"),
        (CONTENTION_STOP, "Contention/Stop"),
        (METHOD_LOADED, "Method/LoadVerbose"),
        (JITTING, "Method/JittingStarted"),
    ] {
        let rows = events["byEvent"].as_array().unwrap();
        let row = rows.iter().find(|row| row["event"] == name);
        let count = |key: &str| row.and_then(|row| row[key].as_u64()).unwrap_or(0);
        let counts = (count("count"), count("withStack"));
        assert_eq!(counts, raw.get(&id).copied().unwrap_or_default(), "{name}");
    }
    let codes = &all["codeAddresses"];
    let count = |key: &str| codes[key].as_u64().unwrap();
    assert!(count("withMethod") * 100 >= count("total") * 99, "{codes}");
    let Some(gc) = perfview_json("gc", &path, &[]) else {
        return;
    };
    for (generation, count) in collections.as_array().unwrap().iter().enumerate() {
        assert_eq!(
            &gc["processes"][0][format!("gen{generation}")],
            count,
            "{gc:#}"
        );
    }
    // Both files count from the same moment.
    let zip = perfview_json("cpu", &captured.trace(), &[]).unwrap();
    let first = |cpu: &Value| cpu["firstMs"].as_f64().unwrap();
    assert!((first(&zip) - first(cpu)).abs() < 0.01);
}

#[test]
fn events_of_every_runtime_are_what_it_counts_itself() {
    need_capture!();
    let Some(program) = workloads::mixed() else {
        skip!("mixed.dll is not built; scripts/workloads builds it");
    };
    for runtime in one_of_each(|_| true) {
        println!("on .NET {}", runtime.version);
        let captured = Captured::run(&runtime, &program, &["--seconds", "3"], &[]);
        let counted = &captured.done["runtime"];
        let trace = captured.trace();
        let raw = raw_runtime_events(&trace);
        let exceptions = exception_events(&runtime, &counted["exceptions"]);
        assert_eq!(raw[&EXCEPTION], exceptions);
        if let Some(contentions) = counted["lockContentions"].as_u64() {
            assert_eq!(raw[&CONTENTION_STOP], contentions);
        }
        expect_same_collections(&captured, &counted["gcByGeneration"]);
        // A tick tells what was handed out to threads since the last, about 100 KB; they need not have used all of it.
        let (mut allocated, mut with_stack, mut thrown) = (0, 0, 0);
        let ends = for_each_raw_event(&trace, |event| {
            if event.kind.provider != "Microsoft-Windows-DotNETRuntime" {
                return;
            }
            match event.kind.id {
                ALLOCATION_TICK => {
                    allocated += u64::from_le_bytes(event.payload[10..18].try_into().unwrap());
                }
                EXCEPTION => {
                    thrown += 1;
                    with_stack += u64::from(event.stack.addresses().next().is_some());
                }
                _ => {}
            }
        });
        assert_eq!(ends, [None]);
        assert_eq!(thrown, with_stack);
        let counted = counted["allocatedBytes"].as_u64().unwrap();
        let difference = counted.abs_diff(allocated);
        assert!(difference * 5 < counted, "{allocated} of {counted}");
        expect_same_in_all_readers(&trace);
        expect_same_in_nettrace(&captured, &captured.done["runtime"]["gcByGeneration"]);
        let listed = view(&trace, "events");
        let thrown_lines = listed.matches("/ExceptionThrown  ExceptionType=\"").count() as u64;
        assert_eq!(thrown_lines, thrown);
        if let Some(jit) = captured.in_perfview("jit") {
            let expected = format!("\n{} methods compiled in ", jit["methods"]);
            let table = view(&trace, "jit");
            assert!(table.contains(&expected), "{expected}\n{table}");
            let command_line = jit["commandLine"].as_str().unwrap();
            assert!(command_line.contains("mixed.dll"), "{command_line}");
        }
        let events = &captured.summary()["quality"]["events"];
        assert_eq!(events[0]["dropped"], 0, "{events}");
        assert_eq!(events[0]["cut"], "", "{events}");
        // Methods of this program have names in its samples, too: both are in one trace.
        assert!(captured.summary()["samples"].as_u64().unwrap() > 100);
    }
}

#[test]
fn a_web_server_is_what_it_counts_itself() {
    need_capture!();
    let Some(program) = workloads::shared("webapi/webapi.dll") else {
        skip!("webapi is not beside this repository");
    };
    for runtime in one_of_each(|runtime| runtime.aspnet) {
        println!("on .NET {}", runtime.version);
        let arguments = ["--load", "3", "--delay", "1"];
        let captured = Captured::run(&runtime, &program, &arguments, &[]);
        let facts = &captured.done["facts"];
        let raw = raw_runtime_events(&captured.trace());
        // The shutdown of the server may throw one more, after its own count.
        let exceptions = facts["exceptions"].as_u64().unwrap();
        assert!((exceptions..=exceptions + 1).contains(&raw[&EXCEPTION]));
        expect_same_collections(&captured, &facts["gcByGeneration"]);
        expect_same_in_all_readers(&captured.trace());
        if let Some(jit) = captured.in_perfview("jit") {
            // What is compiled while it shuts down comes after its own count.
            let (shown, counted) = (&jit["methods"], &facts["jittedMethods"]);
            let (shown, counted) = (shown.as_u64().unwrap(), counted.as_u64().unwrap());
            assert!(
                (counted..counted + counted / 4).contains(&shown),
                "{shown} of {counted}"
            );
            assert_eq!(jit["withoutModule"], 0, "{jit:#}");
        }
    }
}

/// Their names mean what they mean in the original: no samples, and only what they say.
#[test]
fn presets_of_the_original() {
    need_capture!();
    let (Some(program), Some(runtime)) = (workloads::mixed(), runtimes().pop()) else {
        skip!("there is no .NET runtime, or mixed.dll is not built");
    };
    for (options, has_methods, has_ticks) in [
        (&["-gccollectonly"][..], false, false),
        (&["-gconly"], true, true),
        (&["-gcwithheap"], false, true),
        (&["-noperf", "-clrevents", "gc+exception"], false, false),
    ] {
        println!("{options:?}");
        let captured = Captured::run(&runtime, &program, &["--seconds", "2"], options);
        let summary = captured.summary();
        assert_eq!(summary["samples"], 0);
        let counted = &captured.done["runtime"];
        expect_same_collections(&captured, &counted["gcByGeneration"]);
        let raw = raw_runtime_events(&captured.trace());
        assert_eq!(raw.contains_key(&METHOD_LOADED), has_methods, "{raw:?}");
        assert_eq!(raw.contains_key(&ALLOCATION_TICK), has_ticks, "{raw:?}");
        if options != ["-gcwithheap"] {
            let exceptions = exception_events(&runtime, &counted["exceptions"]);
            assert_eq!(raw[&EXCEPTION], exceptions);
        }
    }
}

#[test]
fn events_and_raw_streams_can_be_left_out() {
    need_capture!();
    let (Some(program), Some(runtime)) = (workloads::mixed(), runtimes().pop()) else {
        skip!("there is no .NET runtime, or mixed.dll is not built");
    };
    let captured = Captured::run(&runtime, &program, &["--seconds", "1"], &["-nolttng"]);
    assert!(entries(&captured.trace(), "eventpipe").is_empty());
    assert!(entries(&captured.trace(), "lttngTrace").is_empty());
    assert_eq!(
        captured.summary()["quality"]["events"],
        Value::Array(Vec::new())
    );
    let captured = Captured::run(&runtime, &program, &["--seconds", "1"], &["-noraw"]);
    assert!(entries(&captured.trace(), "eventpipe").is_empty());
    assert_eq!(entries(&captured.trace(), "lttngTrace").len(), 2);
}

/// In a container the runtime numbers its threads otherwise than we do: samples and events are of the same threads all the
/// same.
#[test]
fn events_in_another_namespace_are_of_the_threads_that_are_sampled() {
    need_capture!();
    let (Some(program), Some(runtime)) = (workloads::mixed(), runtimes().pop()) else {
        skip!("there is no .NET runtime, or mixed.dll is not built");
    };
    let inside = runtime.command(&program);
    let unshare = |words: &[&std::ffi::OsStr]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["-pmf", "--mount-proc"]).args(words);
        unshare
    };
    if !run(&mut unshare(&["true".as_ref()]), LIMIT)
        .status
        .success()
    {
        skip!("namespaces need root");
    }
    let mut words = vec![inside.get_program()];
    words.extend(inside.get_args());
    words.extend(["--seconds", "60"].map(std::ffi::OsStr::new));
    let workload = Workload::start(unshare(&words).env("DOTNET_ROLL_FORWARD", "LatestMajor"));
    assert_eq!(workload.ready["pid"], 1);
    let pid = workload.pid().to_string();
    let saved = captured(["-pid", &pid, "-collectsec", "2"]);
    let Some(lines) = babeltrace("babeltrace2", &saved.path) else {
        return;
    };
    let text = String::from_utf8_lossy(&saved.perf_text);
    let sampled: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("dotnet ")?
                .split_once(" [")?
                .0
                .split_once('/')
        })
        .map(|(_, tid)| tid)
        .collect();
    let throws = lines
        .iter()
        .filter(|line| line.contains("ExceptionThrown_V1"));
    let thread = |line: &String| -> Option<String> {
        Some(line.split_once("vtid = ")?.1.split_once(',')?.0.to_owned())
    };
    let threads: BTreeSet<String> = throws.filter_map(thread).collect();
    assert!(!threads.is_empty());
    let both = threads.iter().filter(|tid| sampled.contains(tid.as_str()));
    assert_eq!(both.count(), threads.len(), "{threads:?} {sampled:?}");
}
