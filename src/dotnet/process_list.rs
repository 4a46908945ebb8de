//! Lists all .NET processes of the system and the state of their diagnostic ports.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::diagnostics::{
    DiagnosticPort, DiagnosticsError, Limits, PortError, ProcessInfoReply, query,
};
use super::processes::{Detector, RuntimeIdentity};
use crate::machine::{self, ProcError};
use crate::trace::Pid;

/// Number of parallel queries, so that the timeouts of hung processes do not add up.
const THREADS: usize = 16;
/// Time limits of a query.
const STEP_TIMEOUT: Duration = Duration::from_millis(800);
const TOTAL_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time limit of all queries. A user may have any number of processes that do not respond.
const LIST_TIMEOUT: Duration = Duration::from_secs(3);

/// A .NET process.
#[derive(Debug)]
pub struct DotnetProcess {
    /// The process id.
    pub pid: Pid,
    /// The process id in the pid namespace of the process.
    pub namespace_pid: Option<Pid>,
    /// The first digits of the container id, if known.
    pub container: Option<String>,
    /// The arguments, joined by spaces.
    pub command_line: Vec<u8>,
    /// The runtime in the process.
    pub runtime: RuntimeIdentity,
    /// The state of the diagnostic port.
    pub reach: DiagnosticStatus,
}

/// The state of a diagnostic port.
#[derive(Debug)]
pub enum DiagnosticStatus {
    /// The runtime responds.
    Answers,
    /// The runtime responds and is suspended at its start until a tool resumes it.
    Suspended,
    /// The process has no accessible port.
    NoPort(PortError),
    /// The query failed.
    NoAnswer(DiagnosticsError),
    /// The time for all queries was over.
    NotQueried,
}

/// Returns all .NET processes, sorted by pid.
///
/// Their ports are queried for a limited time, by turns of their users.
///
/// # Errors
/// /proc is not readable.
pub fn list_dotnet_processes() -> Result<Vec<DotnetProcess>, ProcError> {
    let runtimes = by_turns(Detector::default().find_all()?);
    let end = Instant::now() + LIST_TIMEOUT;
    let next = AtomicUsize::new(0);
    let processes = Mutex::new(Vec::with_capacity(runtimes.len()));
    thread::scope(|scope| {
        for _ in 0..runtimes.len().min(THREADS) {
            scope.spawn(|| {
                while let Some((pid, runtime)) = runtimes.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let process = inspect(*pid, runtime.clone(), end);
                    if let Ok(mut processes) = processes.lock() {
                        processes.extend(process);
                    }
                }
            });
        }
    });
    let mut processes = processes.into_inner().unwrap_or_default();
    processes.sort_unstable_by_key(|process| process.pid);
    Ok(processes)
}

/// Orders processes so that the first ones of all users precede the second ones.
fn by_turns<T>(processes: Vec<(Pid, T)>) -> Vec<(Pid, T)> {
    let mut counts: FxHashMap<Option<u32>, usize> = FxHashMap::default();
    let mut turns: Vec<_> = processes
        .into_iter()
        .map(|process| {
            let count = counts.entry(machine::file_owner(process.0)).or_default();
            *count += 1;
            (*count, process)
        })
        .collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, process)| process).collect()
}

/// Queries a process until `end`. Returns `None` if the process has ended.
fn inspect(pid: Pid, mut runtime: RuntimeIdentity, end: Instant) -> Option<DotnetProcess> {
    let left = end.saturating_duration_since(Instant::now());
    let limits = Limits::new(STEP_TIMEOUT, left.min(TOTAL_TIMEOUT));
    let reach = match DiagnosticPort::find(pid) {
        Err(PortError::Gone) => return None,
        Err(error) => DiagnosticStatus::NoPort(error),
        Ok(_) if left.is_zero() => DiagnosticStatus::NotQueried,
        Ok(port) => match query(&port, &limits) {
            Err(error) => DiagnosticStatus::NoAnswer(error),
            Ok(reply) => {
                if let ProcessInfoReply::Info(info) = reply
                    && !info.runtime_version.is_empty()
                {
                    runtime.version = Some(info.runtime_version);
                }
                match port.is_suspended() {
                    true => DiagnosticStatus::Suspended,
                    false => DiagnosticStatus::Answers,
                }
            }
        },
    };
    Some(DotnetProcess {
        pid,
        namespace_pid: machine::namespace_pid(pid),
        container: machine::container(pid),
        command_line: machine::command_line(pid),
        runtime,
        reach,
    })
}
