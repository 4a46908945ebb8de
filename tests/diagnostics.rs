//! Real runtimes asked through their diagnostics ports: what they answer, and that asking does them no harm.
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
    Answer, DiagnosticsError, Limits, Port, PortError, Provider, Session, SessionRequest, ask,
};
use perfcollect::dotnet::nettrace::{Losses, Reader};
use perfcollect::machine;
use perfcollect::trace::Pid;
use rustix::process::Signal;
use support::{Missing, Runtime, Workload, runtimes, start, workloads};

/// Attaching and detaching, on each version, unless `ATTACH_ROUNDS` says another number.
const ROUNDS: u32 = 100;
/// Rounds a second that the slowest machine does.
const ROUNDS_PER_SECOND: u32 = 8;
/// Sessions a runtime has at most.
const MAX_SESSIONS: usize = 64;
const LIMIT: Duration = Duration::from_secs(60);

fn limits() -> Limits {
    Limits::new(Duration::from_secs(10), Duration::from_secs(30))
}

fn short() -> Limits {
    Limits::new(Duration::from_millis(300), Duration::from_secs(1))
}

/// One of each version, and the program that all of them run.
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

fn command(runtime: &Runtime, program: &Path, seconds: u32) -> Command {
    let mut command = runtime.command(program);
    command.args(["--mode", "shares", "--seconds", &seconds.to_string()]);
    command
}

fn pid(workload: &Workload) -> Pid {
    Pid(workload.pid() as i32)
}

/// Methods that are compiled, and at the end all that there are.
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
        }],
    }
}

/// Begins a session, stops it, and counts its events by provider and number while they come.
fn round(port: &Port) -> (BTreeMap<(String, u32), u64>, Losses) {
    let session = Session::start(port, &methods(), &limits()).unwrap();
    let stream = session.stream();
    let reading = thread::spawn(move || {
        let mut counts = BTreeMap::new();
        let mut reader = Reader::open(stream).unwrap();
        while let Some(event) = reader.next_event().unwrap() {
            let key = (event.kind.provider.clone(), event.kind.id);
            *counts.entry(key).or_default() += 1;
        }
        (counts, reader.losses())
    });
    let stopping = session.ask_to_stop(port, &limits()).unwrap();
    stopping.wait(&limits()).unwrap();
    reading.join().unwrap()
}

#[test]
#[ignore = "slow"]
fn a_runtime_outlives_a_hundred_sessions() {
    let asked = std::env::var("ATTACH_ROUNDS").ok();
    let rounds = asked.map_or(ROUNDS, |number| number.parse().unwrap());
    for (runtime, program) in need!(programs()) {
        let seconds = rounds / ROUNDS_PER_SECOND;
        let workload = Workload::start(&mut command(&runtime, &program, seconds));
        let port = Port::find(pid(&workload)).unwrap();
        let begin = Instant::now();
        for number in 0..rounds {
            let (counts, losses) = round(&port);
            let rundown = ("Microsoft-Windows-DotNETRuntimeRundown".to_owned(), 144);
            assert!(counts[&rundown] > 50, "round {number}: {counts:?}");
            assert_eq!(losses, Losses::default());
        }
        println!(
            "on .NET {}: {rounds} rounds in {:?}",
            runtime.version,
            begin.elapsed()
        );
        assert!(ask(&port, &limits()).is_ok());
        workload.done(LIMIT + Duration::from_secs(seconds.into()));
    }
}

#[test]
fn a_runtime_says_who_it_is() {
    for (runtime, program) in need!(programs()) {
        let workload = Workload::start(&mut command(&runtime, &program, 2));
        let port = Port::find(pid(&workload)).unwrap();
        assert!(!port.is_suspended());
        match ask(&port, &limits()).unwrap() {
            Answer::TooOld => assert!(runtime.major() < 5),
            Answer::Info(info) => {
                assert_eq!(info.runtime_version, runtime.version);
                assert_eq!(info.entry_assembly, "cpu");
                assert_eq!(info.pid, u64::from(workload.pid()));
                assert!(info.command_line.contains("--seconds"), "{info:?}");
            }
        }
        workload.done(LIMIT);
    }
}

