//! What a process of another user places where root looks for its files.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use perfcollect::trace::NoticeKind;
use rustix::process::{Signal, geteuid};
use support::{
    AS_NOBODY, Missing, PublicDirectory, Saved, Workload, captured_during, captured_for, finish,
    perfcollect, run, run_perfcollect, start_capture, wait_for_cpu_time, wait_until,
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

/// Claims to be a runtime, and sends events without end.
const RUNTIME: &str = r#"
import mmap, os, socket, struct, sys, threading
start = open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19]
library = sys.argv[1] + "/libcoreclr.so"
with open(library, "wb") as file:
    file.write(b"\x7fELF" + bytes(4092))
code = mmap.mmap(os.open(library, os.O_RDONLY), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)
listener = socket.socket(socket.AF_UNIX)
path = "%s/dotnet-diagnostic-%d-%s-socket" % (os.environ["TMPDIR"], os.getpid(), start)
listener.bind(path)
listener.listen(9)
header = b"Nettrace\x14\0\0\0!FastSerialization.1\x05\x05\x01" + struct.pack("<3I", 4, 4, 5) + b"Trace\x06"
header += bytes(16) + struct.pack("<2Q4I", 1000, 10**9, 8, os.getpid(), 1, 0) + b"\x06"
offset = len(header)
def block():
    global offset
    content = struct.pack("<2H2Q", 20, 1, 0, 0) + bytes(65516)
    begin = b"\x05\x05\x01" + struct.pack("<3I", 2, 2, 10) + b"EventBlock\x06" + struct.pack("<I", len(content))
    padding = bytes(-(offset + len(begin)) % 4)
    whole = begin + padding + content + b"\x06"
    offset += len(whole)
    return whole
def serve():
    while True:
        connection, _ = listener.accept()
        connection.recv(1 << 16)
        connection.send(b"DOTNET_IPC_V1\0" + struct.pack("<H2BHQ", 28, 255, 0, 0, 7) + header)
        while True:
            try:
                connection.sendall(block())
            except OSError:
                break
threading.Thread(target=serve, daemon=True).start()
print('{"event":"ready"}', flush=True)
while True:
    pass
"#;

/// Runs in one function, whose name is a macro.
const SPIN: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) static void NAME(void) { for (;;) __asm__ volatile(""); }
int main(void) {
    printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
    fflush(stdout);
    NAME();
}
"#;

