//! Where a thread did not run.

use super::{StackId, Trace};

/// Where a thread was without a CPU: the leaf of its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blocked {
    /// In a system call with this number of x86-64.
    Call(u16, BlockedOn),
    /// In a page fault, or an interrupt: it made no system call.
    Fault,
    /// What it waited for had come, and it waited for a CPU.
    Ready,
    /// The scheduler had taken its CPU, and it waited for the next one.
    Preempted,
    /// It was ready, and its control group had used up the CPU time that its limit grants.
    Throttled,
    /// A signal or a debugger had stopped it.
    Stopped,
    /// Unknown.
    Unknown,
    /// It ended before it was found waiting.
    Unseen,
}

/// What a thread in a system call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockedOn {
    /// The call has no descriptor, or it is unknown.
    Nothing,
    /// A futex whose word has the id of its owner.
    Owner,
    /// A time.
    Time,
    /// A socket.
    Socket,
    /// A pipe.
    Pipe,
    /// A file or a block device.
    File,
    /// A descriptor of the kernel without a file, such as that of epoll.
    Anonymous,
    /// A terminal.
    Terminal,
    /// Another character device, such as `/dev/kvm`.
    Device,
    /// A futex, while a .NET monitor that another thread has is on the stack.
    Monitor,
}

impl BlockedOn {
    const ALL: [Self; 10] = [
        Self::Nothing,
        Self::Owner,
        Self::Time,
        Self::Socket,
        Self::Pipe,
        Self::File,
        Self::Anonymous,
        Self::Terminal,
        Self::Device,
        Self::Monitor,
    ];
}

/// Reason of a thread without a function of the user on its stack: it waits for work.
pub const IDLE: &str = "idle";

/// Returns the reason in the name of a leaf such as `[lock: futex]`.
#[must_use]
pub fn reason_of(leaf: &str) -> &str {
    let leaf = leaf.trim_matches(['[', ']']);
    leaf.split(':').next().unwrap_or(leaf)
}

impl Trace {
    /// Returns whether a thread that had no CPU on a stack waited for work. The places must have names.
    #[must_use]
    pub fn is_idle(&self, stack: StackId) -> bool {
        let leaf = self.stacks.node(stack).map(|(_, leaf)| leaf);
        let function = leaf.and_then(|leaf| self.functions_leaf_first(leaf).next());
        let name = function.and_then(|id| self.functions[id.index()].name.as_deref());
        name.is_some_and(|name| reason_of(name) == IDLE)
    }
}

impl Blocked {
    /// Returns its numbers in a spool: the kind, the system call, and what it is blocked on.
    pub(super) fn encoded(self) -> (u8, u16, u8) {
        match self {
            Self::Call(number, on) => (0, number, on as u8),
            Self::Fault => (1, 0, 0),
            Self::Ready => (2, 0, 0),
            Self::Stopped => (3, 0, 0),
            Self::Unknown => (4, 0, 0),
            Self::Preempted => (5, 0, 0),
            Self::Throttled => (6, 0, 0),
            Self::Unseen => (7, 0, 0),
        }
    }

    /// Does the opposite.
    pub(super) fn decoded(kind: u8, number: u16, on: u8) -> Option<Self> {
        Some(match kind {
            0 => Self::Call(number, *BlockedOn::ALL.get(usize::from(on))?),
            1 => Self::Fault,
            2 => Self::Ready,
            3 => Self::Stopped,
            4 => Self::Unknown,
            5 => Self::Preempted,
            6 => Self::Throttled,
            7 => Self::Unseen,
            _ => return None,
        })
    }

    /// Returns the name of the leaf, for a reason in words. The words of a place without a system call are
    /// fixed.
    #[must_use]
    pub fn label(self, reason: &str) -> String {
        match self {
            Self::Call(number, _) => match syscalls::Sysno::new(usize::from(number)) {
                Some(call) => format!("[{reason}: {call}]"),
                None => format!("[{reason}: system call {number}]"),
            },
            Self::Fault => "[page fault]".into(),
            Self::Ready => "[ready: waits for a CPU]".into(),
            Self::Preempted => "[preempted: waits for a CPU]".into(),
            Self::Throttled => "[throttled: CPU limit of the control group]".into(),
            Self::Stopped => "[stopped]".into(),
            Self::Unknown => "[blocked: unknown]".into(),
            Self::Unseen => "[unseen: ended before a look]".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_same_place() {
        let calls = BlockedOn::ALL.map(|on| Blocked::Call(202, on));
        let others = [
            Blocked::Fault,
            Blocked::Ready,
            Blocked::Preempted,
            Blocked::Throttled,
            Blocked::Stopped,
            Blocked::Unknown,
            Blocked::Unseen,
        ];
        for place in calls.into_iter().chain(others) {
            let (kind, number, on) = place.encoded();
            assert_eq!(Blocked::decoded(kind, number, on), Some(place));
        }
        let unknown = BlockedOn::ALL.len() as u8;
        assert_eq!(Blocked::decoded(0, 0, unknown), None);
        let leaves = [
            Blocked::Call(202, BlockedOn::Owner).label(IDLE),
            Blocked::Fault.label(""),
        ];
        assert_eq!(
            leaves.each_ref().map(|leaf| reason_of(leaf)),
            [IDLE, "page fault"]
        );
        assert_eq!(Blocked::decoded(8, 0, 0), None);
    }
}
