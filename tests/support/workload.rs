//! Programs that say what they do: a line `ready`, a line `done` with the facts.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process_group};
use serde_json::Value;

use super::{Missing, Running};

/// Programs with known answers. Each is the file, or why a test that needs it does not run.
pub mod workloads {
    use std::path::PathBuf;

    use crate::support::{Missing, cache};

    type Program = Result<PathBuf, Missing>;

    /// A program that `scripts/workloads` puts into the cache.
    fn program(path: String) -> Program {
        let program = cache().join(&path);
        match program.exists() {
            true => Ok(program),
            false => Err(Missing::Cached(path)),
        }
    }

    fn managed(name: &str) -> Program {
        program(format!("built/managed/{name}"))
    }

    /// Known methods burning known shares of CPU (`tests/workloads/cpu.cs`).
    pub fn cpu() -> Program {
        managed("cpu.dll")
    }

    /// Allocation, sorting, exceptions, locks, timers, pool work (`tests/workloads/mixed.cs`).
    pub fn mixed() -> Program {
        managed("mixed.dll")
    }

    /// Two threads that throw all the time (`tests/workloads/storm.cs`).
    pub fn storm() -> Program {
        managed("storm.dll")
    }

    /// Methods that live for milliseconds (`tests/workloads/transient.cs`).
    pub fn transient() -> Program {
        managed("transient.dll")
    }

    /// Waits for a line, then allocates and throws (`tests/workloads/idle.cs`).
    pub fn idle() -> Program {
        managed("idle.dll")
    }

    /// Compression in a native library of the runtime (`tests/workloads/compress.cs`).
    pub fn compress() -> Program {
        managed("compress.dll")
    }

    /// One trouble of real programs by `--mode` (`tests/workloads/trouble.cs`).
    pub fn trouble() -> Program {
        managed("trouble.dll")
    }

    /// The same, compiled as a debug build.
    pub fn trouble_debug() -> Program {
        managed("trouble-debug.dll")
    }

    /// A service of ASP.NET Core whose requests take known times (`tests/workloads/aspnet`).
    pub fn service() -> Program {
        program("built/aspnet/service.dll".to_owned())
    }

    /// The C program: `native-fp`, `native-nofp` or `native-stripped` (`tests/workloads/native`).
    pub fn native(name: &str) -> Program {
        program(format!("built/native/{name}/{name}"))
    }

    /// `chains-cpp` or `chains-rust`: many names of C++ and Rust (`tests/workloads/chains`).
    pub fn chains(name: &str) -> Program {
        program(format!("built/chains/{name}"))
    }

    /// Ready programs that are published otherwise than as a `.dll` beside the framework.
    pub const DEPLOYMENTS: [&str; 4] = [
        "split-single",
        "split-composite",
        "split-trimmed",
        "split-compressed",
    ];

    /// A file of the ready programs, such as `split/split.dll`, `webapi/webapi.dll` or `split-aot/split-aot`.
    pub fn shared(path: &str) -> Program {
        program(format!("workloads/{path}"))
    }
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
    /// Starts a program that keeps a CPU busy in functions with symbols.
    pub fn busy() -> Result<Self, Missing> {
        let mut command = Command::new(workloads::native("native-fp")?);
        command.args(["--mode", "shares", "--seconds", "6000"]);
        Ok(Self::start(&mut command))
    }

    /// Starts it and waits until it says that it is ready (at most 30 s).
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let mut running = Running::start(command, Stdio::piped());
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

    /// Writes a line to its standard input.
    #[track_caller]
    pub fn say(&self, line: &str) {
        let mut stdin = self.running.child.stdin.as_ref().expect("it is a pipe");
        writeln!(stdin, "{line}").expect("it reads");
    }

    /// Ends its standard input, waits for the line `done` and for a good end.
    #[track_caller]
    pub fn done(mut self, limit: Duration) -> Value {
        drop(self.running.child.stdin.take());
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
