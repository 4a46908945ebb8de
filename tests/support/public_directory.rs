//! Running the binary under test as other users.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::{
    Finished, Running, Saved, end_capture, perfcollect, run, start_capture, wait_for_cpu_time,
};

/// Much longer than any capture on a busy system.
const LIMIT: Duration = Duration::from_secs(600);

/// A directory that all users may write to, with programs that all users may run.
pub struct PublicDirectory(TempDir);

impl PublicDirectory {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let directory = Self(directory);
        directory.add(perfcollect());
        directory
    }

    pub fn into_inner(self) -> TempDir {
        self.0
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Adds a program and returns its path.
    pub fn add(&self, program: &Path) -> String {
        let copy = self.path().join(program.file_name().unwrap());
        // A link avoids a copy of the large debug binary.
        fs::hard_link(program, &copy)
            .or_else(|_| fs::copy(program, &copy).map(|_| ()))
            .unwrap();
        copy.to_str().unwrap().to_owned()
    }

    /// Adds the C program with its library and returns its path.
    pub fn add_native(&self, program: &Path) -> String {
        self.add(&program.with_file_name("libwork.so"));
        self.add(program)
    }

    pub fn command(&self, prefix: &[&str], arguments: &[&str]) -> Command {
        let mut words = prefix.to_vec();
        let program = self.path().join("perfcollect");
        words.extend([program.to_str().unwrap(), "collect", "x"]);
        words.extend(arguments);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(self.path());
        command
    }

    #[track_caller]
    pub fn collect(&self, prefix: &[&str], arguments: &[&str]) -> Finished {
        run(&mut self.command(prefix, arguments), LIMIT)
    }

    #[track_caller]
    pub fn capture(self, prefix: &[&str], arguments: &[&str]) -> Saved {
        self.collect(prefix, arguments).expect_success();
        Saved::open(self.0, "x")
    }

    /// Starts a capture of a process and waits until sampling has started.
    #[track_caller]
    pub fn start(&self, prefix: &[&str], options: &[&str], pid: u32) -> Running {
        let pid = pid.to_string();
        let arguments = [&["-pid", &pid], options].concat();
        start_capture(&mut self.command(prefix, &arguments))
    }

    /// Ends a capture.
    #[track_caller]
    pub fn end(self, capture: Running) -> Saved {
        end_capture(capture);
        Saved::open(self.0, "x")
    }

    /// Captures a process while it uses this much CPU time.
    #[track_caller]
    pub fn capture_for(self, cpu: Duration, prefix: &[&str], options: &[&str], pid: u32) -> Saved {
        let capture = self.start(prefix, options, pid);
        wait_for_cpu_time(pid, cpu);
        self.end(capture)
    }
}
