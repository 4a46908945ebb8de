//! Data that a sample records to unwind the user stack.

/// Source of the callers on a user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallGraph {
    /// Registers and a stack copy; after the end of the copy, the kernel's callchain.
    Auto,
    /// The kernel's callchain alone, unwound by frame pointer.
    ///
    /// The kernel copies no stack. Callers of code without frame pointers are missing.
    FramePointers,
    /// Registers and a stack copy alone.
    StackCopy {
        /// Maximum size of the copy.
        bytes: u32,
    },
}

impl CallGraph {
    /// Maximum size of the stack copy in a record.
    ///
    /// A record has less than 64 KiB and also holds callchains of two times 127 addresses. The
    /// kernel copies only the existing stack. Measured on .NET: 4.7 KB in the median, 26 KB where
    /// exceptions are thrown; compilers reach the limit.
    pub const MAX_STACK_BYTES: u32 = 60 * 1024;

    /// Returns the number of bytes of user stack to copy, a multiple of 8.
    ///
    /// If it is 0, samples have neither a stack copy nor registers.
    #[must_use]
    pub fn stack_bytes(self) -> u32 {
        match self {
            Self::Auto => Self::MAX_STACK_BYTES,
            Self::FramePointers => 0,
            Self::StackCopy { bytes } => bytes.min(Self::MAX_STACK_BYTES).next_multiple_of(8),
        }
    }

    /// Whether the kernel unwinds the user stack by frame pointer.
    #[must_use]
    pub fn walks_frame_pointers(self) -> bool {
        !matches!(self, Self::StackCopy { .. })
    }
}
