//! Captures of real .NET processes: names, stacks and shares, also in PerfView.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use perfcollect_symbols::elf::ElfFile;
use support::{
    Missing, Runtime, Saved, Workload, captured_for, expect_same_in_perfview, expect_shares,
    runtimes, workloads,
};

/// Much longer than any program on a busy system.
const LIMIT: Duration = Duration::from_secs(600);
/// From this version on, methods are named without any setup and with diagnostics disabled.
const NAMES_IN_MEMORY: u32 = 8;

/// CPU time of a capture: some 1500 samples.
const SAMPLED: Duration = Duration::from_millis(1500);
/// CPU time of a program: that of a capture, and of what runs before and after it.
const BY_CPU_TIME: [&str; 2] = ["--cpu-seconds", "4"];
/// For a program without `--cpu-seconds`: long enough for a capture at a tenth of a CPU.
const BY_TIME: [&str; 2] = ["--seconds", "30"];

/// A capture of a running program, and the program's own figures.
fn capture(runtime: &Runtime, program: &Path, work: &[&str]) -> (Saved, serde_json::Value) {
    let mut command = runtime.command(program);
    // W^X is enabled in runtimes that have it.
    command
        .args(["--mode", "shares"])
        .args(work)
        .env_remove("DOTNET_EnableWriteXorExecute");
    if runtime.major() < NAMES_IN_MEMORY {
        // Before .NET 5, settings had another prefix.
        let prefix = if runtime.major() < 5 {
            "COMPlus"
        } else {
            "DOTNET"
        };
        command.env(format!("{prefix}_PerfMapEnabled"), "1");
    } else {
        command.env("DOTNET_EnableDiagnostics", "0");
    }
    let workload = Workload::start(&mut command);
    // With diagnostics disabled there are no events, which perfcollect would report.
    let saved = captured_for(SAMPLED, workload.pid(), &["-nolttng"]);
    (saved, workload.done(LIMIT)["modes"][0].clone())
}

/// Returns the number of samples in code that has only an address. Perf maps, the source before
/// .NET 8, lack two kinds of stubs that calls pass until a method has its final code: precode and
/// call counters. Both jump, so neither is ever a caller.
fn samples_in_stubs(saved: &Saved) -> u64 {
    let mut samples = 0;
    for (stack, count) in &saved.stacks {
        let is_stub = |frame: &&String| frame.starts_with("jit+0x");
        if stack.iter().any(|frame| is_stub(&frame)) {
            let user = stack.iter().rfind(|frame| !frame.ends_with("_[k]"));
            assert!(user.is_some_and(|leaf| is_stub(&leaf)), "{stack:?}");
            samples += count;
        }
    }
    samples
}

/// From .NET 5 on, libcoreclr.so has no symbols of internal functions: each is one row, by its
/// start.
fn expect_starts_of_functions(saved: &Saved, runtime: &Runtime) {
    let file = File::open(runtime.file("libcoreclr.so")).unwrap();
    let elf = ElfFile::open(file).unwrap();
    let ranges = elf.function_ranges().unwrap();
    let starts: HashSet<u64> = ranges.iter().map(|range| range.start).collect();
    let frames: HashSet<&str> = saved
        .stacks
        .keys()
        .flatten()
        .filter_map(|frame| frame.strip_prefix("libcoreclr.so+0x"))
        .collect();
    assert_eq!(frames.is_empty(), elf.has_symtab());
    for frame in frames {
        let offset = u64::from_str_radix(frame, 16).unwrap();
        assert!(starts.contains(&offset), "{frame}");
    }
}

/// A stripped runtime has the names of what its managed code calls in tables.
#[test]
fn functions_that_managed_code_calls_have_names() {
    let mut runtimes = runtimes();
    runtimes.retain(|runtime| runtime.major() >= NAMES_IN_MEMORY);
    if runtimes.is_empty() {
        skip!(Missing::Dotnet(NAMES_IN_MEMORY));
    }
    for runtime in runtimes {
        let file = File::open(runtime.file("libcoreclr.so")).unwrap();
        let elf = ElfFile::open(file).unwrap();
        let symbols = elf.symbols().unwrap();
        let names: HashSet<&[u8]> = symbols.iter().map(|symbol| symbol.name).collect();
        assert!(
            names.contains(&b"ThreadNative_YieldThread"[..]),
            "{runtime:?}"
        );
        assert!(names.len() > 500, "{runtime:?}: {}", names.len());
    }
}