/// Sessions that are dropped, not read, or too many.
#[test]
#[ignore = "slow"]
fn sessions_that_are_left_do_no_harm() {
    for (runtime, program) in need!(programs()) {
        let workload = Workload::start(&mut command(&runtime, &program, 8));
        let port = Port::find(pid(&workload)).unwrap();
        for _ in 0..5 {
            let session = Session::start(&port, &methods(), &limits()).unwrap();
            let mut first = [0; 8];
            session.stream().read_exact(&mut first).unwrap();
            assert_eq!(&first, b"Nettrace");
        }
        let mut unread = Vec::new();
        let refused = loop {
            assert!(unread.len() <= MAX_SESSIONS);
            match Session::start(&port, &methods(), &limits()) {
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

/// Nobody reads a stream any more while its session goes on: the runtime, which has far more to tell than fits on the way,
/// does not wait for a reader when it ends.
#[test]
fn a_stream_that_is_left_does_not_hold_up_the_exit() {
    let program = need!(workloads::storm());
    let mut programs = need!(programs());
    // In .NET Core 3.1 the thread that sends and one that throws may spin forever, with room in the socket.
    programs.retain(|(runtime, _)| runtime.major() >= 8);
    if programs.is_empty() {
        skip!(Missing::Dotnet(8));
    }
    for (runtime, _) in programs {
        let workload = Workload::start(runtime.command(&program).args(["--seconds", "1"]));
        let port = Port::find(pid(&workload)).unwrap();
        let mut exceptions = methods();
        exceptions.providers[0].keywords = 0x8000;
        let session = Session::start(&port, &exceptions, &limits()).unwrap();
        let mut first = [0; 8];
        session.stream().read_exact(&mut first).unwrap();
        assert_eq!(&first, b"Nettrace");
        workload.done(LIMIT);
        drop(session);
    }
}

/// A stop that is not waited for: the stream ends when it is cut off.
#[test]
fn a_stream_ends_when_it_is_cut_off() {
    let (runtime, program) = need!(programs()).pop().unwrap();
    let workload = Workload::start(&mut command(&runtime, &program, 3));
    let port = Port::find(pid(&workload)).unwrap();
    let session = Session::start(&port, &methods(), &limits()).unwrap();
    let mut stream = session.stream();
    let reading = thread::spawn(move || {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).map(|_| all)
    });
    thread::sleep(Duration::from_millis(200));
    assert!(!reading.is_finished());
    session.cut_off();
    assert!(reading.join().unwrap().unwrap().starts_with(b"Nettrace"));
    workload.done(LIMIT);
}

#[test]
fn a_stopped_process_is_not_asked() {
    let (runtime, program) = need!(programs()).pop().unwrap();
    let workload = Workload::start(&mut command(&runtime, &program, 3));
    let port = Port::find(pid(&workload)).unwrap();
    workload.signal(Signal::STOP);
    while !machine::is_stopped(pid(&workload)) {
        thread::yield_now();
    }
    let begin = Instant::now();
    assert!(matches!(
        ask(&port, &limits()),
        Err(DiagnosticsError::Stopped)
    ));
    assert!(begin.elapsed() < Duration::from_secs(1));
    workload.signal(Signal::CONT);
    assert!(ask(&port, &limits()).is_ok());
    workload.done(LIMIT);
}

/// The process that a runtime waits for is told by its settings and threads; it answers all the same.
#[test]
fn a_process_that_is_suspended_at_startup_answers() {
    for (runtime, program) in need!(programs()) {
        if runtime.major() < 5 {
            continue;
        }
        let mut command = command(&runtime, &program, 1);
        let running = start(command.env("DOTNET_DefaultDiagnosticPortSuspend", "1"));
        let pid = Pid(running.pid() as i32);
        let begin = Instant::now();
        let port = loop {
            match Port::find(pid) {
                Ok(port) => break port,
                Err(error) => assert!(begin.elapsed() < LIMIT, "{error}"),
            }
            thread::sleep(Duration::from_millis(10));
        };
        assert!(port.is_suspended());
        let Ok(Answer::Info(info)) = ask(&port, &limits()) else {
            panic!("no answer")
        };
        assert_eq!(info.runtime_version, runtime.version);
    }
}

#[test]
fn a_process_without_diagnostics_is_told_why() {
    for (runtime, program) in need!(programs()) {
        let switch = if runtime.major() < 6 {
            "COMPlus_EnableDiagnostics"
        } else {
            "DOTNET_EnableDiagnostics"
        };
        let mut command = command(&runtime, &program, 1);
        let workload = Workload::start(command.env(switch, "0"));
        let error = Port::find(pid(&workload)).unwrap_err();
        assert!(matches!(&error, PortError::SwitchedOff(by) if *by == format!("{switch}=0")));
        workload.done(LIMIT);
    }
}

/// Process ids are used again, and sockets stay behind.
#[test]
fn a_socket_of_an_earlier_process_does_not_hide_that_diagnostics_are_off() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sleep");
    command.arg("60").env("TMPDIR", folder.path());
    let target = start(command.env("DOTNET_EnableDiagnostics", "0"));
    let target = Pid(target.pid() as i32);
    wait_for_environment(target);
    let name = format!("dotnet-diagnostic-{target}-1-socket");
    let _stale = UnixListener::bind(folder.path().join(name)).unwrap();
    let error = Port::find(target).unwrap_err();
    assert!(matches!(error, PortError::SwitchedOff(_)), "{error}");
}

/// The environment is there only once the child runs its program.
fn wait_for_environment(child: Pid) {
    while machine::environment(child).map_or(true, |all| !contains(&all, b"TMPDIR=")) {
        thread::yield_now();
    }
}

/// Where a child that listens in place of the target puts its socket.
fn squat(target: Pid, folder: &Path) -> UnixListener {
    let started = machine::start_ticks(target).unwrap();
    let name = format!("dotnet-diagnostic-{target}-{started}-socket");
    UnixListener::bind(folder.join(name)).unwrap()
}

/// A process that is no .NET process, with a directory of its own for a socket that it does not have.
fn bystander(folder: &Path) -> support::Running {
    start(Command::new("sleep").arg("60").env("TMPDIR", folder))
}

#[test]
fn somebody_elses_socket_is_not_spoken_to() {
    let folder = tempfile::tempdir().unwrap();
    let target = bystander(folder.path());
    let target = Pid(target.pid() as i32);
    wait_for_environment(target);
    let listener = squat(target, folder.path());
    let port = Port::find(target).unwrap();
    let error = ask(&port, &short()).unwrap_err();
    let me = Pid(std::process::id() as i32);
    assert!(
        matches!(error, DiagnosticsError::Squatted { pid, .. } if pid == me),
        "{error}"
    );
    // Not a byte was sent.
    let (mut connection, _) = listener.accept().unwrap();
    let mut sent = Vec::new();
    connection.read_to_end(&mut sent).unwrap();
    assert_eq!(sent, b"");
}

/// A target that listens itself and answers as it likes: asking it ends in time, with an error.
#[test]
fn a_target_that_answers_nonsense_is_left() {
    let me = Pid(std::process::id() as i32);
    let folder = std::env::var_os("TMPDIR").unwrap_or_else(|| "/tmp".into());
    let started = machine::start_ticks(me).unwrap();
    let path = Path::new(&folder).join(format!("dotnet-diagnostic-{me}-{started}-socket"));
    let listener = squat(me, Path::new(&folder));
    let port = Port::find(me).unwrap();
    let ask_one = |answer: fn(&mut UnixStream)| {
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut connection, _) = listener.accept().unwrap();
                let mut command = [0; 20];
                connection.read_exact(&mut command).unwrap();
                assert_eq!(&command, b"DOTNET_IPC_V1\0\x14\0\x04\x08\0\0");
                answer(&mut connection);
            });
            let begin = Instant::now();
            let error = ask(&port, &short()).unwrap_err();
            assert!(begin.elapsed() < Duration::from_secs(2), "{error}");
            error
        })
    };
    let silent = ask_one(|_| thread::sleep(Duration::from_millis(500)));
    assert!(matches!(silent, DiagnosticsError::Silent), "{silent}");
    // A byte now and then: each comes in time, all of them do not.
    let slow = ask_one(|connection| {
        for byte in b"DOTNET_IPC_V1\0\xff\xff\xff\0\0\0" {
            let _ = connection.write_all(&[*byte]);
            thread::sleep(Duration::from_millis(60));
        }
    });
    assert!(matches!(slow, DiagnosticsError::Silent), "{slow}");
    let closed = ask_one(|_| {});
    assert!(matches!(closed, DiagnosticsError::Malformed(_)), "{closed}");
    let other = ask_one(|connection| {
        let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert!(matches!(other, DiagnosticsError::Malformed(_)), "{other}");
    std::fs::remove_file(path).unwrap();
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}
