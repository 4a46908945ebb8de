//! Signal frames: the registers that the kernel saves on the stack to run a signal handler.

use std::os::unix::fs::FileExt;

use rustc_hash::FxHashMap;

use crate::machine::Content;
use crate::trace::ModuleId;

/// Return target of handlers in every C library: `mov rax, 15; syscall` (rt_sigreturn).
const TRAMPOLINE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// Maximum number of cached code locations. The cache is cleared when it is full.
const MAX_CACHED: usize = 4096;

// Offsets of the saved registers from the stack pointer of the trampoline: `struct ucontext` of the
// kernel's asm-generic/ucontext.h and `struct sigcontext_64` of its asm/sigcontext.h.
const SAVED_BP: u64 = 0x78;
const SAVED_SP: u64 = 0xa0;
const SAVED_IP: u64 = 0xa8;
const SAVED_SEGMENTS: u64 = 0xb8;
/// Mask for CS and SS in the saved CS, GS, FS and SS. All 64-bit programs have the same CS and SS.
const CS_AND_SS: u64 = 0xffff_0000_0000_ffff;
const USER_CS_AND_SS: u64 = 0x002b_0000_0000_0033;

/// Registers of the code that a signal interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interrupted {
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
}

impl Interrupted {
    /// Reads the registers saved above `sp`.
    ///
    /// Returns `None` if the saved CS and SS are not those of user code.
    pub(super) fn read(sp: u64, stack: impl Fn(u64) -> Option<u64>) -> Option<Self> {
        let saved = |offset| stack(sp.checked_add(offset)?);
        if saved(SAVED_SEGMENTS)? & CS_AND_SS != USER_CS_AND_SS {
            return None;
        }
        Some(Self {
            ip: saved(SAVED_IP)?,
            sp: saved(SAVED_SP)?,
            bp: saved(SAVED_BP)?,
        })
    }
}

/// Cache by code location: whether a location is a signal trampoline.
#[derive(Default)]
pub(super) struct SignalFrames(FxHashMap<(ModuleId, u64), bool>);

impl SignalFrames {
    /// Returns whether the code at a file offset is a signal trampoline.
    pub(super) fn returns_from_signal(
        &mut self,
        id: ModuleId,
        content: &Content,
        offset: u64,
    ) -> bool {
        if self.0.len() >= MAX_CACHED {
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
    fn identifies_saved_registers_by_segments() {
        let read = |segments: u64| {
            Interrupted::read(0x1000, |address| match address - 0x1000 {
                SAVED_SEGMENTS => Some(segments),
                offset => Some(offset),
            })
        };
        let interrupted = Interrupted {
            ip: SAVED_IP,
            sp: SAVED_SP,
            bp: SAVED_BP,
        };
        assert_eq!(read(0x002b_0000_0000_0033), Some(interrupted));
        assert_eq!(read(0x002b_1234_5678_0033), Some(interrupted));
        assert_eq!(read(0x7fff_0000_0000_0033), None);
        assert_eq!(Interrupted::read(u64::MAX, Some), None);
        assert_eq!(Interrupted::read(0, |_| None), None);
    }

    #[test]
    fn identifies_trampoline_by_its_code() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0x90; 16]).unwrap();
        file.write_all(&TRAMPOLINE).unwrap();
        let content = Content::File(file.into());
        let mut signals = SignalFrames::default();
        let id = ModuleId(0);
        for _ in 0..2 {
            assert!(signals.returns_from_signal(id, &content, 16));
            assert!(!signals.returns_from_signal(id, &content, 15));
            assert!(!signals.returns_from_signal(id, &content, 20));
        }
    }
}
