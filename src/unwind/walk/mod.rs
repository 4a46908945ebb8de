//! Unwinds the stack of one sample.

mod above_page;
mod guesses;
mod other_stack;
mod step;

use std::sync::Arc;

use framehop::{CacheNative, Error, FrameAddress, MayAllocateDuringUnwind, UnwindRegsNative};
use perfcollect_symbols::symbolizer::Symbolizer;
use rustc_hash::FxHashMap;

use self::guesses::Guesses;
use self::step::{CodeLocation, UnwindSource};
use super::analysis::{Finding, StackSwitch, Waiting};
use super::chain;
use super::jit::JitCode;
use super::live_stack::LiveStack;
use super::managed::{ManagedCode, MetCode, SampledProcess};
use super::module::{Coverage, FileUnwinder};
use super::modules::Modules;
use super::owner_time::OwnerTime;
use super::signal::{Interrupted, SignalFrames};
use super::stack_copy::StackCopy;
use super::uncovered::Uncovered;
use crate::dotnet::Runtime;
use crate::perf::{self, Abi, CpuMode, SampleRecord};
use crate::trace::{CodeAddress, Doubt, ModuleId, Notice, ProcessId, Truncation};

/// Maximum frames per stack. PerfView's reader overflows its own stack at about ten thousand.
const MAX_FRAMES: usize = 1024;

/// Maximum number of addresses in the root cache.
const MAX_ROOTS: usize = 64 << 10;

/// Unwind state that all samples and processes share.
#[derive(Default)]
pub struct Unwinder {
    modules: Modules,
    /// Time that the files of each user took.
    time: OwnerTime,
    /// Rules by address and file.
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// Unwinder without modules, for code that no unwind information covers.
    frame_pointers: FileUnwinder,
    managed: ManagedCode,
    jit: JitCode,
    signals: SignalFrames,
    uncovered: Uncovered,
    /// Whether processes run, so that the memory that the stack copies lack can be read.
    is_live: bool,
    /// Cache of [`Walk::is_root`].
    ///
    /// Callchains may end in many different files, whose sections would be read again for each
    /// query.
    roots: FxHashMap<(ModuleId, u64), bool>,
    /// Process addresses of the last user stack.
    addresses: Vec<u64>,
    /// Size of the part of the stack that the last walk needed.
    stack_bytes: u64,
}

/// Outcome of a stack walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkOutcome {
    /// Reason why the stack ends before the root, if it does.
    pub cut: Option<Truncation>,
    /// The least certain caller that was found, if any is doubtful, and the code that it called.
    pub doubt: Option<(Doubt, CodeAddress)>,
    /// Whether the stack may be longer when the analysis of its code is ready.
    pub is_pending: bool,
}

impl Unwinder {
    /// Creates an unwinder of a running capture, which does not spend long on one user's files and
    /// waits for analyses of code only shortly.
    #[must_use]
    pub fn live() -> Self {
        let mut unwinder = Self {
            time: OwnerTime::bounded(),
            is_live: true,
            ..Self::default()
        };
        unwinder.uncovered.set_waiting(Waiting::Capturing);
        unwinder
    }

    /// Changes where debug files are searched, whose `.debug_frame` replaces analyses of code. Call
    /// before the first walk.
    pub fn set_symbolizer(&mut self, symbolizer: &Arc<Symbolizer>) {
        self.uncovered.set_symbolizer(symbolizer);
    }

    /// Waits longer for analyses of code, as no records arrive any more.
    pub fn wait_for_analyses(&mut self) {
        self.uncovered.set_waiting(Waiting::Last);
    }

    /// Waits for analyses of code as long as a snapshot may take: no records arrive.
    pub fn wait_for_snapshot(&mut self) {
        self.uncovered.set_waiting(Waiting::Snapshot);
    }

