//! Children that are waited for with a deadline and never outlive their test.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::perfcollect;

/// Exit status of a capture whose trace lacks what was asked for.
pub const POORER: i32 = 3;

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
        self.expect_status(0)
    }

    /// The exit status is 0, or that of a trace of which a busy machine has lost a part, and it says so.
    #[track_caller]
    pub fn expect_trace(self) -> Self {
        let says_so = [&self.stdout, &self.stderr].map(|text| text.contains("INCOMPLETE"));
        let is_poorer = self.status.code() == Some(POORER) && says_so.contains(&true);
        self.expect_status(if is_poorer { POORER } else { 0 })
    }

    /// Returns whether this kernel permits a user without rights no events at all. A failure for another reason
    /// fails the test.
    #[track_caller]
    pub fn is_not_permitted(&self) -> bool {
        let failed = self.status.code() == Some(1);
        assert!(
            !failed || self.stderr.contains("not permitted"),
            "{}",
            self.stderr
        );
        failed
    }

    #[track_caller]
    pub fn expect_status(self, status: i32) -> Self {
        assert!(
            self.status.code() == Some(status),
            "{}\n{}\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }
}

/// perfcollect on a terminal, with these words, until Ctrl-C.
pub fn on_terminal(words: &str, seconds: u32) -> Command {
    let interrupted = format!("timeout --foreground --preserve-status -s INT {seconds}");
    let line = format!("{interrupted} {} {words}", perfcollect().display());
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]);
    command
}

/// Words that run a command as another user without rights.
pub const AS_NOBODY: [&str; 6] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all",
    "--no-new-privs",
];

/// Whether a command is in a directory of `PATH`.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// A child in a separate process group, which is killed when the test ends.
pub struct Running {
    pub(super) child: Child,
    stderr: Option<JoinHandle<()>>,
    /// What was read from standard error.
    errors: Arc<Mutex<Vec<u8>>>,
}

impl Running {
    pub(super) fn start(command: &mut Command, stdin: Stdio) -> Self {
        let mut child = command
            .process_group(0)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let errors = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&errors);
        let stderr = child.stderr.take().map(|mut stderr| {
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = stderr.read(&mut bytes) {
                    all.lock().unwrap().extend(&bytes[..count]);
                }
            })
        });
        Self {
            child,
            stderr,
            errors,
        }
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

    /// Sends a signal to the process and its children, as Ctrl-C in a terminal does.
    #[track_caller]
    pub fn signal_group(&self, signal: Signal) {
        kill_process_group(self.raw_pid(), signal).expect("the process is there");
    }

    /// What it has printed on standard error, and whether there will be no more.
    pub(super) fn errors(&self) -> (String, bool) {
        let is_closed = self.stderr.as_ref().is_none_or(JoinHandle::is_finished);
        let errors = self.errors.lock().unwrap();
        (String::from_utf8_lossy(&errors).into_owned(), is_closed)
    }

    /// Everything that it has printed on standard error, up to its end.
    fn all_errors(&mut self) -> String {
        if let Some(reader) = self.stderr.take() {
            reader.join().expect("stderr is read");
        }
        self.errors().0
    }

    pub(super) fn raw_pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Kills it and all its children, which would keep its output open.
    fn kill(&mut self) {
        let _ = kill_process_group(self.raw_pid(), Signal::KILL);
        let _ = self.child.wait();
    }

    /// Waits for its end; kills it and fails the test when the time is over.
    pub(super) fn wait(&mut self, limit: Duration) -> (ExitStatus, String) {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                return (status, self.all_errors());
            }
            if begin.elapsed() > limit {
                let threads = threads_of(self.pid());
                self.kill();
                panic!(
                    "process {} still ran after {limit:?}; it printed: {}\n{threads}",
                    self.pid(),
                    self.all_errors()
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

/// What each thread of a process waits for, a line each: name, system call with its arguments, place in the kernel.
fn threads_of(pid: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let describe = |task: fs::DirEntry| {
        let part = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        ["comm", "syscall", "wchan"]
            .map(part)
            .join(" ")
            .replace('\n', " ")
    };
    let lines = tasks.flatten().flatten().map(describe);
    lines.collect::<Vec<_>>().join("\n")
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
    Running::start(command, Stdio::null())
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
