//! Communicates with real runtimes through their diagnostic ports, which must not harm them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use perfcollect::dotnet::diagnostics::{
    DiagnosticPort, DiagnosticsError, EventPipeSession, Excluded, Limits, PortError,
    ProcessInfoReply, Provider, SessionRequest, query,
};
use perfcollect::machine;
use perfcollect::nettrace::{Losses, Reader};
use perfcollect::trace::Pid;
use rustix::process::Signal;
use support::{Missing, Runtime, Workload, runtimes, start, workloads};

/// Default number of sessions per version. The variable `ATTACH_ROUNDS` overrides it.
const ROUNDS: u32 = 100;
/// Lowest expected speed, on a slow machine.
const ROUNDS_PER_SECOND: u32 = 8;
/// Limit of a runtime on its sessions.
const MAX_SESSIONS: usize = 64;
const LIMIT: Duration = Duration::from_secs(60);

fn limits() -> Limits {
    Limits::new(Duration::from_secs(10), Duration::from_secs(30))
}

fn short() -> Limits {
    Limits::new(Duration::from_millis(300), Duration::from_secs(1))
}

/// Returns one runtime of each version, with the program to run.
fn programs() -> Result<Vec<(Runtime, std::path::PathBuf)>, Missing> {
    let program = workloads::cpu()?;
    let mut runtimes = runtimes();
    if runtimes.is_empty() {
        return Err(Missing::Dotnet(0));
    }
    runtimes.dedup_by_key(|runtime| runtime.major());
    let programs = runtimes.into_iter();
    Ok(programs.map(|runtime| (runtime, program.clone())).collect())
}

/// In .NET Core 3.1 the thread that sends and one that throws may spin forever if a reader leaves,
/// with room in the socket.
fn programs_that_may_lose_the_reader() -> Result<Vec<(Runtime, std::path::PathBuf)>, Missing> {
    let mut programs = programs()?;
    programs.retain(|(runtime, _)| runtime.major() >= 8);
    match programs.is_empty() {
        true => Err(Missing::Dotnet(8)),
        false => Ok(programs),
    }
}

fn command(runtime: &Runtime, program: &Path, seconds: u32) -> Command {
    let mut command = runtime.command(program);
    command.args(["--mode", "shares", "--seconds", &seconds.to_string()]);
    command
}

fn pid(workload: &Workload) -> Pid {
    Pid(workload.pid() as i32)
}

/// Requests events about compiled methods, and a rundown of all methods.
fn methods() -> SessionRequest {
    SessionRequest {
        buffer_mib: 16,
        rundown_keywords: 0x118,
        stacks: false,
        providers: vec![Provider {
            name: "Microsoft-Windows-DotNETRuntime".into(),
            keywords: 0x18,
            level: 4,
            arguments: String::new(),
            excluded: Excluded::default(),
        }],
    }
}

/// Starts and stops a session, and counts its events by provider and id.
fn round(port: &DiagnosticPort) -> (BTreeMap<(String, u32), u64>, Losses) {
    let session = EventPipeSession::start(port, &methods(), &limits()).unwrap();
    let stream = session.stream();
    let reading = thread::spawn(move || {
        let mut counts = BTreeMap::new();
        let mut reader = Reader::open(stream).unwrap();
        while let Some(event) = reader.next_event().unwrap() {
            let key = (event.metadata.provider.clone(), event.metadata.id);
            *counts.entry(key).or_default() += 1;
        }
        (counts, reader.losses())
    });
    let stopping = session.request_stop(port, &limits()).unwrap();
    stopping.wait(&limits()).unwrap();
    reading.join().unwrap()
}

#[test]
#[ignore = "slow"]
fn runtime_survives_a_hundred_sessions() {
    let rounds = std::env::var("ATTACH_ROUNDS").ok();
    let rounds = rounds.map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    for (runtime, program) in need!(programs()) {
        let seconds = rounds / ROUNDS_PER_SECOND;
        let workload = Workload::start(&mut command(&runtime, &program, seconds));
        let port = DiagnosticPort::find(pid(&workload)).unwrap();
        let start = Instant::now();
        for index in 0..rounds {
            let (counts, losses) = round(&port);
            let rundown = ("Microsoft-Windows-DotNETRuntimeRundown".to_owned(), 144);
            assert!(counts[&rundown] > 50, "round {index}: {counts:?}");
            assert_eq!(losses, Losses::default());
        }
        println!(
            "on .NET {}: {rounds} rounds in {:?}",
            runtime.version,
            start.elapsed()
        );
        assert!(query(&port, &limits()).is_ok());
        workload.done(LIMIT + Duration::from_secs(seconds.into()));
    }
}

