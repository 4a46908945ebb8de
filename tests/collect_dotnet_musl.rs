//! Captures of .NET on musl, the C library of Alpine, beside .NET on glibc.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;
#[path = "events/captured.rs"]
#[allow(dead_code)]
mod captured;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use captured::Captured;
use perfcollect::trace::NoticeKind;
use rustix::process::Signal;
use serde_json::Value;
use support::events::{for_each_raw_event, raw_runtime_events};
use support::{Runtime, Saved, Workload, captured_during, wait_until, workloads};

/// Much longer than any program on a busy system.
const LIMIT: Duration = Duration::from_secs(600);
/// All modes of `split` in turn.
const SPLIT: [&str; 4] = ["--mode", "all", "--seconds", "8"];
const MODES: usize = 15;
/// Innermost methods of the first mode.
const OF_FIRST_MODE: [&str; 3] = ["Work50", "Work30", "Work20"];
/// A thread of the last mode.
const LAST_MODE: &str = "split-50\n";
/// Maximum number of samples of a run without the whole path, however long it runs: a leaf is
/// called at startup, or a stack outgrows the first copies.
const MAX_AT_START: u64 = 5;
/// Samples of a method, or events of a kind, that no run is without.
const OFTEN: u64 = 30;

// Ids of events of the runtime (CLR ETW Events, Microsoft Learn).
const GC_START: u32 = 1;
const EXCEPTION: u32 = 80;
const METHOD_LOADED: u32 = 143;
/// How the thread pool adapts to the load of the machine.
const THREAD_POOL: RangeInclusive<u32> = 50..=57;

/// The runtime of musl, and that of glibc with the same major version.
fn both() -> Result<[Runtime; 2], support::Missing> {
    let musl = Runtime::musl()?;
    let glibc = Runtime::at_least(musl.major())?;
    Ok([musl, glibc])
}

fn has_thread(pid: u32, name: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let names = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")));
    names.flatten().any(|thread| thread == name)
}

/// Captures all modes of `split`. Returns its line `done`.
fn split(runtime: &Runtime, program: &Path, options: &[&str]) -> (Saved, Value) {
    let mut command = runtime.command(program);
    let workload = Workload::start(command.args(SPLIT).env("DOTNET_EnableDiagnostics", "0"));
    let pid = workload.pid();
    let saved = captured_during(&[&["-pid", &pid.to_string()], options].concat(), || {
        wait_until("the last mode", || has_thread(pid, LAST_MODE));
        // For half of its 0.5 s.
        std::thread::sleep(Duration::from_millis(250));
        // Methods that it first calls when it ends would have no names: its memory goes before they
        // are read.
        workload.signal(Signal::STOP);
    });
    workload.signal(Signal::CONT);
    (saved, workload.done(LIMIT))
}

/// Samples of one innermost method, and those with a whole path that ends in it.
#[derive(Debug, Default)]
struct Leaf<'a> {
    paths: Vec<Vec<&'a str>>,
    samples: u64,
    whole: u64,
}

/// Returns the samples of the paths' innermost methods.
fn leaves<'a>(saved: &Saved, done: &'a Value) -> BTreeMap<&'a str, Leaf<'a>> {
    let mut leaves = BTreeMap::<&str, Leaf<'_>>::new();
    let modes = done["modes"].as_array().unwrap();
    assert_eq!(modes.len(), MODES);
    for path in modes
        .iter()
        .flat_map(|mode| mode["paths"].as_array().unwrap())
    {
        let frames = path["frames"].as_array().unwrap().iter();
        let frames: Vec<_> = frames.map(|frame| frame.as_str().unwrap()).collect();
        let leaf = leaves.entry(frames.last().unwrap()).or_default();
        leaf.paths.push(frames);
    }
    for (stack, samples) in &saved.stacks {
        let shows = |path: &[&str]| {
            let mut frames = stack.iter();
            path.iter()
                .all(|part| frames.any(|frame| frame.contains(part)))
        };
        for (name, leaf) in &mut leaves {
            if shows(&[name]) {
                leaf.samples += samples;
                let is_whole = leaf.paths.iter().any(|path| shows(path));
                leaf.whole += if is_whole { *samples } else { 0 };
                if !is_whole {
                    println!("{samples} {stack:?}");
                }
            }
        }
    }
    leaves
}

/// Returns the numbers of samples of the program's methods.
fn methods(saved: &Saved) -> BTreeMap<&str, u64> {
    let mut samples = BTreeMap::<&str, u64>::new();
    for (stack, count) in &saved.stacks {
        let frames: BTreeSet<&str> = stack.iter().map(String::as_str).collect();
        for frame in frames.into_iter().filter(|frame| frame.contains("Split.")) {
            if OF_FIRST_MODE.iter().any(|method| frame.contains(method)) || frame.contains("Share")
            {
                continue;
            }
            *samples.entry(frame).or_default() += count;
        }
    }
    samples
}

