//! Unwind rules from the instructions of a prologue, for functions without readable UNWIND_INFO.
//!
//! The rules equal those of the UNWIND_INFO, except in bodies of on-stack-replacement methods.

use super::instruction::{Effect, RBP, decode};
use crate::unwind::rule::{Base, UnwindRule};

/// Maximum number of decoded bytes. Prologues have up to about 60.
pub(super) const MAX_BYTES: usize = 256;
/// First instructions of an on-stack-replacement method: `mov rax, [rbp]; push rax`.
const REPLACEMENT: [u8; 5] = [0x48, 0x8b, 0x45, 0x00, 0x50];

/// Returns the rule at an offset in a function whose `code` is given from its start.
#[must_use]
pub(super) fn rule(code: &[u8], offset: u64) -> Option<UnwindRule> {
    let is_replacement = code.starts_with(&REPLACEMENT);
    // Offsets of the CFA from rsp and from rbp, once rbp is set, and of the saved rbp from the CFA.
    let (mut depth, mut frame, mut saved_rbp) = (8_i64, None, None);
    let mut probed = None;
    let mut end = 0;
    for instruction in decode(code.get(..MAX_BYTES).unwrap_or(code)) {
        end += instruction.bytes as u64;
        if end > offset {
            break;
        }
        match instruction.effect {
            Effect::Push(register) => {
                depth += 8;
                if register == Some(RBP) && saved_rbp.is_none() {
                    saved_rbp = Some(-depth);
                }
            }
            Effect::MoveStack(bytes) if bytes < 0 => depth -= i64::from(bytes),
            Effect::ProbeFromStack(bytes) => probed = Some(depth - i64::from(bytes)),
            Effect::StackFromProbe => depth = probed?,
            // A call to the stack probe of a large frame. Other calls follow the prologue.
            Effect::Call if probed.is_some_and(|probed| probed != depth) => {}
            Effect::FrameFromStack(bytes) => frame = Some(depth - i64::from(bytes)),
            Effect::None => {}
            _ => break,
        }
    }
    if is_replacement {
        // The frame of tier 0 still exists, and rbp is its frame pointer.
        return frame
            .is_none()
            .then(|| UnwindRule::new(Base::Rbp, 16, Some(-16)))?;
    }
    match frame {
        Some(cfa) => UnwindRule::new(Base::Rbp, cfa, saved_rbp),
        None => UnwindRule::new(Base::Rsp, depth, saved_rbp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn computes_rules_of_frame_with_rbp() {
        // push rbp; push rbx; sub rsp, 0x18; lea rbp, [rsp+0x20]; xor eax, eax; call
        let code = [
            0x55, 0x53, 0x48, 0x83, 0xec, 0x18, 0x48, 0x8d, 0x6c, 0x24, 0x20, 0x33, 0xc0, 0xe8, 0,
            0, 0, 0,
        ];
        for (offset, expected) in [
            (0, UnwindRule::new(Base::Rsp, 8, None)),
            (1, UnwindRule::new(Base::Rsp, 16, Some(-16))),
            (2, UnwindRule::new(Base::Rsp, 24, Some(-16))),
            (6, UnwindRule::new(Base::Rsp, 48, Some(-16))),
            (11, UnwindRule::new(Base::Rbp, 16, Some(-16))),
            (99, UnwindRule::new(Base::Rbp, 16, Some(-16))),
        ] {
            assert_eq!(rule(&code, offset), expected, "{offset}");
        }
    }

    #[test]
    fn computes_rules_without_rbp_and_without_frame() {
        // push rax; vzeroupper; call
        let code = [
            0x50, 0xc5, 0xf8, 0x77, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xec, 8,
        ];
        assert_eq!(rule(&code, 50), UnwindRule::new(Base::Rsp, 16, None));
        assert_eq!(rule(&[0x48, 0x8b, 0xc7, 0xc3], 3), Some(UnwindRule::RETURN));
    }

    #[test]
    fn computes_rules_of_probed_frame() {
        // push rbp; lea r11, [rsp-0x2000]; call; mov rsp, r11; lea rbp, [rsp+0x2000]; call
        let code = [
            0x55, 0x4c, 0x8d, 0x9c, 0x24, 0, 0xe0, 0xff, 0xff, 0xe8, 0, 0, 0, 0, 0x49, 0x8b, 0xe3,
            0x48, 0x8d, 0xac, 0x24, 0, 0x20, 0, 0, 0xe8, 0, 0, 0, 0,
        ];
        assert_eq!(rule(&code, 14), UnwindRule::new(Base::Rsp, 16, Some(-16)));
        assert_eq!(
            rule(&code, 17),
            UnwindRule::new(Base::Rsp, 0x2010, Some(-16))
        );
        assert_eq!(rule(&code, 60), UnwindRule::new(Base::Rbp, 16, Some(-16)));
    }

    #[test]
    fn identifies_on_stack_replacement_before_it_sets_rbp() {
        let code = [
            0x48, 0x8b, 0x45, 0, 0x50, 0x48, 0x83, 0xec, 0x10, 0x48, 0x8b, 0xec, 0xe8, 0, 0, 0, 0,
        ];
        assert_eq!(rule(&code, 5), UnwindRule::new(Base::Rbp, 16, Some(-16)));
        assert_eq!(rule(&code, 12), None);
    }

    proptest! {
        #[test]
        fn accepts_arbitrary_bytes_without_panic(code in proptest::collection::vec(any::<u8>(), 0..300), offset in 0..300_u64) {
            let _ = rule(&code, offset);
        }
    }
}