    /// Fills `leaf_first` with the code addresses of the sample.
    ///
    /// The address of a caller is the return address minus one, which is within the call
    /// instruction.
    pub fn walk(
        &mut self,
        sample: &SampleRecord<'_>,
        process: SampledProcess<'_>,
        leaf_first: &mut Vec<CodeAddress>,
    ) -> WalkOutcome {
        leaf_first.clear();
        self.addresses.clear();
        self.managed.met.clear();
        self.stack_bytes = 0;
        push_kernel_frames(sample, leaf_first);
        let mut stack = StackCopy::of(sample);
        let absent_page = stack.absent_page().filter(|_| self.is_live);
        let live = absent_page.map(|page| LiveStack::new(process.pid, page));
        if let Some(live) = &live {
            stack.continue_with(live);
        }
        let mut walk = Walk {
            unwinder: self,
            process,
            sample,
            stack,
            first_user: leaf_first.len(),
            leaf_first,
            doubt: None,
            guesses: Guesses::default(),
            below_absent_page: None,
            switch: None,
        };
        let truncation = match (sample.registers, sample.abi) {
            (Some(registers), _) => {
                let truncation = walk.unwind_user(registers);
                walk.drop_unconfirmed(truncation);
                match walk.keep_rooted(truncation) {
                    Some(ended @ (Truncation::StackCopyEnded | Truncation::AbsentPage)) => {
                        walk.continue_by_frame_pointer(ended)
                    }
                    truncation => truncation,
                }
            }
            (None, Abi::None) if sample.callchain.is_empty() => Some(Truncation::UnwindFailed),
            // A kernel thread, or a thread whose user memory is gone.
            (None, Abi::None) if !sample.has_user_side() => None,
            (None, Abi::None) => walk.append_callchain(0, Truncation::UnwindFailed),
            (None, _) => {
                // Only the callchain has the callers of 32-bit code.
                walk.unwinder.stack_bytes = u64::MAX;
                walk.append_callchain(0, Truncation::NoRegisters)
            }
        };
        walk.leaf_if_empty();
        let doubt = walk.doubt;
        WalkOutcome {
            cut: truncation,
            doubt,
            is_pending: self.uncovered.take_pending(),
        }
    }

    /// Returns the code that calls another function, which returns to an address of a process.
    ///
    /// Meets JIT code as [`Self::walk`] does.
    pub fn caller_code(
        &mut self,
        process: SampledProcess<'_>,
        return_address: u64,
    ) -> Option<CodeAddress> {
        self.managed.met.clear();
        let address = return_address.checked_sub(1)?;
        let location = self.locate(&process, address)?;
        self.meet(&process, &location, address, true);
        Some(location.code)
    }

    /// Meets JIT code in a frame that is not unwound. The address of a caller is within its call.
    fn meet(
        &mut self,
        process: &SampledProcess<'_>,
        location: &CodeLocation,
        address: u64,
        is_caller: bool,
    ) {
        let frame = match is_caller {
            true => address
                .checked_add(1)
                .and_then(FrameAddress::from_return_address),
            false => Some(FrameAddress::from_instruction_pointer(address)),
        };
        if let (UnwindSource::Jit, Some(frame)) = (location.unwind_source, frame) {
            self.managed.jit_rule(process, frame);
        }
    }

    /// Returns the process addresses of the last user stack, leaf first.
    ///
    /// The address of a caller is within the call instruction.
    #[must_use]
    pub fn user_addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// Returns the size of the part of the user stack that the last walk needed.
    ///
    /// It exceeds the stack copy if that ended too early, or was of no use.
    #[must_use]
    pub fn stack_bytes(&self) -> u64 {
        self.stack_bytes
    }

    /// Passes on the JIT code that the last walk met in this process, leaf first.
    ///
    /// If `keep` returns false, the unwinder drops the rule of the frame, and the next walk meets
    /// the code again.
    pub fn retain_met(&mut self, process: ProcessId, keep: impl FnMut(&Runtime, &MetCode) -> bool) {
        self.managed.retain_met(process, keep);
    }