/// JIT code of a user: a chain of jumps without end, whose other bytes another thread changes. The
/// stack looks as if other code had called it. Tiny, overlapping functions: a million in the perf map,
/// 200 000 with code in the jitdump.
const JIT_CODE: &str = r#"
import ctypes, mmap, os, struct, sys, threading
SIZE, JUMPS = 1 << 20, 1 << 14
code = mmap.mmap(-1, SIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
start = ctypes.addressof(ctypes.c_char.from_buffer(code))
pid = os.getpid()
functions = [(start + number * 7 % SIZE, number * 5 % 61 + 1) for number in range(1000000)]
with open("/tmp/perf-%d.map" % pid, "w") as map:
    map.writelines("%x %x planted%d\n" % (at, size, number) for number, (at, size) in enumerate(functions))
dump = open("jit-%d.dump" % pid, "w+b")
dump.write(struct.pack("<6I2Q", 0x4a695444, 1, 40, 62, 0, pid, 0, 0))
loads = [struct.pack("<2IQ2I4Q", 0, 64 + size, 1, pid, pid, at, at, size, 0) + b"in_dump\0" + b"\xc3" * size for at, size in functions[:200000]]
dump.write(b"".join(loads))
dump.flush()
mapped = mmap.mmap(dump.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
del functions, loads
# In each 16 bytes: a conditional jump, never taken, to bytes that change; a jump; these bytes.
for number in range(JUMPS):
    at, to = number * 16, (number * 5 + 1) % JUMPS * 16
    code[at:at + 16] = b"\x0f\x82" + struct.pack("<i", to + 5 - at) + b"\xe9" + struct.pack("<i", to - at - 11) + b"\xe8" + bytes(4)
# mov rax, (address after a call); push rax, 8 times; mov rbp, rsp; clc; jmp to the chain
entry = JUMPS * 16
fake = b"\x48\xb8" + struct.pack("<Q", start + 16)
code[entry:entry + 64] = (fake + b"\x50" * 8 + b"\x48\x89\xe5\xf8\xe9" + struct.pack("<i", -(entry + 27))).ljust(64, b"\xcc")
def change():
    forms = [b"\xe8\0\0\0\0", b"\x5d\xc3\x90\x90\x90", b"\xc9\xc3\x90\x90\x90"]
    while True:
        for form in forms:
            code[11:16] = form
            for at in range(16 * 64 + 11, JUMPS * 16, 16 * 97):
                code[at:at + 5] = form
threading.Thread(target=ctypes.CFUNCTYPE(None)(start + entry), daemon=True).start()
threading.Thread(target=change, daemon=True).start()
print('{"event":"ready","pid":%d}' % pid, flush=True)
while True:
    sys.stdin.read()
"#;

/// Maps one file by many paths, then many files, below the first argument.
const MANY_FILES: &str = r#"
import mmap, os, sys
os.chdir(sys.argv[1])
kept = []
def map(name):
    file = os.open(name, os.O_RDWR | os.O_CREAT, 0o755)
    os.truncate(file, 4096)
    kept.append(mmap.mmap(file, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
    os.close(file)
map("path0")
for number in range(1100):
    os.rename("path%d" % number, "path%d" % (number + 1))
    map("path%d" % (number + 1))
for number in range(1100):
    map("file%d" % number)
print('{"event":"ready"}', flush=True)
sys.stdin.read()
"#;

/// Compiles a program that runs in a function `name`.
fn compile_spin(directory: &Path, program: &str, name: &str, options: &[&str]) {
    let source = directory.join("spin.c");
    fs::write(&source, SPIN).unwrap();
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O1", &format!("-DNAME={name}"), "-o"])
        .arg(directory.join(program))
        .arg(source)
        .args(options);
    run(&mut compiler, LIMIT).expect_success();
}

/// Returns the samples of a process in a function.
fn samples_in(saved: &Saved, pid: u32, function: &str) -> u64 {
    let id = format!("({pid})");
    let stacks = saved.stacks.iter().filter(|(stack, _)| {
        stack[0].ends_with(&id) && stack.iter().any(|frame| frame.contains(function))
    });
    stacks.map(|(_, samples)| samples).sum()
}

/// A command of another user in a mount namespace that belongs to the user.
fn in_own_namespace(script: &str) -> Command {
    let mut command = Command::new(AS_NOBODY[0]);
    command
        .args(&AS_NOBODY[1..])
        .args(["unshare", "-Urm", "sh", "-c", script]);
    command
}

/// The two cases in which the host does not have the file at its path: it is in containers, or was
/// upgraded.
#[test]
fn a_debug_file_in_a_mount_namespace_names_no_code_of_other_users() {
    need_capture!();
    need_command!("cc");
    if run(&mut in_own_namespace("true"), LIMIT).status.code() != Some(0) {
        skip!(Missing::UserNamespaces);
    }
    let public = PublicDirectory::new();
    let at = public.path();
    let build_id = "-Wl,--build-id=0x1122334455667788990011223344556677889900";
    compile_spin(at, "evil", "planted", &[build_id]);
    for program in ["shared", "upgraded"] {
        compile_spin(at, program, "own", &[build_id, "-s"]);
    }
    // A directory with the file of the host.
    let directory = |program: &str| {
        format!(
            "mount -t tmpfs none /mnt && touch /mnt/{program} && \
             mount --bind $0/{program} /mnt/{program}"
        )
    };
    let plant = |program: &str| {
        let directory = directory(program);
        format!("{directory} && cp $0/evil /mnt/{program}.debug")
    };
    let start = |mut command: Command| Workload::start(command.arg(at));
    let in_namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]);
        command
    };
    let attackers = [
        plant("shared") + " && exec /mnt/shared",
        plant("upgraded") + " && mount --rbind /mnt $0 && exec $0/upgraded",
    ];
    let attackers = attackers.map(|script| start(in_own_namespace(&script)));
    let victims = [
        start(in_namespace(
            &(directory("shared") + " && exec /mnt/shared"),
        )),
        Workload::start(&mut Command::new(at.join("upgraded"))),
    ];
    fs::remove_file(at.join("upgraded")).unwrap();
    let saved = captured_during(&["-noinline"], || {
        for process in attackers.iter().chain(&victims) {
            wait_for_cpu_time(process.pid(), Duration::from_millis(200));
        }
    });
    for (attacker, victim) in attackers.iter().zip(&victims) {
        assert!(samples_in(&saved, attacker.pid(), "planted") > 20);
        assert!(samples_in(&saved, victim.pid(), "") > 20);
        assert_eq!(samples_in(&saved, victim.pid(), "planted"), 0);
    }
}

#[test]
fn a_user_with_many_files_leaves_descriptors_for_others() {
    need_capture!();
    for command in ["cc", "python3", "setpriv"] {
        need_command!(command);
    }
    let public = PublicDirectory::new();
    compile_spin(public.path(), "program", "own", &[]);
    // Root could raise the limit.
    let limit = "ulimit -n 1024; exec \"$@\"";
    let prefix = [
        "setpriv",
        "--bounding-set=-sys_resource",
        "sh",
        "-c",
        limit,
        "sh",
    ];
    let capture = start_capture(&mut public.command(&prefix, &["-noinline"]));
    let files = PublicDirectory::new();
    let mut many = Command::new(AS_NOBODY[0]);
    many.args(&AS_NOBODY[1..])
        .args(["sh", "-c", "exec python3 -c \"$0\" \"$1\"", MANY_FILES])
        .arg(files.path());
    let many = Workload::start(&mut many);
    let process = Workload::start(&mut Command::new(public.path().join("program")));
    wait_for_cpu_time(process.pid(), Duration::from_millis(300));
    let id = process.pid();
    drop((many, process));
    let saved = public.end(capture);
    let notices = &saved.summary.quality.notices;
    assert!(samples_in(&saved, id, "own") > 50, "{notices:#?}");
}

/// Maps its arguments, and executes the code in each of them in turn for 2 ms.
const JUMPER: &str = r#"
import ctypes, os, signal, sys
PAGE, CODE = 4096, 2048
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
def code(path):
    file = os.open(path, os.O_RDONLY)
    return ctypes.CFUNCTYPE(None)(libc.mmap(None, PAGE, 5, 2, file, 0) + CODE)
codes = [code(path) for path in sys.argv[1:]]
print('{"event":"ready","pid":%d}' % os.getpid(), flush=True)
while True:
    for call in codes:
        call()
"#;

/// Reading the messages of the kernel waits for the next one, and takes it from others.
#[test]
fn a_perf_map_that_is_a_link_is_not_read() {
    need_capture!();
    need_command!("python3");
    if run(&mut in_own_namespace("true"), LIMIT).status.code() != Some(0) {
        skip!(Missing::UserNamespaces);
    }
    for target in ["/proc/kmsg", "/etc/shadow", "/dev/zero"] {
        // The directory of the link is not sticky, so the kernel follows it for root, too.
        let script = "mount -t tmpfs -o mode=755 none /tmp && exec python3 -c \"$0\" \"$1\"";
        let process = Workload::start(in_own_namespace(script).args([PROGRAM, target]));
        let saved = captured_for(Duration::from_secs(1), process.pid(), &[]);
        assert!(saved.summary.samples > 100, "{:?}", saved.summary);
        let text = format!("{:?}", saved.summary.quality);
        assert!(text.contains("not a regular file: Symlink"), "{text}");
    }
}

/// Whether a process can neither get new rights nor inspect other processes.
fn is_in_sandbox(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let capabilities = field("CapPrm:").and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    field("NoNewPrivs:").is_some_and(|value| value.trim() == "1")
        && capabilities.is_some_and(|all| all & 1 << 19 == 0)
}

fn waits_for_file_system(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let places = tasks
        .flatten()
        .flatten()
        .map(|task| std::fs::read_to_string(task.path().join("wchan")));
    places
        .flatten()
        .any(|place| place.contains("request_wait_answer"))
}

/// A server of a network file system may stop to answer at any time.
#[test]
fn a_second_signal_ends_it_also_while_it_waits_for_a_file_system() {
    need_capture!();
    need_command!("python3");
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
    // The file system answers until the file is open.
    let mut waits = 0;
    wait_until("it waits for the file system", || {
        waits = match is_in_sandbox(capture.pid()) && waits_for_file_system(capture.pid()) {
            true => waits + 1,
            false => 0,
        };
        waits > 20
    });
    // Signals that follow each other closely are one request.
    std::thread::sleep(Duration::from_millis(300));
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

/// An ELF file with code at 2048 that takes about 2 ms, `.eh_frame_hdr` at 3072 and `.eh_frame` at
/// 4096, whose second entry is for that code.
fn elf_with_eh_frame(eh_frame: &[u8]) -> Vec<u8> {
    const TABLE: i32 = 3072;
    const NAMES: &[u8] = b"\0.eh_frame\0.eh_frame_hdr\0.names\0";
    let mut bytes = vec![0; 4096];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[3, 0, 62, 0, 1, 0, 0, 0]); // ET_DYN, x86-64, version 1
    put(32, &64_u64.to_le_bytes()); // program headers
    put(40, &1024_u64.to_le_bytes()); // section headers
    put(52, &[64, 0, 56, 0, 1, 0, 64, 0, 4, 0, 3, 0]);
    put(64, &[1, 0, 0, 0, 5, 0, 0, 0]); // PT_LOAD, r-x
    put(96, &4096_u64.to_le_bytes());
    put(104, &4096_u64.to_le_bytes());
    let mut header = |index: usize, [name, kind, flags]: [u8; 3], at: usize, size: usize| {
        let start = 1024 + index * 64;
        put(start, &[name, 0, 0, 0, kind, 0, 0, 0, flags]);
        put(start + 16, &at.to_le_bytes()); // address
        put(start + 24, &at.to_le_bytes());
        put(start + 32, &size.to_le_bytes());
    };
    header(1, [1, 1, 2], 4096, eh_frame.len());
    header(2, [11, 1, 2], TABLE as usize, 20);
    header(3, [25, 3, 0], 1536, NAMES.len());
    put(1536, NAMES);
    // mov ecx, 2000000; dec ecx; jnz -4; ret
    put(
        2048,
        &[0xb9, 0x80, 0x84, 0x1e, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc3],
    );
    let table = [0x3b03_1b01, 1020, 1, 2048 - TABLE, 4096 + 24 - TABLE];
    let table: Vec<u8> = table.iter().flat_map(|word| word.to_le_bytes()).collect();
    put(TABLE as usize, &table);
    bytes.extend(eh_frame);
    bytes
}

/// The `.eh_frame` of [`elf_with_eh_frame`]: the CFA is an expression that jumps to itself.
fn endless_rule() -> Vec<u8> {
    let mut section =
        b"\x14\0\0\0\0\0\0\0\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01\0\0".to_vec();
    section.extend(b"\x14\0\0\0\x1c\0\0\0");
    section.extend((2048 - (4096 + 32_i32)).to_le_bytes());
    section.extend(b"\x10\0\0\0\0\x0f\x03\x2f\xfd\xff\0\0\0\0\0\0");
    section
}

/// Reading and evaluating it would take the time of the thread that reads the ring buffers.
#[test]
fn unwind_information_of_a_user_neither_stops_a_capture_nor_loses_records() {
    need_capture!();
    need_command!("python3");
    let public = PublicDirectory::new();
    let write = |name: &str, content: &[u8]| {
        let path = public.path().join(name);
        std::fs::write(&path, content).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
        }
        path
    };
    let endless = elf_with_eh_frame(&endless_rule());
    let large = elf_with_eh_frame(&vec![0; 20 << 20]);
    let mut paths = vec![write("endless.so", &endless), write("large.so", &large)];
    for link in 0..40 {
        let path = public.path().join(format!("{link}.so"));
        std::fs::hard_link(&paths[1], &path).unwrap();
        paths.push(path);
    }
    let mut jumper = Command::new(AS_NOBODY[0]);
    jumper
        .args(&AS_NOBODY[1..])
        .args(["sh", "-c", "exec python3 -c \"$0\" \"$@\"", JUMPER]);
    let jumper = Workload::start(jumper.args(&paths));
    let saved = captured_for(Duration::from_secs(1), jumper.pid(), &[]);
    drop(jumper);
    assert!(saved.summary.samples > 300, "{:?}", saved.summary);
    // Without the bound, nine of ten. Other tests run beside this one.
    let losses = &saved.summary.quality.losses;
    assert!(losses.lost() * 10 < losses.samples_seen, "{losses:?}");
    let bounded = saved.notices(NoticeKind::UnwindingBounded);
    assert!(
        bounded.len() == 1 && bounded[0].subject == "65534",
        "{bounded:?}"
    );
}

