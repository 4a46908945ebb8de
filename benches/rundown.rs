//! Measures the cost of a method rundown for a .NET process: `cargo bench --bench rundown`.
//!
//! The benchmark starts and stops a session. At the end of a session the runtime lists all its
//! methods (the rundown). A capture requests a rundown before .NET 8, and if it cannot read memory.
//! The small program uses CPU in one thread, whose time does not count. The web server is idle.
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
    DiagnosticPort, EventPipeSession, Excluded, Limits, Provider, SessionRequest,
};
use perfcollect::nettrace::Reader;
use perfcollect::trace::Pid;
use support::{Workload, runtimes, workloads};

const ROUNDS: usize = 11;
const RUNDOWN: &str = "Microsoft-Windows-DotNETRuntimeRundown";
/// Length of a clock tick in /proc, in milliseconds.
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

fn measure(title: &str, has_busy_thread: bool, command: &mut Command) {
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
    if has_busy_thread {
        spent.pop();
    }
    rounds.sort_unstable();
    let (duration, bytes, methods) = rounds[ROUNDS / 2];
    println!(
        "{title}: {methods} methods, {} KB, {duration:.0?} from the request to the last byte; {} ms of the target's CPU time",
        bytes / 1000,
        spent.iter().sum::<u64>() / ROUNDS as u64,
    );
}

/// Runs one session. Returns the time from the stop request to the end of the stream, the stream's
/// size, and the number of methods in the rundown.
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
            excluded: Excluded::default(),
        }],
    };
    let session = EventPipeSession::start(&port, &request, &limits).unwrap();
    let stream = session.stream();
    let reading = thread::spawn(move || {
        let mut bytes = 0;
        let mut reader = Reader::open(CountingReader(stream, &mut bytes)).unwrap();
        let mut methods = 0;
        while let Some(event) = reader.next_event().unwrap() {
            methods += u64::from(event.metadata.provider == RUNDOWN && event.metadata.id == 144);
        }
        drop(reader);
        (bytes, methods)
    });
    let requested = Instant::now();
    let stopping = session.request_stop(&port, &limits).unwrap();
    stopping.wait(&limits).unwrap();
    let (bytes, methods) = reading.join().unwrap();
    (requested.elapsed(), bytes, methods)
}

/// Reader that counts its bytes.
struct CountingReader<'a, R>(R, &'a mut u64);

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        *self.1 += read as u64;
        Ok(read)
    }
}

/// Returns the CPU time of each thread.
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
