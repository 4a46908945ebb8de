//! x86-64 UNWIND_INFO, in which the .NET runtime describes the prologue of each function.
//!
//! The Windows ABI specifies the format under "x64 exception handling". CoreCLR adds operation 11
//! on Unix. The codes are in reverse order of the prologue.

use crate::dotnet::Memory;
use crate::unwind::rule::{Base, UnwindRule};

/// Size of the header before the codes.
const HEADER_BYTES: usize = 4;
/// Maximum size of the codes. The count is one byte, each code has two.
const MAX_CODE_BYTES: usize = 255 * 2;
/// Size of the first read, which suffices for most functions.
const FIRST_READ_BYTES: usize = 64;
/// Register number of rbp. CoreCLR uses no other register as a frame pointer.
const RBP: u8 = 5;
/// Flag of a chained UNWIND_INFO. The runtime's compilers never chain.
const CHAINED: u8 = 4;

/// Validated UNWIND_INFO of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnwindInfo {
    /// Size of the prologue in bytes.
    prologue_bytes: u8,
    /// Frame offset of the header for operation 3, in units of 16 bytes.
    frame_offset: u8,
    codes: Box<[u8]>,
}

/// Effect of one prologue instruction.
enum UnwindCode {
    Push(u8),
    Allocate(u32),
    /// Sets the frame pointer to the stack pointer plus a value.
    SetFramePointer(u32),
    /// Saves a register without moving the stack pointer.
    Save,
}

impl UnwindInfo {
    /// Reads and validates the UNWIND_INFO of a function of `function_bytes` bytes.
    pub(super) fn read(memory: &impl Memory, address: u64, function_bytes: u64) -> Option<Self> {
        let mut bytes = [0; HEADER_BYTES + MAX_CODE_BYTES];
        let (first_bytes, _) = bytes.split_at_mut(FIRST_READ_BYTES);
        let read = memory.read(address, first_bytes);
        let [_, _, count, _] = *first_bytes.first_chunk()?;
        let size = HEADER_BYTES + usize::from(count) * 2;
        let bytes = bytes.get_mut(..size)?;
        if read < size && memory.read(address, bytes) != size {
            return None;
        }
        Self::parse(bytes, function_bytes)
    }

    /// Parses and validates `bytes`, which may be longer than the UNWIND_INFO.
    #[must_use]
    pub(super) fn parse(bytes: &[u8], function_bytes: u64) -> Option<Self> {
        let (&[version_and_flags, prologue_bytes, count, frame], rest) =
            bytes.split_first_chunk()?;
        let info = Self {
            prologue_bytes,
            frame_offset: frame >> 4,
            codes: rest.get(..usize::from(count) * 2)?.into(),
        };
        let is_valid = version_and_flags & 7 == 1
            && version_and_flags >> 3 & CHAINED == 0
            && matches!(frame & 0xf, 0 | RBP)
            && u64::from(prologue_bytes) <= function_bytes
            && info.operations().all(|operation| operation.is_some());
        is_valid.then_some(info)
    }

    /// Returns the size of the prologue in bytes.
    pub(super) fn prologue_bytes(&self) -> u64 {
        self.prologue_bytes.into()
    }

    /// Returns the rule at an offset from the function's start, outside epilogues.
    #[must_use]
    pub(super) fn rule_at(&self, offset: u64) -> Option<UnwindRule> {
        self.rule(offset, true)
    }

    /// Returns the rule at an offset from the function's start if rbp is unknown.
    ///
    /// It is wrong for a function that allocates on the stack after its prologue.
    pub(super) fn rule_by_stack_pointer(&self, offset: u64) -> Option<UnwindRule> {
        self.rule(offset, false)
    }

    fn rule(&self, offset: u64, by_frame_pointer: bool) -> Option<UnwindRule> {
        let (mut base, mut above) = (Base::Rsp, 0_i64);
        let mut saved_rbp = None;
        for operation in self.operations() {
            let (end, operation) = operation?;
            if u64::from(end) > offset {
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
                UnwindCode::SetFramePointer(offset) if by_frame_pointer => {
                    (base, above) = (Base::Rbp, -i64::from(offset))
                }
                UnwindCode::SetFramePointer(_) | UnwindCode::Save => {}
            }
        }
        let cfa = above + 8;
        match saved_rbp {
            // rbp was saved before the frame pointer was set, so its offset from there is unknown.
            Some((saved_base, _)) if saved_base != base => None,
            Some((_, saved)) => UnwindRule::new(base, cfa, Some(saved - cfa)),
            None => UnwindRule::new(base, cfa, None),
        }
    }

