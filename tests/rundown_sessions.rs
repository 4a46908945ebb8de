//! Compares method names from rundown sessions of real .NET processes with their perf maps.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use perfcollect::dotnet::diagnostics::{DiagnosticsError, Limits};
use perfcollect::dotnet::{
    MethodName, Missed, RundownSession, RuntimeSessionError, SessionOutcome,
};
use perfcollect::machine;
use perfcollect::trace::Pid;
use perfcollect_symbols::dotnet_name::ManagedName;
use rustix::process::Signal;
use support::{Missing, Runtime, Workload, perf_map, runtimes, workloads};

const LIMIT: Duration = Duration::from_secs(60);

fn limits() -> Limits {
    Limits::new(Duration::from_secs(2), Duration::from_secs(5))
}

/// Starts the program in all its modes, with a perf map.
fn workload(runtime: &Runtime, seconds: u32) -> Result<Workload, Missing> {
    let mut command = runtime.command(&workloads::cpu()?);
    // Settings had another prefix before .NET 6.
    let perf_map = if runtime.major() < 6 {
        "COMPlus_PerfMapEnabled"
    } else {
        "DOTNET_PerfMapEnabled"
    };
    command
        .args(["--mode", "all", "--seconds", &seconds.to_string()])
        .env(perf_map, "1");
    Ok(Workload::start(&mut command))
}

fn start(workload: &Workload) -> RundownSession {
    RundownSession::start(Pid(workload.pid() as i32), |_| true).unwrap()
}

fn finish(session: RundownSession) -> (BTreeMap<u64, MethodName>, SessionOutcome) {
    let mut names = BTreeMap::new();
    let outcome = session.finish(Instant::now() + Duration::from_secs(10), |code| {
        names.insert(code.start, code.name);
    });
    (names, outcome)
}

/// Returns whether a name is that of the perf map, apart from known differences in the parameters.
///
/// Events omit the outer type of a nested parameter type. The parameters of dynamic methods have
/// another spelling. Up to .NET 5 the check is strict: a capture usually names only the methods of
/// .NET 3.1 by events.
fn is_same(name: &str, map_name: &str, major: u32) -> bool {
    let plain = |name: &str| name.split('(').next().map(str::to_owned);
    let ignores_parameters = major > 5 || name.starts_with("dynamicClass.");
    name == map_name || (ignores_parameters && plain(name) == plain(map_name))
}

#[test]
#[ignore = "slow"]
fn session_names_equal_those_of_the_perf_map() {
    let mut runtimes = runtimes();
    // Names in the perf maps of .NET 8.0.4 lack their last letter.
    runtimes.retain(|runtime| runtime.major() != 8);
    runtimes.dedup_by_key(|runtime| runtime.major());
    if runtimes.is_empty() {
        skip!(Missing::Dotnet(0));
    }
    for runtime in runtimes {
        let workload = need!(workload(&runtime, 6));
        let mut session = start(&workload);
        sleep(Duration::from_secs(4));
        // Events of methods compiled after this point may miss the session.
        let in_time = perf_map(workload.pid());
        session.ask_to_stop(&limits());
        let (names, outcome) = finish(session);
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        assert_eq!(outcome.missed, Missed::default());
        let map = perf_map(workload.pid());
        let (mut compared, mut different, mut missing) = (0, Vec::new(), Vec::new());
        for (start, line) in map.iter().filter(|(start, _)| in_time.contains_key(start)) {
            let Some(expected) = ManagedName::parse(line.as_bytes()) else {
                continue;
            };
            match names.get(start) {
                None => missing.push(line),
                Some(name) => {
                    compared += 1;
                    if !is_same(&name.method, &expected.method, runtime.major()) {
                        different.push((name, line));
                    }
                }
            }
        }
        println!(
            "on .NET {}: {compared} compared, {} different, {} missing",
            runtime.version,
            different.len(),
            missing.len()
        );
        // As many as the runtime alone compiles; how much of the program comes in four seconds is a matter of the machine.
        assert!(compared > 100, "{compared}");
        assert!(different.is_empty(), "{different:#?}");
        assert!(missing.is_empty(), "{missing:#?}");
        workload.done(LIMIT);
    }
}

/// A process that ends during a session has sent events about all methods compiled in the session.
#[test]
fn returns_names_of_a_process_that_ends() {
    let runtime = need!(Runtime::oldest());
    let workload = need!(workload(&runtime, 2));
    let session = start(&workload);
    workload.done(LIMIT);
    let ended = Instant::now();
    let mut names: Vec<String> = Vec::new();
    // Names arrive in several parts.
    let has_async = |names: &[String]| names.iter().any(|name| name.contains("Async"));
    while !has_async(&names) && ended.elapsed() < LIMIT {
        names.extend(session.take().map(|code| code.name.method));
        sleep(Duration::from_millis(10));
    }
    assert!(has_async(&names), "{names:?}");
}

#[test]
fn finishes_immediately_if_the_process_is_stopped() {
    let runtime = need!(Runtime::oldest());
    let workload = need!(workload(&runtime, 3));
    let mut session = start(&workload);
    sleep(Duration::from_secs(1));
    workload.signal(Signal::STOP);
    while !machine::is_stopped(Pid(workload.pid() as i32)) {
        sleep(Duration::from_millis(1));
    }
    let start = Instant::now();
    session.ask_to_stop(&limits());
    let (_, outcome) = finish(session);
    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(
        matches!(
            outcome.error,
            Some(RuntimeSessionError::Diagnostics(DiagnosticsError::Stopped))
        ),
        "{:?}",
        outcome.error
    );
    workload.signal(Signal::CONT);
    workload.done(LIMIT);
}
