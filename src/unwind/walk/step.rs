//! One step of a walk: from a frame to its caller, by what tells the way where the frame lies.

use framehop::{Error, FrameAddress, UnwindRegsNative, Unwinder as _};

use super::{Unwinder, Walk};
use crate::machine::{Backing, Mapping};
use crate::trace::{CodeAddress, ModuleId};
use crate::unwind::managed::{InFile, Registers, StepError, UnwindRule};
use crate::unwind::signal::Interrupted;

/// Where no stack is.
const NOWHERE: u64 = 8;

/// Where a user address lies.
pub(super) struct CodeLocation {
    pub(super) code: CodeAddress,
    pub(super) unwind_source: UnwindSource,
}

/// What tells the way to the caller.
#[derive(Clone, Copy)]
pub(super) enum UnwindSource {
    /// An ELF file: the address in its own terms.
    Elf(ModuleId, u64),
    /// Another file, or a part of an ELF file that its segments do not tell of.
    File(InFile),
    Jit,
}

impl Walk<'_> {
    /// Where the instruction at `address` lies.
    pub(super) fn place(&mut self, address: u64) -> Option<CodeLocation> {
        let host = &self.host;
        let mapping = host.maps.find(address)?;
        let Backing::File(id) = mapping.backing else {
            return Some(CodeLocation {
                code: CodeAddress::Jit(host.process, address),
                unwind_source: UnwindSource::Jit,
            });
        };
        let offset = Mapping::file_offset_of(mapping, address);
        let stated = self
            .unwinder
            .modules
            .segments(id, &host.files.file(id).content)
            .and_then(|segments| segments.address_of(offset));
        Some(match stated {
            Some(stated) => CodeLocation {
                code: CodeAddress::Elf(id, stated),
                unwind_source: UnwindSource::Elf(id, stated),
            },
            None => CodeLocation {
                code: CodeAddress::File(id, offset),
                unwind_source: UnwindSource::File(InFile {
                    file: id,
                    instruction: offset,
                    mapped_from: mapping.file_offset,
                }),
            },
        })
    }

    /// One step: the return address, with `state` moved to the caller; `None` at the root.
    pub(super) fn caller(
        &mut self,
        frame: FrameAddress,
        place: &CodeLocation,
        state: &mut UnwindRegsNative,
    ) -> Result<Option<u64>, Error> {
        let interrupted = !frame.is_return_address();
        let managed = &mut self.unwinder.managed;
        let rule = match place.unwind_source {
            UnwindSource::Elf(id, stated) => {
                if interrupted && let Some(rule) = self.instruction_rule(id, stated) {
                    return self.follow(rule, state);
                }
                return self.elf_caller(frame, id, stated, state);
            }
            UnwindSource::File(place) => managed.file_rule(&self.host, place, interrupted),
            UnwindSource::Jit => managed.jit_rule(&self.host, frame),
        };
        match rule {
            Some(rule) => self.follow(rule, state),
            None => self.by_frame_pointer(frame, state),
        }
    }

    /// One step where nothing tells the way.
    pub(super) fn by_frame_pointer(
        &mut self,
        frame: FrameAddress,
        state: &mut UnwindRegsNative,
    ) -> Result<Option<u64>, Error> {
        self.guessed = true;
        let stack = self.stack;
        let Unwinder {
            cache,
            frame_pointers,
            ..
        } = &mut *self.unwinder;
        let mut read = |address| stack.read(address).ok_or(());
        frame_pointers.unwind_frame(frame, state, cache, &mut read)
    }

    fn instruction_rule(&mut self, id: ModuleId, stated: u64) -> Option<UnwindRule> {
        let content = &self.host.files.file(id).content;
        let module = self.unwinder.modules.read(id, content)?;
        module.instruction_rule(stated)
    }

    fn follow(&self, rule: UnwindRule, state: &mut UnwindRegsNative) -> Result<Option<u64>, Error> {
        let registers = Registers {
            sp: state.sp(),
            bp: state.bp(),
        };
        match rule.step(registers, |address| self.stack.read(address)) {
            Ok((return_address, caller)) => {
                state.set_ip(return_address);
                state.set_sp(caller.sp);
                state.set_bp(caller.bp);
                Ok((return_address != 0).then_some(return_address))
            }
            Err(StepError::NoStack(address)) => Err(Error::CouldNotReadStack(address)),
            Err(StepError::Nonsense) => Err(Error::DidNotAdvance),
        }
    }

    fn elf_caller(
        &mut self,
        frame: FrameAddress,
        id: ModuleId,
        stated: u64,
        state: &mut UnwindRegsNative,
    ) -> Result<Option<u64>, Error> {
        let stack = self.stack;
        let mut read = |address| stack.read(address).ok_or(());
        let Unwinder { modules, cache, .. } = &mut *self.unwinder;
        let Some(module) = modules.read(id, &self.host.files.file(id).content) else {
            return Err(Error::DidNotAdvance);
        };
        let stated = if frame.is_return_address() {
            let return_address = stated.checked_add(1).ok_or(Error::IntegerOverflow)?;
            FrameAddress::from_return_address(return_address).ok_or(Error::ReturnAddressIsNull)?
        } else {
            FrameAddress::from_instruction_pointer(stated)
        };
        module
            .unwinder
            .unwind_frame(stated, state, cache, &mut read)
    }

    /// The code that a signal has interrupted, if the frame is the one that the kernel made for the handler. Unwind
    /// information tells of it by expressions that read memory, which framehop does not.
    pub(super) fn interrupted_by_signal(
        &mut self,
        frame: FrameAddress,
        place: &CodeLocation,
        sp: u64,
    ) -> Option<Interrupted> {
        let UnwindSource::Elf(id, stated) = place.unwind_source else {
            return None;
        };
        if !frame.is_return_address() {
            return None;
        }
        let interrupted = Interrupted::read(sp, |address| self.stack.read(address))?;
        let Unwinder {
            modules, signals, ..
        } = &mut *self.unwinder;
        let content = &self.host.files.file(id).content;
        let offset = modules
            .segments(id, content)
            .and_then(|segments| segments.file_offset_of(stated.checked_add(1)?));
        let returns = signals.returns_from_signal(id, content, offset?);
        returns.then_some(interrupted)
    }

    /// Whether no unwind information covers code of an ELF file: a caller there is sought by the frame pointer.
    pub(super) fn lacks_unwind_info(&mut self, place: &CodeLocation) -> bool {
        let caller = self.caller_without_stack(place);
        caller == Some(Err(Error::CouldNotReadStack(NOWHERE)))
    }

    /// How a frame of an ELF file would be left if there were no stack.
    pub(super) fn caller_without_stack(
        &mut self,
        place: &CodeLocation,
    ) -> Option<Result<Option<u64>, Error>> {
        let UnwindSource::Elf(id, stated) = place.unwind_source else {
            return None;
        };
        // A null frame pointer would mean the root.
        let mut nowhere = UnwindRegsNative::new(0, 0, NOWHERE);
        let frame = FrameAddress::from_return_address(stated.checked_add(1)?)?;
        Some(self.elf_caller(frame, id, stated, &mut nowhere))
    }
}
