//! One step of a stack walk: finds the caller of a frame by the unwind source of its code.

use framehop::{Error, FrameAddress, UnwindRegsNative, Unwinder as _};

use super::{Unwinder, Walk};
use crate::machine::{Backing, Mapping};
use crate::perf::UNKNOWN_FRAME_POINTER;
use crate::trace::{CodeAddress, Doubt, ModuleId};
use crate::unwind::analysis::{Certainty, Finding};
use crate::unwind::jit::JitFrame;
use crate::unwind::managed::{InFile, SampledProcess};
use crate::unwind::rule::{Registers, StepError, UnwindRule};
use crate::unwind::signal::Interrupted;
use crate::unwind::uncovered::{Source, code_before, follows_system_call};

/// Location of a user address: its code, and the source of its unwind information.
pub(super) struct CodeLocation {
    pub(super) code: CodeAddress,
    pub(super) unwind_source: UnwindSource,
}

/// Source of unwind information for an address.
#[derive(Clone, Copy)]
pub(super) enum UnwindSource {
    /// An ELF file, with the SVMA.
    Elf(ModuleId, u64),
    /// Another file, or a part of an ELF file outside its load segments.
    File(InFile),
    /// JIT memory.
    Jit,
}

impl Unwinder {
    /// Returns the location of an address, or `None` if no code is mapped there.
    pub(super) fn locate(
        &mut self,
        process: &SampledProcess<'_>,
        address: u64,
    ) -> Option<CodeLocation> {
        let mapping = process.maps.find(address)?;
        let Backing::File(id) = mapping.backing else {
            return Some(CodeLocation {
                code: CodeAddress::Jit(process.process, address),
                unwind_source: UnwindSource::Jit,
            });
        };
        let offset = Mapping::file_offset_of(mapping, address);
        let svma = self
            .modules
            .segments(id, process.files.file(id), &mut self.time)
            .and_then(|segments| segments.svma_of(offset));
        Some(match svma {
            Some(svma) => CodeLocation {
                code: CodeAddress::Elf(id, svma),
                unwind_source: UnwindSource::Elf(id, svma),
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
}

impl Walk<'_> {
    /// Unwinds one frame: moves `state` to the caller and returns the return address.
    ///
    /// Returns `Ok(None)` at the root.
    pub(super) fn caller(
        &mut self,
        frame: FrameAddress,
        location: &CodeLocation,
        state: &mut UnwindRegsNative,
    ) -> Result<Option<u64>, Error> {
        let called = *state;
        let caller = self.caller_by_rule(frame, location, state);
        if caller.is_ok() || called.bp() != UNKNOWN_FRAME_POINTER {
            return caller;
        }
        *state = called;
        self.caller_by_stack_pointer(frame, location, state)
            .unwrap_or(caller)
    }

    fn caller_by_rule(
        &mut self,
        frame: FrameAddress,
        location: &CodeLocation,
        state: &mut UnwindRegsNative,
    ) -> Result<Option<u64>, Error> {
        let interrupted = !frame.is_return_address();
        let Unwinder { managed, time, .. } = &mut *self.unwinder;
        let rule = match location.unwind_source {
            UnwindSource::Elf(id, svma) => {
                if self.unwinder.uncovered.is_covered((id, svma)) {
                    return self.elf_caller(frame, id, svma, state);
                }
                if interrupted && let Some(rule) = self.instruction_rule(id, svma) {
                    return self.apply(rule, state);
                }
                return match self.source(id, svma) {
                    Source::UnwindInformation => self.elf_caller(frame, id, svma, state),
                    Source::Analysis(finding) => {
                        self.analyzed_caller(finding, frame, (id, svma), state)
                    }
                    Source::None => self.likely_caller(frame, state),
                };
            }
            UnwindSource::File(location) => {
                managed.file_rule(&self.process, location, interrupted, time)
            }
            UnwindSource::Jit => match managed.jit_rule(&self.process, frame) {
                None => return self.jit_caller(frame, state),
                rule => rule,
            },
        };
        match rule {
            Some(rule) => self.apply(rule, state),
            None => self.by_frame_pointer(frame, state),
        }
    }

    /// Unwinds one frame whose frame pointer is unknown. Returns `None` if nothing is known about its
    /// size.
    fn caller_by_stack_pointer(
        &mut self,
        frame: FrameAddress,
        location: &CodeLocation,
        state: &mut UnwindRegsNative,
    ) -> Option<Result<Option<u64>, Error>> {
        let UnwindSource::Elf(id, svma) = location.unwind_source else {
            let rule = self.managed_rule_by_stack_pointer(frame, location)?;
            return Some(self.apply(rule, state));
        };
        let Unwinder {
            modules, uncovered, ..
        } = &mut *self.unwinder;
        let finding = uncovered.analyzed((id, svma), self.process.files, modules)?;
        Some(self.analyzed_caller(finding, frame, (id, svma), state))
    }

    /// Unwinds one frame by the frame pointer, for code without unwind information.
    ///
    /// See [`super::guesses`].
    pub(super) fn by_frame_pointer(
        &mut self,
        frame: FrameAddress,
        state: &mut UnwindRegsNative,
    ) -> Result<Option<u64>, Error> {
        if state.bp() == UNKNOWN_FRAME_POINTER {
            return Err(Error::CouldNotReadStack(UNKNOWN_FRAME_POINTER));
        }
        self.guesses.add(self.leaf_first.len());
        self.doubt(Doubt::Guessed);
        let stack = self.stack;
        let Unwinder {
            cache,
            frame_pointers,
            ..
        } = &mut *self.unwinder;
        let mut read = |address| stack.read(address).ok_or(());
        frame_pointers.unwind_frame(frame, state, cache, &mut read)
    }

    /// Returns what the instructions of JIT code show about a frame, if no runtime describes it.
    fn jit_frame(&mut self, address: u64) -> Option<JitFrame> {
        let Unwinder {
            managed, jit, time, ..
        } = &mut *self.unwinder;
        match managed.describes(self.process.process) {
            true => None,
            false => jit.at(&self.process, address, time),
        }
    }

    /// Unwinds one frame of JIT code that no runtime describes.
    fn jit_caller(
        &mut self,
        frame: FrameAddress,
        state: &mut UnwindRegsNative,
    ) -> Result<Option<u64>, Error> {
        let jit_frame = self.jit_frame(frame.address());
        let rule = jit_frame.and_then(|frame| frame.rule);
        if let Some((rule, certainty)) = rule {
            let mut unwound = *state;
            match self.apply(rule, &mut unwound) {
                Ok(Some(caller)) if self.follows_call(caller) => {
                    if certainty != Certainty::Checked {
                        self.doubt(Doubt::Likely);
                    }
                    *state = unwound;
                    return Ok(Some(caller));
                }
                Err(error @ Error::CouldNotReadStack(address))
                    if self.stack.ends_before(address) =>
                {
                    return Err(error);
                }
                _ => {}
            }
        }
        if jit_frame.is_some() {
            self.guesses.doubt_if_repeated(self.leaf_first.len());
        }
        self.by_frame_pointer(frame, state)
    }

    /// Returns the rule of a .NET frame whose frame pointer is unknown.
    fn managed_rule_by_stack_pointer(
        &mut self,
        frame: FrameAddress,
        location: &CodeLocation,
    ) -> Option<UnwindRule> {
        let Unwinder { managed, time, .. } = &mut *self.unwinder;
        match location.unwind_source {
            UnwindSource::Jit => managed.jit_rule_by_stack_pointer(&self.process, frame),
            UnwindSource::File(location) => {
                let interrupted = !frame.is_return_address();
                managed.file_rule_by_stack_pointer(&self.process, location, interrupted, time)
            }
            UnwindSource::Elf(..) => None,
        }
    }

    fn instruction_rule(&mut self, id: ModuleId, svma: u64) -> Option<UnwindRule> {
        let Unwinder { modules, time, .. } = &mut *self.unwinder;
        let module = modules.read(id, self.process.files.file(id), time)?;
        module.instruction_rule(svma)
    }

    fn apply(&self, rule: UnwindRule, state: &mut UnwindRegsNative) -> Result<Option<u64>, Error> {
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
            Err(StepError::InvalidFrame) => Err(Error::DidNotAdvance),
        }
    }

    fn elf_caller(
        &mut self,
        frame: FrameAddress,
        id: ModuleId,
        svma: u64,
        state: &mut UnwindRegsNative,
    ) -> Result<Option<u64>, Error> {
        let stack = self.stack;
        let mut read = |address| stack.read(address).ok_or(());
        let Unwinder {
            modules,
            cache,
            time,
            ..
        } = &mut *self.unwinder;
        let file = self.process.files.file(id);
        let Some((module, rule_time)) = modules.at(id, file, svma, time) else {
            return self.by_frame_pointer(frame, state);
        };
        let svma = if frame.is_return_address() {
            let return_address = svma.checked_add(1).ok_or(Error::IntegerOverflow)?;
            FrameAddress::from_return_address(return_address).ok_or(Error::ReturnAddressIsNull)?
        } else {
            FrameAddress::from_instruction_pointer(svma)
        };
        let unwinder = &module.unwinder;
        let Some(rule_time) = rule_time else {
            return unwinder.unwind_frame(svma, state, cache, &mut read);
        };
        let misses = cache.stats().misses();
        let caller = unwinder.unwind_frame(svma, state, cache, &mut read);
        if cache.stats().misses() > misses {
            rule_time.charge(time);
        }
        caller
    }

    /// Returns the registers of the code that a signal interrupted, if the frame is a signal frame.
    ///
    /// C libraries describe this frame with DWARF expressions that read memory, which framehop does
    /// not support.
    pub(super) fn interrupted_by_signal(
        &mut self,
        frame: FrameAddress,
        location: &CodeLocation,
        sp: u64,
    ) -> Option<Interrupted> {
        let UnwindSource::Elf(id, svma) = location.unwind_source else {
            return None;
        };
        if !frame.is_return_address() {
            return None;
        }
        let interrupted = Interrupted::read(sp, |address| self.stack.copied(address))?;
        let Unwinder {
            modules,
            signals,
            time,
            ..
        } = &mut *self.unwinder;
        let file = self.process.files.file(id);
        let offset = modules
            .segments(id, file, time)
            .and_then(|segments| segments.file_offset_of(svma.checked_add(1)?));
        let returns = signals.returns_from_signal(id, &file.content, offset?);
        returns.then_some(interrupted)
    }

    pub(super) fn source(&mut self, id: ModuleId, svma: u64) -> Source {
        let Unwinder {
            modules,
            uncovered,
            time,
            ..
        } = &mut *self.unwinder;
        uncovered.source((id, svma), self.process.files, modules, time)
    }

    /// Unwinds one frame by the result of an analysis. A call must precede the return address.
    fn analyzed_caller(
        &mut self,
        finding: Finding,
        frame: FrameAddress,
        place: (ModuleId, u64),
        state: &mut UnwindRegsNative,
    ) -> Result<Option<u64>, Error> {
        let (rule, certainty) = match finding {
            Finding::Caller(rule, certainty) => (rule, certainty),
            Finding::Root => return Ok(None),
            Finding::OtherStack(switch) => {
                self.switch = Some(switch);
                return Err(Error::DidNotAdvance);
            }
        };
        let mut analyzed = *state;
        let is_checked = certainty == Certainty::Checked;
        let caller = match self.apply(rule, &mut analyzed) {
            Err(_) if !is_checked => return self.likely_caller(frame, state),
            caller => caller?,
        };
        if !caller.map_or(is_checked, |caller| self.follows_call(caller)) {
            if is_checked && self.is_new_thread(frame, place) {
                return Ok(None);
            }
            return self.likely_caller(frame, state);
        }
        if !is_checked {
            self.doubt(Doubt::Likely);
        }
        *state = analyzed;
        Ok(caller)
    }

    /// Returns whether a system call has just returned at a leaf whose stack has no return address.
    ///
    /// `clone` returns in a new thread so. Its stack contains only the argument of the thread.
    fn is_new_thread(&mut self, frame: FrameAddress, (id, svma): (ModuleId, u64)) -> bool {
        let file = self.process.files.file(id);
        let Unwinder { modules, time, .. } = &mut *self.unwinder;
        let segments = modules.segments(id, file, time);
        let offset = segments.and_then(|segments| segments.file_offset_of(svma));
        !frame.is_return_address()
            && offset.is_some_and(|offset| follows_system_call(&file.content, offset))
    }

    /// Unwinds one frame of code of which nothing is known.
    ///
    /// At the leaf, the return address may be on top of the stack. Else the frame pointer may lead to
    /// it. In both cases, a call precedes it.
    fn likely_caller(
        &mut self,
        frame: FrameAddress,
        state: &mut UnwindRegsNative,
    ) -> Result<Option<u64>, Error> {
        if let Some(rule) = UnwindRule::above_stack_pointer(8)
            && !frame.is_return_address()
        {
            let mut returned = *state;
            let caller = self.apply(rule, &mut returned)?;
            if caller.is_some_and(|caller| self.follows_call(caller)) {
                self.doubt(Doubt::Likely);
                *state = returned;
                return Ok(caller);
            }
        }
        self.guesses.doubt_if_repeated(self.leaf_first.len());
        match self.by_frame_pointer(frame, state)? {
            Some(caller) if !self.follows_call(caller) => Err(Error::DidNotAdvance),
            caller => Ok(caller),
        }
    }

    /// Returns whether a call precedes an address, or the kernel made it the return address of a
    /// signal handler, or a thread starts there.
    pub(super) fn follows_call(&mut self, address: u64) -> bool {
        let location = address.checked_sub(1).and_then(|call| self.locate(call));
        let Some(location) = location else {
            return false;
        };
        let (id, svma) = match location.unwind_source {
            UnwindSource::Elf(id, svma) => (id, svma),
            UnwindSource::Jit => {
                let frame = self.jit_frame(address);
                return frame.is_none_or(|frame| frame.is_return);
            }
            UnwindSource::File(_) => return true,
        };
        let file = self.process.files.file(id);
        let Unwinder {
            modules,
            uncovered,
            signals,
            time,
            ..
        } = &mut *self.unwinder;
        let segments = modules.segments(id, file, time);
        let offset = segments.and_then(|segments| segments.file_offset_of(svma)?.checked_add(1));
        offset.is_some_and(|offset| {
            uncovered.follows_call((id, svma), &file.content, offset)
                || signals.returns_from_signal(id, &file.content, offset)
        }) || self.is_root(&location)
    }

    /// Returns the bytes up to the end of the call whose last byte is at an SVMA.
    pub(super) fn call_before<const BYTES: usize>(
        &mut self,
        id: ModuleId,
        svma: u64,
    ) -> Option<[u8; BYTES]> {
        let file = self.process.files.file(id);
        let Unwinder { modules, time, .. } = &mut *self.unwinder;
        let segments = modules.segments(id, file, time)?;
        let offset = segments.file_offset_of(svma)?.checked_add(1)?;
        code_before(&file.content, offset)
    }

    /// Unwinds a caller frame in an ELF file without a stack. Returns `None` for other code.
    pub(super) fn caller_without_stack(
        &mut self,
        location: &CodeLocation,
    ) -> Option<Result<Option<u64>, Error>> {
        let UnwindSource::Elf(id, svma) = location.unwind_source else {
            return None;
        };
        // A null frame pointer would indicate the root.
        let mut state = UnwindRegsNative::new(0, 0, UNKNOWN_FRAME_POINTER);
        let frame = FrameAddress::from_return_address(svma.checked_add(1)?)?;
        Some(self.elf_caller(frame, id, svma, &mut state))
    }
}
