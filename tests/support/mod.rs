//! What the end-to-end tests share: the binary under test, real runtimes and workloads (prepared by `scripts/test`), and
//! children that are waited for with a deadline and never outlive their test.

// Every test binary includes this module and uses its own part of it. A failed helper is a failed test.
#![allow(
    dead_code,
    unused_macros,
    unreachable_pub,
    clippy::expect_used,
    clippy::unwrap_used
)]

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

/// Says why a test, or the rest of it, does not run here, and returns from it. Not captured, so that it is always seen.
macro_rules! skip {
    ($($why:tt)*) => {{
        $crate::support::say_skipped(&format!($($why)*));
        return Default::default();
    }};
}

/// Says on standard error, past libtest's capture, what is skipped.
pub fn say_skipped(why: &str) {
    use std::io::Write;
    let test = thread::current().name().unwrap_or("?").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// The binary under test.
pub fn perfcollect() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_perfcollect"))
}

/// Where `scripts/runtimes` and `scripts/workloads` put things; the same rule as in `scripts/lib.sh`.
pub fn cache() -> PathBuf {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("PERFCOLLECT_CACHE").unwrap_or_else(|| {
        set("XDG_CACHE_HOME")
            .or_else(|| set("HOME").map(|home| home.join(".cache")))
            .expect("PERFCOLLECT_CACHE or HOME is set")
            .join("perfcollect")
    })
}

fn existing(path: PathBuf) -> Option<PathBuf> {
    path.exists().then_some(path)
}

/// PerfView's own reader: `$PERFVIEW_CHECK`, or the one beside the repository. It needs a runtime: see [`perfview_check`].
pub fn perfview_check_path() -> Option<PathBuf> {
    let beside = || {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/tools/perfview-check/perfview-check")
    };
    existing(std::env::var_os("PERFVIEW_CHECK").map_or_else(beside, PathBuf::from))
}

/// What PerfView's reader says of a trace in a mode such as `cpu`, with options such as `["--top", "0"]`; none where it
/// cannot run.
pub fn perfview_check(mode: &str, trace: &Path, options: &[&str]) -> Option<Finished> {
    let runtime = runtimes()
        .into_iter()
        .rev()
        .find(|runtime| runtime.major() >= 8)?;
    let mut command = Command::new(perfview_check_path()?);
    command
        .arg(mode)
        .arg(trace)
        .args(options)
        .env("DOTNET", runtime.dotnet);
    Some(run(&mut command, Duration::from_secs(120)))
}

/// A .NET runtime. Each has one version only, so a program started with it runs on that version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// Such as `8.0.4`.
    pub version: String,
    /// Its `dotnet`.
    pub dotnet: PathBuf,
    /// Whether ASP.NET Core is there too.
    pub aspnet: bool,
}

impl Runtime {
    /// The highest version in the installation that this `dotnet` belongs to.
    fn of(dotnet: &Path) -> Option<Self> {
        let root = dotnet.canonicalize().ok()?.parent()?.to_owned();
        let numbers = |version: &str| {
            version
                .split('.')
                .map(|part| part.parse::<u32>().unwrap_or(0))
                .collect::<Vec<_>>()
        };
        let version = std::fs::read_dir(root.join("shared/Microsoft.NETCore.App"))
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .max_by_key(|version| numbers(version))?;
        let aspnet = root
            .join("shared/Microsoft.AspNetCore.App")
            .join(&version)
            .is_dir();
        Some(Self {
            version,
            dotnet: dotnet.to_owned(),
            aspnet,
        })
    }

    /// The 8 of 8.0.4.
    pub fn major(&self) -> u32 {
        self.version
            .split('.')
            .next()
            .and_then(|major| major.parse().ok())
            .unwrap_or(0)
    }

    /// `dotnet PROGRAM.dll`, whatever the settings of this shell.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.dotnet);
        command
            .arg(program)
            .env("DOTNET_ROLL_FORWARD", "LatestMajor");
        for name in [
            "DOTNET_ROOT",
            "DOTNET_STARTUP_HOOKS",
            "DOTNET_PerfMapEnabled",
            "COMPlus_PerfMapEnabled",
        ] {
            command.env_remove(name);
        }
        command
    }
}

/// The runtimes that are there, oldest first: those in the cache, and the `dotnet` on PATH (its newest).
pub fn runtimes() -> Vec<Runtime> {
    let cached = [
        "dotnet-3.1",
        "dotnet-8",
        "dotnet-8-aspnet",
        "dotnet-9",
        "dotnet-10",
    ];
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&on_path)
        .map(|folder| folder.join("dotnet"))
        .find(|dotnet| dotnet.is_file());
    let mut runtimes: Vec<_> = cached
        .iter()
        .map(|name| cache().join(name).join("dotnet"))
        .chain(on_path)
        .filter_map(|dotnet| Runtime::of(&dotnet))
        .collect();
    runtimes.sort_by_key(Runtime::major);
    runtimes
}

/// Programs with known answers, where they are there.
pub mod workloads {
    use super::{PathBuf, cache, existing};

