//! Exports in the readers of others: each finds the samples of the trace, by function. `scripts/readers` prepares some of
//! them.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

#[allow(dead_code)]
#[path = "writers/build.rs"]
mod build;
#[path = "exports/hostile.rs"]
mod hostile;
#[path = "exports/readers.rs"]
mod readers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use perfcollect::trace::FunctionKind;
use readers::Shown;
use support::{Runtime, Saved, Stacks, captured, perfcollect, reader, run, workloads, zip};

const LIMIT: Duration = Duration::from_secs(300);

/// Number of functions that are compared.
const TOP: usize = 10;

/// A capture of a .NET program with many threads.
fn managed() -> Option<&'static Saved> {
    static SAVED: OnceLock<Option<Saved>> = OnceLock::new();
    let capture = || {
        need_capture!();
        let runtime = need!(Runtime::newest());
        let program = need!(workloads::mixed());
        let command = runtime.command(&program);
        let words = ["--", command.get_program().to_str().unwrap()];
        let words = words.map(str::to_owned).into_iter();
        let arguments = [program.to_str().unwrap(), "--cpu-seconds", "2"];
        Some(captured(words.chain(arguments.map(str::to_owned))))
    };
    SAVED.get_or_init(capture).as_ref()
}

/// A capture of the C program.
fn native() -> Option<&'static Saved> {
    static SAVED: OnceLock<Option<Saved>> = OnceLock::new();
    let capture = || {
        need_capture!();
        let program = need!(workloads::native("native-fp"));
        Some(captured([
            "--",
            program.to_str().unwrap(),
            "--seconds",
            "1",
        ]))
    };
    SAVED.get_or_init(capture).as_ref()
}

fn captures() -> Vec<&'static Saved> {
    [managed(), native()].into_iter().flatten().collect()
}

/// Converts a trace to a file with this suffix, which takes the place of an older one.
fn export(saved: &Saved, suffix: &str) -> PathBuf {
    let path = saved.directory().join(format!("trace{suffix}"));
    let done = convert(&saved.path, &path, &["-force"]);
    let first = done.lines().next().unwrap();
    assert!(first.starts_with("Saved to "), "{done}");
    let samples = format!(" {} samples of ", saved.summary.samples);
    assert!(
        done.contains(&samples) && done.contains("lost records: "),
        "{done}"
    );
    path
}

#[track_caller]
fn convert(trace: &Path, output: &Path, options: &[&str]) -> String {
    let mut command = Command::new(perfcollect());
    command.arg("convert").arg(trace).arg("-o").arg(output);
    run(command.args(options), LIMIT).expect_success().stdout
}

/// Checks the number of samples, and the functions with most own samples.
#[track_caller]
fn expect_shown(shown: &Shown, saved: &Saved, has_modules: bool) {
    let summary = &saved.summary;
    let total: u64 = shown.values().sum();
    assert_eq!(total, summary.samples);
    let codes = summary.methods.iter();
    let codes = codes.filter(|method| method.kind != FunctionKind::Marker);
    let mut expected = Shown::new();
    for method in codes.take(TOP) {
        let name = match has_modules {
            true => format!("{}!{}", method.module, method.name),
            false => method.name.clone(),
        };
        *expected.entry(name).or_default() += method.self_samples;
    }
    for (name, samples) in &expected {
        let found = shown.get(name).copied().unwrap_or_default();
        // Modules may have functions of one name.
        match has_modules {
            true => assert_eq!(found, *samples, "{name}: {shown:#?}"),
            false => assert!(found >= *samples, "{name}: {found} of {samples}"),
        }
    }
    let least = expected.values().min().copied().unwrap_or_default();
    let more = shown.values().filter(|samples| **samples > least).count();
    assert!(more <= TOP, "{shown:#?}");
}

#[test]
fn speedscope_shows_all_threads_and_each() {
    let release = need!(reader("node", "speedscope/dist/release"));
    for saved in captures() {
        let profiles = readers::speedscope(&release, &export(saved, ".speedscope.json"));
        let period = saved.summary.info.period_ns as f64;
        let (all, rest) = profiles.split_first().unwrap();
        assert_eq!(all.name, "CPU, all threads (no time axis)");
        expect_shown(&all.own(period), saved, true);
        let (quality, rest) = rest.split_last().unwrap();
        assert_eq!(quality.name, "QUALITY");
        let mut sum = Shown::new();
        let is_thread = |profile: &&readers::Profile| !profile.name.contains("all threads");
        for thread in rest.iter().filter(is_thread) {
            for (name, samples) in thread.own(period) {
                *sum.entry(name).or_default() += samples;
            }
        }
        assert_eq!(sum, all.own(period));
    }
}

