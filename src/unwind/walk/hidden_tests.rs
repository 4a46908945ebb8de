//! Stacks of real programs without the unwind information of their code, against those with it.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use test_skip::Missing;

use super::*;
use crate::machine::Machine;
use crate::perf::{CallGraph, PerfSession, Record, SamplingRequest, Scope};
use crate::trace::Pid;
use crate::unwind::Epoch;

/// Programs that each use the CPU for a second or two, most of it in other code than the others.
const PROGRAMS: &[(&str, &str)] = &[
    ("openssl", "openssl speed -seconds 1 aes-256-cbc sha256"),
    ("openssl", "openssl speed -seconds 1 rsa2048 ecdsap256"),
    (
        "python3",
        "python3 -c 'import json; [json.loads(json.dumps(list(range(200)))) for _ in range(40000)]'",
    ),
    (
        "perl",
        r#"perl -e 'for (1..1500000) { $h{$_ % 999} .= "x" if "a$_" =~ /9{2}$/ }'"#,
    ),
    (
        "xz",
        "head -c 3000000 /proc/self/exe /usr/bin/perl | xz -9 -c",
    ),
    ("sort", "seq 1 300000 | LC_ALL=C sort -R"),
    (
        "awk",
        r#"seq 1 900000 | awk '{ s += sqrt($1); t[$1 % 77] = s "x" } END { print s }'"#,
    ),
    (
        "bash",
        "bash -c 'for ((i = 0; i < 300000; i++)); do x=${x:0:50}$((i % 7)); done'",
    ),
];

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    identical: usize,
    /// The walk without unwind information ended early.
    cut: usize,
    /// It found another caller, and said that one is doubtful.
    doubted: usize,
    wrong: usize,
}

/// Compares the stacks of a program and of all that it starts.
fn compare(mut session: PerfSession, script: &str) -> Counts {
    session.start_tracking().unwrap();
    session.start_sampling().unwrap();
    let mut child = Program::start(script);
    let mut pids = HashSet::from([Pid(child.0.id() as i32)]);
    let (mut machine, mut counts) = (Machine::default(), Counts::default());
    let (mut exact, mut hidden) = (Unwinder::default(), Unwinder::default());
    hidden.uncovered.hide_unwind_information();
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    let mut has_ended = false;
    while !std::mem::replace(&mut has_ended, child.0.try_wait().unwrap().is_some()) {
        std::thread::sleep(Duration::from_millis(25));
        session.drain(|time, record| {
            let of_program = |pid| pids.contains(&pid);
            match &record {
                Record::Sample(sample) if of_program(sample.pid) => {
                    let (_, process) = machine.sampled(sample.pid, sample.tid);
                    let process = || SampledProcess {
                        process,
                        pid: sample.pid,
                        time: sample.time,
                        epoch: Epoch::of(sample.time),
                        maps: machine.maps(sample.pid).unwrap(),
                        files: machine.files(),
                        is_preview: false,
                    };
                    let truth = exact.walk(sample, process(), &mut expected);
                    if truth == WalkOutcome::default() {
                        let walked = hidden.walk(sample, process(), &mut found);
                        counts.add(&expected, &found, walked);
                    }
                }
                Record::Sample(_) => {}
                record => {
                    if let Record::Fork {
                        parent_pid, pid, ..
                    } = record
                        && of_program(*parent_pid)
                    {
                        pids.insert(*pid);
                    }
                    machine.apply(time, record);
                }
            }
            ControlFlow::Continue(())
        });
    }
    counts
}

impl Counts {
    fn add(&mut self, expected: &[CodeAddress], found: &[CodeAddress], walked: WalkOutcome) {
        self.all += 1;
        *match expected == found {
            true => &mut self.identical,
            false if walked.cut.is_some() && expected.starts_with(found) => &mut self.cut,
            false if walked.doubt.is_some() => &mut self.doubted,
            false => {
                println!("{found:x?}\nis not {expected:x?}");
                &mut self.wrong
            }
        } += 1;
    }
}

/// A running program, which ends with the test.
struct Program(Child);

impl Program {
    fn start(script: &str) -> Self {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).exists())
}

#[test]
#[ignore = "slow"]
fn stacks_without_unwind_information_are_the_same() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let mut all = Counts::default();
    for (program, script) in PROGRAMS {
        let request = SamplingRequest::new(997, CallGraph::Auto, cpus);
        let Ok(session) = PerfSession::open(&request, Scope::SystemWide) else {
            return test_skip::skip(Missing::PerfEvents);
        };
        if !is_installed(program) {
            test_skip::skip(Missing::Command(program));
            continue;
        }
        // The second time, the analyses are there, and no records are lost for them.
        let counts = compare(session, &format!("{script}; {script}"));
        println!("{program}: {counts:?}");
        all.all += counts.all;
        all.identical += counts.identical;
        all.wrong += counts.wrong;
    }
    println!("{all:?}");
    assert!(all.all > 3000, "{all:?}");
    assert!(
        all.identical * 1000 >= all.all * 995 && all.wrong == 0,
        "{all:?}"
    );
}
