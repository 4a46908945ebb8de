//! `view` and `report` of event streams that other tools wrote, or that an archive holds.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use perfcollect::dotnet::{CodeEvent, RundownTable};
use perfcollect::event_trace;
use perfcollect::output::summary::{RuntimeSummary, Summary};
use perfcollect::trace::NoticeKind;
use serde_json::Value;
use support::events::{entries, for_each_event};
use support::{
    Finished, Missing, Workload, notices_of, perfcollect, perfview_json, run, run_perfcollect,
    runtimes, workloads,
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
const SAMPLER: &str = "Microsoft-DotNETCore-SampleProfiler";
/// First version whose sessions have all events in one stream.
const ONE_STREAM: u32 = 10;

/// Unpacks recordings of dotnet-trace, with what other readers found in them.
fn recordings(directory: &Path) -> Vec<(PathBuf, Value)> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures/nettrace");
    let recording = |name: &str| {
        let oracle = fs::read(shared.join(format!("{name}.oracle.json"))).ok()?;
        let mut unpack = Command::new("xz");
        let packed = shared.join(format!("{name}.nettrace.xz"));
        let unpacked = unpack.arg("-dc").arg(packed).output().ok()?;
        let path = directory.join(format!("{name}.nettrace"));
        fs::write(&path, unpacked.stdout).unwrap();
        Some((path, serde_json::from_slice(&oracle).unwrap()))
    };
    let names = ["small-net8", "small-net10"];
    names.into_iter().filter_map(recording).collect()
}

macro_rules! need_recordings {
    ($directory:expr) => {{
        let recordings = recordings($directory);
        if recordings.is_empty() {
            skip!(Missing::Shared("fixtures/nettrace"));
        }
        recordings
    }};
}

fn perfcollect_of(command: &str, path: &Path, options: &[&str]) -> Finished {
    let directory = path.parent().unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    run_perfcollect([&[command, name], options].concat(), directory, LIMIT)
}

fn summary_of(path: &Path) -> Summary {
    let json = perfcollect_of("report", path, &["-kind", "summary", "-format", "json"]);
    serde_json::from_str(&json.expect_success().stdout).unwrap()
}

/// Counts the samples with a method in their stacks: those of threads in managed code, and others.
fn samples_in(path: &Path, name: &str) -> [u64; 2] {
    let stream = fs::read(path).unwrap();
    let mut methods = RundownTable::of_all_code();
    for_each_event(&stream, |event| {
        if let Some(code) = CodeEvent::parse(event.metadata, event.payload).unwrap() {
            methods.take(code);
        }
    });
    let ranges: Vec<_> = methods
        .methods()
        .filter(|method| method.name.method == name)
        .map(|method| method.start..=method.start + method.size)
        .collect();
    let mut samples = [0; 2];
    for_each_event(&stream, |event| {
        let is_in = |address| ranges.iter().any(|range| range.contains(&address));
        if event.metadata.provider == SAMPLER && event.stack.addresses().any(is_in) {
            let is_managed = event.payload == 2_u32.to_le_bytes();
            samples[usize::from(!is_managed)] += 1;
        }
    });
    samples
}

