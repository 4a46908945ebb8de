//! `-perfdata`: perf.data recordings that perfcollect writes, as other tools read them.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use support::perf_script::{can_run_perf, expect_samples_of, perf, script_samples};
use support::recording::native_words;
use support::{
    Missing, Runtime, Saved, cache, captured, perfcollect, run, run_perfcollect, workloads,
};

const LIMIT: Duration = Duration::from_secs(120);
/// The file by which perfcollect recognizes its directories.
const MARKER: &str = ".perfcollect";

fn recording(saved: &Saved) -> PathBuf {
    saved.directory().join("trace.perf.data")
}

/// Captures a second of .NET, or else of C.
fn saved() -> Result<Saved, Missing> {
    let native = || native_words("native-fp");
    let managed = || {
        let runtime = Runtime::newest()?;
        let root = runtime.root().display().to_string();
        Ok::<_, Missing>(vec![
            "env".to_owned(),
            format!("DOTNET_ROOT={root}"),
            runtime.dotnet.display().to_string(),
            workloads::cpu()?.display().to_string(),
            "--seconds".to_owned(),
            "1".to_owned(),
        ])
    };
    let words = managed().or_else(|_| native())?;
    let options = ["-perfdata".to_owned(), "--".to_owned()];
    Ok(captured(options.into_iter().chain(words)))
}

#[test]
fn perf_and_other_tools_read_a_capture() {
    need_capture!();
    let saved = need!(saved());
    let file = recording(&saved);
    perf_names_the_same(&saved, &file);
    let words: [&OsStr; 5] = [
        "convert".as_ref(),
        file.as_ref(),
        "-o".as_ref(),
        "again".as_ref(),
        "-quiet".as_ref(),
    ];
    run_perfcollect(words, saved.directory(), LIMIT).expect_success();
    let again = saved.directory().join("again.trace.zip");
    let report = run(Command::new(perfcollect()).arg("view").arg(&again), LIMIT);
    let samples = format!("{} samples", saved.summary.samples);
    let report = report.expect_success().stdout;
    assert!(report.contains(&samples), "{samples}\n{report}");
}

/// Compares the stacks with those of the archive, and the lines of `perf script` with those of
/// `perfcollect script`.
#[track_caller]
fn perf_names_the_same(saved: &Saved, file: &Path) {
    need!(can_run_perf());
    let text = perf(&["script", "-F", "pid,tid,period,ip,sym,dso"], file);
    expect_samples_of(&script_samples(&text), &saved.perf_text);
    let report = perf(&["report", "--stdio", "--header", "-n", "-g", "none"], file);
    for section in [
        "hostname : ",
        "os release : ",
        "arch : x86_64",
        "cpu-clock",
        "time of first",
    ] {
        assert!(report.contains(section), "{section}\n{report}");
    }
    let ids = perf(&["buildid-list"], file);
    let files = std::fs::read_dir(file.with_file_name("trace.perf.symbols")).unwrap();
    let is_image = |file: &std::fs::DirEntry| file.file_name() != MARKER;
    let images = files.filter(|file| is_image(file.as_ref().unwrap()));
    assert_eq!(ids.lines().count(), images.count());

    let fields = "comm,pid,tid,cpu,time,period,event,ip,sym,dso";
    let theirs = perf(&["script", "--fields", fields], file);
    let mut ours = Command::new(perfcollect());
    let ours = run(ours.args(["script", "-F", fields]).arg(file), LIMIT);
    let ours = ours.expect_success().stdout;
    assert_eq!(theirs.lines().count(), ours.lines().count());
    let is_kernels = |line: &str| line.ends_with(".ko)");
    let differs = |(theirs, ours): &(&str, &str)| theirs != ours && !is_kernels(theirs);
    let first = theirs.lines().zip(ours.lines()).find(differs);
    assert_eq!(first, None);
}

#[test]
#[ignore = "slow"]
fn samply_reads_a_capture() {
    const SAMPLY: &str = "peers/bin/samply";
    need_capture!();
    let saved = need!(saved());
    let file = recording(&saved);
    let samply = cache().join(SAMPLY);
    let profile = file.with_file_name("profile.json");
    let mut import = Command::new(samply);
    import
        .args(["import", "--save-only", "-o"])
        .arg(&profile)
        .arg(&file);
    let Ok(output) = import.output() else {
        skip!(Missing::Cached(SAMPLY.into()));
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let profile: serde_json::Value =
        serde_json::from_slice(&std::fs::read(profile).unwrap()).unwrap();
    let libraries: Vec<_> = profile["libs"].as_array().unwrap().iter().collect();
    let is_ours = |library: &&serde_json::Value| {
        library["path"]
            .as_str()
            .unwrap()
            .contains("/trace.perf.symbols/")
    };
    assert!(libraries.len() > 2 && libraries.iter().all(is_ours));
}

#[test]
fn replaces_older_files_only_with_force() {
    need_capture!();
    let words = need!(native_words("native-fp"));
    let directory = tempfile::tempdir().unwrap();
    let symbols = directory.path().join("t.perf.symbols");
    std::fs::create_dir(&symbols).unwrap();
    std::fs::write(symbols.join("older"), "").unwrap();
    let capture = |options: &[&str]| {
        let mut perfcollect = Command::new(perfcollect());
        perfcollect.args(["collect", "t", "-quiet", "-perfdata", "-format", "zip"]);
        perfcollect.args(options).arg("--").args(&words);
        run(perfcollect.current_dir(&directory), LIMIT)
    };
    let refused = capture(&[]);
    assert!(
        refused.stderr.contains("t.perf.symbols already exists"),
        "{}",
        refused.stderr
    );
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    let refused = capture(&["-force"]);
    let why = "perfcollect did not make this directory";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    assert!(symbols.join("older").exists());
    std::fs::write(symbols.join(MARKER), "").unwrap();
    capture(&["-force"]).expect_success();
    assert!(!symbols.join("older").exists() && symbols.join("libc.so.6").exists());
    let mut names: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    let expected = [
        "t.flamegraph.svg",
        "t.perf.data",
        "t.perf.symbols",
        "t.trace.zip",
    ];
    assert_eq!(names, expected);
    // A directory with subdirectories is not removed.
    std::fs::create_dir(symbols.join("directory")).unwrap();
    let refused = capture(&["-force"]);
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    assert!(symbols.join("directory").exists() && symbols.join("libc.so.6").exists());
}
