//! Test cases that this machine cannot run.
//!
//! libtest counts a test that returns early as passed and hides its output. [`skip`] prints past the capture, and
//! `scripts/test` counts what it prints, lists it and fails if the machine has what was missing.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// A capability of the machine that a test needs. `scripts/test` verifies each by its text, in `can`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// The effective user is not root.
    Root,
    /// This process may not sample CPUs, or the kernel has no perf_events.
    PerfEvents,
    /// `perf record` does not record with these options.
    PerfRecord(&'static str),
    /// `/proc/kallsyms` has no addresses for this user.
    KernelAddresses,
    /// The kernel loads no BPF programs.
    Bpf,
    /// No tracepoints can be recorded.
    Tracepoints,
    /// CPU 1 cannot be taken offline.
    CpuHotplug,
    /// A program may not take a real-time priority.
    RealTime,
    /// This file, such as a setting of the kernel, cannot be written.
    Writable(&'static str),
    /// `unshare` does not make this namespace, given by its option.
    Unshare(&'static str),
    /// Other users than root may make no namespaces.
    UserNamespaces,
    /// The kernel has no Landlock.
    Landlock,
    /// A command is not installed.
    Command(&'static str),
    /// A file that comes with a package is not there.
    File(String),
    /// A file that `scripts/runtimes` or `scripts/workloads` puts into the cache is not there.
    Cached(String),
    /// A file in `../shared` is not there.
    Shared(&'static str),
    /// There is no .NET runtime of this major version or a later one.
    Dotnet(u32),
    /// There is no ASP.NET Core of this major version or a later one.
    AspNet(u32),
    /// Java is older than this major version.
    Java(u32),
    /// No Python writes perf maps (`-X perf`).
    PythonPerf,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root"),
            Self::PerfEvents => f.write_str("perf_events"),
            Self::PerfRecord(options) => write!(f, "perf-record {options}"),
            Self::KernelAddresses => f.write_str("kernel-addresses"),
            Self::Bpf => f.write_str("bpf"),
            Self::Tracepoints => f.write_str("tracepoints"),
            Self::CpuHotplug => f.write_str("cpu-hotplug"),
            Self::RealTime => f.write_str("real-time"),
            Self::Writable(path) => write!(f, "writable {path}"),
            Self::Unshare(option) => write!(f, "unshare {option}"),
            Self::UserNamespaces => f.write_str("user-namespaces"),
            Self::Landlock => f.write_str("landlock"),
            Self::Command(name) => write!(f, "command {name}"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Cached(path) => write!(f, "cached {path}"),
            Self::Shared(path) => write!(f, "shared {path}"),
            Self::Dotnet(major) => write!(f, "dotnet {major}"),
            Self::AspNet(major) => write!(f, "aspnet {major}"),
            Self::Java(major) => write!(f, "java {major}"),
            Self::PythonPerf => f.write_str("python-perf"),
        }
    }
}

/// Reports that the current test, or the rest of it, is not run.
///
/// The line goes to standard error, past libtest's capture, and to the file that `TEST_SKIPPED` names.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers return with what is missing"
)]
pub fn skip(missing: Missing) {
    let thread = std::thread::current();
    let program = std::env::current_exe().unwrap_or_default();
    let program = program
        .file_stem()
        .and_then(|name| name.to_str())
        .unwrap_or("?");
    // Cargo appends a hash.
    let target = program.rsplit_once('-').map_or(program, |(name, _)| name);
    let line = format!(
        "{target} {}: needs {missing}\n",
        thread.name().unwrap_or("?")
    );
    let _ = std::io::stderr().write_all(format!("skipped: {line}").as_bytes());
    if let Some(list) = std::env::var_os("TEST_SKIPPED") {
        append(Path::new(&list), &line);
    }
}

fn append(list: &Path, line: &str) {
    let list_file = OpenOptions::new().append(true).create(true).open(list);
    let written = list_file.and_then(|mut file| file.write_all(line.as_bytes()));
    assert!(written.is_ok(), "{}: {written:?}", list.display());
}