#[test]
fn a_runtime_that_sends_without_end_neither_ends_a_capture_nor_fills_the_disk() {
    need_capture!();
    need_command!("python3");
    let public = PublicDirectory::new();
    let mut runtime = Command::new(AS_NOBODY[0]);
    runtime
        .args(&AS_NOBODY[1..])
        .args(["sh", "-c", "exec python3 -c \"$0\" \"$1\"", RUNTIME])
        .arg(public.path())
        .env("TMPDIR", public.path());
    let runtime = Workload::start(&mut runtime);
    let directory = tempfile::tempdir().unwrap();
    let options = ["-maxsize", "48M", "-collectsec", "4"];
    let options = ["collect", "x"].into_iter().chain(options);
    let finished = run_perfcollect(options, directory.path(), LIMIT).expect_success();
    drop(runtime);
    let saved = Saved::open(directory, "x");
    assert!(
        finished.stderr.contains("STOPPED (time limit)"),
        "{}",
        finished.stderr
    );
    let lost = saved.notices(NoticeKind::EventsLost);
    assert!(lost.len() == 1 && saved.notices(NoticeKind::DiskSpace).is_empty());
}

/// Its code is read while samples are taken, and its files at the end.
#[test]
fn jit_code_of_a_user_delays_no_capture_and_has_no_certain_callers() {
    need_capture!();
    for command in ["cc", "python3"] {
        need_command!(command);
    }
    let public = PublicDirectory::new();
    compile_spin(public.path(), "program", "own_work", &[]);
    let mut attacker = Command::new(AS_NOBODY[0]);
    attacker
        .args(&AS_NOBODY[1..])
        .args(["sh", "-c", "cd \"$1\" && exec python3 -c \"$0\"", JIT_CODE])
        .arg(public.path());
    let attacker = Workload::start(&mut attacker);
    let victim = Workload::start(&mut Command::new(public.path().join("program")));
    let directory = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let pids = format!("{},{}", attacker.pid(), victim.pid());
    let options = ["collect", "x", "-quiet", "-collectsec", "2", "-pid", &pids];
    run_perfcollect(options, directory.path(), LIMIT * 3).expect_success();
    let elapsed = start.elapsed();
    let [attacker, victim] = [attacker, victim].map(|workload| workload.pid());
    let _ = fs::remove_file(format!("/tmp/perf-{attacker}.map"));
    let saved = Saved::open(directory, "x");
    let quality = &saved.summary.quality;
    // The files of a user are read for 30 s.
    assert!(elapsed < LIMIT, "{elapsed:?}");
    let losses = &quality.losses;
    assert!(losses.lost() * 10 < losses.samples_seen, "{losses:?}");
    assert!(samples_in(&saved, victim, "own_work") > 100);
    // No jump ever returns, so that no analysis can check where a caller is.
    let id = format!("({attacker})");
    let is_jit = |frame: &&String| frame.ends_with("_[j]");
    let in_chain = saved
        .stacks
        .iter()
        .filter(|(stack, _)| stack[0].ends_with(&id) && stack.last().as_ref().is_some_and(is_jit));
    let with_caller = in_chain
        .clone()
        .filter(|(stack, _)| stack.iter().filter(is_jit).count() > 1);
    let [in_chain, with_caller] = [
        in_chain.map(|(_, samples)| samples).sum::<u64>(),
        with_caller.map(|(_, samples)| samples).sum(),
    ];
    let name = format!("JIT code of process {attacker}");
    let doubtful = quality.doubtful.iter().filter(|code| code.name == name);
    let doubtful: u64 = doubtful.map(|code| code.likely + code.guessed).sum();
    assert!(
        in_chain > 100 && with_caller <= doubtful,
        "{with_caller} of {in_chain}: {doubtful}"
    );
}
