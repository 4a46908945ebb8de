//! Frames that the kernel puts on the stack to run a signal handler.

use std::os::unix::fs::FileExt;

use rustc_hash::FxHashMap;

use crate::machine::Content;
use crate::trace::ModuleId;

/// Where a handler returns to: `mov rax, 15; syscall` (rt_sigreturn), in every C library.
const TRAMPOLINE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// Places that are remembered; all are looked at anew when there are more.
const MAX_KNOWN: usize = 4096;

/// Where the kernel saves registers, from the stack pointer of the trampoline on (`struct ucontext` of the kernel's
/// asm-generic/ucontext.h, `struct sigcontext_64` of its asm/sigcontext.h).
const SAVED_BP: u64 = 0x78;
const SAVED_SP: u64 = 0xa0;
const SAVED_IP: u64 = 0xa8;
const SAVED_SEGMENTS: u64 = 0xb8;
/// Of CS, GS, FS and SS the first and the last, which are the same in all 64-bit programs.
const CS_AND_SS: u64 = 0xffff_0000_0000_ffff;
const USER_CS_AND_SS: u64 = 0x002b_0000_0000_0033;

/// The registers of code that a signal has interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interrupted {
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
}

impl Interrupted {
    /// What the kernel has saved above `sp`, if that looks like it.
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

/// Places that frames with saved registers returned to, and whether a signal handler does.
#[derive(Default)]
pub(super) struct SignalFrames(FxHashMap<(ModuleId, u64), bool>);

impl SignalFrames {
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
    fn saved_registers_are_known_by_the_segments() {
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
