//! Children that are waited for with a deadline and never outlive their test.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

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

/// A child in a separate process group, which is killed when the test ends.
pub struct Running {
    pub(super) child: Child,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    pub(super) fn start(command: &mut Command) -> Self {
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
