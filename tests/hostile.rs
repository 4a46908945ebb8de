//! What a process of another user places where root looks for its files.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::process::Command;
use std::time::Duration;

use support::{AS_NOBODY, Missing, Workload, captured_for, run};

const LIMIT: Duration = Duration::from_secs(60);
/// Runs code without a file. Its perf map is a link to the first argument.
const PROGRAM: &str = r#"
import ctypes, mmap, os, sys, threading
os.symlink(sys.argv[1], "/tmp/perf-%d.map" % os.getpid())
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\xeb\xfe")
loop = ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
threading.Thread(target=loop, daemon=True).start()
print('{"event":"ready","pid":%d}' % os.getpid(), flush=True)
sys.stdin.read()
os._exit(0)
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
    if Command::new("python3").arg("--version").output().is_err() {
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
