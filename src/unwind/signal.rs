//! Frames that the kernel puts on the stack to run a signal handler.

use std::os::unix::fs::FileExt;

use rustc_hash::FxHashMap;

use crate::machine::Content;
use crate::trace::ModuleId;

/// Where a handler returns to: `mov rax, 15; syscall` (rt_sigreturn), in every C library.
const TRAMPOLINE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// The kernel saves at least a siginfo (128 bytes), a ucontext without its signal masks, and 512 bytes of vector registers.
const MIN_FRAME_BYTES: u64 = 512;
/// Places that are remembered; all are looked at anew when there are more.
const MAX_KNOWN: usize = 4096;

/// Places that large frames returned to, and whether a signal handler does.
#[derive(Default)]
pub(super) struct SignalFrames(FxHashMap<(ModuleId, u64), bool>);

impl SignalFrames {
    /// Whether a frame may be one of the kernel's. Spares most frames the look.
    pub(super) fn is_large_enough(bytes: u64) -> bool {
        bytes >= MIN_FRAME_BYTES
    }

    /// Whether the code at an offset of a file is what returns from a signal.
    pub(super) fn returns_from_signal(
        &mut self,
        id: ModuleId,
        content: &Content,
        offset: u64,
    ) -> bool {
        if self.0.len() >= MAX_KNOWN {
            self.0.clear();
        }
        *self.0.entry((id, offset)).or_insert_with(|| {
            let mut code = [0; TRAMPOLINE.len()];
            match content {
                Content::File(file) => {
                    file.read_exact_at(&mut code, offset).is_ok() && code == TRAMPOLINE
                }
                Content::Vdso(_) | Content::Unavailable(_) => false,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_trampoline_is_known_by_its_code() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0x90; 16]).unwrap();
        file.write_all(&TRAMPOLINE).unwrap();
        let content = Content::File(file);
        let mut signals = SignalFrames::default();
        let id = ModuleId(0);
        for _ in 0..2 {
            assert!(signals.returns_from_signal(id, &content, 16));
            assert!(!signals.returns_from_signal(id, &content, 15));
            assert!(!signals.returns_from_signal(id, &content, 20));
        }
    }
}
