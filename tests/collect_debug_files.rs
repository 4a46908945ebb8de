//! A stripped program whose debug file is put where it is looked for: names and inlined functions are those of the whole program.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::{Saved, Workload, captured, run, run_perfcollect, workloads};

const LIMIT: Duration = Duration::from_secs(60);

/// `program` and `kept`, its debug file, in a folder.
fn stripped(name: &str) -> Option<tempfile::TempDir> {
    let whole = workloads::native(name)?;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let kept = folder.path().join("kept");
    fs::copy(
        whole.with_file_name("libwork.so"),
        folder.path().join("libwork.so"),
    )
    .unwrap();
    let objcopy = |option: &str, from: &Path, to: &Path| {
        let arguments = [OsStr::new(option), from.as_ref(), to.as_ref()];
        run(Command::new("objcopy").args(arguments), LIMIT).expect_success();
    };
    objcopy("--only-keep-debug", &whole, &kept);
    objcopy("--strip-all", &whole, &program);
    Some(folder)
}

fn capture(folder: &Path, options: &[&str]) -> Saved {
    let arguments = ["--mode", "inlined", "--seconds", "3"];
    let workload = Workload::start(Command::new(folder.join("program")).args(arguments));
    let pid = workload.pid().to_string();
    let saved = captured([&["-pid", &pid, "-collectsec", "1"], options].concat());
    workload.done(LIMIT);
    saved
}

/// Whether the functions of the program have their names.
fn is_named(saved: &Saved) -> bool {
    let chain = [
        "main",
        "inline_caller",
        "inlined_outer_[i]",
        "inlined_inner_[i]",
    ];
    saved.samples_under(&chain) > 0
}

fn notices(saved: &Saved) -> String {
    let notices = saved.summary.quality.notices.iter();
    notices.map(|notice| notice.what.as_str()).collect()
}

#[test]
fn beside_the_program_and_in_a_directory() {
    need_capture!();
    let Some(folder) = stripped("native-nofp") else {
        skip!("native-nofp is not built; scripts/workloads builds it")
    };
    let folder = folder.path();
    assert!(!is_named(&capture(folder, &[])));
    for place in ["program.debug", "program.dbg"] {
        fs::copy(folder.join("kept"), folder.join(place)).unwrap();
        assert!(is_named(&capture(folder, &[])), "{place}");
        fs::remove_file(folder.join(place)).unwrap();
    }
    let symbols = folder.join("symbols");
    fs::create_dir(&symbols).unwrap();
    fs::rename(folder.join("kept"), symbols.join("program.debug")).unwrap();
    let saved = capture(folder, &["-symbols", symbols.to_str().unwrap()]);
    assert!(is_named(&saved));
    assert_eq!(notices(&saved), "");
}

#[test]
fn of_another_build_it_is_told_and_not_used() {
    need_capture!();
    let (Some(folder), Some(other)) = (stripped("native-nofp"), stripped("native-fp")) else {
        skip!("native-nofp is not built; scripts/workloads builds it")
    };
    let symbols = other.path().join("symbols");
    fs::create_dir(&symbols).unwrap();
    fs::copy(other.path().join("kept"), symbols.join("program.debug")).unwrap();
    let saved = capture(folder.path(), &["-symbols", symbols.to_str().unwrap()]);
    assert!(!is_named(&saved));
    let told = notices(&saved);
    assert!(
        told.contains("program.debug was not used: debug file: build id"),
        "{told}"
    );
}

#[test]
fn a_directory_that_is_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["collect", "trace", "-symbols", "missing", "--", "true"];
    let finished = run_perfcollect(arguments, folder.path(), LIMIT);
    assert_eq!(finished.status.code(), Some(2));
    assert!(
        finished.stderr.contains("not a directory"),
        "{}",
        finished.stderr
    );
}
