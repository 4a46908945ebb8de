//! How to get from a frame to its caller's.

/// The register that the place of the frame is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Base {
    Rsp,
    Rbp,
}

/// Two of a frame's registers; the third is the instruction pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::unwind) struct Registers {
    pub(in crate::unwind) sp: u64,
    pub(in crate::unwind) bp: u64,
}

/// Why a rule led nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::unwind) enum StepError {
    /// It needs the stack at an address where there is none.
    NoStack(u64),
    /// It leads to a place where no caller's frame can be.
    Nonsense,
}

/// The canonical frame address (where the stack pointer is after the return) as a register plus a number, and where the
/// caller's rbp was saved. The return address lies right below it.
///
/// ```text
///             | ...            |
///      CFA -> +----------------+
///             | return address |  CFA - 8
///             | saved rbp      |  CFA + rbp_words * 8, as a rule -2
///             | ...            |
///      rsp -> +----------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindRule {
    cfa: i32,
    /// In units of 8 bytes from the CFA; 0: rbp is the caller's still.
    rbp_words: i16,
    base: Base,
}

const _: () = assert!(size_of::<UnwindRule>() == 8 && size_of::<Option<UnwindRule>>() == 8);

impl UnwindRule {
    /// The return address is on top of the stack: no frame was made, or it is gone again.
    #[cfg(test)]
    pub(in crate::unwind) const RETURN: Self = Self {
        cfa: 8,
        rbp_words: 0,
        base: Base::Rsp,
    };

    /// `cfa` is relative to the base, `saved_rbp` to the CFA. `None`: no frame looks like that.
    pub(super) fn new(base: Base, cfa: i64, saved_rbp: Option<i64>) -> Option<Self> {
        let rbp_words = match saved_rbp {
            None => 0,
            // Between the return address and the CFA nothing was saved.
            Some(offset) if offset > -16 || offset % 8 != 0 => return None,
            Some(offset) => i16::try_from(offset / 8).ok()?,
        };
        Some(Self {
            cfa: i32::try_from(cfa).ok()?,
            rbp_words,
            base,
        })
    }

    /// The stack pointer plus a number, with rbp unchanged.
    pub(in crate::unwind) fn above_stack_pointer(bytes: i64) -> Option<Self> {
        (bytes >= 8)
            .then(|| Self::new(Base::Rsp, bytes, None))
            .flatten()
    }

    /// The caller's return address and registers. `read` gives words of the stack.
    pub(in crate::unwind) fn step(
        self,
        registers: Registers,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Result<(u64, Registers), StepError> {
        let base = match self.base {
            Base::Rsp => registers.sp,
            Base::Rbp => registers.bp,
        };
        let cfa = base
            .checked_add_signed(self.cfa.into())
            .filter(|cfa| *cfa > registers.sp && cfa % 8 == 0)
            .ok_or(StepError::Nonsense)?;
        let word = |at: Option<u64>| {
            let at = at.ok_or(StepError::Nonsense)?;
            read(at).ok_or(StepError::NoStack(at))
        };
        let return_address = word(cfa.checked_sub(8))?;
        let bp = match self.rbp_words {
            0 => registers.bp,
            words => word(cfa.checked_add_signed(i64::from(words) * 8))?,
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

    /// Each word of the stack holds its own address and 1; it ends at 0x1100.
    fn read(at: u64) -> Option<u64> {
        (at < 0x1100).then_some(at + 1)
    }

    #[test]
    fn a_rule_finds_the_caller() {
        let step = |base, cfa, rbp| {
            UnwindRule::new(base, cfa, rbp)
                .unwrap()
                .step(REGISTERS, read)
        };
        let at = |ra, sp, bp| Ok((ra, Registers { sp, bp }));
        assert_eq!(
            UnwindRule::RETURN.step(REGISTERS, read),
            at(0x1001, 0x1008, 0x1040)
        );
        assert_eq!(step(Base::Rsp, 0x20, None), at(0x1019, 0x1020, 0x1040));
        assert_eq!(step(Base::Rbp, 16, Some(-16)), at(0x1049, 0x1050, 0x1041));
    }

    #[test]
    fn nonsense_is_refused() {
        let step = |base, cfa, rbp| {
            UnwindRule::new(base, cfa, rbp)
                .unwrap()
                .step(REGISTERS, read)
        };
        assert_eq!(step(Base::Rsp, 0, None), Err(StepError::Nonsense));
        assert_eq!(step(Base::Rbp, -0x40, None), Err(StepError::Nonsense));
        assert_eq!(step(Base::Rsp, 12, None), Err(StepError::Nonsense));
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
            Err(StepError::Nonsense)
        );
    }
}
