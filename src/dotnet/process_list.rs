//! All .NET processes of the machine, and whether each can be asked.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::diagnostics::{
    DiagnosticPort, DiagnosticsError, Limits, PortError, ProcessInfoReply, query,
};
use super::processes::{Detector, RuntimeIdentity};
use crate::machine::{self, ProcError};
use crate::trace::Pid;

/// Processes that are asked at a time: those that hang shall not add up.
const AT_ONCE: usize = 16;
/// How long one is waited for.
const STEP_TIMEOUT: Duration = Duration::from_millis(800);
const TOTAL_TIMEOUT: Duration = Duration::from_millis(1500);

/// A .NET process.
#[derive(Debug)]
pub struct DotnetProcess {
    /// Its id.
    pub pid: Pid,
    /// Its id in its own pid namespace.
    pub namespace_pid: Option<Pid>,
    /// The first digits of its container's id, if it is in one that can be told.
    pub container: Option<String>,
    /// Its arguments, joined by spaces.
    pub command_line: Vec<u8>,
    /// The runtime in it.
    pub runtime: RuntimeIdentity,
    /// Whether it can be asked.
    pub reach: DiagnosticStatus,
}

/// Whether a runtime can be asked through its diagnostics port.
#[derive(Debug)]
pub enum DiagnosticStatus {
    /// It answers.
    Answers,
    /// It answers, and waits at its start until it is let go on.
    Suspended,
    /// It has no port, or none that may be seen.
    NoPort(PortError),
    /// It has one and does not answer as it should.
    NoAnswer(DiagnosticsError),
}

/// All .NET processes, by pid.
///
/// # Errors
/// /proc cannot be read.
pub fn list_dotnet_processes() -> Result<Vec<DotnetProcess>, ProcError> {
    let found = Detector::default().find_all()?;
    let next = AtomicUsize::new(0);
    let seen = Mutex::new(Vec::with_capacity(found.len()));
    thread::scope(|scope| {
        for _ in 0..found.len().min(AT_ONCE) {
            scope.spawn(|| {
                while let Some((pid, runtime)) = found.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let process = look_at(*pid, runtime.clone());
                    if let Ok(mut seen) = seen.lock() {
                        seen.extend(process);
                    }
                }
            });
        }
    });
    let mut seen = seen.into_inner().unwrap_or_default();
    seen.sort_unstable_by_key(|process| process.pid);
    Ok(seen)
}

/// `None`: it has ended meanwhile.
fn look_at(pid: Pid, mut runtime: RuntimeIdentity) -> Option<DotnetProcess> {
    let reach = match DiagnosticPort::find(pid) {
        Err(PortError::Gone) => return None,
        Err(error) => DiagnosticStatus::NoPort(error),
        Ok(port) => match query(&port, &Limits::new(STEP_TIMEOUT, TOTAL_TIMEOUT)) {
            Err(error) => DiagnosticStatus::NoAnswer(error),
            Ok(answer) => {
                if let ProcessInfoReply::Info(info) = answer
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
