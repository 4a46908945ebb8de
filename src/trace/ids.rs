//! Small integer handles and units. Each is its own type so that a tid is never passed for a pid.

use serde::Serialize;

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

newtype!(
    /// A process id (thread group id) in the pid namespace of the collector.
    Pid(i32)
);
newtype!(
    /// A thread id in the pid namespace of the collector.
    Tid(i32)
);
newtype!(
    /// A CPU number as the kernel counts them.
    Cpu(u32)
);
newtype!(
    /// Nanoseconds on CLOCK_MONOTONIC.
    Nanos(u64)
);

impl Pid {
    /// Stands for the process of imported samples whose process the kernel did not know any more (-1): no process has this id
    /// (`PID_MAX_LIMIT`).
    pub const NOBODY: Self = Self(1 << 22);
}

/// Declares a handle into one column of the trace; `index` gives the position.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        newtype!($(#[$doc])* $name(u32));

        impl $name {
            /// Position in the column this handle points into.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

handle!(
    /// Handle of a process life (pid and start) in [`crate::trace::Trace::processes`].
    ProcessId
);
handle!(
    /// Handle of a thread in [`crate::trace::Trace::threads`].
    ThreadId
);
handle!(
    /// Handle of a file that was mapped as code.
    ModuleId
);
handle!(
    /// Handle of a function in [`crate::trace::Trace::functions`].
    FunctionId
);
handle!(
    /// Handle of a code address in [`crate::trace::Trace::frames`].
    FrameId
);
handle!(
    /// Handle of a stack in [`crate::trace::StackTable`]; [`StackId::EMPTY`] has no frames.
    StackId
);

impl StackId {
    /// The stack without frames.
    pub const EMPTY: Self = Self(u32::MAX);
}
