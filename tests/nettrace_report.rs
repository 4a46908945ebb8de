//! What `view` and `report` print of a .nettrace file of one runtime, without a capture.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use perfcollect::output::summary::Summary;
use support::{
    Finished, Missing, Runtime, Workload, captured_for, perfcollect, run, workloads, zip,
};

const LIMIT: Duration = Duration::from_secs(300);

fn perfcollect_of(command: &str, file: &Path, options: &[&str]) -> Finished {
    let mut words = Command::new(perfcollect());
    words.arg(command).arg(file).args(options);
    run(&mut words, LIMIT)
}

fn summary_of(file: &Path) -> Summary {
    let json = perfcollect_of("report", file, &["-kind", "summary", "-format", "json"]);
    serde_json::from_str(&json.expect_success().stdout).unwrap()
}

/// The stream of a capture reports what the capture reports.
#[test]
fn a_stream_reports_what_its_capture_reports() {
    need_capture!();
    let runtime = need!(Runtime::newest());
    let program = need!(workloads::mixed());
    let mut command = runtime.command(&program);
    let workload = Workload::start(command.args(["--seconds", "6000"]));
    let saved = captured_for(Duration::from_secs(1), workload.pid(), &[]);
    let archive = std::fs::read(&saved.path).unwrap();
    let mut entries = zip::unzip(&archive).into_iter();
    let is_stream = |name: &str| name.contains("/eventpipe/") && name.ends_with(".nettrace");
    let (_, stream) = entries.find(|(name, _)| is_stream(name)).unwrap();
    let file = saved.directory().join("stream.nettrace");
    std::fs::write(&file, &stream).unwrap();

    let [ours, theirs] = [&summary_of(&file), &saved.summary].map(|all| all.runtimes[0].clone());
    assert_eq!(ours.pid, theirs.pid);
    let [of_stream, of_capture] = [&ours.events, &theirs.events].map(|events| {
        // The archive's stream has a rundown that perfcollect added.
        let kinds = events
            .iter()
            .filter(|kind| !kind.provider.ends_with("Rundown"));
        let kinds = kinds.map(|kind| (&kind.provider, &kind.name, kind.count));
        kinds.collect::<Vec<_>>()
    });
    assert_eq!(of_stream, of_capture);
    let [ours, theirs] = [ours.exceptions, theirs.exceptions].map(Option::unwrap);
    assert_eq!(ours.count, theirs.count);
    assert!(ours.count > 100, "{ours:?}");
    let own = ours.rows[0].methods.own.as_ref().unwrap();
    assert!(own.name.contains("Exceptions.ThrowBelow"), "{own:?}");

    // The corrupt rest is a notice.
    std::fs::write(&file, &stream[..stream.len() / 2]).unwrap();
    let cut = summary_of(&file);
    let count = cut.runtimes[0].exceptions.as_ref().unwrap().count;
    assert!(count > 0 && count < ours.count, "{count}");
    assert!(!cut.quality.events[0].truncated.is_empty());

    // The file of a whole system is for others.
    let system = saved.path.with_extension("").with_extension("nettrace");
    let refused = perfcollect_of("view", &system, &[]);
    assert!(refused.stderr.contains("version 6"), "{}", refused.stderr);
}

/// Streams of dotnet-trace: its samples of threads in managed code, and names from its rundown.
#[test]
fn samples_of_a_runtime_have_methods() {
    need_command!("xz");
    for name in ["small-net8", "small-net10"] {
        let fixture = "fixtures/nettrace";
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../shared")
            .join(fixture);
        let packed = path.join(format!("{name}.nettrace.xz"));
        if !packed.exists() {
            skip!(Missing::Shared(fixture));
        }
        let stream = Command::new("xz")
            .arg("-dc")
            .arg(&packed)
            .output()
            .unwrap()
            .stdout;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("stream.nettrace");
        std::fs::write(&file, stream).unwrap();
        let summary = summary_of(&file);
        assert_eq!(summary.info.event, "managed-thread-samples");
        assert_eq!(summary.info.counts_time, Some(false));
        assert!(summary.samples > 1000);
        let names = summary.quality.names;
        assert_eq!(
            (names.jit.unresolved, names.ready_to_run.unresolved),
            (0, 0)
        );
        let own = &summary.shares.own_methods[0];
        assert!(own.name.contains("Program.Spend"), "{own:?}");
        assert!(own.samples * 2 > summary.samples, "{own:?}");
        let exceptions = summary.runtimes[0].exceptions.as_ref().unwrap();
        assert!(
            exceptions
                .rows
                .iter()
                .any(|row| row.type_name == "OrderException"),
            "{exceptions:?}"
        );
        let tree = perfcollect_of("view", &file, &["-viewer", "calltree", "-include", "Spend"]);
        assert!(tree.expect_success().stdout.contains("Program.HalfOfIt"));
        let gc = perfcollect_of("view", &file, &["-viewer", "gc"]);
        assert!(
            gc.expect_success()
                .stdout
                .contains("GC Rollup By Generation")
        );
    }
}
