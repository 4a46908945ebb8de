//! Ids and units of the kernel.
//!
//! Each is a separate type, so that a tid cannot be passed as a pid.

/// Declares a transparent wrapper type for an integer.
macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

pub(crate) use newtype;

newtype!(
    /// A process id (thread group id) in the pid namespace of perfcollect.
    Pid(i32)
);
newtype!(
    /// A thread id in the pid namespace of perfcollect.
    Tid(i32)
);
newtype!(
    /// A CPU id.
    Cpu(u32)
);
newtype!(
    /// Nanoseconds on CLOCK_MONOTONIC.
    Nanos(u64)
);

impl Pid {
    /// Replaces the pid -1 of imported samples: the kernel records -1 for a process that has ended.
    ///
    /// No process has this id (`PID_MAX_LIMIT`).
    pub const UNKNOWN: Self = Self(1 << 22);
}
