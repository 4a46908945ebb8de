//! UNWIND_INFO of x86-64, in which the .NET runtime keeps how each function builds its frame.
//!
//! Format: "x64 exception handling" of the Windows ABI, and operation 11 that CoreCLR adds on Unix. Codes come in the
//! reverse order of the prologue: the first to undo is the first.

use super::rule::{Base, UnwindRule};
use crate::dotnet::Memory;

/// Bytes before the codes.
const HEADER_BYTES: usize = 4;
/// Codes are counted in a byte, two bytes each.
const MAX_CODE_BYTES: usize = 255 * 2;
/// Enough for most: one read.
const USUAL_BYTES: usize = 64;
/// Number of rbp. CoreCLR uses no other register as a frame pointer.
const RBP: u8 = 5;
/// Flag: the codes go on in another UNWIND_INFO. The runtime's compilers never chain.
const CHAINED: u8 = 4;

/// What the code of a function does to the frame in its prologue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnwindInfo {
    /// Bytes of the prologue.
    prologue_bytes: u8,
    /// In units of 16 bytes, from the header; operation 3 needs it.
    frame_offset: u8,
    codes: Box<[u8]>,
}

/// One thing that the prologue does.
enum UnwindCode {
    Push(u8),
    Allocate(u32),
    /// The frame pointer was set to the stack pointer plus this.
    SetFramePointer(u32),
    /// A register was saved without a move of the stack pointer.
    Save,
}

impl UnwindInfo {
    /// Reads and checks it for a function of `function_bytes`.
    pub(super) fn read(memory: &impl Memory, at: u64, function_bytes: u64) -> Option<Self> {
        let mut bytes = [0; HEADER_BYTES + MAX_CODE_BYTES];
        let (usual, _) = bytes.split_at_mut(USUAL_BYTES);
        let read = memory.read(at, usual);
        let [_, _, count, _] = *usual.first_chunk()?;
        let size = HEADER_BYTES + usize::from(count) * 2;
        let bytes = bytes.get_mut(..size)?;
        if read < size && memory.read(at, bytes) != size {
            return None;
        }
        Self::parse(bytes, function_bytes)
    }

    /// From the bytes, which may be more than it has.
    #[must_use]
    pub(super) fn parse(bytes: &[u8], function_bytes: u64) -> Option<Self> {
        let (&[version_and_flags, prologue_bytes, count, frame], rest) =
            bytes.split_first_chunk()?;
        let info = Self {
            prologue_bytes,
            frame_offset: frame >> 4,
            codes: rest.get(..usize::from(count) * 2)?.into(),
        };
        let sound = version_and_flags & 7 == 1
            && version_and_flags >> 3 & CHAINED == 0
            && matches!(frame & 0xf, 0 | RBP)
            && u64::from(prologue_bytes) <= function_bytes
            && info.operations().all(|operation| operation.is_some());
        sound.then_some(info)
    }

    /// Bytes of the prologue.
    pub(super) fn prologue_bytes(&self) -> u64 {
        self.prologue_bytes.into()
    }

    /// The rule at so many bytes from the function's start, outside epilogues.
    #[must_use]
    pub(super) fn rule_at(&self, offset: u64) -> Option<UnwindRule> {
        let (mut base, mut above) = (Base::Rsp, 0_i64);
        let mut saved_rbp = None;
        for operation in self.operations() {
            let (at, operation) = operation?;
            if u64::from(at) > offset {
                continue;
            }
            match operation {
                UnwindCode::Push(register) => {
                    if register == RBP {
                        saved_rbp = Some((base, above));
                    }
                    above += 8;
                }
                UnwindCode::Allocate(bytes) => above += i64::from(bytes),
                UnwindCode::SetFramePointer(offset) => {
                    (base, above) = (Base::Rbp, -i64::from(offset))
                }
                UnwindCode::Save => {}
            }
        }
        let cfa = above + 8;
        match saved_rbp {
            // Saved before the frame pointer was set, so not to be found from it.
            Some((of, _)) if of != base => None,
            Some((_, at)) => UnwindRule::new(base, cfa, Some(at - cfa)),
            None => UnwindRule::new(base, cfa, None),
        }
    }