#[test]
fn recordings_of_dotnet_trace_are_shown_as_other_readers_show_them() {
    let directory = tempfile::tempdir().unwrap();
    for (path, oracle) in need_recordings!(directory.path()) {
        let summary = summary_of(&path);
        let raw = &oracle["traceevent"]["raw"];
        let [runtime] = &summary.runtimes[..] else {
            panic!("{:#?}", summary.runtimes);
        };
        assert_eq!(runtime.pid, oracle["blocks"]["trace_object"]["pid"]);
        assert_eq!(summary.processes[0].program(), "dtload");
        assert_eq!(
            summary.info.cpus,
            raw["processors"].as_u64().unwrap() as u32
        );

        let collections = raw["gc_starts"].as_object().unwrap().values();
        let collections: u64 = collections.map(|count| count.as_u64().unwrap()).sum();
        let thrown = raw["exceptions_thrown"].as_object().unwrap().values();
        let thrown: u64 = thrown.map(|count| count.as_u64().unwrap()).sum();
        let exceptions = runtime.exceptions.as_ref().unwrap();
        assert_eq!(runtime.gc.as_ref().unwrap().count, collections);
        assert_eq!(exceptions.count, thrown);
        let own = exceptions.rows.iter().map(|row| row.methods.own.as_ref());
        for method in own {
            let name = &method.expect("a method of the program").name;
            let known = ["Program.Deep(int,int)", "Program.Thrower()"];
            assert!(known.contains(&name.as_str()), "{name}");
        }

        let kinds = &raw["samples_by_type"];
        assert_eq!(summary.samples, kinds["2 Managed"].as_u64().unwrap());
        let about = notices_of(&summary, NoticeKind::ManagedThreadsOnly);
        let [about] = &about[..] else {
            panic!("{:#?}", summary.quality.notices);
        };
        assert_eq!(about.count, kinds["1 External"].as_u64().unwrap());
        let name = "Program.HalfOfIt(int)";
        let [managed, others] = samples_in(&path, name);
        let containing = &oracle["traceevent"]["stacks"]["samples_containing"];
        let half = containing["dtload!Program.HalfOfIt(int32)"].as_u64();
        assert_eq!(Some(managed + others), half);
        let mut methods = summary.methods.iter();
        let method = methods.find(|method| method.name == name);
        assert_eq!(method.map(|method| method.total_samples), Some(managed));
        assert!(!summary.info.counts_time());
        let names = summary.quality.names;
        assert_eq!(
            [names.jit.unresolved, names.ready_to_run.unresolved],
            [0, 0]
        );
        let most = &summary.shares.own_methods[0];
        assert!(most.name.contains("Program.Spend"), "{most:?}");
        assert!(most.samples * 2 > summary.samples, "{most:?}");
        let shown = [
            (
                &["-viewer", "calltree", "-include", "Spend"][..],
                "Program.HalfOfIt",
            ),
            (&["-viewer", "gc"], "GC Rollup By Generation"),
        ];
        for (options, part) in shown {
            let printed = perfcollect_of("view", &path, options).expect_success();
            assert!(printed.stdout.contains(part), "{}", printed.stdout);
        }

        let Some(perfview) = perfview_json("gc", &path, &[]) else {
            return;
        };
        let theirs = &perfview["processes"][0];
        let ours = runtime.gc.as_ref().unwrap();
        let close = |ours: f64, key: &str| {
            let theirs = theirs[key].as_f64().unwrap();
            assert!((ours - theirs).abs() < 0.01, "{key}: {ours} {theirs}");
        };
        close(ours.pause_ms, "totalPauseMs");
        close(ours.max_pause_ms, "maxPauseMs");
    }
}

#[test]
fn a_damaged_stream_is_shown_up_to_the_damage() {
    let directory = tempfile::tempdir().unwrap();
    for (path, _) in need_recordings!(directory.path()) {
        let whole = fs::read(&path).unwrap();
        let cut = directory.path().join("cut.nettrace");
        fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
        let summary = summary_of(&cut);
        assert!(summary.runtimes[0].exceptions.is_some());
        let kinds: Vec<_> = summary.quality.notices.iter().map(|row| row.kind).collect();
        assert!(kinds.contains(&NoticeKind::EventsTruncated), "{kinds:?}");
        assert!(kinds.contains(&NoticeKind::JitUnsymbolized), "{kinds:?}");
        for length in [0, 7, 8, 39, 100, 300, 20_000] {
            fs::write(&cut, &whole[..length]).unwrap();
            let _ = event_trace::open(&cut);
        }
        let mut bytes = whole[..100_000].to_vec();
        for round in 0..200_usize {
            let at = round.wrapping_mul(7919) % bytes.len();
            bytes[at] ^= 0x80 >> (round % 8);
            fs::write(&cut, &bytes).unwrap();
            let _ = event_trace::open(&cut);
        }
    }
}

/// Returns the streams of an archive, unpacked.
fn streams(directory: &TempDir, archive: &Path) -> Vec<PathBuf> {
    let streams = entries(archive, "/eventpipe/");
    let streams = streams.into_iter().zip(0..).map(|((_, stream), row)| {
        let path = directory.path().join(format!("stream{row}.nettrace"));
        fs::write(&path, stream).unwrap();
        path
    });
    streams.collect()
}

/// Events by kind, without the rundown: that of an archive's stream is from perfcollect.
fn kinds(runtime: &RuntimeSummary) -> Vec<(&str, &str, u64)> {
    let kinds = runtime.events.iter();
    let kinds = kinds.filter(|kind| !kind.provider.ends_with("Rundown"));
    let kind = kinds.map(|kind| (&*kind.provider, &*kind.name, kind.count));
    kind.collect()
}

