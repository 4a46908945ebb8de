//! Unwind rules, which compute the caller's frame from a frame.

/// Base register of a CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Base {
    Rsp,
    Rbp,
    /// The word at an offset from rsp contains the CFA, or an address near it.
    LinkAtRsp,
    /// The same, from rbp.
    LinkAtRbp,
    /// rbp points to the saved rbp, below the return address. The word at an offset from rbp
    /// contains the caller's stack pointer.
    FrameAtRbp,
}

/// Stack pointer and frame pointer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    pub(super) sp: u64,
    pub(super) bp: u64,
}

/// Reason why a rule found no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepError {
    /// The rule reads the stack at an address that is not available.
    NoStack(u64),
    /// The rule computes an address where no caller's frame can be.
    InvalidFrame,
}

/// Unwind rule of one instruction: the CFA as register plus offset, and where rbp was saved.
///
/// The canonical frame address (CFA) is the stack pointer after the return. The return address is
/// directly below it.
///
/// ```text
///             | ...            |
///      CFA -> +----------------+
///             | return address |  CFA - 8
///             | saved rbp      |  CFA + rbp_words * 8, usually -2
///             | ...            |
///      rsp -> +----------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindRule {
    /// Offset from the base register: of the CFA, or of the word that leads to it.
    pub(super) cfa: i32,
    /// Offset of the saved rbp in units of 8 bytes: from the CFA, or from the base register of a link;
    /// [`UNSAVED`] if rbp was not saved.
    pub(super) rbp_words: i16,
    pub(super) base: Base,
    /// Offset of the CFA from the content of a link, in units of 8 bytes.
    link_words: i8,
}

/// Offset of an rbp that was not saved.
const UNSAVED: i16 = i16::MIN;

const _: () = assert!(size_of::<UnwindRule>() == 8 && size_of::<Option<UnwindRule>>() == 8);

impl UnwindRule {
    /// The return address is on top of the stack: there is no frame yet, or no longer.
    pub(super) const RETURN: Self = Self {
        cfa: 8,
        rbp_words: UNSAVED,
        base: Base::Rsp,
        link_words: 0,
    };

    /// Creates a rule. `cfa` is relative to the base register, `saved_rbp` to the CFA.
    ///
    /// Returns `None` if no frame has this layout.
    pub(super) fn new(base: Base, cfa: i64, saved_rbp: Option<i64>) -> Option<Self> {
        let rbp_words = match saved_rbp {
            None => UNSAVED,
            // The return address occupies the word below the CFA.
            Some(offset) if offset > -16 || offset % 8 != 0 => return None,
            Some(offset) => i16::try_from(offset / 8).ok()?,
        };
        Some(Self {
            cfa: i32::try_from(cfa).ok()?,
            rbp_words,
            base,
            link_words: 0,
        })
    }

    /// Creates a rule of an aligned frame. A word at `link` from the base register contains an
    /// address, and the CFA is `beyond` bytes above that. `saved_rbp` is relative to the register.
    ///
    /// Returns `None` if no frame has this layout.
    pub(super) fn linked(
        base: Base,
        link: i64,
        beyond: i64,
        saved_rbp: Option<i64>,
    ) -> Option<Self> {
        let words = |bytes: i64| (bytes % 8 == 0).then_some(bytes / 8);
        Some(Self {
            cfa: i32::try_from(link).ok()?,
            rbp_words: match saved_rbp {
                None => UNSAVED,
                Some(offset) => i16::try_from(words(offset)?).ok()?,
            },
            base: match base {
                Base::Rsp | Base::LinkAtRsp => Base::LinkAtRsp,
                Base::Rbp | Base::LinkAtRbp => Base::LinkAtRbp,
                Base::FrameAtRbp => return None,
            },
            link_words: i8::try_from(words(beyond)?).ok()?,
        })
    }

    /// Creates a rule with the CFA at rsp plus `bytes` and rbp unchanged.
    pub(super) fn above_stack_pointer(bytes: i64) -> Option<Self> {
        (bytes >= 8)
            .then(|| Self::new(Base::Rsp, bytes, None))
            .flatten()
    }

    /// Creates a rule of a frame that does not end where that of the caller starts. The word at
    /// `link` from rbp contains the caller's stack pointer.
    pub(super) const fn framed(link: i32) -> Self {
        Self {
            cfa: link,
            rbp_words: 0,
            base: Base::FrameAtRbp,
            link_words: 0,
        }
    }