    /// The operations with the offsets of the instructions behind them; `None` at one that is not known.
    fn operations(&self) -> impl Iterator<Item = Option<(u8, UnwindCode)>> {
        let (mut slots, _) = self.codes.as_chunks::<2>();
        std::iter::from_fn(move || {
            let (&[offset, code], rest) = slots.split_first()?;
            let (operation, info) = (code & 0xf, code >> 4);
            let used = match (operation, info) {
                (0 | 2 | 3, _) => 0,
                (1, 0) | (4 | 8, _) => 1,
                (1, 1) | (5 | 9 | 11, _) => 2,
                _ => usize::MAX,
            };
            let Some((operands, rest)) = rest.split_at_checked(used) else {
                slots = &[];
                return Some(None);
            };
            slots = rest;
            let number = match *operands {
                [[a, b]] => u32::from_le_bytes([a, b, 0, 0]),
                [[a, b], [c, d]] => u32::from_le_bytes([a, b, c, d]),
                _ => 0,
            };
            let operation = match (operation, info) {
                (0, _) => Some(UnwindCode::Push(info)),
                (1, 0) => Some(UnwindCode::Allocate(number * 8)),
                (1, _) => Some(UnwindCode::Allocate(number)),
                (2, _) => Some(UnwindCode::Allocate(u32::from(info) * 8 + 8)),
                (3, _) => Some(UnwindCode::SetFramePointer(
                    u32::from(self.frame_offset) * 16,
                )),
                (11, _) => number.checked_mul(16).map(UnwindCode::SetFramePointer),
                _ => Some(UnwindCode::Save),
            };
            Some(operation.map(|operation| (offset, operation)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dotnet::Image;
    use proptest::prelude::*;

    fn info(prologue: u8, frame: u8, codes: &[u8]) -> Option<UnwindInfo> {
        let header = [1 | 3 << 3, prologue, (codes.len() / 2) as u8, frame];
        UnwindInfo::parse(&[&header[..], codes].concat(), 0x100)
    }

    fn rule(base: Base, cfa: i64, rbp: Option<i64>) -> Option<UnwindRule> {
        UnwindRule::new(base, cfa, rbp)
    }

    /// `push rbp; push rbx; sub rsp, 0x18; lea rbp, [rsp+0x20]`, without and with FPREG in the codes.
    #[test]
    fn the_rule_follows_the_prologue() {
        let plain = info(11, 0, &[6, 0x22, 2, 0x30, 1, 0x50]).unwrap();
        let rules: Vec<_> = [0, 1, 2, 6, 60].map(|at| plain.rule_at(at)).into();
        assert_eq!(
            rules,
            [
                rule(Base::Rsp, 8, None),
                rule(Base::Rsp, 16, Some(-16)),
                rule(Base::Rsp, 24, Some(-16)),
                rule(Base::Rsp, 48, Some(-16)),
                rule(Base::Rsp, 48, Some(-16)),
            ]
        );
        let framed = info(11, 0x25, &[11, 0x03, 6, 0x22, 2, 0x30, 1, 0x50]).unwrap();
        assert_eq!(framed.rule_at(10), rule(Base::Rsp, 48, Some(-16)));
        assert_eq!(framed.rule_at(11), rule(Base::Rbp, 16, Some(-16)));
    }

    #[test]
    fn large_frames() {
        // Operation 11: rbp = rsp + 16 * 40; operation 1 in both sizes.
        let codes = [16, 0x0b, 40, 0, 0, 0, 9, 0x01, 0x51, 0, 1, 0x50];
        let large = info(16, 0xf5, &codes).unwrap();
        assert_eq!(
            large.rule_at(16),
            rule(Base::Rbp, 0x288 + 16 - 640, Some(-16))
        );
        let huge = info(9, 0, &[9, 0x11, 0x40, 0x0d, 3, 0, 1, 0x50]).unwrap();
        assert_eq!(huge.rule_at(9), rule(Base::Rsp, 200_000 + 16, Some(-16)));
    }

    /// The codes of an on-stack-replacement method hold the frame of tier 0, which is there from the start.
    #[test]
    fn on_stack_replacement() {
        // push rbp (the copy) at 5, sub rsp 0x10 at 9; tier 0: 0x40 + 8 of frame, push rbp.
        let codes = [9, 0x12, 5, 0x50, 0, 0x82, 0, 0x50];
        let osr = info(9, 0, &codes).unwrap();
        assert_eq!(osr.rule_at(0), rule(Base::Rsp, 0x48 + 16, Some(-16)));
        assert_eq!(
            osr.rule_at(9),
            rule(Base::Rsp, 0x48 + 16 + 8 + 0x10, Some(-16))
        );
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for codes in [
            &[1, 0x0a][..],            // machine frame
            &[1, 0x06, 0, 0],          // epilogue codes of version 2
            &[1, 0x21, 0, 0],          // a size that does not exist
            &[1, 0x01],                // cut
            &[1, 0x0b, 0, 0],          // cut
            &[1, 0x0b, 0, 0, 0, 0x20], // 16 * 2^29
        ] {
            assert_eq!(info(4, 0, codes), None, "{codes:x?}");
        }
        assert_eq!(info(4, 3, &[]), None, "frame register rbx");
        assert_eq!(UnwindInfo::parse(&[2, 0, 0, 0], 9), None, "version 2");
        assert_eq!(
            UnwindInfo::parse(&[1 | 4 << 3, 0, 0, 0], 9),
            None,
            "chained"
        );
        assert_eq!(UnwindInfo::parse(&[1, 10, 0, 0], 9), None, "prologue");
        assert_eq!(UnwindInfo::parse(&[1, 0, 9, 0], 9), None, "cut");
        assert_eq!(UnwindInfo::parse(&[0; 64], 9), None, "zeros");
    }

    #[test]
    fn long_ones_are_read_whole() {
        let mut bytes = vec![1, 200, 100, 0];
        bytes.extend((0..100).flat_map(|at| [200 - at, 0x02]));
        let image = |bytes| Image { start: 0x10, bytes };
        let info = UnwindInfo::read(&image(&bytes), 0x10, 500).unwrap();
        assert_eq!(info.rule_at(200), rule(Base::Rsp, 808, None));
        assert_eq!(UnwindInfo::read(&image(&bytes[..180]), 0x10, 500), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..600), offset in 0..300_u64) {
            for first in [bytes.first().copied().unwrap_or(0), 1] {
                let mut bytes = bytes.clone();
                if let Some(byte) = bytes.first_mut() { *byte = first; }
                if let Some(info) = UnwindInfo::read(&Image { start: 0, bytes: &bytes }, 0, u64::MAX) {
                    let _ = info.rule_at(offset);
                }
            }
        }
    }
}
