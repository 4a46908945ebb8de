//! Programs that free code all the time: a capture does not harm them, and names their code.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::Path;
use std::time::Duration;

use perfcollect::machine::is_running;
use perfcollect::trace::Pid;
use support::{Missing, Runtime, Workload, captured_for, run_perfcollect, runtimes, workloads};

const LIMIT: Duration = Duration::from_secs(120);
/// First version whose methods are read from memory.
const READABLE: u32 = 8;
/// Default number of captures per version. The variable `ATTACH_ROUNDS` overrides it.
const ROUNDS: u32 = 5;
/// Named samples for each without a name. A debug build walks stacks so slowly that more methods are
/// freed before.
const MIN_NAMED: u64 = if cfg!(debug_assertions) { 20 } else { 50 };
/// Options of a capture, in turn.
const OPTIONS: [&[&str]; 4] = [&[], &["-gccollectonly"], &["-noperf"], &["-nolttng"]];

fn readable_runtimes() -> Vec<Runtime> {
    let mut runtimes = runtimes();
    runtimes.retain(|runtime| runtime.major() >= READABLE);
    runtimes.dedup_by_key(|runtime| runtime.major());
    if runtimes.is_empty() {
        skip!(Missing::Dotnet(READABLE));
    }
    runtimes
}

fn start(runtime: &Runtime, program: &Path, server_gc: bool) -> Workload {
    let mut command = runtime.command(program);
    command
        .args(["--seconds", "6000"])
        .env("DOTNET_gcServer", u8::from(server_gc).to_string());
    Workload::start(&mut command)
}

/// The rundown of .NET 9 and 10 crashes such a program now and then.
#[test]
fn survives_captures() {
    need_capture!();
    let program = need!(workloads::transient());
    let rounds = std::env::var("ATTACH_ROUNDS").ok();
    let rounds = rounds.map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    for runtime in readable_runtimes() {
        for server_gc in [false, true] {
            println!("on .NET {}, server GC: {server_gc}", runtime.version);
            let workload = start(&runtime, &program, server_gc);
            let pid = workload.pid().to_string();
            let directory = tempfile::tempdir().unwrap();
            for round in 0..rounds {
                let options = OPTIONS[round as usize % OPTIONS.len()];
                let capture = ["collect", "x", "-quiet", "-force", "-collectsec", "1"];
                let arguments = [&capture[..], &["-pid", &pid], options].concat();
                run_perfcollect(arguments, directory.path(), LIMIT).expect_success();
                assert!(is_running(Pid(workload.pid() as i32)), "round {round}");
            }
        }
    }
}

/// The methods live for 3 ms, and others take their addresses. Their samples are walked as they come.
#[test]
fn methods_that_live_for_milliseconds_have_names_and_callers() {
    need_capture!();
    let program = need!(workloads::transient());
    let kinds = ["Dynamic", "Generated", "Loaded"];
    for runtime in readable_runtimes() {
        println!("on .NET {}", runtime.version);
        let workload = start(&runtime, &program, false);
        let saved = captured_for(Duration::from_secs(6), workload.pid(), &["-nolttng"]);
        for kind in kinds {
            let caller = format!("{kind}Caller");
            let below = |frame: &str| saved.samples_under(&[&caller, "Program.Burn(", frame]);
            let named = below(&format!("{kind}Burn"));
            let unnamed = below("jit+0x");
            println!("{kind}: {named} named, {unnamed} not");
            let notices = &saved.summary.quality.notices;
            assert!(
                named > 500 && unnamed * MIN_NAMED <= named,
                "{named}, {unnamed}: {notices:?}"
            );
            for other in kinds.iter().filter(|other| **other != kind) {
                assert_eq!(below(&format!("{other}Burn")), 0, "{kind}, {other}");
            }
            let wrong = below("runtime helper");
            assert!(wrong * 100 <= saved.summary.samples, "{wrong} in {caller}");
        }
        let quality = &saved.summary.quality;
        let cut = saved.samples_under(&["[truncated: "]);
        println!("{cut} of {} cut", saved.summary.samples);
        assert!(cut * 1000 <= saved.summary.samples, "{quality:?}");
    }
}