#[test]
fn firefox_profiler_shows_each_thread() {
    let cli = need!(reader("node", "firefox-profiler/dist/profiler-cli.js"));
    for saved in captures() {
        for suffix in [".firefox.json", ".profile.json.gz"] {
            let (shown, markers) = readers::firefox(cli.clone(), &export(saved, suffix));
            expect_shown(&shown, saved, true);
            let runtimes = saved.summary.runtimes.iter();
            let collections = runtimes.filter_map(|runtime| runtime.gc.as_ref());
            let collections: u64 = collections.map(|gc| gc.count).sum();
            assert_eq!(markers, collections);
        }
    }
}

#[test]
fn pprof_shows_samples_labels_and_quality() {
    need_command!("go");
    for saved in captures() {
        for suffix in [".pb.gz", ".pprof"] {
            let path = export(saved, suffix);
            let profile = readers::pprof(&path);
            expect_shown(&profile.own, saved, true);
            assert!(profile.text.contains("Comment: lost records: 0\n") || saved.is_lossy());
            assert!(profile.text.contains("samples/count cpu/nanoseconds[dflt]"));
            assert!(profile.text.contains("thread:["), "{}", profile.text);
            let top = readers::pprof_top(&path, TOP);
            let busiest = saved.summary.methods.first().unwrap();
            let (name, samples) = top.first().unwrap();
            assert_eq!((name, samples), (&busiest.name, &busiest.self_samples));
        }
    }
}

#[test]
fn folded_stacks_and_flame_graph_are_those_of_the_trace() {
    for saved in captures() {
        let archive = std::fs::read(&saved.path).unwrap();
        for (suffix, entry) in [(".folded", "stacks.folded"), (".svg", "flamegraph.svg")] {
            let written = std::fs::read(export(saved, suffix)).unwrap();
            assert!(written == zip::entry(&archive, &format!("trace.trace/{entry}")));
        }
        let folded = export(saved, ".folded");
        let script = need!(reader("perl", "flamegraph/flamegraph.pl"));
        let drawn = run(Command::new("perl").arg(script).arg(folded), LIMIT).expect_success();
        let count = saved.summary.samples.to_string();
        assert!(
            drawn
                .stdout
                .replace(',', "")
                .contains(&format!("all ({count} samples"))
        );
    }
}

#[test]
fn csv_has_a_row_for_each_function() {
    for saved in captures() {
        expect_shown(&readers::csv(&export(saved, ".csv")), saved, true);
    }
}

/// speedscope reads trace events, too: it sums the times between their begins and ends.
#[test]
fn chromium_events_nest_and_last_as_long() {
    let release = need!(reader("node", "speedscope/dist/release"));
    for saved in captures() {
        let path = export(saved, ".chromium.json");
        readers::expect_nested(&path);
        let profiles = readers::speedscope(&release, &path);
        let microseconds: f64 = profiles.iter().map(readers::Profile::busy).sum();
        let expected = saved.summary.cpu_ms * 1e3;
        let part = microseconds / expected;
        assert!((0.98..1.02).contains(&part), "{microseconds} of {expected}");
    }
}

#[test]
fn stacks_tell_threads_apart_on_request() {
    let saved = need!(managed().ok_or(support::Missing::Command("a capture")));
    let directory = tempfile::tempdir().unwrap();
    let stacks = |name: &str, options: &[&str]| {
        let path = directory.path().join(name);
        convert(&saved.path, &path, options);
        support::stacks_of(&std::fs::read_to_string(path).unwrap())
    };
    let mut merged = Stacks::new();
    let mut threads: BTreeMap<String, u64> = BTreeMap::new();
    for (mut frames, samples) in stacks("threads.folded", &["-threads"]) {
        let thread = frames.remove(1);
        *merged.entry(frames).or_default() += samples;
        *threads.entry(thread).or_default() += samples;
    }
    assert_eq!(merged, stacks("plain.folded", &[]));
    for row in &saved.summary.threads {
        let own = format!("{} ({})", row.name, row.tid);
        let shared = format!("{} (", row.name);
        let is_shared = |(label, _): &(&String, &u64)| {
            label.starts_with(&shared) && label.ends_with(" threads)")
        };
        let samples = threads
            .get(&own)
            .or_else(|| threads.iter().find(is_shared).map(|(_, samples)| samples));
        assert!(
            samples.is_some_and(|samples| *samples >= row.samples),
            "{row:?}: {threads:#?}"
        );
    }
    let total: u64 = threads.values().sum();
    assert!(
        total == saved.summary.samples && threads.len() > 3,
        "{threads:#?}"
    );
    let image = directory.path().join("threads.svg");
    convert(&saved.path, &image, &["-threads"]);
    let image = std::fs::read_to_string(image).unwrap();
    let shared = threads
        .keys()
        .find(|label| label.ends_with(" threads)"))
        .unwrap();
    assert!(image.contains(shared), "{shared}");
}