/// What exceptions were thrown, and where.
fn exceptions(runtime: &RuntimeSummary) -> Value {
    serde_json::to_value(&runtime.exceptions.as_ref().unwrap().rows).unwrap()
}

#[test]
fn streams_of_an_archive_are_shown_as_the_archive() {
    need_capture!();
    let program = need!(workloads::mixed());
    for runtime in runtimes() {
        let directory = tempfile::tempdir().unwrap();
        let workload = Workload::start(&mut runtime.command(&program));
        let pid = workload.pid().to_string();
        let mut collector = Command::new(perfcollect());
        collector
            .args(["collect", "x", "-quiet", "-pid", &pid, "-collectsec", "2"])
            .args(["-profile", "dotnet-common,dotnet-sampled-thread-time"])
            .current_dir(&directory);
        run(&mut collector, LIMIT).expect_success();
        let captured = summary_of(&directory.path().join("x.trace.zip"));
        let of_archive = &captured.runtimes[0];
        let shown: Vec<Summary> = streams(&directory, &directory.path().join("x.trace.zip"))
            .iter()
            .map(|stream| summary_of(stream))
            .collect();
        let mut of_streams = shown.iter().flat_map(|summary| &summary.runtimes);
        let main = of_streams.find(|runtime| runtime.exceptions.is_some());
        let main = main.expect("a stream with exceptions");
        assert_eq!(exceptions(main), exceptions(of_archive));
        assert_eq!(main.pid, of_archive.pid);
        if runtime.major() >= ONE_STREAM {
            let collections =
                |runtime: &RuntimeSummary| runtime.gc.as_ref().map_or(0, |gc| gc.count);
            assert_eq!(collections(main), collections(of_archive));
            assert_eq!(kinds(main), kinds(of_archive));
        }
        let names = &shown
            .iter()
            .find(|summary| summary.samples > 0)
            .unwrap()
            .quality
            .names;
        assert!(
            names.jit.named > 0 && names.jit.unresolved * 100 <= names.jit.named,
            "{names:?}"
        );
        let of_system = directory.path().join("x.nettrace");
        assert_eq!(summary_of(&of_system), captured);
        let elsewhere = directory.path().join("other.nettrace");
        fs::rename(&of_system, &elsewhere).unwrap();
        let refused = perfcollect_of("view", &elsewhere, &[]).stderr;
        assert!(refused.contains("version 6"), "{refused}");
    }
}

#[test]
fn stacks_of_a_part_are_selected() {
    let directory = tempfile::tempdir().unwrap();
    for (path, _) in need_recordings!(directory.path()) {
        let groups = ["-group", "{%}!=>module $1"];
        for options in [
            &groups[..],
            &["-justmycode"],
            &["-include", "Spend"],
            &["-fold", "Spend"],
        ] {
            let options = [&["-kind", "cpu"], options].concat();
            let selected = perfcollect_of("report", &path, &options).expect_success();
            assert_eq!(selected.stderr, "");
            assert!(selected.stdout.lines().count() > 1, "{}", selected.stdout);
        }
        let part = perfcollect_of("report", &path, &["-kind", "exceptions", "-from", "1"]);
        assert!(part.stderr.contains("of the whole capture"), "{part:?}");
        let other = perfcollect_of("view", &path, &["-process", "other"]).stderr;
        assert!(other.contains("it has events of: "), "{other}");
        let same = perfcollect_of("view", &path, &["-process", "dtload"]);
        let same = same.expect_success().stdout;
        assert!(same.contains("exceptions per second"), "{same}");
    }
}

#[test]
fn a_heap_dump_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let dump = b"\x14\0\0\0!FastSerialization.1\x05\x02\0\0\0\0\0\0\0\0\x0a\0\0\0GCHeapDump";
    fs::write(directory.path().join("app.gcdump"), dump).unwrap();
    for viewer in ["report", "gc"] {
        let arguments = ["view", "app.gcdump", "-viewer", viewer];
        let refused = run_perfcollect(arguments, directory.path(), LIMIT);
        assert!(
            refused.stderr.contains("it is a heap dump"),
            "{}",
            refused.stderr
        );
    }
}
