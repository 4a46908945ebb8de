//! What a process of another user places where root looks for its files.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use support::{
    AS_NOBODY, Missing, Saved, Workload, captured_for, finish, is_installed, perfcollect, run,
    run_perfcollect, start_capture, wait_for_cpu_time, wait_until,
};

const LIMIT: Duration = Duration::from_secs(60);
/// Runs code without a file. Its perf map is a link to the first argument, if there is one.
const PROGRAM: &str = r#"
import ctypes, mmap, os, sys, threading
if sys.argv[1:]:
    os.symlink(sys.argv[1], "/tmp/perf-%d.map" % os.getpid())
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\xeb\xfe")
loop = ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
threading.Thread(target=loop, daemon=True).start()
print('{"event":"ready","pid":%d}' % os.getpid(), flush=True)
sys.stdin.read()
os._exit(0)
"#;

/// A file system over `/tmp` that answers nothing after it has opened a file. Each name is a file.
///
/// The protocol is that of FUSE 7.22 (`linux/fuse.h`). A flag of the opened file is newer: closing it asks
/// nothing.
const FILE_SYSTEM: &str = r#"
import ctypes, os, struct, time
INIT, LOOKUP, GETATTR, OPEN, STATFS, NO_FLUSH = 26, 1, 3, 14, 17, 32
fuse = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % fuse
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"none", b"/tmp", b"fuse", 6, options):
    raise OSError(ctypes.get_errno(), "mount")
def attributes(node):
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("<6Q10I", node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
if os.fork() == 0:
    while True:
        request = os.read(fuse, 1 << 20)
        _, kind, unique, node = struct.unpack("<IIQQ", request[:24])
        reply, error = b"", 0
        if kind == INIT:
            reply = struct.pack("<4I2HI", 7, 22, 4096, 0, 8, 8, 4096)
        elif kind == LOOKUP:
            reply = struct.pack("<4Q2I", 2, 0, 9, 9, 0, 0) + attributes(2)
        elif kind == GETATTR:
            reply = struct.pack("<Q2I", 9, 0, 0) + attributes(node)
        elif kind == OPEN:
            reply = struct.pack("<Q2I", 0, NO_FLUSH, 0)
        elif kind == STATFS:
            reply = bytes(80)
        else:
            error = -38
        os.write(fuse, struct.pack("<IiQ", 16 + len(reply), error, unique) + reply)
        if kind == OPEN:
            time.sleep(1 << 20)
"#;

/// Reading the messages of the kernel waits for the next one, and takes it from others.
#[test]
fn a_perf_map_that_is_a_link_is_not_read() {
    need_capture!();
    let shell = |script: &str| {
        // A namespace that belongs to the user, who may make mounts and links in it.
        let mut command = Command::new(AS_NOBODY[0]);
        command
            .args(&AS_NOBODY[1..])
            .args(["unshare", "-Urm", "sh", "-c", script]);
        command
    };
    if !is_installed("python3") {
        skip!(Missing::Command("python3"));
    }
    if run(&mut shell("true"), LIMIT).status.code() != Some(0) {
        skip!(Missing::UserNamespaces);
    }
    for target in ["/proc/kmsg", "/etc/shadow", "/dev/zero"] {
        // The directory of the link is not sticky, so the kernel follows it for root, too.
        let script = "mount -t tmpfs -o mode=755 none /tmp && exec python3 -c \"$0\" \"$1\"";
        let process = Workload::start(shell(script).args([PROGRAM, target]));
        let saved = captured_for(Duration::from_secs(1), process.pid(), &[]);
        assert!(saved.summary.samples > 100, "{:?}", saved.summary);
        let text = format!("{:?}", saved.summary.quality);
        assert!(text.contains("not a regular file: Symlink"), "{text}");
    }
}

/// A server of a network file system may stop to answer at any time.
#[test]
fn a_second_signal_ends_it_also_while_it_waits_for_a_file_system() {
    need_capture!();
    if !is_installed("python3") {
        skip!(Missing::Command("python3"));
    }
    if !Path::new("/dev/fuse").exists() {
        skip!(Missing::File("/dev/fuse".into()));
    }
    let script = format!("{FILE_SYSTEM}\n{PROGRAM}");
    let mut target = Command::new("unshare");
    let target = Workload::start(target.args(["--mount", "python3", "-c", &script]));
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(perfcollect());
    let process = target.pid().to_string();
    command
        .args(["collect", "x", "-pid", &process])
        .current_dir(&directory);
    let capture = start_capture(&mut command);
    wait_for_cpu_time(target.pid(), Duration::from_secs(1));
    capture.signal(Signal::INT);
    wait_until("it waits for the file system", || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", capture.pid())).unwrap();
        let waits_in =
            tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("wchan")));
        waits_in
            .flatten()
            .any(|place| place.contains("request_wait_answer"))
    });
    capture.signal(Signal::INT);
    let finished = finish(capture, LIMIT);
    assert_eq!(finished.status.code(), Some(1));
    let kept = "kept: run `perfcollect recover x`";
    assert!(finished.stderr.contains(kept), "{}", finished.stderr);
    drop(target);
    let recovered = run_perfcollect(["recover", "x"], directory.path(), LIMIT);
    recovered.expect_success();
    let saved = Saved::open(directory, "x");
    assert!(saved.summary.samples > 100, "{:?}", saved.summary);
}
