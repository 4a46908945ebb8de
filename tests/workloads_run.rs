//! The workloads themselves: each runs on every runtime that is there, and what it says at its end makes sense.

#[macro_use]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::{Missing, Runtime, Workload, runtimes, workloads};

const LIMIT: Duration = Duration::from_secs(60);

fn number(value: &Value, key: &str) -> f64 {
    value[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no number `{key}` in {value}"))
}

/// Every mode has worked: its paths were called as often as their shares say, and the measured shares
/// are those of the measured times. How long a call takes is a matter of the machine.
fn check_shares(done: &Value, modes: usize) {
    let list = done["modes"]
        .as_array()
        .unwrap_or_else(|| panic!("no modes in {done}"));
    assert_eq!(list.len(), modes);
    for mode in list {
        let paths = mode["paths"]
            .as_array()
            .unwrap_or_else(|| panic!("no paths in {mode}"));
        assert!(number(mode, "rounds") >= 1.0);
        let sum = |key: &str| -> f64 { paths.iter().map(|path| number(path, key)).sum() };
        let (calls, cpu_ms) = (sum("calls"), sum("cpuMs"));
        for path in paths {
            assert!(number(path, "calls") >= 1.0 && number(path, "cpuMs") > 0.0);
            let measured = number(path, "cpuMs") / cpu_ms;
            let difference = (number(path, "measuredShare") - measured).abs();
            assert!(difference < 1e-3, "{path} in {mode}");
            // By number of calls the shares are exact: one path with all, or 5 : 3 : 2, or equal ones of different size.
            if paths.len() == 3 {
                let share = number(path, "calls") / calls;
                assert!((share - number(path, "share")).abs() < 1e-9, "{path}");
            }
        }
    }
}

/// Runs a managed workload on each runtime.
fn on_each_runtime(program: &Path, arguments: &[&str], check: impl Fn(&Runtime, &Value)) {
    let runtimes = runtimes();
    if runtimes.is_empty() {
        skip!(Missing::Dotnet(0));
    }
    for runtime in runtimes {
        let workload = Workload::start(runtime.command(program).args(arguments));
        assert_eq!(workload.ready["pid"], workload.pid());
        let done = workload.done(LIMIT);
        println!("{}: {done}", runtime.version);
        check(&runtime, &done);
    }
}

#[test]
fn cpu_burns_its_shares_on_every_runtime() {
    let program = need!(workloads::cpu());
    on_each_runtime(
        &program,
        &["--mode", "all", "--seconds", "1.4"],
        |_, done| check_shares(done, 7),
    );
}

#[test]
fn mixed_counts_what_the_runtime_counts() {
    let program = need!(workloads::mixed());
    on_each_runtime(&program, &["--seconds", "1"], |_, done| {
        let (rounds, counts, runtime) = (number(done, "rounds"), &done["counts"], &done["runtime"]);
        assert!(rounds >= 5.0);
        assert_eq!(number(counts, "sortedItems"), rounds * 2000.0);
        assert_eq!(number(counts, "poolItems"), rounds * 8.0);
        assert_eq!(number(counts, "contended"), rounds);
        assert_eq!(number(counts, "thrown"), rounds * 5.0);
        assert_eq!(number(counts, "caught"), number(counts, "thrown"));
        assert_eq!(number(runtime, "exceptions"), number(counts, "thrown"));
        assert!(number(counts, "timerTicks") >= 10.0);
        // On a busy machine the rival may come too late to a lock now and then; the framework adds others.
        assert!(number(runtime, "lockContentions") >= rounds * 0.5);
        assert!(number(runtime, "poolItems") >= number(counts, "poolItems"));
        assert!(number(runtime, "allocatedBytes") >= number(counts, "allocatedBytes"));
    });
}

#[test]
fn native_burns_its_shares_in_every_build() {
    for name in ["native-fp", "native-nofp", "native-stripped"] {
        let program = need!(workloads::native(name));
        let workload =
            Workload::start(Command::new(program).args(["--mode", "all", "--seconds", "1.4"]));
        assert_eq!(workload.ready["pid"], workload.pid());
        check_shares(&workload.done(LIMIT), 7);
    }
}

#[test]
fn bad_arguments_are_refused() {
    let program = need!(workloads::native("native-fp"));
    for arguments in [
        &["--mode", "nothing"][..],
        &["--seconds", "0"],
        &["--seconds"],
        &["--what", "1"],
    ] {
        let refused = support::run(Command::new(&program).args(arguments), LIMIT);
        assert_eq!(refused.status.code(), Some(2));
        assert!(
            refused.stderr.contains("usage: native"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn web_server_runs_where_there_is_asp_net() {
    let program = need!(workloads::shared("webapi/webapi.dll"));
    let runtimes: Vec<_> = runtimes()
        .into_iter()
        .filter(|runtime| runtime.aspnet)
        .collect();
    if runtimes.is_empty() {
        skip!(Missing::AspNet(0));
    }
    for runtime in runtimes {
        let done = Workload::start(runtime.command(&program).args(["--load", "1"])).done(LIMIT);
        assert_eq!(done["runtime"], runtime.version);
        assert!(
            number(&done["load"], "requests") > 0.0 && number(&done["load"], "failures") == 0.0,
            "{done}"
        );
    }
}