fn check(runtime: &Runtime, program: &Path, work: &[&str]) {
    let (saved, mode) = capture(runtime, program, work);
    let summary = &saved.summary;
    assert_eq!(summary.process_count, 1);
    assert_eq!(summary.processes[0].name, "dotnet");
    saved.expect_complete();
    let names = summary.quality.names;
    let in_stubs = samples_in_stubs(&saved);
    if runtime.major() >= NAMES_IN_MEMORY {
        assert_eq!(in_stubs, 0);
    }
    assert_eq!(names.ready_to_run.unresolved, 0, "{names:#?}");
    assert!(
        names.jit.named > 0 && names.jit.unresolved == in_stubs,
        "{names:#?}"
    );
    // A stub runs for nanoseconds, and the workload has passed all of them before it reports that
    // it is ready.
    assert!(in_stubs * 200 <= summary.samples, "{in_stubs} in stubs");
    assert_eq!(names.unmapped.unresolved, 0, "{names:#?}");
    // A busy machine may delay records, which loses nothing.
    let losses = &summary.quality.losses;
    assert_eq!(
        (
            losses.lost_records,
            losses.lost_samples,
            losses.malformed_records
        ),
        (0, 0, 0)
    );
    assert_eq!(summary.quality.notices, []);
    // The flame graph has the same names.
    for method in ["Work50", "Work30", "Work20", "Main"] {
        assert!(saved.svg().contains(method), "{method}");
    }
    expect_starts_of_functions(&saved, runtime);
    expect_shares(&saved, &mode);
    expect_same_in_perfview(&saved);
}

/// Tests a program on each version that it runs on.
fn check_on_all(program: &Path, work: &[&str], oldest: u32) {
    let mut runtimes = runtimes();
    runtimes.retain(|runtime| runtime.major() >= oldest);
    runtimes.dedup_by_key(|runtime| runtime.major());
    if runtimes.is_empty() {
        skip!(Missing::Dotnet(oldest));
    }
    for runtime in runtimes.into_iter().chain(Runtime::musl()) {
        println!("on .NET {}: {}", runtime.version, runtime.root().display());
        check(&runtime, program, work);
    }
}

#[test]
fn own_program_on_every_runtime() {
    need_capture!();
    check_on_all(&need!(workloads::cpu()), &BY_CPU_TIME, 0);
}

#[test]
#[ignore = "slow"]
fn ready_program_on_every_runtime() {
    need_capture!();
    let program = need!(workloads::shared("split/split.dll"));
    check_on_all(&program, &BY_TIME, 8);
}

/// Without any setup, an EventPipe session requests the methods from the runtime.
#[test]
fn dotnet_before_8_has_names_with_nothing_set() {
    need_capture!();
    let program = need!(workloads::cpu());
    let mut runtimes = runtimes();
    runtimes.retain(|runtime| runtime.major() < 8);
    for runtime in runtimes {
        let mut command = runtime.command(&program);
        let workload = Workload::start(command.args(["--mode", "all"]).args(BY_CPU_TIME));
        let saved = captured_for(SAMPLED, workload.pid(), &[]);
        let names = saved.summary.quality.names;
        let in_stubs = samples_in_stubs(&saved);
        assert!(
            names.jit.named > 0 && names.jit.unresolved == in_stubs,
            "on .NET {}: {in_stubs} in stubs, {names:#?}",
            runtime.version
        );
        assert!(
            in_stubs * 200 <= saved.summary.samples,
            "{in_stubs} in stubs"
        );
        assert_eq!(saved.summary.quality.notices, []);
        workload.done(LIMIT);
    }
}
