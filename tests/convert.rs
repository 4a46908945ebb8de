//! Recordings that the installed perf makes here, converted: all samples, complete stacks, names; and damaged ones.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use support::recording::{cannot_record, record, record_pipe};
use support::{Saved, perfcollect, run, run_perfcollect, runtimes, workloads};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

macro_rules! need_perf {
    () => {
        if let Some(why) = cannot_record() {
            skip!("{why}");
        }
    };
}

fn native(name: &str) -> Option<Vec<String>> {
    let program = workloads::native(name)?.display().to_string();
    Some(
        [&*program, "--mode", "shares", "--seconds", "1"]
            .map(str::to_owned)
            .to_vec(),
    )
}

/// The trace of a recording in a folder.
#[track_caller]
fn converted(folder: TempDir, options: &[&str]) -> Saved {
    let words = [&["convert", "perf.data", "-o", "trace", "-quiet"], options].concat();
    run_perfcollect(words, folder.path(), LIMIT).expect_success();
    Saved::open(folder, "trace")
}

/// Samples by perf's own count.
#[track_caller]
fn samples_of_perf(file: &Path) -> u64 {
    let mut perf = Command::new("perf");
    perf.args(["script", "-F", "pid,time", "-i"]).arg(file);
    perf.output()
        .unwrap()
        .stdout
        .split(|&byte| byte == b'\n')
        .count() as u64
        - 1
}

#[track_caller]
fn expect_paths(saved: &Saved, complete: u64) {
    let quality = &saved.summary.quality;
    assert!(
        quality.stacks.rooted * 100 >= saved.summary.samples * complete,
        "{quality:#?}"
    );
    assert_eq!(quality.names.kernel.unnamed, 0, "{quality:#?}");
    let under_main = saved.samples_under(&["main"]);
    assert!(
        under_main * 100 >= saved.summary.samples * complete,
        "{under_main}"
    );
}

#[test]
fn all_samples_of_each_kind_of_recording() {
    need_perf!();
    let Some(command) = native("native-fp") else {
        skip!("native-fp is not built; scripts/workloads builds it")
    };
    let ways: [(&[&str], bool); 4] = [
        (&["-F", "499", "-g"], false),
        (&["-F", "499", "-g"], true),
        (&["-F", "499", "-g", "-z"], false),
        (&["-F", "499", "--call-graph", "dwarf,16384", "-z"], true),
    ];
    for (options, through_pipe) in ways {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("perf.data");
        match through_pipe {
            true => record_pipe(&file, options, &command),
            false => record(&file, options, &command),
        }
        let expected = samples_of_perf(&file);
        let saved = converted(folder, &[]);
        assert_eq!(
            saved.summary.samples, expected,
            "{options:?} {through_pipe}"
        );
        assert!(expected > 30, "{expected} samples are too few to tell");
        expect_paths(&saved, 95);
    }
}

#[test]
fn stack_copies_reach_the_root_without_frame_pointers() {
    need_perf!();
    let Some(command) = native("native-nofp") else {
        skip!("native-nofp is not built; scripts/workloads builds it")
    };
    let folder = tempfile::tempdir().unwrap();
    let options = ["-F", "499", "--call-graph", "dwarf"];
    record(&folder.path().join("perf.data"), &options, command);
    expect_paths(&converted(folder, &[]), 99);
}

/// perf stops at the first frame that no ELF file describes.
#[test]
fn stacks_of_dotnet_reach_the_root() {
    need_perf!();
    let Some(cpu) = workloads::cpu() else {
        skip!("cpu.dll is not built; scripts/workloads builds it")
    };
    let Some(runtime) = runtimes().pop() else {
        skip!("there is no .NET; scripts/runtimes gets it")
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let cpu = cpu.display().to_string();
    let dotnet = runtime.dotnet.display().to_string();
    let root = runtime.dotnet.parent().unwrap().display().to_string();
    let command = [
        "env",
        &format!("DOTNET_ROOT={root}"),
        "DOTNET_PerfMapEnabled=1",
        &dotnet,
        &cpu,
        "--seconds",
        "1",
    ];
    record(
        &file,
        &["-F", "499", "--call-graph", "dwarf,32768"],
        command,
    );
    let saved = converted(folder, &[]);
    let names = saved.summary.quality.names;
    assert!(names.jit.named > names.jit.unnamed * 9, "{names:#?}");
    let managed = saved.samples_under(&["Main"]);
    assert!(
        managed * 100 > saved.summary.samples * 50,
        "{managed} of {}",
        saved.summary.samples
    );
    let rooted =
        saved.samples_under(&["_start", "Main"]) + saved.samples_under(&["dotnet!", "Main"]);
    assert!(rooted * 100 >= managed * 95, "{rooted} of {managed}");
}

/// A file that is cut gives what is before the cut, and says so.
#[test]
fn a_cut_recording_gives_its_beginning() {
    need_perf!();
    let Some(command) = native("native-fp") else {
        skip!("native-fp is not built; scripts/workloads builds it")
    };
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("perf.data");
    record(&file, &["-F", "499", "-g"], command);
    let whole = samples_of_perf(&file);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let saved = converted(folder, &[]);
    assert!((whole / 10..whole).contains(&saved.summary.samples));
    let notices = &saved.summary.quality.notices;
    assert!(
        notices.iter().any(|notice| notice.what.contains("damaged")),
        "{notices:#?}"
    );
}

#[test]
fn what_is_no_recording_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("perf.data"), [b'x'; 200]).unwrap();
    let mut command = Command::new(perfcollect());
    let finished = run(
        command.args(["convert", "-quiet"]).current_dir(&folder),
        LIMIT,
    );
    assert!(
        finished.stderr.contains("no perf.data file"),
        "{}",
        finished.stderr
    );
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}
