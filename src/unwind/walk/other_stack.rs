//! Continues on the stack that a function has left for another one.
//!
//! The Go runtime runs some of its code, and C code, on the stack of the thread. The callers are on
//! the stack of the goroutine, of which a sample has no copy. rbp still leads there, and the
//! kernel's callchain has the return addresses that it found. Memory is not read later: the thread
//! has run on meanwhile.

use framehop::{FrameAddress, UnwindRegsNative};

use super::step::{CodeLocation, UnwindSource};
use super::{MAX_FRAMES, Walk};
use crate::trace::{CodeAddress, Doubt, ModuleId, Truncation};
use crate::unwind::analysis::{Certainty, Finding};
use crate::unwind::rule::UnwindRule;
use crate::unwind::uncovered::{MAX_CALL_BYTES, Source, called_distance};

/// A return address that rbp leads to.
struct Caller {
    location: CodeLocation,
    return_address: u64,
    id: ModuleId,
    svma: u64,
    finding: Finding,
}

impl Walk<'_> {
    /// Moves to the caller of a function that has changed to another stack, if the stack copy has
    /// its frame. Else `registers` stay as they are.
    ///
    /// The thread was on that stack already, or the other one follows it in memory.
    pub(super) fn caller_in_copy(
        &mut self,
        function: u64,
        registers: &mut UnwindRegsNative,
    ) -> Option<FrameAddress> {
        let frame = Some(registers.bp()).filter(|frame| *frame > registers.sp())?;
        let return_address = self.stack.copied(frame.checked_add(8)?)?;
        let bp = self.stack.copied(frame)?;
        let caller = self.checked_caller(return_address)?;
        self.stack.end_at_copy();
        self.doubt(Doubt::Likely);
        self.add_frameless_caller(function, &caller);
        *registers = UnwindRegsNative::new(return_address, frame.checked_add(16)?, bp);
        FrameAddress::from_return_address(return_address)
    }

    /// Adds the callers of a function that has changed to another stack, and has a value in rbp.
    pub(super) fn continue_on_other_stack(&mut self, function: u64, bp: u64) -> Option<Truncation> {
        let truncation = Some(Truncation::OtherStack);
        if self.sample.user_chain().nth(1).is_none() {
            // Only long stack copies come with a callchain.
            self.unwinder.stack_bytes = u64::MAX;
        }
        let mut without_frame = Some(function);
        let Some(return_addresses) = self.return_addresses_from(bp) else {
            return truncation;
        };
        for return_address in return_addresses {
            if self.leaf_first.len() >= MAX_FRAMES {
                return Some(Truncation::TooDeep);
            }
            let Some(caller) = self.checked_caller(return_address) else {
                return truncation;
            };
            if let Some(function) = without_frame.take() {
                self.doubt(Doubt::Likely);
                self.add_frameless_caller(function, &caller);
            }
            self.push(caller.location.code, return_address.wrapping_sub(1));
            match caller.finding {
                Finding::Root => return None,
                Finding::OtherStack(_) => return truncation,
                Finding::Caller(UnwindRule::RETURN, _) => without_frame = Some(caller.svma),
                Finding::Caller(..) => {}
            }
        }
        match self.sample.chain_is_full() {
            true => Some(Truncation::TooDeep),
            false => truncation,
        }
    }

    /// Returns the code at a return address, if rbp leads on from there: other code may keep
    /// something else in it.
    fn checked_caller(&mut self, return_address: u64) -> Option<Caller> {
        let location = self.locate(return_address.checked_sub(1)?)?;
        let UnwindSource::Elf(id, svma) = location.unwind_source else {
            return None;
        };
        match self.source(id, svma) {
            Source::Analysis(Finding::Caller(_, Certainty::Likely)) => None,
            Source::Analysis(finding) if self.follows_call(return_address) => Some(Caller {
                location,
                return_address,
                id,
                svma,
                finding,
            }),
            _ => None,
        }
    }

    /// Returns the return addresses of the callchain from the frame on that rbp points to.
    ///
    /// The kernel found them by following rbp from frame to frame. All frames before are in the
    /// stack copy.
    fn return_addresses_from(&self, bp: u64) -> Option<impl Iterator<Item = u64> + use<>> {
        // A branch stack has other addresses.
        let has_returns = self.sample.calls.is_empty();
        let mut chain = self.sample.user_chain().filter(|_| has_returns).skip(1);
        let mut frame = self.sample.registers?.bp;
        while frame != bp {
            let return_address = self.stack.copied(frame.checked_add(8)?)?;
            if chain.next()? != return_address {
                return None;
            }
            frame = self.stack.copied(frame)?;
        }
        Some(chain.collect::<Vec<_>>().into_iter())
    }

    /// Adds the function that called another one without a frame, before its own caller.
    ///
    /// rbp is that of the added function, so the callchain has the return address to its caller,
    /// which calls the function directly as a rule. If `function` starts there, it has a frame.
    fn add_frameless_caller(&mut self, function: u64, caller: &Caller) {
        let Caller { id, svma, .. } = *caller;
        let call = self.call_before::<MAX_CALL_BYTES>(id, svma);
        let Some(distance) = call.and_then(|call| called_distance(&call)) else {
            return;
        };
        let called = svma.wrapping_add(1).wrapping_add_signed(distance);
        if called == function {
            return;
        }
        let source = self.source(id, called);
        let entry = Finding::Caller(UnwindRule::RETURN, Certainty::Checked);
        if source == Source::Analysis(entry) {
            let address = caller.return_address.wrapping_add_signed(distance);
            self.push(CodeAddress::Elf(id, called), address);
        }
    }
}
