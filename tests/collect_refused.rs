//! Captures that cannot be: one line that says why and what to do, an exit status, and nothing left behind but the
//! samples where there are any.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use support::{Finished, Missing, perfcollect, run, start};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);

/// All below a folder: path, inode, and of files the size and the time of change.
fn listing(folder: &Path) -> Vec<(PathBuf, u64, u64, i64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = fs::symlink_metadata(&path).unwrap();
        let (mut size, mut changed) = (file.len(), file.mtime());
        if file.is_dir() {
            found.extend(listing(&path));
            (size, changed) = (0, 0);
        }
        found.push((path, file.ino(), size, changed));
    }
    found.sort();
    found
}

/// A folder everybody may write to, and a copy of the program beside it that everybody may run.
struct Place {
    folder: TempDir,
    program: PathBuf,
    /// Where captures go.
    out: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("perfcollect");
        let out = folder.path().join("out");
        // Linked if it can be: the debug binary is large.
        fs::hard_link(perfcollect(), &program)
            .or_else(|_| fs::copy(perfcollect(), &program).map(|_| ()))
            .unwrap();
        fs::create_dir(&out).unwrap();
        for (path, mode) in [(folder.path(), 0o755), (&out, 0o777)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        Self {
            folder,
            program,
            out,
        }
    }

    /// `collect` under `prefix`, such as `["setpriv", ...]`.
    fn collect(&self, prefix: &[&str], arguments: &[&str]) -> Finished {
        let mut words: Vec<&str> = prefix.to_vec();
        words.extend([self.program.to_str().unwrap(), "collect"]);
        words.extend(arguments);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.out);
        run(&mut command, LIMIT)
    }

    /// The one line; all is as it was.
    #[track_caller]
    fn refused(&self, prefix: &[&str], arguments: &[&str]) -> String {
        let before = listing(self.folder.path());
        let finished = self.collect(prefix, arguments);
        assert_eq!(listing(self.folder.path()), before);
        one_line(finished)
    }
}

/// What was said when nothing was captured: a single line, an exit status.
#[track_caller]
fn one_line(finished: Finished) -> String {
    assert_eq!(finished.status.code(), Some(1), "{finished:?}");
    assert_eq!(finished.stdout, "", "{}", finished.stderr);
    let said = finished.stderr.strip_suffix('\n').unwrap_or_default();
    assert!(
        said.starts_with("perfcollect: ") && !said.contains('\n'),
        "{}",
        finished.stderr
    );
    said.to_owned()
}

#[track_caller]
fn expect_words(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said:?}");
    }
}

/// A process that works until it is dropped.
fn busy() -> support::Running {
    start(Command::new("sh").args(["-c", "while :; do :; done"]))
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[test]
fn without_privileges() {
    need_capture!();
    if !is_there("setpriv") {
        skip!(Missing::Command("setpriv"));
    }
    let place = Place::new();
    let target = busy();
    let pid = target.pid().to_string();
    let nobody = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ];
    for arguments in [
        &["x", "-collectsec", "1"][..],
        // Of another user.
        &["x", "-collectsec", "1", "-pid", &pid],
    ] {
        let said = place.refused(&nobody, arguments);
        expect_words(&said, &["perf_event_open", "root", "CAP_PERFMON"]);
    }
}

#[test]
fn in_a_container_without_capabilities() {
    need_capture!();
    for tool in ["setpriv", "unshare"] {
        if !is_there(tool) {
            skip!(Missing::Command(tool));
        }
    }
    let place = Place::new();
    let locked = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "setpriv",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--no-new-privs",
    ];
    let said = place.refused(&locked, &["x", "-collectsec", "1"]);
    expect_words(&said, &["perf_event_open", "CAP_PERFMON"]);
}

#[test]
fn process_that_is_none() {
    need_capture!();
    let place = Place::new();
    // Above any pid_max.
    let said = place.refused(&["env"], &["x", "-pid", "2147483647"]);
    expect_words(&said, &["2147483647 does not exist", "ps -e"]);
    // One missing of two is an error too: half of what was asked is not what was asked.
    let me = format!("{},2147483647", std::process::id());
    expect_words(
        &place.refused(&["env"], &["x", "-pid", &me]),
        &["2147483647"],
    );
    // This test runs in a thread of its own.
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let said = place.refused(&["env"], &["x", "-pid", &thread]);
    let process = format!("-pid {}", std::process::id());
    expect_words(&said, &[&thread, "thread", &process]);
}

