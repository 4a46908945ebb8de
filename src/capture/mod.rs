//! A live capture: from a request to a recording.

mod command;
mod engine;
mod signals;
mod target;

pub use command::{Command, CommandError};
pub use signals::Signals;
pub use target::{Target, TargetError};

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec};
use thiserror::Error;

use crate::machine::{Machine, ProcError};
use crate::perf::{self, SamplingRequest, Session, SessionError};
use crate::trace::{CaptureInfo, Losses, Notice, Recording};
use engine::Engine;

/// How long the collector sleeps at most; also the pace of progress reports.
const TICK: Duration = Duration::from_millis(100);

/// What to capture.
#[derive(Debug)]
pub struct CaptureRequest {
    /// Whom.
    pub target: Target,
    /// How.
    pub sampling: SamplingRequest,
    /// For how long; `None`: until a signal, or the end of the target.
    pub limit: Option<Duration>,
}

/// Why there is no capture.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The target cannot be captured.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The command could not be started.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Sampling could not begin.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The running processes could not be read.
    #[error("{0}; perfcollect needs a mounted /proc")]
    Proc(#[from] ProcError),
    /// Waiting for the rings failed.
    #[error("cannot wait for samples: {0}")]
    Wait(io::Error),
}

/// How far a running capture has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Since sampling began.
    pub elapsed: Duration,
    /// Samples of the target.
    pub samples: u64,
    /// Records and samples the kernel dropped.
    pub lost: u64,
    /// Memory the samples take.
    pub bytes: u64,
}

/// Why the capture ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A signal (Ctrl-C, SIGTERM, SIGHUP).
    Signal,
    /// The time limit.
    Limit,
    /// The command ended; how.
    Command(String),
    /// All wanted processes are gone.
    TargetGone,
}

/// A finished capture whose frames have no names yet.
pub struct Capture {
    /// Samples.
    pub recording: Recording,
    /// The machine at the end.
    pub machine: Machine,
    /// How the capture came to be.
    pub info: CaptureInfo,
    /// What is missing.
    pub losses: Losses,
    /// Degradations.
    pub notices: Vec<Notice>,
    /// Why it ended.
    pub end: End,
}

/// Runs a capture to its end. `report` is called about ten times a second.
pub fn run(
    request: &CaptureRequest,
    signals: &Signals,
    mut report: impl FnMut(Progress),
) -> Result<Capture, CaptureError> {
    request.target.check()?;
    let mut session = Session::open(&request.sampling)?;
    let mut engine = Engine::new(&request.target);
    session.enable()?;
    let (started, start_unix) = (perf::now(), SystemTime::now());
    let clock = Instant::now();
    let mut command = match &request.target {
        Target::Command(words) => Some(Command::spawn(words)?),
        _ => None,
    };
    engine.begin(command.as_ref().map(Command::pid))?;

    let end = loop {
        let left = request
            .limit
            .map(|limit| limit.saturating_sub(clock.elapsed()));
        wait(
            &session,
            signals,
            command.as_ref(),
            left.map_or(TICK, |left| left.min(TICK)),
        )?;
        session.drain(|time, record| engine.record(time, &record));
        report(Progress {
            elapsed: clock.elapsed(),
            samples: engine.samples(),
            lost: engine.lost(),
            bytes: engine.bytes(),
        });
        if signals.count() > 0 {
            break End::Signal;
        }
        if let Some(status) = command.as_mut().and_then(Command::ended) {
            break End::Command(status);
        }
        if left.is_some_and(|left| left.is_zero()) {
            break End::Limit;
        }
        if command.is_none() && engine.target_gone() {
            break End::TargetGone;
        }
    };
    session.disable().map_err(SessionError::Enable)?;
    let ended = perf::now();
    session.drain_all(|time, record| engine.record(time, &record));

    let host = rustix::system::uname();
    let info = CaptureInfo {
        version: env!("CARGO_PKG_VERSION").into(),
        kernel: host.release().to_string_lossy().into(),
        machine: host.machine().to_string_lossy().into(),
        cpus: session.cpus() as u32,
        event: "cpu-clock".into(),
        period_ns: request.sampling.period_ns(),
        start_ns: started.0,
        end_ns: ended.0,
        start_unix_ns: start_unix
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64),
        target: request.target.to_string(),
    };
    let mut notices = engine.notices();
    let (recording, machine, mut losses) = engine.finish();
    losses.malformed_records = session.malformed();
    losses.late_records = session.late();
    if let (End::Limit | End::Signal, Some(command)) = (&end, &command) {
        notices.push(Notice::new(
            format!("the command still runs as process {}", command.pid()),
            "",
        ));
    }
    Ok(Capture {
        recording,
        machine,
        info,
        losses,
        notices,
        end,
    })
}

/// Sleeps until a ring fills up, a signal comes, the command ends or the time is over.
fn wait(
    session: &Session,
    signals: &Signals,
    command: Option<&Command>,
    at_most: Duration,
) -> Result<(), CaptureError> {
    let others = [Some(signals.as_fd()), command.and_then(Command::end_fd)];
    let fds: Vec<BorrowedFd<'_>> = session
        .wake_fds()
        .chain(others.into_iter().flatten())
        .collect();
    let mut polls: Vec<_> = fds
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    let timeout = Timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: i64::from(at_most.subsec_nanos()),
    };
    match rustix::event::poll(&mut polls, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(CaptureError::Wait(error.into())),
    }
}
