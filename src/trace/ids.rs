//! Handles of the rows of a trace.

use crate::ids::newtype;

/// Declares a handle of the rows of one column of the trace.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        newtype!($(#[$doc])* $name(u32));

        impl $name {
            /// Returns the position in the column.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

handle!(
    /// Handle of a process instance (pid and start time) in [`crate::trace::Trace::processes`].
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
