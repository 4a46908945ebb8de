//! Which register the CFA of an address is relative to.
//!
//! An unwinder that knows only the stack pointer and the frame pointer cannot evaluate the rows of
//! assembly that keeps the CFA in another register, as the epilogues of OpenSSL do.

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CfaRule, EhFrame,
    FrameDescriptionEntry, Register, UnwindContext, UnwindSection, X86_64,
};

use super::cie::has_small_cie;
use super::rule_time::{LITTLE, MAX_ENTRY_BYTES, Slice, eh_frame_of, fde_offset};
use super::unwind::UnwindSections;

impl UnwindSections {
    /// Returns whether the CFA at an address of an x86-64 file is relative to another register than
    /// `rsp` and `rbp`. Reads only files with an `.eh_frame_hdr`.
    #[must_use]
    pub fn has_other_cfa_register(&self, address: u64) -> bool {
        self.find_other_cfa_register(address).unwrap_or(false)
    }

    fn find_other_cfa_register(&self, address: u64) -> Option<bool> {
        let bases = self.bases();
        let section = self.eh_frame.as_ref()?;
        let offset = fde_offset(self.eh_frame_hdr.as_ref()?, &bases, address)?;
        if !has_small_cie(&section.data, LITTLE, offset.0) {
            return None;
        }
        let eh_frame = eh_frame_of(section);
        let fde = eh_frame.fde_from_offset(&bases, offset, EhFrame::cie_from_offset);
        let fde = fde.ok()?;
        let sizes = [fde.cie().entry_len(), fde.entry_len()];
        if sizes.iter().any(|&size| size > MAX_ENTRY_BYTES) || !sets_other(&eh_frame, &bases, &fde)
        {
            return None;
        }
        let mut context = UnwindContext::new();
        let row = fde.unwind_info_for_address(&eh_frame, &bases, &mut context, address);
        Some(match row.ok()?.cfa() {
            CfaRule::RegisterAndOffset { register, .. } => is_other(*register),
            CfaRule::Expression(_) => false,
        })
    }
}

/// Returns whether any row of a function may have another register. Most functions have none.
fn sets_other<'a>(
    section: &EhFrame<Slice<'a>>,
    bases: &BaseAddresses,
    fde: &FrameDescriptionEntry<Slice<'a>>,
) -> bool {
    let of_cie = fde.cie().instructions(section, bases);
    let of_fde = fde.instructions(section, bases);
    [of_cie, of_fde].into_iter().any(any_other)
}

fn any_other(mut instructions: CallFrameInstructionIter<'_, Slice<'_>>) -> bool {
    while let Ok(Some(instruction)) = instructions.next() {
        let (CallFrameInstruction::DefCfa { register, .. }
        | CallFrameInstruction::DefCfaSf { register, .. }
        | CallFrameInstruction::DefCfaRegister { register }) = instruction
        else {
            continue;
        };
        if is_other(register) {
            return true;
        }
    }
    false
}

fn is_other(register: Register) -> bool {
    register != X86_64::RSP && register != X86_64::RBP
}
