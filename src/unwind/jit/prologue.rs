//! Rules from the prologues of methods that HotSpot compiles.
//!
//! After its prologue, such a method never moves the stack pointer, except to call. So the frame
//! has the same size everywhere, also where no return is near. The prologues are too special to be
//! found elsewhere (c1_MacroAssembler_x86.cpp, `build_frame`; macroAssembler_x86.cpp,
//! `verified_entry`).
//!
//! ```text
//! 89 84 24 ...    mov [rsp-n], eax    touches the stack that callees need; then
//! 55              push rbp
//! 48 83 ec n      sub rsp, n
//!
//! 48 83 ec n      sub rsp, n          methods that call nothing
//! 48 89 6c 24 m   mov [rsp+m], rbp    m = n - 8
//! ```

use memchr::memrchr2;

use crate::unwind::rule::{Base, UnwindRule};

/// Second byte of `mov [rsp-n], eax`.
const TOUCH: u8 = 0x84;
/// Third byte of `sub rsp, n`.
const SUBTRACT: u8 = 0xec;

/// Number of bytes before an instruction that may contain the prologue: of most methods, and of
/// long ones.
pub(super) const LENGTHS: [u64; 2] = [2 << 10, 16 << 10];

/// Returns whether a rule may be that of a method with such a prologue.
pub(super) fn is_possible(rule: UnwindRule) -> bool {
    rule_of(rule.cfa.into()) == Some(rule)
}

/// Returns the rule at the end of some code, from the last prologue in it.
pub(super) fn rule(code: &[u8]) -> Option<UnwindRule> {
    let mut end = code.len();
    while let Some(found) = memrchr2(TOUCH, SUBTRACT, code.get(..end)?) {
        end = found;
        let before = match code.get(found) {
            Some(&TOUCH) => 1,
            _ => 2,
        };
        let prologue = found.checked_sub(before).and_then(|at| code.get(at..));
        if let Some(rule) = prologue.and_then(frame_rule) {
            return rule;
        }
    }
    None
}

/// Returns the rule after a prologue. Returns `Some(None)` after one that sets up another frame.
fn frame_rule(code: &[u8]) -> Option<Option<UnwindRule>> {
    match *code {
        // The touched word is below the stack pointer.
        [0x89, 0x84, 0x24, _, _, _, 0xff, 0x55, ref rest @ ..] => {
            let size = moved(rest).and_then(|(size, _)| size.checked_add(16));
            Some(size.and_then(rule_of))
        }
        [0x48, 0x81 | 0x83, 0xec, ..] => {
            let (size, rest) = moved(code)?;
            let slot = match *rest {
                [0x48, 0x89, 0x6c, 0x24, slot, ..] => i64::from(slot as i8),
                [0x48, 0x89, 0xac, 0x24, a, b, c, d, ..] => {
                    i64::from(i32::from_le_bytes([a, b, c, d]))
                }
                _ => return None,
            };
            (slot == size - 8).then(|| rule_of(size + 8))
        }
        _ => None,
    }
}

/// Returns by how much `sub rsp, n` moves the stack pointer, and the code after it.
fn moved(code: &[u8]) -> Option<(i64, &[u8])> {
    match *code {
        [0x48, 0x83, 0xec, bytes, ref rest @ ..] => Some((i64::from(bytes as i8), rest)),
        [0x48, 0x81, 0xec, a, b, c, d, ref rest @ ..] => {
            Some((i64::from(i32::from_le_bytes([a, b, c, d])), rest))
        }
        _ => None,
    }
}

fn rule_of(size: i64) -> Option<UnwindRule> {
    (size >= 16).then(|| UnwindRule::new(Base::Rsp, size, Some(-16)))?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CALLER: [u8; 12] = [
        0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff, 0x55, 0x48, 0x83, 0xec, 0x30,
    ];
    const LEAF: [u8; 12] = [
        0x48, 0x81, 0xec, 0x28, 0, 0, 0, 0x48, 0x89, 0x6c, 0x24, 0x20,
    ];

    fn frame(cfa: i64) -> Option<UnwindRule> {
        UnwindRule::new(Base::Rsp, cfa, Some(-16))
    }

    #[test]
    fn finds_the_last_prologue() {
        let more = [0x90; 40];
        assert_eq!(rule(&CALLER), frame(0x40));
        assert_eq!(rule(&[&more, &CALLER[..], &more].concat()), frame(0x40));
        assert_eq!(rule(&[&CALLER[..], &LEAF, &more].concat()), frame(0x30));
        assert_eq!(rule(&[&LEAF[..], &CALLER, &more].concat()), frame(0x40));
        assert_eq!(rule(&more), None);
        // The last method has a frame pointer: mov rbp, rsp.
        let framed = [&CALLER[..8], &[0x48, 0x8b, 0xec]].concat();
        assert_eq!(rule(&[&CALLER[..], &framed].concat()), None);
    }

    proptest! {
        #[test]
        fn accepts_arbitrary_bytes_without_panic(
            start in 0..4_usize, code in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let prologues = [&CALLER[..8], &LEAF[..3], &LEAF[..7], &[]];
            let _ = rule(&[prologues[start], &code].concat());
        }
    }
}
