//! What it costs a .NET process to be asked for its methods: `cargo bench --bench rundown`.
//!
//! A session is begun and stopped; at its end the runtime lists all its methods (the rundown). That is what a capture does
//! before .NET 8, and where memory may not be read. The small program burns CPU in one thread, whose time is not
//! counted; the web server waits for requests.
#![allow(clippy::unwrap_used)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use perfcollect::dotnet::diagnostics::{
    DiagnosticPort, EventPipeSession, Limits, Provider, SessionRequest,
};
use perfcollect::nettrace::Reader;
use perfcollect::trace::Pid;
use support::{Workload, runtimes, workloads};

const ROUNDS: usize = 11;
const RUNDOWN: &str = "Microsoft-Windows-DotNETRuntimeRundown";
/// Milliseconds of a clock tick of /proc.
const TICK_MS: u64 = 10;

fn main() {
    let programs = [
        ("cpu", workloads::cpu(), vec!["--seconds", "30"]),
        ("webapi", workloads::shared("webapi/webapi.dll"), vec![]),
    ];
    for runtime in runtimes() {
        for (name, program, arguments) in &programs {
            let program = match program {
                Ok(program) if runtime.aspnet || *name == "cpu" => program,
                Ok(_) => continue,
                Err(missing) => {
                    println!("{name}: skipped: needs {missing}");
                    continue;
                }
            };
            let mut command = runtime.command(program);
            measure(
                &format!("{name} on {}", runtime.version),
                *name == "cpu",
                command.args(arguments),
            );
        }
    }
}

fn measure(what: &str, burns: bool, command: &mut Command) {
    let workload = Workload::start(command);
    let pid = Pid(workload.pid() as i32);
    thread::sleep(Duration::from_secs(2));
    let before = milliseconds_by_thread(pid);
    let mut rounds: Vec<_> = (0..ROUNDS).map(|_| round(pid)).collect();
    let after = milliseconds_by_thread(pid);
    let spent = after
        .iter()
        .map(|(tid, ms)| ms - before.get(tid).unwrap_or(&0));
    let mut spent: Vec<u64> = spent.collect();
    spent.sort_unstable();
    if burns {
        spent.pop();
    }
    rounds.sort_unstable();
    let (duration, bytes, methods) = rounds[ROUNDS / 2];
    println!(
        "{what}: {methods} methods, {} KB, {duration:.0?} from the request to the last byte; {} ms of the target's CPU time",
        bytes / 1000,
        spent.iter().sum::<u64>() / ROUNDS as u64,
    );
}

/// Time from the request to stop to the end of the stream, bytes of the stream, methods listed.
fn round(pid: Pid) -> (Duration, u64, u64) {
    let limits = Limits::new(Duration::from_secs(10), Duration::from_secs(30));
    let port = DiagnosticPort::find(pid).unwrap();
    let request = SessionRequest {
        buffer_mib: 16,
        rundown_keywords: 0x118,
        stacks: false,
        providers: vec![Provider {
            name: "Microsoft-Windows-DotNETRuntime".into(),
            keywords: 0x18,
            level: 4,
            arguments: String::new(),
        }],
    };
    let session = EventPipeSession::start(&port, &request, &limits).unwrap();
    let stream = session.stream();
    let reading = thread::spawn(move || {
        let mut bytes = 0;
        let mut reader = Reader::open(Counted(stream, &mut bytes)).unwrap();
        let mut methods = 0;
        while let Some(event) = reader.next_event().unwrap() {
            methods += u64::from(event.kind.provider == RUNDOWN && event.kind.id == 144);
        }
        drop(reader);
        (bytes, methods)
    });
    let asked = Instant::now();
    let stopping = session.ask_to_stop(&port, &limits).unwrap();
    stopping.wait(&limits).unwrap();
    let (bytes, methods) = reading.join().unwrap();
    (asked.elapsed(), bytes, methods)
}

/// Counts what is read.
struct Counted<'a, R>(R, &'a mut u64);

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        *self.1 += read as u64;
        Ok(read)
    }
}

/// CPU time of each thread.
fn milliseconds_by_thread(pid: Pid) -> HashMap<String, u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let times = tasks.filter_map(|task| {
        let task = task.ok()?;
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        Some((task.file_name().into_string().ok()?, ticks * TICK_MS))
    });
    times.collect()
}
