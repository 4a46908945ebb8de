//! Captures that must fail: one line with cause and remedy, an exit status, and no files except
//! samples.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use support::{Finished, perfcollect, run, start};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);

/// Lists everything below a directory: path, inode, and for files the size and time of change.
fn listing(directory: &Path) -> Vec<(PathBuf, u64, u64, i64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
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

/// A directory that all users may write to, and a copy of the program that all users may run.
struct Sandbox {
    directory: TempDir,
    program: PathBuf,
    /// Output directory of the captures.
    out: PathBuf,
}

impl Sandbox {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("perfcollect");
        let out = directory.path().join("out");
        // Links the program if possible, as the debug binary is large.
        fs::hard_link(perfcollect(), &program)
            .or_else(|_| fs::copy(perfcollect(), &program).map(|_| ()))
            .unwrap();
        fs::create_dir(&out).unwrap();
        for (path, mode) in [(directory.path(), 0o755), (&out, 0o777)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        Self {
            directory,
            program,
            out,
        }
    }

    /// Runs `collect` under `prefix`, such as `["setpriv", ...]`.
    fn collect(&self, prefix: &[&str], arguments: &[&str]) -> Finished {
        let mut words: Vec<&str> = prefix.to_vec();
        words.extend([self.program.to_str().unwrap(), "collect"]);
        words.extend(arguments);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.out);
        run(&mut command, LIMIT)
    }

    /// Returns the error line of a refused capture, after a check that no file changed.
    #[track_caller]
    fn refused(&self, prefix: &[&str], arguments: &[&str]) -> String {
        let before = listing(self.directory.path());
        let finished = self.collect(prefix, arguments);
        assert_eq!(listing(self.directory.path()), before);
        one_line(finished)
    }
}

/// Returns the only line of output of a failed capture, after a check of its exit status.
#[track_caller]
fn one_line(finished: Finished) -> String {
    assert_eq!(finished.status.code(), Some(1), "{finished:?}");
    assert_eq!(finished.stdout, "", "{}", finished.stderr);
    let output = finished.stderr.strip_suffix('\n').unwrap_or_default();
    assert!(
        output.starts_with("perfcollect: ") && !output.contains('\n'),
        "{}",
        finished.stderr
    );
    output.to_owned()
}

#[track_caller]
fn expect_words(output: &str, words: &[&str]) {
    for word in words {
        assert!(output.contains(word), "no {word:?} in {output:?}");
    }
}

/// Starts a busy process.
fn busy() -> support::Running {
    start(Command::new("sh").args(["-c", "while :; do :; done"]))
}

#[test]
fn refuses_capture_without_privileges() {
    need_capture!();
    need_command!("setpriv");
    let sandbox = Sandbox::new();
    let target = busy();
    let pid = target.pid().to_string();
    let unprivileged = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ];
    for arguments in [
        &["x", "-collectsec", "1"][..],
        // This process belongs to another user.
        &["x", "-collectsec", "1", "-pid", &pid],
    ] {
        let output = sandbox.refused(&unprivileged, arguments);
        expect_words(&output, &["perf_event_open", "root", "CAP_PERFMON"]);
    }
}

#[test]
fn refuses_capture_in_a_container_without_capabilities() {
    need_capture!();
    for tool in ["setpriv", "unshare"] {
        need_command!(tool);
    }
    let sandbox = Sandbox::new();
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
    let output = sandbox.refused(&locked, &["x", "-collectsec", "1"]);
    expect_words(&output, &["perf_event_open", "CAP_PERFMON"]);
}

#[test]
fn refuses_a_proc_that_shows_other_processes() {
    need_capture!();
    for tool in ["setpriv", "unshare"] {
        need_command!(tool);
    }
    let sandbox = Sandbox::new();
    let me = std::process::id().to_string();
    let own_ids = ["unshare", "--pid", "--fork"];
    for arguments in [&["x", "-pid", &me][..], &["x", "-collectsec", "1"]] {
        let output = sandbox.refused(&own_ids, arguments);
        expect_words(&output, &["/proc", "another pid namespace", "--pid=host"]);
    }
    // In a separate pid namespace: before Linux 5.8 the option is one of the namespace.
    let script = "mount -t proc -o hidepid=2 proc /proc && { sleep 600 & } && exec setpriv --reuid=65534 \
        --regid=65534 --clear-groups \"$@\" -pid $!";
    let hidden = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
    ];
    let hidden = [&hidden[..], &[script, "sh"]].concat();
    let output = sandbox.refused(&hidden, &["x"]);
    expect_words(&output, &["hidepid", "CAP_SYS_PTRACE"]);
}

