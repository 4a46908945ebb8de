//! Captures of .NET programs without any setup: every frame has a symbol.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use perfcollect::trace::{Notice, NoticeKind};
use support::{Missing, Runtime, Saved, Workload, captured_for, runtimes, workloads};

/// A capture of a running program while it works for two seconds of CPU time.
fn capture(command: &mut Command) -> Saved {
    capture_with(command, &[])
}

/// The same with further options.
fn capture_with(command: &mut Command, options: &[&str]) -> Saved {
    for setting in [
        "DOTNET_PerfMapEnabled",
        "DOTNET_EnableDiagnostics",
        "DOTNET_EnableWriteXorExecute",
    ] {
        command.env_remove(setting);
    }
    let workload = Workload::start(command);
    captured_for(Duration::from_secs(2), workload.pid(), options)
}

/// Fails unless all but 1 in 1000 managed frames have symbols, and the others are not callers.
#[track_caller]
fn expect_names(what: &str, saved: &Saved, frames: &[&str]) {
    let names = saved.summary.quality.names;
    println!("{what}: {:?}, {:?}", names.jit, names.ready_to_run);
    assert!(names.jit.named > 100, "{what}: {names:#?}");
    assert!(
        names.jit.unresolved * 1000 <= names.jit.named,
        "{what}: {names:#?}"
    );
    assert_eq!(names.ready_to_run.unresolved, 0, "{what}: {names:#?}");
    saved.expect_no_notices();
    assert!(saved.samples_under(frames) > 20, "{what}: {frames:?}");
}

#[test]
#[ignore = "slow"]
fn other_deployments() {
    need_capture!();
    for name in workloads::DEPLOYMENTS {
        let program = need!(workloads::shared(&format!("{name}/{name}")));
        let mut command = Command::new(Path::new(&program));
        command.args(["--mode", "chain", "--seconds", "6000"]);
        let saved = capture(&mut command);
        let frames = [
            "Split.Mode+<RunAsync>d__",
            "Split.Modes.Chain.ChainOuter(ulong)",
            "Split.Modes.Chain.ChainInner(ulong)",
        ];
        expect_names(name, &saved, &frames);
    }
}

#[test]
fn a_web_server() {
    need_capture!();
    let program = need!(workloads::shared("webapi/webapi.dll"));
    for runtime in runtimes().iter().filter(|runtime| runtime.aspnet) {
        let mut command = runtime.command(&program);
        command.args(["--load", "6000"]);
        let saved = capture(&mut command);
        // ReadyToRun first, then JIT-compiled.
        let frames = [
            "System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart()",
            "Microsoft.AspNetCore.Server.Kestrel.Core.Internal.Http.HttpProtocol",
        ];
        expect_names(&format!("webapi on {}", runtime.version), &saved, &frames);
    }
}

#[test]
fn callers_that_only_frame_pointers_find() {
    need_capture!();
    let program = need!(workloads::cpu());
    for runtime in runtimes().iter().filter(|runtime| runtime.major() >= 8) {
        let mut command = runtime.command(&program);
        command.args(["--seconds", "6000"]);
        let saved = capture_with(&mut command, &["-callgraph", "fp"]);
        let what = format!("frame pointers on {}", runtime.version);
        expect_names(&what, &saved, &["ShareCaller", "Work50"]);
    }
}

/// Copies an installation and changes its library so that a contract has the unknown version 9.
fn unknown_version(of: &Runtime, contract: &str) -> (Runtime, tempfile::TempDir) {
    let copy = tempfile::tempdir().unwrap();
    let installation = of.dotnet.canonicalize().unwrap();
    let source = installation.parent().unwrap();
    let status = Command::new("cp")
        .arg("-rL")
        .arg(source.join("."))
        .arg(copy.path())
        .status();
    assert!(status.unwrap().success());
    let library = copy
        .path()
        .join("shared/Microsoft.NETCore.App")
        .join(&of.version)
        .join("libcoreclr.so");
    let mut bytes = std::fs::read(&library).unwrap();
    let key = format!("\"{contract}\":");
    let at = (bytes.windows(key.len())).position(|window| window == key.as_bytes());
    bytes[at.unwrap() + key.len()] = b'9';
    std::fs::write(&library, bytes).unwrap();
    let unknown = Runtime {
        dotnet: copy.path().join("dotnet"),
        ..of.clone()
    };
    (unknown, copy)
}

/// Captures a runtime with a contract of an unknown version. A rundown must name its methods.
#[track_caller]
fn capture_unknown_version(of: &Runtime, contract: &str, program: &Path) -> Saved {
    let (unknown, _copy) = unknown_version(of, contract);
    let saved = capture(unknown.command(program).args(["--seconds", "6000"]));
    let names = saved.summary.quality.names;
    assert!(names.jit.named > 100, "{names:#?}");
    assert!(names.jit.unresolved * 100 <= names.jit.named, "{names:#?}");
    saved
}

