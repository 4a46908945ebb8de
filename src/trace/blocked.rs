//! Where a thread did not run.

/// Where a thread waited: the leaf of its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blocked {
    /// In a system call with this number of x86-64.
    Call(u16),
    /// In a page fault, or an interrupt: it made no system call.
    Fault,
    /// It was ready and waited for a CPU.
    Ready,
    /// A signal or a debugger had stopped it.
    Stopped,
    /// Unknown.
    Unknown,
}

impl Blocked {
    /// Returns its numbers in a spool: the kind and the system call.
    pub(super) fn encoded(self) -> (u8, u16) {
        match self {
            Self::Call(number) => (0, number),
            Self::Fault => (1, 0),
            Self::Ready => (2, 0),
            Self::Stopped => (3, 0),
            Self::Unknown => (4, 0),
        }
    }

    /// Does the opposite.
    pub(super) fn decoded(kind: u8, number: u16) -> Option<Self> {
        Some(match kind {
            0 => Self::Call(number),
            1 => Self::Fault,
            2 => Self::Ready,
            3 => Self::Stopped,
            4 => Self::Unknown,
            _ => return None,
        })
    }

    /// Returns the name of the leaf.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::Call(number) => match syscalls::Sysno::new(usize::from(number)) {
                Some(call) => format!("[blocked: {call}]"),
                None => format!("[blocked: system call {number}]"),
            },
            Self::Fault => "[blocked: page fault]".into(),
            Self::Ready => "[ready: waits for a CPU]".into(),
            Self::Stopped => "[blocked: stopped]".into(),
            Self::Unknown => "[blocked]".into(),
        }
    }
}
