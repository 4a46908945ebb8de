//! What a sample brings to find the callers with.

/// Where the callers on a user stack come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallGraph {
    /// From registers and a copy of the stack; where the copy ends, from the kernel's walk along the frame pointers.
    Auto,
    /// From the kernel's walk along the frame pointers alone: nothing is copied, and callers of code without a frame
    /// pointer are missing.
    FramePointers,
    /// From registers and a copy of the stack alone.
    StackCopy {
        /// Bytes that are copied at most.
        bytes: u32,
    },
}

impl CallGraph {
    /// Most bytes of stack that go into a record, which is below 64 KiB and has callchains of two times 127 addresses besides.
    /// The kernel copies what there is: measured on .NET 4.7 KB in the median, 26 KB where exceptions are thrown;
    /// compilers reach the limit.
    pub const MAX_STACK_BYTES: u32 = 60 * 1024;

    /// Bytes of user stack to copy, a multiple of 8; 0: none, and no registers.
    #[must_use]
    pub fn stack_bytes(self) -> u32 {
        match self {
            Self::Auto => Self::MAX_STACK_BYTES,
            Self::FramePointers => 0,
            Self::StackCopy { bytes } => bytes.min(Self::MAX_STACK_BYTES).next_multiple_of(8),
        }
    }

    /// Whether the kernel walks the user stack.
    #[must_use]
    pub fn walks_frame_pointers(self) -> bool {
        !matches!(self, Self::StackCopy { .. })
    }
}