    /// Returns the return address and the caller's registers. `read` returns words of the stack.
    pub(super) fn step(
        self,
        registers: Registers,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Result<(u64, Registers), StepError> {
        let word = |address: Option<u64>| {
            let address = address.ok_or(StepError::InvalidFrame)?;
            read(address).ok_or(StepError::NoStack(address))
        };
        let (register, is_link) = match self.base {
            Base::Rsp => (registers.sp, false),
            Base::Rbp => (registers.bp, false),
            Base::LinkAtRsp => (registers.sp, true),
            Base::LinkAtRbp | Base::FrameAtRbp => (registers.bp, true),
        };
        let cfa = register.checked_add_signed(self.cfa.into());
        let cfa = match is_link {
            false => cfa,
            true => word(cfa)?.checked_add_signed(i64::from(self.link_words) * 8),
        };
        let cfa = cfa
            .filter(|cfa| *cfa > registers.sp && cfa % 8 == 0)
            .ok_or(StepError::InvalidFrame)?;
        let return_address = match self.base {
            Base::FrameAtRbp => word(register.checked_add(8))?,
            _ => word(cfa.checked_sub(8))?,
        };
        let bp = match self.rbp_words {
            UNSAVED => registers.bp,
            words => {
                let base = if is_link { register } else { cfa };
                word(base.checked_add_signed(i64::from(words) * 8))?
            }
        };
        Ok((return_address, Registers { sp: cfa, bp }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTERS: Registers = Registers {
        sp: 0x1000,
        bp: 0x1040,
    };

    /// Reads a stack whose words contain their own address plus 1. It ends at 0x1100.
    fn read(address: u64) -> Option<u64> {
        (address < 0x1100).then_some(address + 1)
    }

    #[test]
    fn computes_return_address_and_registers() {
        let step = |base, cfa, rbp| {
            UnwindRule::new(base, cfa, rbp)
                .unwrap()
                .step(REGISTERS, read)
        };
        let caller = |ra, sp, bp| Ok((ra, Registers { sp, bp }));
        assert_eq!(
            UnwindRule::RETURN.step(REGISTERS, read),
            caller(0x1001, 0x1008, 0x1040)
        );
        assert_eq!(step(Base::Rsp, 0x20, None), caller(0x1019, 0x1020, 0x1040));
        assert_eq!(
            step(Base::Rbp, 16, Some(-16)),
            caller(0x1049, 0x1050, 0x1041)
        );
    }

    #[test]
    fn reads_the_stack_pointer_of_the_caller() {
        let read = |address| match address {
            0x1038 => Some(0x1060),
            address => read(address),
        };
        let rule = UnwindRule::framed(-8);
        let caller = Registers {
            sp: 0x1060,
            bp: 0x1041,
        };
        assert_eq!(rule.step(REGISTERS, read), Ok((0x1049, caller)));
        let below = |address| (address != 0x1038).then_some(address);
        let missing = rule.step(REGISTERS, below);
        assert_eq!(missing, Err(StepError::NoStack(0x1038)));
    }

    #[test]
    fn rejects_invalid_frames() {
        let step = |base, cfa, rbp| {
            UnwindRule::new(base, cfa, rbp)
                .unwrap()
                .step(REGISTERS, read)
        };
        assert_eq!(step(Base::Rsp, 0, None), Err(StepError::InvalidFrame));
        assert_eq!(step(Base::Rbp, -0x40, None), Err(StepError::InvalidFrame));
        assert_eq!(step(Base::Rsp, 12, None), Err(StepError::InvalidFrame));
        assert_eq!(
            step(Base::Rsp, 0x200, None),
            Err(StepError::NoStack(0x11f8))
        );
        assert_eq!(UnwindRule::new(Base::Rsp, 16, Some(-8)), None);
        assert_eq!(UnwindRule::new(Base::Rsp, 16, Some(-17)), None);
        assert_eq!(UnwindRule::new(Base::Rsp, 1 << 40, None), None);
        assert_eq!(UnwindRule::new(Base::Rsp, 16, Some(-8 * 40_000)), None);
        let high = Registers {
            sp: u64::MAX - 7,
            bp: u64::MAX,
        };
        assert_eq!(
            UnwindRule::RETURN.step(high, read),
            Err(StepError::InvalidFrame)
        );
    }
}