    /// Returns whether the last walk met JIT code of a runtime whose structures could not be read.
    ///
    /// At most one walk per second and process does.
    pub fn met_unreadable_runtime(&self) -> bool {
        self.managed.met.unreadable_runtime
    }

    /// Forgets a process that has ended.
    pub fn forget(&mut self, process: ProcessId) {
        self.managed.forget(process);
        self.jit.forget(process);
    }

    /// Returns the runtime of a process. Returns `None` if it has none, or it cannot be read.
    pub fn runtime(&mut self, process: &SampledProcess<'_>) -> Option<&Runtime> {
        self.managed.runtime(process)
    }

    /// Returns notices about memory that could not be read, and files that took too long.
    pub fn notices(&self) -> impl Iterator<Item = Notice> {
        self.managed.notices().chain(self.time.notices())
    }
}

fn push_kernel_frames(sample: &SampleRecord<'_>, leaf_first: &mut Vec<CodeAddress>) {
    let mut chain = sample.kernel_chain();
    match chain.next() {
        Some(ip) => leaf_first.push(CodeAddress::Kernel(ip)),
        None if sample.mode == CpuMode::Kernel => leaf_first.push(CodeAddress::Kernel(sample.ip)),
        None => {}
    }
    // A null return address has no caller.
    let callers = chain.filter(|&caller| caller != 0);
    leaf_first.extend(callers.map(|caller| CodeAddress::Kernel(caller - 1)));
}

/// Returns the user callchain of the kernel: the instruction pointer, then the callers.
///
/// The address of a caller is within its call instruction. The kernel reports return addresses. A
/// branch stack (LBR) contains the addresses of the call instructions themselves.
fn frame_pointer_chain<'a>(sample: &SampleRecord<'a>) -> impl Iterator<Item = u64> + use<'a> {
    let are_returns = sample.calls.is_empty();
    let chain = sample.user_chain().enumerate();
    chain.map(move |(index, address)| address.wrapping_sub(u64::from(index > 0 && are_returns)))
}

struct Walk<'a> {
    unwinder: &'a mut Unwinder,
    process: SampledProcess<'a>,
    sample: &'a SampleRecord<'a>,
    stack: StackCopy<'a>,
    leaf_first: &'a mut Vec<CodeAddress>,
    /// Index in `leaf_first` of the first user frame.
    first_user: usize,
    /// See [`WalkOutcome::doubt`].
    doubt: Option<(Doubt, CodeAddress)>,
    guesses: Guesses,
    /// Number of addresses in `leaf_first` below the absent page, once the walk is above it.
    below_absent_page: Option<usize>,
    /// Set by the frame of a function that has changed to another stack.
    switch: Option<StackSwitch>,
}

