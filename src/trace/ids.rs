//! Handles of the rows of a trace.

use crate::ids::newtype;

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