#[test]
fn refuses_pid_without_process() {
    need_capture!();
    let sandbox = Sandbox::new();
    // The id exceeds any pid_max.
    let output = sandbox.refused(&["env"], &["x", "-pid", "2147483647"]);
    expect_words(&output, &["2147483647 does not exist", "ps -e"]);
    // One missing process of two is an error too: the capture would lack part of the target.
    let me = format!("{},2147483647", std::process::id());
    expect_words(
        &sandbox.refused(&["env"], &["x", "-pid", &me]),
        &["2147483647"],
    );
    // This test runs in a separate thread of the process.
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let output = sandbox.refused(&["env"], &["x", "-pid", &thread]);
    let process = format!("-pid {}", std::process::id());
    expect_words(&output, &[&thread, "thread", &process]);
}

#[test]
fn refuses_command_that_cannot_run() {
    need_capture!();
    let sandbox = Sandbox::new();
    let output = sandbox.refused(&["env"], &["x", "-quiet", "--", "/no/such/program"]);
    expect_words(&output, &["/no/such/program", "No such file"]);
    let output = sandbox.refused(&["env"], &["x", "-quiet", "--", "/etc/passwd"]);
    expect_words(&output, &["/etc/passwd", "ermission denied"]);
}

#[test]
fn refuses_missing_or_read_only_directory() {
    need_capture!();
    let sandbox = Sandbox::new();
    let output = sandbox.refused(&["env"], &["missing/x", "-collectsec", "1"]);
    expect_words(
        &output,
        &["directory missing", "create it, or choose another one"],
    );
    // Root may write to protected directories, but not to a file system of the kernel.
    let output = sandbox.refused(&["env"], &["/proc/x", "-collectsec", "1"]);
    expect_words(
        &output,
        &["/proc", "choose a directory that you can write to"],
    );
    fs::create_dir(sandbox.out.join("there")).unwrap();
    for (name, word) in [
        (".", "name"),
        ("..", "name"),
        ("/", "name"),
        ("missing/", "missing/ is not a file name"),
        ("there/", "there/ is not a file name"),
        ("/dev/null", "/dev/null is not a file name"),
    ] {
        let output = sandbox.refused(&["env"], &[name, "-collectsec", "1"]);
        expect_words(&output, &[word]);
    }
}

#[test]
fn refuses_to_overwrite_output() {
    need_capture!();
    for older in ["x.trace.zip", "x.nettrace", "x.flamegraph.svg"] {
        let sandbox = Sandbox::new();
        fs::write(sandbox.out.join(older), "older").unwrap();
        let output = sandbox.refused(&["env"], &["x", "-collectsec", "1"]);
        expect_words(&output, &[older, "exists", "-force"]);
        // perfcollect follows no link, not even a dangling one.
        fs::remove_file(sandbox.out.join(older)).unwrap();
        std::os::unix::fs::symlink("/nowhere", sandbox.out.join(older)).unwrap();
        sandbox.refused(&["env"], &["x", "-collectsec", "1"]);
        let output = sandbox.refused(&["env"], &["x", "-collectsec", "1", "-force"]);
        expect_words(&output, &[older, "choose another name"]);
    }
}

#[test]
fn failed_capture_keeps_older_trace() {
    need_capture!();
    let sandbox = Sandbox::new();
    for file in ["x.trace.zip", "x.nettrace", "x.flamegraph.svg"] {
        fs::write(sandbox.out.join(file), "older").unwrap();
    }
    let sleeping = start(Command::new("sleep").arg("60"));
    let pid = sleeping.pid().to_string();
    // It sends no events.
    let options = ["-quiet", "-force", "-collectsec", "0.3", "-gccollectonly"];
    let arguments = [&["x", "-pid", &pid][..], &options].concat();
    sandbox.refused(&["env"], &arguments);
}

#[test]
fn full_disk_keeps_only_the_samples() {
    need_capture!();
    need_command!("unshare");
    let sandbox = Sandbox::new();
    let target = busy();
    let pid = target.pid().to_string();
    let limits = ["-collectsec", "0.3", "-maxsize", "0"];
    let arguments = [&["full", "-quiet", "-pid", &pid], &limits[..]].concat();
    // The size grows from too little to enough; in between, one file fits and the other does not.
    // The shell lists the remaining files, as the mount disappears with it.
    let script = "mount -t tmpfs -o size=$1k none . && cd \"$PWD\" && shift && \"$@\"; status=$?; ls -A; exit $status";
    let mut kilobytes = 32;
    loop {
        let size = kilobytes.to_string();
        let finished = sandbox.collect(
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
        // Only the samples remain, to be recovered elsewhere.
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
    assert!(listing(&sandbox.out).is_empty());
}
