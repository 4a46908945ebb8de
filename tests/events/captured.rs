//! Captures of programs that count what they do.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::LIMIT;
use crate::support::events::entries;
use crate::support::{Runtime, perfcollect, perfview_json, run, runtimes};

/// A capture of a program from its start to its end, and the program's final figures.
pub(crate) struct Captured {
    pub(crate) directory: TempDir,
    pub(crate) done: Value,
}

impl Captured {
    #[track_caller]
    pub(crate) fn run(
        runtime: &Runtime,
        program: &Path,
        arguments: &[&str],
        options: &[&str],
    ) -> Self {
        Self::run_in(&[], runtime, program, arguments, options)
    }

    /// Starts the program below another command.
    #[track_caller]
    pub(crate) fn run_in(
        front: &[&str],
        runtime: &Runtime,
        program: &Path,
        arguments: &[&str],
        options: &[&str],
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let command = runtime.command(program);
        let mut collect = Command::new(perfcollect());
        collect
            .args(["collect", "x", "-quiet"])
            .args(options)
            .arg("--")
            .args(front)
            .arg(command.get_program())
            .args(command.get_args())
            .args(arguments)
            .current_dir(&directory);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => collect.env(name, value),
                None => collect.env_remove(name),
            };
        }
        let finished = run(&mut collect, LIMIT).expect_success();
        let lines = finished.stdout.lines().rev();
        let done = lines
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|line| line["event"] == "done");
        let done = done.unwrap_or_else(|| panic!("{}", finished.stdout));
        Self { directory, done }
    }

    pub(crate) fn trace(&self) -> PathBuf {
        self.directory.path().join("x.trace.zip")
    }

    pub(crate) fn nettrace(&self) -> PathBuf {
        self.directory.path().join("x.nettrace")
    }

    /// Returns the part about the process in the output of PerfView's reader.
    pub(crate) fn in_perfview(&self, mode: &str) -> Option<Value> {
        let all = perfview_json(mode, &self.trace(), &[])?;
        let rows = all["processes"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{rows:?}");
        Some(rows[0].clone())
    }

    pub(crate) fn summary(&self) -> Value {
        let (_, json) = entries(&self.trace(), "/summary.json").remove(0);
        serde_json::from_slice(&json).unwrap()
    }
}

/// Returns one installation of each version, or those with ASP.NET Core.
pub(crate) fn one_of_each(has_what_is_needed: impl Fn(&Runtime) -> bool) -> Vec<Runtime> {
    let mut runtimes = runtimes();
    runtimes.retain(has_what_is_needed);
    runtimes.dedup_by_key(|runtime| runtime.major());
    runtimes
}

/// Returns the output of `perfcollect view`.
#[track_caller]
pub(crate) fn view(trace: &Path, viewer: &str) -> String {
    let mut command = Command::new(perfcollect());
    command.arg("view").arg(trace).args(["-viewer", viewer]);
    run(&mut command, LIMIT).expect_success().stdout
}
