//! `perfcollect ps` beside real .NET processes in every state.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::HashMap;
use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use perfcollect::machine;
use perfcollect::trace::Pid;
use rustix::process::{Signal, geteuid};
use serde_json::Value;
use support::{
    AS_NOBODY, Missing, PublicDirectory, Running, Runtime, Workload, children, perfcollect, run,
    runtimes, start, workloads,
};

/// Shorter than the programs run, so that the last state is reported.
const LIMIT: Duration = Duration::from_secs(25);
/// A list with a process that hangs in it still comes in this time.
const PROMPT: Duration = Duration::from_secs(5);

/// Starts as many processes with a silent diagnostic port as the second argument.
const SILENT: &str = r#"
import ctypes, mmap, os, socket, sys, time
library = sys.argv[1] + "/libcoreclr.so"
if not os.path.exists(library):
    with open(library, "wb") as file:
        file.write(b"\x7fELF" + bytes(4092))
file = os.open(library, os.O_RDONLY)
started, ready = os.pipe()
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, 9)  # ends with its parent
        code = mmap.mmap(file, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)
        start = open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19]
        listener = socket.socket(socket.AF_UNIX)
        path = "%s/dotnet-diagnostic-%d-%s-socket" % (os.environ["TMPDIR"], os.getpid(), start)
        listener.bind(path)
        listener.listen(9)
        os.write(ready, b".")
        time.sleep(60)
for _ in range(int(sys.argv[2])):
    os.read(started, 1)
print('{"event":"ready"}', flush=True)
time.sleep(60)
"#;

fn ps(options: &[&str]) -> String {
    let begin = Instant::now();
    let finished = run(Command::new(perfcollect()).arg("ps").args(options), LIMIT);
    assert!(begin.elapsed() < PROMPT);
    finished.expect_success().stdout
}

/// What `ps` says of each process.
fn listed() -> HashMap<u64, Value> {
    let rows: Vec<Value> = serde_json::from_str(&ps(&["-json"])).unwrap();
    rows.into_iter()
        .map(|row| (row["pid"].as_u64().unwrap(), row))
        .collect()
}

/// What it says of one, once that is what is expected.
fn wait_for(pid: u32, diagnostics: &str) -> Value {
    let begin = Instant::now();
    loop {
        let rows = listed();
        match rows.get(&pid.into()) {
            Some(row) if row["diagnostics"] == diagnostics => return row.clone(),
            other => assert!(
                begin.elapsed() < LIMIT,
                "{pid} not {diagnostics}: {other:?}"
            ),
        }
        sleep(Duration::from_millis(50));
    }
}

fn command(runtime: &Runtime) -> Result<Command, Missing> {
    let mut command = runtime.command(&workloads::cpu()?);
    command.args(["--mode", "shares", "--seconds", "30"]);
    Ok(command)
}

#[test]
fn each_runtime_is_known_by_version_and_kind() {
    let mut runtimes = runtimes();
    runtimes.dedup_by_key(|runtime| runtime.major());
    for runtime in runtimes {
        let workload = Workload::start(&mut need!(command(&runtime)));
        let row = &listed()[&workload.pid().into()];
        assert_eq!(row["version"], runtime.version);
        assert_eq!(row["flavour"], "framework");
        assert_eq!(row["diagnostics"], "ready");
        assert_eq!(row["namespace_pid"], workload.pid());
        let command_line = row["command_line"].as_str().unwrap();
        assert!(command_line.ends_with("cpu.dll --mode shares --seconds 30"));
    }
}

#[test]
fn programs_that_bring_their_runtime() {
    let expected = [
        ("split-single", "single-file", "ready"),
        ("split-compressed", "single-file", "ready"),
        ("split-trimmed", "self-contained", "ready"),
        ("split-composite", "self-contained", "ready"),
        ("split-aot", "native-aot", "none"),
        ("split-aot-events", "native-aot", "ready"),
    ];
    for (name, flavour, diagnostics) in expected {
        let program = need!(workloads::shared(&format!("{name}/{name}")));
        let workload = Workload::start(Command::new(program).args(["--seconds", "30"]));
        let row = wait_for(workload.pid(), diagnostics);
        assert_eq!(row["flavour"], flavour, "{row}");
        let has_version = row["version"].as_str().is_some_and(|v| v.contains(".0."));
        assert_eq!(has_version, name != "split-aot", "{row}");
    }
}

/// Killed processes leave their sockets, and ids are used again.
#[test]
fn ignores_socket_of_earlier_process_with_same_id() {
    let directory = tempfile::tempdir().unwrap();
    let program = need!(workloads::shared("split-aot/split-aot"));
    let mut command = Command::new(program);
    command.args(["--seconds", "30"]);
    let workload = Workload::start(command.env("TMPDIR", directory.path()));
    let pid = workload.pid();
    let leftover = directory
        .path()
        .join(format!("dotnet-diagnostic-{pid}-1-socket"));
    drop(UnixListener::bind(leftover).unwrap());
    let row = &listed()[&pid.into()];
    assert_eq!(row["diagnostics"], "none", "{row}");
}