#[test]
fn a_runtime_whose_memory_does_not_tell_is_asked() {
    need_capture!();
    let program = need!(workloads::cpu());
    let known = need!(Runtime::at_least(9));
    let saved = capture_unknown_version(&known, "RuntimeTypeSystem", &program);
    assert!(saved.samples_under(&["ShareCaller", "Work50"]) > 20);
    // The names are unreadable, the code is not.
    let notices = saved.notices(NoticeKind::MethodNamesUnreadable);
    let [notice] = notices[..] else {
        panic!("{notices:#?}");
    };
    let cause =
        "version 9 of the contract RuntimeTypeSystem is not supported (descriptor version 0)";
    assert!(notice.what.ends_with(cause), "{notice:#?}");
    assert_eq!(notice.count, 1);
    assert_eq!(
        saved.notices(NoticeKind::MemoryUnreadable),
        [] as [&Notice; 0]
    );
}

#[test]
fn reports_why_a_runtime_cannot_be_read() {
    need_capture!();
    let program = need!(workloads::cpu());
    // .NET 9 does not publish this contract.
    let known = need!(Runtime::at_least(10));
    let saved = capture_unknown_version(&known, "ExecutionManager", &program);
    assert!(saved.samples_under(&["Work50"]) > 20);
    let notices = saved.summary.quality.notices.iter();
    let notices: Vec<&Notice> = notices
        .filter(|notice| notice.kind != NoticeKind::RecordsLost)
        .collect();
    let [notice] = notices[..] else {
        panic!("{notices:#?}");
    };
    assert_eq!(notice.kind, NoticeKind::MemoryUnreadable);
    let expected = format!(
        "cannot read the .NET runtime of process {}: \
         version 9 of the contract ExecutionManager is not supported (descriptor version 0); ",
        notice.subject
    );
    assert!(notice.what.starts_with(&expected), "{notice:#?}");
    assert_eq!(notice.remedy, "");
}

#[test]
#[ignore = "slow"]
fn instances_and_closures() {
    need_capture!();
    let program = need!(workloads::shared("split/split.dll"));
    for runtime in runtimes().iter().filter(|runtime| runtime.major() >= 8) {
        for (mode, frames) in [
            (
                "generic",
                &[
                    "Split.Modes.Generics.ReferenceCaller(ulong)",
                    "Split.Modes.Generics+Box<System.__Canon>.GenericBurn<System.__Canon>(ulong)",
                ][..],
            ),
            (
                "lambda",
                &[
                    "Split.Modes.Lambda.LambdaCaller(ulong)",
                    "+<>c__DisplayClass",
                ],
            ),
            (
                "async",
                &[
                    "Split.Modes.AsyncChain+<AsyncInner>d__3.MoveNext()",
                    "Split.Modes.AsyncChain.InnerBurn(ulong)",
                ],
            ),
            (
                "dynamic",
                &["dynamicClass.EmittedBurn", "BelowDynamic(ulong)"],
            ),
            ("churn", &["ChurnCaller(ulong)", "dynamicClass.ChurnBurn"]),
        ] {
            let mut command = runtime.command(&program);
            command.args(["--mode", mode, "--seconds", "6000"]);
            let saved = capture(&mut command);
            expect_names(&format!("{mode} on {}", runtime.version), &saved, frames);
        }
    }
}

/// Flame graph and folded stacks have short names; the rest of the trace keeps the full ones.
#[test]
fn short_names() {
    need_capture!();
    let program = need!(workloads::shared("split/split.dll"));
    let Some(runtime) = runtimes().into_iter().find(|runtime| runtime.major() >= 8) else {
        skip!(Missing::Dotnet(8));
    };
    let mut command = runtime.command(&program);
    let workload = Workload::start(command.args(["--mode", "generic", "--seconds", "6000"]));
    let saved = captured_for(Duration::from_secs(2), workload.pid(), &["-shortnames"]);
    let burn = "Generics+Box<__Canon>.GenericBurn<__Canon>_[j]";
    let is_short = |stack: &Vec<String>| stack.iter().any(|frame| frame == burn);
    assert!(saved.stacks.keys().any(is_short), "{:#?}", saved.stacks);
    let full = "Split.Modes.Generics.ReferenceCaller(ulong)";
    let svg = saved.svg();
    assert!(svg.contains("Generics.ReferenceCaller") && !svg.contains(full));
    let is_full = |name: &str| name == full;
    assert!(
        saved
            .summary
            .methods
            .iter()
            .any(|method| is_full(&method.name))
    );
    assert!(String::from_utf8_lossy(&saved.perf_text).contains(full));
    assert!(
        !saved
            .stacks
            .keys()
            .flatten()
            .any(|frame| frame.contains(full))
    );
}