#[test]
fn a_capture_writes_what_convert_would() {
    need_capture!();
    let program = need!(workloads::native("native-fp"));
    let program = program.to_str().unwrap();
    let suffixes = ["speedscope.json", "folded", "csv"];
    let formats = suffixes.join(",");
    let saved = captured(["-format", &formats, "--", program, "--seconds", "1"]);
    let other = saved.directory().join("converted");
    std::fs::create_dir(&other).unwrap();
    for suffix in suffixes {
        let name = format!("trace.{suffix}");
        let converted = other.join(&name);
        convert(&saved.path, &converted, &[]);
        let written = std::fs::read(saved.directory().join(name)).unwrap();
        assert!(
            !written.is_empty() && written == std::fs::read(converted).unwrap(),
            "{suffix}"
        );
    }
}

/// A limit on the size of files stands for a full disk.
#[test]
fn an_export_that_cannot_be_written_leaves_the_trace() {
    need_capture!();
    let program = need!(workloads::native("native-fp"));
    let directory = tempfile::tempdir().unwrap();
    let limited = "ulimit -f 150; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, "sh"]).arg(perfcollect());
    command.args(["collect", "x", "-format", "zip,chromium,csv", "--"]);
    command.arg(&program).args(["--seconds", "1"]);
    let done = run(command.current_dir(&directory), LIMIT).expect_success();
    let why = "the trace is complete: `perfcollect convert x -o FILE`";
    assert!(
        done.stderr.contains("x.chromium.json") && done.stderr.contains(why),
        "{done:?}"
    );
    let names = ["x.csv", "x.flamegraph.svg", "x.trace.zip"];
    assert_eq!(support::file_names(directory.path()), names);
}

#[test]
fn exports_are_one_file_and_keep_what_is_there() {
    need!(native().ok_or(support::Missing::Command("a capture")));
    let saved = native().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.SPEEDSCOPE.JSON");
    convert(&saved.path, &path, &[]);
    assert_eq!(support::file_names(directory.path()), ["x.SPEEDSCOPE.JSON"]);
    let refused = |options: &[&str], output: &Path| {
        let mut command = Command::new(perfcollect());
        command
            .arg("convert")
            .arg(&saved.path)
            .arg("-o")
            .arg(output);
        let done = run(command.args(options), LIMIT);
        assert!(!done.status.success(), "{options:?}");
        done.stderr
    };
    assert!(refused(&[], &path).contains("already exists"));
    assert!(refused(&["-from", "0"], &directory.path().join("x")).contains("for another viewer"));
    let other = directory.path().join("x.csv");
    assert!(refused(&["-perfdata"], &other).contains("run convert twice"));
    assert!(refused(&["-threads"], &other).contains("for -o FILE.svg and -o FILE.folded"));
    assert!(refused(&["-format", "speedscope", "-force"], &other).contains("name that with -o"));
    assert!(refused(&["-process", "nobody"], &other).contains("is selected"));
    assert_eq!(convert(&saved.path, &other, &["-quiet"]), "");
}

#[test]
fn a_part_of_a_trace_is_exported() {
    need!(native().ok_or(support::Missing::Command("a capture")));
    let saved = native().unwrap();
    let path = saved.directory().join("part.csv");
    convert(
        &saved.path,
        &path,
        &["-force", "-from", "0.2", "-to", "0.7"],
    );
    let part: u64 = readers::csv(&path).values().sum();
    assert!(part > 0 && part < saved.summary.samples, "{part}");
}

#[test]
fn samples_of_an_event_stream_are_exported() {
    let packed = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../shared/fixtures/nettrace/small-net8.nettrace.xz"
    );
    if !Path::new(packed).exists() {
        skip!(support::Missing::Shared("fixtures/nettrace"));
    }
    need_command!("xz");
    let directory = tempfile::tempdir().unwrap();
    let stream = directory.path().join("x.nettrace");
    let unpacked = Command::new("xz").args(["-dc", packed]).output().unwrap();
    std::fs::write(&stream, unpacked.stdout).unwrap();
    let path = directory.path().join("x.csv");
    let said = convert(&stream, &path, &[]);
    let shown = readers::csv(&path);
    let samples = shown.values().sum::<u64>();
    assert!(said.contains(&format!(" {samples} samples of managed-thread-samples")));
    assert!(
        shown["dtload!Program.Spend(int,double)"] * 3 > samples,
        "{shown:?}"
    );
}

#[test]
fn samples_of_text_are_exported() {
    let saved = need!(managed().ok_or(support::Missing::Command("a capture")));
    let text = saved.directory().join("perf.txt");
    std::fs::write(&text, &saved.perf_text).unwrap();
    let path = saved.directory().join("text.csv");
    convert(&text, &path, &["-force"]);
    assert_eq!(
        readers::csv(&path).values().sum::<u64>(),
        saved.summary.samples
    );
}
