//! Processes that are stopped or suspended, and therefore have few samples or none.

use std::fmt;

use crate::dotnet::diagnostics::DiagnosticPort;
use crate::machine::{self, ControlGroup};
use crate::trace::{Notice, NoticeKind, Pid};

/// Maximum number of processes listed in notices.
const MAX_LISTED: usize = 5;

/// Reason why a process does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRunning {
    /// A signal or a debugger stopped the process.
    Stopped(Pid),
    /// A control group of the process is frozen.
    Frozen(Pid),
    /// The .NET runtime is suspended at startup until a tool resumes it.
    Suspended(Pid),
}

impl NotRunning {
    /// Returns the reason why a process does not run, if there is one.
    #[must_use]
    pub fn of(pid: Pid) -> Option<Self> {
        if machine::is_stopped(pid) {
            Some(Self::Stopped(pid))
        } else if machine::is_frozen(&ControlGroup::of(pid)) {
            Some(Self::Frozen(pid))
        } else {
            let port = DiagnosticPort::find(pid).ok()?;
            port.is_suspended().then_some(Self::Suspended(pid))
        }
    }

    /// Returns the action that resumes the process.
    #[must_use]
    pub fn remedy(self) -> String {
        match self {
            Self::Stopped(pid) => format!("`kill -CONT {pid}` resumes it, unless a debugger stopped it"),
            Self::Frozen(_) => "resume it with what froze it: `docker unpause`, `systemctl thaw`".into(),
            Self::Suspended(_) => "resume it with a diagnostic tool; or start it without \
                                   DOTNET_DefaultDiagnosticPortSuspend, and with `nosuspend` in DOTNET_DiagnosticPorts"
                .into(),
        }
    }
}

impl fmt::Display for NotRunning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(pid) => write!(f, "process {pid} is stopped"),
            Self::Frozen(pid) => write!(f, "process {pid} is frozen by its control group"),
            Self::Suspended(pid) => write!(
                f,
                "the .NET runtime of process {pid} waits at its start and has run no code"
            ),
        }
    }
}

/// Returns notices about the processes that do not run.
pub(super) fn notices(pids: impl IntoIterator<Item = Pid>) -> impl Iterator<Item = Notice> {
    let not_running = pids.into_iter().filter_map(NotRunning::of);
    not_running.take(MAX_LISTED).map(|process| {
        let notice = Notice::new(
            NoticeKind::NotRunning,
            process.to_string(),
            process.remedy(),
        );
        let (NotRunning::Stopped(pid) | NotRunning::Frozen(pid) | NotRunning::Suspended(pid)) =
            process;
        notice.about(pid)
    })
}
