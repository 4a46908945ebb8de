//! The Firefox Profiler, by its command line. It counts samples.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use super::{Finished, Running, run, start};

const LIMIT: Duration = Duration::from_secs(120);

const SESSION: [&str; 2] = ["--session", "test"];
/// The log of the process in the directory of the session.
const LOG: &str = "test.log";

/// Samples by process, id of the process and of the thread, and stack.
pub type FirefoxStacks = BTreeMap<(String, String, i32, Vec<String>), u64>;

/// A profile, in a process that the commands ask.
pub struct FirefoxProfiler {
    cli: PathBuf,
    directory: TempDir,
    _daemon: Running,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    thread_handle: String,
    name: String,
    pid: String,
    tid: i32,
    marker_count: u64,
}

#[derive(Deserialize)]
struct Threads {
    threads: Vec<Thread>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Function {
    name_with_library: String,
    self_samples: u64,
}

#[derive(Deserialize)]
struct Functions {
    functions: Vec<Function>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tree {
    regular_call_tree: Node,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    name_with_library: String,
    total_samples: u64,
    #[serde(default)]
    children: Vec<Node>,
}

impl FirefoxProfiler {
    /// The command `load` would start this process, too, but gives it only half a second.
    ///
    /// A command that asks it too early removes its session, so its log shows when it is ready.
    pub fn load(cli: PathBuf, profile: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut daemon = command(&cli, &directory);
        daemon.arg("--daemon").arg(profile);
        let session = Self {
            _daemon: start(daemon.args(SESSION)),
            cli,
            directory,
        };
        let begin = Instant::now();
        let log = session.directory.path().join(LOG);
        let log = || fs::read_to_string(&log).unwrap_or_default();
        while !log().contains("Profile loaded successfully") {
            assert!(begin.elapsed() < LIMIT, "{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        session
    }

    fn run(&self, words: &[&str]) -> Finished {
        let mut node = command(&self.cli, &self.directory);
        run(node.args(words).args(SESSION), LIMIT)
    }

    fn json<T: DeserializeOwned>(&self, words: &[&str]) -> T {
        let words = [words, &["--json"]].concat();
        serde_json::from_str(&self.run(&words).expect_success().stdout).unwrap()
    }

    /// Number of markers of all threads.
    pub fn markers(&self) -> u64 {
        let Threads { threads } = self.json(&["thread", "list"]);
        threads.iter().map(|thread| thread.marker_count).sum()
    }

    /// Own samples by function, with its library.
    pub fn functions(&self) -> BTreeMap<String, u64> {
        let mut own = BTreeMap::new();
        let Threads { threads } = self.json(&["thread", "list"]);
        for Thread { thread_handle, .. } in threads {
            let words = ["thread", "functions", "--include-idle", "--limit", "0"];
            let Functions { functions } =
                self.json(&[&words[..], &["--thread", &thread_handle]].concat());
            for function in functions {
                *own.entry(function.name_with_library).or_default() += function.self_samples;
            }
        }
        own
    }

    pub fn stacks(&self) -> FirefoxStacks {
        let mut stacks = FirefoxStacks::new();
        let Threads { threads } = self.json(&["thread", "list"]);
        for thread in threads {
            let Tree { regular_call_tree } = self.json(&[
                "thread",
                "samples-top-down",
                "--include-idle",
                "--max-lines",
                "1000000",
                "--thread",
                &thread.thread_handle,
            ]);
            regular_call_tree.add(&mut Vec::new(), &mut |stack, samples| {
                let Thread { name, pid, tid, .. } = &thread;
                let stack = stack.to_vec();
                let thread = (name.clone(), pid.clone(), *tid, stack);
                *stacks.entry(thread).or_default() += samples;
            });
        }
        stacks
    }
}

fn command(cli: &Path, directory: &TempDir) -> Command {
    let mut node = Command::new("node");
    node.arg(cli)
        .env("PROFILER_CLI_SESSION_DIR", directory.path());
    node
}

impl Node {
    /// Hands out each stack below this one with its own samples.
    fn add(&self, stack: &mut Vec<String>, take: &mut impl FnMut(&[String], u64)) {
        let below: u64 = self.children.iter().map(|child| child.total_samples).sum();
        if self.total_samples > below {
            take(stack, self.total_samples - below);
        }
        for child in &self.children {
            stack.push(child.name_with_library.clone());
            child.add(stack, take);
            stack.pop();
        }
    }
}