    fn managed(name: &str) -> Option<PathBuf> {
        existing(cache().join("built/managed").join(name))
    }

    /// Known methods burning known shares of CPU (`tests/workloads/cpu.cs`).
    pub fn cpu() -> Option<PathBuf> {
        managed("cpu.dll")
    }

    /// Allocation, sorting, exceptions, locks, timers, pool work (`tests/workloads/mixed.cs`).
    pub fn mixed() -> Option<PathBuf> {
        managed("mixed.dll")
    }

    /// The C program: `native-fp`, `native-nofp` or `native-stripped` (`tests/workloads/native`).
    pub fn native(name: &str) -> Option<PathBuf> {
        existing(cache().join("built/native").join(name).join(name))
    }

    /// A file of the ready programs, such as `split/split.dll`, `webapi/webapi.dll` or `split-aot/split-aot`.
    pub fn shared(path: &str) -> Option<PathBuf> {
        existing(cache().join("workloads").join(path))
    }
}

/// A program that has ended.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// The exit status is 0; else the test fails and shows what the program said.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(
            self.status.success(),
            "{}\n{}\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }
}

/// A child in a process group of its own, which is killed whole when its test is over.
pub struct Running {
    child: Child,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stderr = child.stderr.take().map(read_all);
        Self { child, stderr }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, such as `Signal::INT`; not to its children.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(self.raw_pid(), signal).expect("the process is there");
    }

    fn raw_pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Kills it and all its children, which would keep its output open.
    fn kill(&mut self) {
        let _ = kill_process_group(self.raw_pid(), Signal::KILL);
        let _ = self.child.wait();
    }

    /// Waits for its end; kills it and fails the test when the time is over.
    fn wait(&mut self, limit: Duration) -> (ExitStatus, String) {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                return (
                    status,
                    self.stderr
                        .take()
                        .map(|reader| reader.join().expect("stderr is read"))
                        .unwrap_or_default(),
                );
            }
            if begin.elapsed() > limit {
                self.kill();
                let said = self
                    .stderr
                    .take()
                    .map(|reader| reader.join().expect("stderr is read"));
                panic!(
                    "process {} still ran after {limit:?}; it said: {}",
                    self.pid(),
                    said.unwrap_or_default()
                );
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read_all(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Starts a program to be signalled or waited for with [`finish`].
pub fn start(command: &mut Command) -> Running {
    Running::start(command)
}

/// Waits for a started program's end. Output that a pipe does not hold must be read meanwhile: this reads it.
#[track_caller]
pub fn finish(mut running: Running, limit: Duration) -> Finished {
    let stdout = running.child.stdout.take().map(read_all);
    let (status, stderr) = running.wait(limit);
    Finished {
        status,
        stdout: stdout
            .map(|reader| reader.join().expect("stdout is read"))
            .unwrap_or_default(),
        stderr,
    }
}

/// Runs a program to its end.
#[track_caller]
pub fn run(command: &mut Command, limit: Duration) -> Finished {
    finish(start(command), limit)
}

/// Runs perfcollect in a folder.
#[track_caller]
pub fn run_perfcollect<A: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = A>,
    folder: &Path,
    limit: Duration,
) -> Finished {
    run(
        Command::new(perfcollect())
            .args(arguments)
            .current_dir(folder),
        limit,
    )
}

/// A workload: a child that prints JSON lines, `ready` first and `done` last.
pub struct Workload {
    running: Running,
    lines: Receiver<String>,
    seen: VecDeque<String>,
    /// Its line `ready`.
    pub ready: Value,
}

impl Workload {
    /// Starts it and waits until it says that it is ready (at most 30 s).
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let mut running = Running::start(command);
        let stdout = running.child.stdout.take().expect("stdout is a pipe");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                if line.map(|line| sender.send(line)).is_err() {
                    break;
                }
            }
        });
        let mut workload = Self {
            running,
            lines,
            seen: VecDeque::new(),
            ready: Value::Null,
        };
        workload.ready = workload.event("ready", Duration::from_secs(30));
        workload
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Sends it a signal, such as `Signal::TERM`.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    /// Waits for the line `done` and for a good end.
    #[track_caller]
    pub fn done(mut self, limit: Duration) -> Value {
        let done = self.event("done", limit);
        let (status, stderr) = self.running.wait(Duration::from_secs(30));
        assert!(status.success(), "{status}: {stderr}");
        done
    }

    #[track_caller]
    fn event(&mut self, name: &str, limit: Duration) -> Value {
        let deadline = Instant::now() + limit;
        while let Ok(line) = self
            .lines
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            if let Ok(value) = serde_json::from_str::<Value>(&line)
                && value["event"] == name
            {
                return value;
            }
            self.seen.push_back(line);
        }
        let _ = kill_process_group(self.running.raw_pid(), Signal::KILL);
        let (status, stderr) = self.running.wait(Duration::from_secs(5));
        panic!(
            "no line `{name}` within {limit:?} ({status}); stdout: {:?}; stderr: {stderr}",
            self.seen
        );
    }
}
