//! Processes that stand still: why there is little or nothing of them.

use std::fmt;

use crate::dotnet::diagnostics::DiagnosticPort;
use crate::machine;
use crate::trace::{Notice, Pid};

/// Processes that are named in notices.
const LISTED: usize = 5;

/// What keeps a process from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRunning {
    /// A signal, or a debugger.
    Stopped(Pid),
    /// Its .NET runtime, at its start, until a tool lets it go on.
    Suspended(Pid),
}

impl NotRunning {
    /// What a process waits for now, if it waits for one of these.
    #[must_use]
    pub fn of(pid: Pid) -> Option<Self> {
        if machine::is_stopped(pid) {
            Some(Self::Stopped(pid))
        } else {
            let port = DiagnosticPort::find(pid).ok()?;
            port.is_suspended().then_some(Self::Suspended(pid))
        }
    }

    /// How it goes on.
    #[must_use]
    pub fn remedy(self) -> String {
        match self {
            Self::Stopped(pid) => format!("`kill -CONT {pid}` lets it go on, unless a debugger holds it"),
            Self::Suspended(_) => "a diagnostics tool must let it go on; or start it without \
                                   DOTNET_DefaultDiagnosticPortSuspend, and with `nosuspend` in DOTNET_DiagnosticPorts"
                .into(),
        }
    }
}

impl fmt::Display for NotRunning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(pid) => write!(f, "process {pid} is stopped"),
            Self::Suspended(pid) => write!(
                f,
                "the .NET runtime of process {pid} waits at its start and has run no code"
            ),
        }
    }
}

/// Tells of those that stand still.
pub(super) fn notices(pids: impl IntoIterator<Item = Pid>) -> impl Iterator<Item = Notice> {
    let still = pids.into_iter().filter_map(NotRunning::of);
    still
        .take(LISTED)
        .map(|still| Notice::new(still.to_string(), still.remedy()))
}