/// Fails if one of two often has what the other never has, but for a tenth.
#[track_caller]
fn expect_same<K: Ord + Debug>([a, b]: [BTreeMap<K, u64>; 2]) {
    for (one, other) in [(&a, &b), (&b, &a)] {
        let often = one.iter().filter(|(_, count)| **count >= OFTEN);
        let (found, missing): (Vec<_>, Vec<_>) =
            often.partition(|(key, _)| other.contains_key(key));
        // On a busy machine, a short phase of one run has no sample.
        assert!(missing.len() * 10 <= found.len(), "{missing:#?}");
    }
}

/// Nearly all samples of each mode have the whole path, and nearly all stacks reach the root. Names
/// come from the memory of the runtime alone.
#[test]
fn callers_and_names_are_those_on_glibc() {
    need_capture!();
    let program = need!(workloads::shared("split/split.dll"));
    let captures = need!(both()).map(|runtime| split(&runtime, &program, &["-nolttng"]));
    for (saved, done) in &captures {
        let leaves = leaves(saved, done);
        let (mut samples, mut whole) = (0, 0);
        for (name, leaf) in &leaves {
            println!("{name}: {} of {}", leaf.whole, leaf.samples);
            // On a busy machine, the first mode may end before the capture starts.
            assert!(leaf.whole > 0 || OF_FIRST_MODE.contains(name), "{name}");
            assert!(leaf.whole + MAX_AT_START >= leaf.samples, "{name}");
            samples += leaf.samples;
            whole += leaf.whole;
        }
        assert!(samples > 1000, "{samples}");
        assert!(
            (samples - whole) * 1000 <= samples.max(1000 * MAX_AT_START),
            "{whole} of {samples}"
        );
        // musl's `__clone` has no symbol in a stripped file, and follows `memset`, whose symbol has no size.
        for stack in saved.stacks.keys() {
            assert_ne!(
                stack.get(1).map(String::as_str),
                Some("memset"),
                "{stack:?}"
            );
        }
        let quality = &saved.summary.quality;
        let (all, stacks) = (saved.summary.samples, quality.stacks);
        println!("{} of {all} rooted: {stacks:?}", stacks.rooted);
        assert!(
            all - stacks.rooted <= all / 1000 + 3 * MAX_AT_START,
            "{stacks:?}"
        );
        let names = quality.names;
        assert!(names.jit.named > 1000, "{names:#?}");
        let unresolved = [names.jit, names.ready_to_run, names.unmapped, names.kernel];
        let unresolved: u64 = unresolved.iter().map(|kind| kind.unresolved).sum();
        // A method may be freed before its sample is read.
        assert!(unresolved <= MAX_AT_START, "{names:#?}");
        let mut notices = saved.summary.quality.notices.clone();
        notices.retain(|notice| notice.kind != NoticeKind::RecordsLost);
        // The program was stopped at the end.
        let kinds: Vec<_> = notices.iter().map(|notice| notice.kind).collect();
        assert_eq!(kinds, [NoticeKind::NotRunning], "{notices:?}");
    }
    expect_same(captures.each_ref().map(|(saved, _)| methods(saved)));
}

/// A runtime sends what it counts: garbage collections, exceptions with stacks, compiled methods.
#[test]
fn events_are_those_on_glibc() {
    need_capture!();
    let program = need!(workloads::mixed());
    let kinds = need!(both()).map(|runtime| {
        let captured = Captured::run(&runtime, &program, &["--cpu-seconds", "2"], &[]);
        let counted = &captured.done["runtime"];
        let counts = raw_runtime_events(&captured.trace());
        let generations = counted["gcByGeneration"].as_array().unwrap();
        let collections: u64 = generations.iter().filter_map(Value::as_u64).sum();
        assert_eq!(counts[&GC_START], collections, "{counts:?}");
        if let Some(gc) = captured.in_perfview("gc") {
            for (generation, count) in generations.iter().enumerate() {
                assert_eq!(&gc[format!("gen{generation}")], count, "{gc:#}");
            }
        }
        // None is sent for the fifth that is rethrown. Some are thrown before the session starts.
        let thrown = counted["exceptions"].as_u64().unwrap() / 5 * 4;
        let sent = counts[&EXCEPTION];
        assert!((thrown - 8..=thrown).contains(&sent), "{sent} of {thrown}");
        assert!(counts[&METHOD_LOADED] > 100, "{counts:?}");
        let mut without_stack = 0;
        let ends = for_each_raw_event(&captured.trace(), |event| {
            if event.metadata.id == EXCEPTION && event.metadata.provider.ends_with("Runtime") {
                without_stack += u64::from(event.stack.addresses().next().is_none());
            }
        });
        assert_eq!((ends, without_stack), (vec![None], 0));
        let events = &captured.summary()["quality"]["events"];
        assert_eq!(events[0]["dropped"], 0, "{events}");
        let is_of_pool = |id: &u32| THREAD_POOL.contains(id);
        let others = counts.into_iter().filter(|(id, _)| !is_of_pool(id));
        others.collect()
    });
    expect_same(kinds);
}