/// A process in a time namespace gives its socket another key.
#[test]
fn a_process_with_another_clock_is_reached() {
    let runtime = need!(Runtime::newest());
    let program = need!(command(&runtime));
    let words = ["-T", "--boottime", "100000"];
    if !run(Command::new("unshare").args(words).arg("true"), LIMIT)
        .status
        .success()
    {
        skip!(Missing::Unshare("-T"));
    }
    let mut unshare = Command::new("unshare");
    unshare.args(words).arg(program.get_program());
    unshare.args(program.get_args());
    for (name, value) in program.get_envs() {
        unshare.env(name, value.unwrap_or_default());
    }
    let workload = Workload::start(&mut unshare);
    let row = wait_for(workload.pid(), "ready");
    assert_eq!(row["version"], runtime.version);
}

#[test]
fn what_keeps_a_process_from_answering_is_said() {
    let runtime = need!(Runtime::newest());
    let off = Workload::start(need!(command(&runtime)).env("DOTNET_EnableDiagnostics", "0"));
    let suspended = start(need!(command(&runtime)).env("DOTNET_DefaultDiagnosticPortSuspend", "1"));
    let stopped = Workload::start(&mut need!(command(&runtime)));
    stopped.signal(Signal::STOP);
    let directory = tempfile::tempdir().unwrap();
    let removed = Workload::start(need!(command(&runtime)).env("TMPDIR", directory.path()));
    let squatted = Workload::start(need!(command(&runtime)).env("TMPDIR", directory.path()));
    let mut listeners = Vec::new();
    for (workload, put_another) in [(&removed, false), (&squatted, true)] {
        let pid = Pid(workload.pid() as i32);
        let key = machine::start_ticks(pid).unwrap();
        let path = directory
            .path()
            .join(format!("dotnet-diagnostic-{pid}-{key}-socket"));
        fs::remove_file(&path).unwrap();
        if put_another {
            listeners.push(UnixListener::bind(path).unwrap());
        }
    }
    for (pid, state, reason) in [
        (off.pid(), "off", "DOTNET_EnableDiagnostics=0"),
        (suspended.pid(), "suspended", "suspended at startup"),
        (stopped.pid(), "stopped", "is stopped"),
        (removed.pid(), "none", directory.path().to_str().unwrap()),
        (squatted.pid(), "foreign", "listens on its diagnostic port"),
    ] {
        let row = wait_for(pid, state);
        assert!(row["reason"].as_str().unwrap().contains(reason), "{row}");
        assert_eq!(row["version"], runtime.version, "{row}");
    }
    let table = ps(&[]);
    let header = table.lines().next().unwrap_or_default();
    assert!(
        header.trim_start().starts_with("PID ") && header.ends_with("DIAGNOSTICS  COMMAND"),
        "{table}"
    );
    assert!(table.contains(&format!("\n{}: diagnostics are disabled by", off.pid())));
    stopped.signal(Signal::CONT);
}

/// In separate pid and mount namespaces, with a private directory for temporary files.
#[test]
fn a_process_in_another_namespace_is_reached() {
    let runtime = need!(Runtime::newest());
    let program = need!(command(&runtime));
    let unshare = |command: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["-pmf", "--mount-proc", "sh", "-c", command]);
        unshare
    };
    if !run(&mut unshare("true"), LIMIT).status.success() {
        skip!(Missing::Unshare("-m"));
    }
    let directory = tempfile::tempdir().unwrap();
    let quoted: Vec<_> = std::iter::once(program.get_program())
        .chain(program.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mount = format!(
        "mount -t tmpfs none {0} && TMPDIR={0} {1}; true",
        directory.path().display(),
        quoted.join(" ")
    );
    let _running: Running = start(unshare(&mount).env("DOTNET_ROLL_FORWARD", "LatestMajor"));
    let begin = Instant::now();
    let row = loop {
        let rows = listed();
        let inside = rows
            .into_values()
            .find(|row| row["namespace_pid"] != row["pid"] && row["diagnostics"] == "ready");
        if let Some(row) = inside {
            break row;
        }
        assert!(begin.elapsed() < LIMIT, "it was not listed");
        sleep(Duration::from_millis(50));
    };
    assert_eq!(row["version"], runtime.version);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn processes_of_one_user_that_do_not_answer_neither_delay_the_list_nor_hide_those_of_others() {
    need_command!("python3");
    if !geteuid().is_root() {
        skip!(Missing::Root);
    }
    let public = PublicDirectory::new();
    let silent = |command: &[&str], count: &str| {
        let mut silent = Command::new(command[0]);
        silent
            .args(&command[1..])
            .args(["sh", "-c", "exec python3 -c \"$0\" \"$@\"", SILENT])
            .arg(public.path())
            .arg(count)
            .env("TMPDIR", public.path());
        Workload::start(&mut silent)
    };
    let _many = silent(&AS_NOBODY, "150");
    let one = silent(&["env"], "1");
    let rows = listed();
    let not_asked = |row: &&Value| row["diagnostics"] == "not asked";
    assert!(rows.values().filter(not_asked).count() > 50);
    let [asked] = children(one.pid())[..] else {
        panic!("it has one child");
    };
    assert_eq!(rows[&asked.into()]["diagnostics"], "silent");
}