#[test]
fn command_that_is_none() {
    need_capture!();
    let place = Place::new();
    let said = place.refused(&["env"], &["x", "-quiet", "--", "/no/such/program"]);
    expect_words(&said, &["/no/such/program", "No such file"]);
    let said = place.refused(&["env"], &["x", "-quiet", "--", "/etc/passwd"]);
    expect_words(&said, &["/etc/passwd", "ermission denied"]);
}

#[test]
fn directory_that_is_missing_or_closed() {
    need_capture!();
    let place = Place::new();
    let said = place.refused(&["env"], &["missing/x", "-collectsec", "1"]);
    expect_words(
        &said,
        &["directory missing", "name the trace with a directory"],
    );
    // Root may write where others may not, but not to a file system of the kernel's.
    let said = place.refused(&["env"], &["/proc/x", "-collectsec", "1"]);
    expect_words(&said, &["/proc", "name the trace with a directory"]);
    for name in [".", "..", "/", "sub/"] {
        let said = place.refused(&["env"], &[name, "-collectsec", "1"]);
        expect_words(&said, &["name"]);
    }
}

#[test]
fn output_that_exists() {
    need_capture!();
    for older in ["x.trace.zip", "x.nettrace", "x.flamegraph.svg"] {
        let place = Place::new();
        fs::write(place.out.join(older), "older").unwrap();
        let said = place.refused(&["env"], &["x", "-collectsec", "1"]);
        expect_words(&said, &[older, "exists", "-force"]);
        // A link is not followed, not even to nothing.
        fs::remove_file(place.out.join(older)).unwrap();
        std::os::unix::fs::symlink("/nowhere", place.out.join(older)).unwrap();
        place.refused(&["env"], &["x", "-collectsec", "1"]);
        let said = place.refused(&["env"], &["x", "-collectsec", "1", "-force"]);
        expect_words(&said, &[older, "choose another name"]);
    }
}

#[test]
fn older_trace_survives_a_capture_that_fails() {
    need_capture!();
    let place = Place::new();
    for file in ["x.trace.zip", "x.nettrace", "x.flamegraph.svg"] {
        fs::write(place.out.join(file), "older").unwrap();
    }
    let sleeping = start(Command::new("sleep").arg("60"));
    let pid = sleeping.pid().to_string();
    let arguments = ["x", "-quiet", "-force", "-collectsec", "0.3", "-pid", &pid];
    place.refused(&["env"], &arguments);
}

#[test]
fn target_without_samples() {
    need_capture!();
    let place = Place::new();
    let sleeping = start(Command::new("sleep").arg("60"));
    let stopped = busy();
    stopped.signal(Signal::STOP);
    for (target, cause) in [
        (&sleeping, "waiting"),
        (&stopped, "is stopped; `kill -CONT"),
    ] {
        let pid = target.pid().to_string();
        let arguments = ["x", "-quiet", "-collectsec", "0.5", "-pid", &pid];
        let said = place.refused(&["env"], &arguments);
        expect_words(&said, &["no samples", &pid, cause, "nothing was written"]);
    }
}

#[test]
fn disk_that_is_full() {
    need_capture!();
    if !is_there("unshare") {
        skip!(Missing::Command("unshare"));
    }
    let place = Place::new();
    let target = busy();
    let pid = target.pid().to_string();
    let arguments = ["full", "-quiet", "-collectsec", "0.3", "-pid", &pid];
    // From little room to enough; between them the one file fits and the other does not. What is left is told by the
    // shell, as the mount is gone with it.
    let script = "mount -t tmpfs -o size=$1k none . && cd \"$PWD\" && shift && \"$@\"; status=$?; ls -A; exit $status";
    let mut kilobytes = 32;
    loop {
        let size = kilobytes.to_string();
        let finished = place.collect(
            &["unshare", "--mount", "sh", "-c", script, "sh", &size],
            &arguments,
        );
        if finished.status.success() {
            assert_eq!(
                finished.stdout,
                "full.flamegraph.svg\nfull.nettrace\nfull.trace.zip\n"
            );
            break;
        }
        println!("{kilobytes} KiB: {}", finished.stderr);
        // Only the samples are left, to be made a trace of elsewhere.
        assert_eq!(finished.stdout, ".full.trace.spool\n");
        assert_eq!(finished.stderr.lines().count(), 1);
        let words = [
            "no space left",
            "another disk",
            "`perfcollect recover full -o ",
        ];
        expect_words(&finished.stderr, &words);
        kilobytes += kilobytes / 8;
        assert!(kilobytes < 4096, "a small trace takes more than 4 MiB");
    }
    assert!(listing(&place.out).is_empty());
}
