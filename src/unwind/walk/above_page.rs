//! Frames above an absent page of the stack, read when the thread may have moved on.
//!
//! A call must precede each return address. The first one must call the function of the frame
//! below, or the return address below it must still be there. The frames count only if they reach
//! the root.

use framehop::FrameAddress;

use super::step::UnwindSource;
use super::{Unwinder, Walk};
use crate::trace::Truncation;
use crate::unwind::live_stack::LiveStack;
use crate::unwind::uncovered::{MAX_CALL_BYTES, called_distance, ends_with_call};

/// Maximum size of a function without unwind information that a call names.
const MAX_FUNCTION_BYTES: u64 = 64 << 10;

impl Walk<'_> {
    /// Returns whether a return address above the page is that of the sample.
    ///
    /// `frame` is the called function, `sp` its stack pointer.
    pub(super) fn is_still_called(
        &mut self,
        live: &LiveStack,
        frame: FrameAddress,
        sp: u64,
        return_address: u64,
    ) -> bool {
        if self.doubt.is_some() {
            return false;
        }
        let is_first = self.below_absent_page.is_none();
        self.below_absent_page.get_or_insert(self.leaf_first.len());
        let call = return_address.checked_sub(1);
        let call = call.and_then(|call| self.locate(call));
        let code = call.and_then(|call| match call.unwind_source {
            UnwindSource::Elf(id, svma) => self.call_before::<MAX_CALL_BYTES>(id, svma),
            UnwindSource::File(_) | UnwindSource::Jit => None,
        });
        let Some(code) = code.filter(|code| ends_with_call(code)) else {
            return false;
        };
        !is_first
            || called_distance(&code).is_some_and(|distance| {
                let called = return_address.wrapping_add_signed(distance);
                self.is_start_of(called, frame.address_for_lookup())
            })
            || self.is_unchanged(live, sp.wrapping_sub(8))
    }

    /// Returns whether a called address is the start of the function at another address.
    fn is_start_of(&mut self, called: u64, address: u64) -> bool {
        let [called, address] = [called, address].map(|address| self.locate(address));
        let (Some(called), Some(address)) = (called, address) else {
            return false;
        };
        let (UnwindSource::Elf(id, start), UnwindSource::Elf(of, svma)) =
            (called.unwind_source, address.unwind_source)
        else {
            return false;
        };
        let Unwinder { modules, time, .. } = &mut *self.unwinder;
        let module = modules.read(id, self.process.files.file(id), time);
        match module.and_then(|module| module.function_start(svma)) {
            Some(function) => id == of && start == function,
            None => id == of && (start..start.saturating_add(MAX_FUNCTION_BYTES)).contains(&svma),
        }
    }

    /// Returns whether the process still has a word that was copied.
    fn is_unchanged(&self, live: &LiveStack, address: u64) -> bool {
        let copied = self.stack.copied(address);
        copied.is_some_and(|word| live.current(address) == Some(word))
    }

    /// Drops the frames above the absent page if they do not reach the root.
    pub(super) fn keep_rooted(&mut self, truncation: Option<Truncation>) -> Option<Truncation> {
        let (Some(_), Some(below)) = (truncation, self.below_absent_page) else {
            return truncation;
        };
        // There was no doubt below the page.
        self.doubt = None;
        self.leaf_first.truncate(below);
        let addresses = &mut self.unwinder.addresses;
        addresses.truncate(below.saturating_sub(self.first_user));
        Some(Truncation::AbsentPage)
    }
}