    /// Returns each operation with the end offset of its instruction, or `None` for an unknown one.
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
            let operand = match *operands {
                [[a, b]] => u32::from_le_bytes([a, b, 0, 0]),
                [[a, b], [c, d]] => u32::from_le_bytes([a, b, c, d]),
                _ => 0,
            };
            let operation = match (operation, info) {
                (0, _) => Some(UnwindCode::Push(info)),
                (1, 0) => Some(UnwindCode::Allocate(operand * 8)),
                (1, _) => Some(UnwindCode::Allocate(operand)),
                (2, _) => Some(UnwindCode::Allocate(u32::from(info) * 8 + 8)),
                (3, _) => Some(UnwindCode::SetFramePointer(
                    u32::from(self.frame_offset) * 16,
                )),
                (11, _) => operand.checked_mul(16).map(UnwindCode::SetFramePointer),
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

    /// `push rbp; push rbx; sub rsp, 0x18; lea rbp, [rsp+0x20]`, without and with FPREG in the
    /// codes.
    #[test]
    fn computes_rule_at_each_prologue_offset() {
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
        assert_eq!(framed.rule_by_stack_pointer(11), framed.rule_at(10));
        assert_eq!(framed.rule_by_stack_pointer(1), framed.rule_at(1));
    }

    #[test]
    fn decodes_large_frames() {
        // Operation 11 sets rbp = rsp + 16 * 40. Operation 1 occurs in both sizes.
        let codes = [16, 0x0b, 40, 0, 0, 0, 9, 0x01, 0x51, 0, 1, 0x50];
        let large = info(16, 0xf5, &codes).unwrap();
        assert_eq!(
            large.rule_at(16),
            rule(Base::Rbp, 0x288 + 16 - 640, Some(-16))
        );
        let huge = info(9, 0, &[9, 0x11, 0x40, 0x0d, 3, 0, 1, 0x50]).unwrap();
        assert_eq!(huge.rule_at(9), rule(Base::Rsp, 200_000 + 16, Some(-16)));
    }

    /// The codes of an on-stack-replacement method include the frame of tier 0.
    #[test]
    fn decodes_on_stack_replacement() {
        // push rbp (the copy) at 5, sub rsp 0x10 at 9. Tier 0: a frame of 0x40 + 8 bytes, push rbp.
        let codes = [9, 0x12, 5, 0x50, 0, 0x82, 0, 0x50];
        let osr = info(9, 0, &codes).unwrap();
        assert_eq!(osr.rule_at(0), rule(Base::Rsp, 0x48 + 16, Some(-16)));
        assert_eq!(
            osr.rule_at(9),
            rule(Base::Rsp, 0x48 + 16 + 8 + 0x10, Some(-16))
        );
    }

    #[test]
    fn rejects_unknown_and_truncated_codes() {
        for codes in [
            &[1, 0x0a][..],            // machine frame
            &[1, 0x06, 0, 0],          // epilogue codes of version 2
            &[1, 0x21, 0, 0],          // a size that does not exist
            &[1, 0x01],                // truncated
            &[1, 0x0b, 0, 0],          // truncated
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
        assert_eq!(UnwindInfo::parse(&[1, 0, 9, 0], 9), None, "truncated");
        assert_eq!(UnwindInfo::parse(&[0; 64], 9), None, "zeros");
    }

    #[test]
    fn reads_unwind_info_longer_than_first_read() {
        let mut bytes = vec![1, 200, 100, 0];
        bytes.extend((0..100).flat_map(|at| [200 - at, 0x02]));
        let image = |bytes| Image { start: 0x10, bytes };
        let info = UnwindInfo::read(&image(&bytes), 0x10, 500).unwrap();
        assert_eq!(info.rule_at(200), rule(Base::Rsp, 808, None));
        assert_eq!(UnwindInfo::read(&image(&bytes[..180]), 0x10, 500), None);
    }

    proptest! {
        #[test]
        fn accepts_arbitrary_bytes_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), offset in 0..300_u64) {
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