impl Walk<'_> {
    fn unwind_user(&mut self, registers: perf::Registers) -> Option<Truncation> {
        let mut state = UnwindRegsNative::new(registers.ip, registers.sp, registers.bp);
        let mut frame = FrameAddress::from_instruction_pointer(registers.ip);
        loop {
            if self.leaf_first.len() >= MAX_FRAMES {
                return Some(Truncation::TooDeep);
            }
            let Some(location) = self.locate(frame.address_for_lookup()) else {
                if !frame.is_return_address() {
                    return self.unmapped_leaf(frame.address());
                }
                // A caller outside all code is wrong, so the previous frame was unwound wrongly.
                if self.leaf_first.len() > self.first_user + 1 || self.has_guess() {
                    return Some(Truncation::UnwindFailed);
                }
                // framehop unwinds code without unwind information as if it had no frame. The code
                // may have a frame, so try the frame pointer.
                state = UnwindRegsNative::new(registers.ip, registers.sp, registers.bp);
                let leaf = FrameAddress::from_instruction_pointer(registers.ip);
                let Ok(Some(caller)) = self.by_frame_pointer(leaf, &mut state) else {
                    return Some(Truncation::UnwindFailed);
                };
                frame = FrameAddress::from_return_address(caller)?;
                continue;
            };
            self.push(location.code, frame.address_for_lookup());
            let sp_before = state.sp();
            self.note_reached(sp_before);
            if let Some(interrupted) = self.interrupted_by_signal(frame, &location, sp_before) {
                let Interrupted { ip, sp, bp } = interrupted;
                // Nothing called the trampoline: the handler returns to its first instruction.
                if let Some(trampoline) = self.locate(frame.address())
                    && let Some(last) = self.leaf_first.last_mut()
                {
                    *last = trampoline.code;
                }
                if sp <= sp_before {
                    // The handler runs on an alternate signal stack.
                    return Some(Truncation::UnwindFailed);
                }
                state = UnwindRegsNative::new(ip, sp, bp);
                frame = FrameAddress::from_instruction_pointer(ip);
                continue;
            }
            self.stack.take_null();
            let caller = match self.caller(frame, &location, &mut state) {
                Ok(Some(address)) => address,
                // The thread may have left that part of the stack.
                Ok(None) | Err(Error::ReturnAddressIsNull) if self.stack.take_null() => {
                    return Some(Truncation::AbsentPage);
                }
                // Hand-written entry points use a null return address for the root.
                Ok(None) | Err(Error::ReturnAddressIsNull) => return None,
                // The ABI sets rbp to 0 at the entry point, which is usually assembly without
                // unwind information.
                Err(Error::FramepointerUnwindingMovedBackwards)
                    if state.bp() == 0
                        && matches!(location.unwind_source, UnwindSource::Elf(..)) =>
                {
                    return None;
                }
                Err(Error::CouldNotReadStack(address)) if self.stack.ends_before(address) => {
                    self.note_reached(address.saturating_add(8));
                    return Some(match self.stack.absent_page() {
                        Some(_) => Truncation::AbsentPage,
                        None => Truncation::StackCopyEnded,
                    });
                }
                Err(_) => {
                    let Some(switch) = self.switch.take() else {
                        return Some(Truncation::UnwindFailed);
                    };
                    if !switch.keeps_rbp {
                        return Some(Truncation::OtherStack);
                    }
                    if let Some(caller) = self.caller_in_copy(switch.function, &mut state) {
                        frame = caller;
                        continue;
                    }
                    return self.continue_on_other_stack(switch.function, state.bp());
                }
            };
            if state.sp() <= sp_before {
                return Some(Truncation::UnwindFailed);
            }
            self.guesses.end_step(self.leaf_first.len());
            if let Some(live) = self.stack.live_at(state.sp().wrapping_sub(8))
                && !self.is_still_called(live, frame, sp_before, caller)
            {
                return Some(Truncation::AbsentPage);
            }
            frame = FrameAddress::from_return_address(caller)?;
        }
    }

    fn push(&mut self, code: CodeAddress, address: u64) {
        self.leaf_first.push(code);
        self.unwinder.addresses.push(address);
    }

    /// Notes that the caller of the last frame is doubtful.
    fn doubt(&mut self, doubt: Doubt) {
        let is_worse = self.doubt.is_none_or(|(noted, _)| noted < doubt);
        if let Some(&code) = self.leaf_first.last()
            && is_worse
        {
            self.doubt = Some((doubt, code));
        }
    }

    fn has_guess(&self) -> bool {
        matches!(self.doubt, Some((Doubt::Guessed, _)))
    }

    /// Notes that the walk needs the stack up to an address.
    fn note_reached(&mut self, address: u64) {
        self.unwinder.stack_bytes = self.stack.bytes_to(address);
    }

    fn locate(&mut self, address: u64) -> Option<CodeLocation> {
        self.unwinder.locate(&self.process, address)
    }

    fn meet(&mut self, location: &CodeLocation, address: u64, is_caller: bool) {
        self.unwinder
            .meet(&self.process, location, address, is_caller);
    }

    /// Continues with the callchain where the stack copy ended, if both share the outermost frame.
    fn continue_by_frame_pointer(&mut self, ended: Truncation) -> Option<Truncation> {
        let chain: Vec<_> = frame_pointer_chain(self.sample)
            .map(|address| self.locate(address).map(|location| location.code))
            .collect();
        let walked = self.leaf_first[self.first_user..].iter();
        let walked: Vec<_> = walked.copied().map(Some).collect();
        match chain::join(&walked, &chain) {
            Some(index) => self.append_callchain(index + 1, ended),
            None => Some(ended),
        }
    }

    /// Appends the callchain from its frame `first` on.
    ///
    /// Returns `truncation` if it ends before the root.
    fn append_callchain(&mut self, first: usize, truncation: Truncation) -> Option<Truncation> {
        let mut outermost = None;
        let chain = frame_pointer_chain(self.sample).enumerate();
        for (index, address) in chain.skip(first) {
            if self.leaf_first.len() >= MAX_FRAMES {
                return Some(Truncation::TooDeep);
            }
            let Some(location) = self.locate(address) else {
                return match index {
                    0 => self.unmapped_leaf(address),
                    _ => Some(truncation),
                };
            };
            let is_caller = index > 0;
            self.meet(&location, address, is_caller);
            if is_caller {
                self.doubt(Doubt::Guessed);
            }
            self.push(location.code, address);
            // rbp may lead on, to a stack that the thread has left.
            if self.table_root(&location) == Some(true) {
                return None;
            }
            outermost = Some(location);
        }
        match outermost {
            Some(location) if self.is_root(&location) => None,
            _ if self.sample.chain_is_full() => Some(Truncation::TooDeep),
            _ => Some(truncation),
        }
    }

    /// Returns whether a function table shows that a frame has no caller. Returns `None` without one.
    fn table_root(&mut self, location: &CodeLocation) -> Option<bool> {
        let UnwindSource::Elf(id, svma) = location.unwind_source else {
            return None;
        };
        let Unwinder { modules, time, .. } = &mut *self.unwinder;
        let file = self.process.files.file(id);
        match modules.coverage(id, file, svma, time)? {
            Coverage::FunctionTable(finding) => Some(finding == Finding::Root),
            Coverage::UnwindInformation | Coverage::None => None,
        }
    }

    /// Returns whether unwind information or a function table shows that a frame has no caller.
    fn is_root(&mut self, location: &CodeLocation) -> bool {
        let UnwindSource::Elf(id, svma) = location.unwind_source else {
            return false;
        };
        if let Some(&is_root) = self.unwinder.roots.get(&(id, svma)) {
            return is_root;
        }
        // Without a stack, only unwind information can show that a frame is the root.
        let is_root = self
            .table_root(location)
            .unwrap_or_else(|| matches!(self.caller_without_stack(location), Some(Ok(None))));
        let roots = &mut self.unwinder.roots;
        if roots.len() >= MAX_ROOTS {
            roots.clear();
        }
        roots.insert((id, svma), is_root);
        is_root
    }

    /// Adds the sampled address if the sample has neither registers nor a callchain.
    fn leaf_if_empty(&mut self) {
        let ip = self.sample.ip;
        if !self.leaf_first.is_empty() || ip == 0 {
            return;
        }
        let unmapped = CodeAddress::Unmapped(self.process.process, ip);
        let location = self.locate(ip);
        if let Some(location) = &location {
            self.meet(location, ip, false);
        }
        self.push(location.map_or(unmapped, |location| location.code), ip);
    }

    /// Adds a leaf outside all mappings.
    ///
    /// During an exec the sample still has the registers of the old program, whose memory and stack
    /// are gone. Such a sample has no user part.
    fn unmapped_leaf(&mut self, ip: u64) -> Option<Truncation> {
        if self.stack.is_empty() && !self.leaf_first.is_empty() {
            return None;
        }
        self.push(CodeAddress::Unmapped(self.process.process, ip), ip);
        Some(Truncation::UnwindFailed)
    }
}

#[cfg(test)]
mod hidden_tests;
#[cfg(test)]
mod tests;