#[test]
fn queries_process_information() {
    for (runtime, program) in need!(programs()) {
        let workload = Workload::start(&mut command(&runtime, &program, 2));
        let port = DiagnosticPort::find(pid(&workload)).unwrap();
        assert!(!port.is_suspended());
        match query(&port, &limits()).unwrap() {
            ProcessInfoReply::TooOld => assert!(runtime.major() < 5),
            ProcessInfoReply::Info(info) => {
                assert_eq!(info.runtime_version, runtime.version);
                assert_eq!(info.entry_assembly, "cpu");
                assert_eq!(info.pid, u64::from(workload.pid()));
                assert!(info.command_line.contains("--seconds"), "{info:?}");
            }
        }
        workload.done(LIMIT);
    }
}

/// The sessions are dropped, not read, or too many.
#[test]
#[ignore = "slow"]
fn abandoned_sessions_do_not_harm_the_runtime() {
    for (runtime, program) in need!(programs_that_may_lose_the_reader()) {
        let workload = Workload::start(&mut command(&runtime, &program, 8));
        let port = DiagnosticPort::find(pid(&workload)).unwrap();
        for _ in 0..5 {
            let session = EventPipeSession::start(&port, &methods(), &limits()).unwrap();
            let mut first = [0; 8];
            session.stream().read_exact(&mut first).unwrap();
            assert_eq!(&first, b"Nettrace");
        }
        let mut unread = Vec::new();
        let refused = loop {
            assert!(unread.len() <= MAX_SESSIONS);
            match EventPipeSession::start(&port, &methods(), &limits()) {
                Ok(session) => unread.push(session),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(refused, DiagnosticsError::Refused(0x8000_4005)),
            "{refused}"
        );
        drop(unread);
        workload.done(LIMIT);
    }
}

/// The stream of a running session is dropped. The runtime has more events than the socket buffers,
/// and must not wait for a reader at its exit.
#[test]
fn dropped_stream_does_not_block_exit() {
    let program = need!(workloads::storm());
    for (runtime, _) in need!(programs_that_may_lose_the_reader()) {
        let workload = Workload::start(runtime.command(&program).args(["--seconds", "1"]));
        let port = DiagnosticPort::find(pid(&workload)).unwrap();
        let mut exceptions = methods();
        exceptions.providers[0].keywords = 0x8000;
        let session = EventPipeSession::start(&port, &exceptions, &limits()).unwrap();
        let mut first = [0; 8];
        session.stream().read_exact(&mut first).unwrap();
        assert_eq!(&first, b"Nettrace");
        workload.done(LIMIT);
        drop(session);
    }
}

#[test]
fn shutdown_ends_the_stream() {
    let (runtime, program) = need!(programs()).pop().unwrap();
    let workload = Workload::start(&mut command(&runtime, &program, 3));
    let port = DiagnosticPort::find(pid(&workload)).unwrap();
    let session = EventPipeSession::start(&port, &methods(), &limits()).unwrap();
    let mut stream = session.stream();
    let reading = thread::spawn(move || {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).map(|_| all)
    });
    thread::sleep(Duration::from_millis(200));
    assert!(!reading.is_finished());
    session.shut_down();
    assert!(reading.join().unwrap().unwrap().starts_with(b"Nettrace"));
    workload.done(LIMIT);
}

#[test]
fn sends_no_command_to_a_stopped_process() {
    let (runtime, program) = need!(programs()).pop().unwrap();
    let workload = Workload::start(&mut command(&runtime, &program, 3));
    let port = DiagnosticPort::find(pid(&workload)).unwrap();
    workload.signal(Signal::STOP);
    while !machine::is_stopped(pid(&workload)) {
        thread::yield_now();
    }
    let start = Instant::now();
    assert!(matches!(
        query(&port, &limits()),
        Err(DiagnosticsError::Stopped)
    ));
    assert!(start.elapsed() < Duration::from_secs(1));
    workload.signal(Signal::CONT);
    assert!(query(&port, &limits()).is_ok());
    workload.done(LIMIT);
}

/// Settings and threads reveal that the runtime is suspended. It responds nevertheless.
#[test]
fn queries_a_runtime_suspended_at_startup() {
    for (runtime, program) in need!(programs()) {
        if runtime.major() < 5 {
            continue;
        }
        let mut command = command(&runtime, &program, 1);
        let running = start(command.env("DOTNET_DefaultDiagnosticPortSuspend", "1"));
        let pid = Pid(running.pid() as i32);
        let started = Instant::now();
        let port = loop {
            match DiagnosticPort::find(pid) {
                Ok(port) => break port,
                Err(error) => assert!(started.elapsed() < LIMIT, "{error}"),
            }
            thread::sleep(Duration::from_millis(10));
        };
        assert!(port.is_suspended());
        let Ok(ProcessInfoReply::Info(info)) = query(&port, &limits()) else {
            panic!("no reply")
        };
        assert_eq!(info.runtime_version, runtime.version);
    }
}

#[test]
fn reports_the_setting_that_disables_diagnostics() {
    for (runtime, program) in need!(programs()) {
        let switch = if runtime.major() < 6 {
            "COMPlus_EnableDiagnostics"
        } else {
            "DOTNET_EnableDiagnostics"
        };
        let mut command = command(&runtime, &program, 1);
        let workload = Workload::start(command.env(switch, "0"));
        let error = DiagnosticPort::find(pid(&workload)).unwrap_err();
        assert!(matches!(&error, PortError::SwitchedOff(by) if *by == format!("{switch}=0")));
        workload.done(LIMIT);
    }
}

/// Process ids are reused, and sockets of killed processes remain.
#[test]
fn stale_socket_does_not_hide_that_diagnostics_are_disabled() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("sleep");
    command.arg("60").env("TMPDIR", directory.path());
    let target = start(command.env("DOTNET_EnableDiagnostics", "0"));
    let target = Pid(target.pid() as i32);
    wait_for_environment(target);
    let name = format!("dotnet-diagnostic-{target}-1-socket");
    let _stale = UnixListener::bind(directory.path().join(name)).unwrap();
    let error = DiagnosticPort::find(target).unwrap_err();
    assert!(matches!(error, PortError::SwitchedOff(_)), "{error}");
}

/// Waits until the child has executed its program, which sets its environment.
fn wait_for_environment(child: Pid) {
    while machine::environment(child).map_or(true, |all| !contains(&all, b"TMPDIR=")) {
        thread::yield_now();
    }
}

/// Listens on the socket of the target's diagnostic port, in place of the target.
fn squat(target: Pid, directory: &Path) -> UnixListener {
    let started = machine::start_ticks(target).unwrap();
    let name = format!("dotnet-diagnostic-{target}-{started}-socket");
    UnixListener::bind(directory.join(name)).unwrap()
}

/// Starts a process without a .NET runtime that has a separate temporary directory.
fn bystander(directory: &Path) -> support::Running {
    start(Command::new("sleep").arg("60").env("TMPDIR", directory))
}

#[test]
fn sends_nothing_to_a_foreign_listener() {
    let directory = tempfile::tempdir().unwrap();
    let target = bystander(directory.path());
    let target = Pid(target.pid() as i32);
    wait_for_environment(target);
    let listener = squat(target, directory.path());
    let port = DiagnosticPort::find(target).unwrap();
    let error = query(&port, &short()).unwrap_err();
    let own_pid = Pid(std::process::id() as i32);
    assert!(
        matches!(error, DiagnosticsError::Squatted { pid, .. } if pid == own_pid),
        "{error}"
    );
    let (mut connection, _) = listener.accept().unwrap();
    let mut sent = Vec::new();
    connection.read_to_end(&mut sent).unwrap();
    assert_eq!(sent, b"");
}

/// The test process itself is the target, and sends malformed replies.
#[test]
fn query_of_a_malicious_target_fails_in_time() {
    let own_pid = Pid(std::process::id() as i32);
    let directory = std::env::var_os("TMPDIR").unwrap_or_else(|| "/tmp".into());
    let started = machine::start_ticks(own_pid).unwrap();
    let path = Path::new(&directory).join(format!("dotnet-diagnostic-{own_pid}-{started}-socket"));
    let listener = squat(own_pid, Path::new(&directory));
    let port = DiagnosticPort::find(own_pid).unwrap();
    let query_with_reply = |reply: fn(&mut UnixStream)| {
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut connection, _) = listener.accept().unwrap();
                let mut command = [0; 20];
                connection.read_exact(&mut command).unwrap();
                assert_eq!(&command, b"DOTNET_IPC_V1\0\x14\0\x04\x08\0\0");
                reply(&mut connection);
            });
            let start = Instant::now();
            let error = query(&port, &short()).unwrap_err();
            assert!(start.elapsed() < Duration::from_secs(2), "{error}");
            error
        })
    };
    let silent = query_with_reply(|_| thread::sleep(Duration::from_millis(500)));
    assert!(matches!(silent, DiagnosticsError::Silent), "{silent}");
    // Each byte arrives within the limit of a step, the whole reply after the total limit.
    let slow = query_with_reply(|connection| {
        for byte in b"DOTNET_IPC_V1\0\xff\xff\xff\0\0\0" {
            let _ = connection.write_all(&[*byte]);
            thread::sleep(Duration::from_millis(60));
        }
    });
    assert!(matches!(slow, DiagnosticsError::Silent), "{slow}");
    let closed = query_with_reply(|_| {});
    assert!(matches!(closed, DiagnosticsError::Malformed(_)), "{closed}");
    let other = query_with_reply(|connection| {
        let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert!(matches!(other, DiagnosticsError::Malformed(_)), "{other}");
    std::fs::remove_file(path).unwrap();
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}
