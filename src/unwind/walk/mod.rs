//! Walking one sample's stack.

mod step;

use framehop::{CacheNative, Error, FrameAddress, MayAllocateDuringUnwind, UnwindRegsNative};
use rustc_hash::FxHashMap;

use self::step::{CodeLocation, UnwindSource};
use super::chain;
use super::managed::{DiscoveredCode, ManagedCode, SampledProcess};
use super::module::FileUnwinder;
use super::modules::Modules;
use super::signal::{Interrupted, SignalFrames};
use super::stack_copy::StackCopy;
use crate::perf::{self, Abi, CpuMode, SampleRecord};
use crate::trace::{CodeAddress, ModuleId, Notice, Pid, ProcessId, Truncation};

/// Deepest stack that is kept. PerfView's reader overflows its own stack at some ten thousand.
const MAX_FRAMES: usize = 1024;

/// Addresses of which it is known whether they are roots.
const MAX_ROOTS: usize = 64 << 10;

/// Everything walking needs besides the sample: made once, used for all processes.
#[derive(Default)]
pub struct Unwinder {
    modules: Modules,
    /// Rules by (address, file), shared by all files.
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// Walks code that nothing describes, by the frame pointer.
    frame_pointers: FileUnwinder,
    managed: ManagedCode,
    signals: SignalFrames,
    /// Whether unwind information alone says that an address in a file has no caller. Chains that end anywhere are asked for
    /// ever new files, and read their sections again and again.
    roots: FxHashMap<(ModuleId, u64), bool>,
    /// The addresses of the user side that was walked last.
    addresses: Vec<u64>,
}

/// How a walk went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Why the stack ends before the root, if it does.
    pub cut: Option<Truncation>,
    /// A caller was found by the frame pointer alone, in code where it need not lead to the caller.
    pub fp_fallback: bool,
}

impl Unwinder {
    /// Fills `leaf_first` with the sample's code addresses and tells how that went.
    ///
    /// Addresses of callers lie inside their call instruction: return address minus one.
    pub fn walk(
        &mut self,
        sample: &SampleRecord<'_>,
        host: SampledProcess<'_>,
        leaf_first: &mut Vec<CodeAddress>,
    ) -> Walked {
        leaf_first.clear();
        self.addresses.clear();
        kernel_side(sample, leaf_first);
        let copied_from = sample.registers.map_or(0, |registers| registers.sp);
        let mut walk = Walk {
            unwinder: self,
            host,
            sample,
            stack: StackCopy::new(copied_from, sample.stack),
            first_user: leaf_first.len(),
            leaf_first,
            guessed: false,
        };
        let cut = match (sample.registers, sample.abi) {
            (Some(registers), _) => match walk.user_side(registers) {
                Some(Truncation::StackCopyEnded) => walk.continue_by_frame_pointer(),
                cut => cut,
            },
            (None, Abi::None) if sample.callchain.is_empty() => Some(Truncation::UnwindFailed),
            // A kernel thread, or one that has no user memory any more.
            (None, Abi::None) if !sample.has_user_side() => None,
            (None, Abi::None) => walk.append_callchain(0, Truncation::UnwindFailed),
            (None, _) => walk.append_callchain(0, Truncation::NoRegisters),
        };
        walk.leaf_if_empty();
        Walked {
            cut,
            fp_fallback: walk.guessed,
        }
    }

    /// The addresses of the user side that was walked last, as the process has them, leaf first. Those of callers lie
    /// inside their call instruction.
    #[must_use]
    pub fn user_addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// The code made at run time that was met since the last call, in order; to be told before the stacks it is in.
    pub fn take_discovered(&mut self) -> Vec<DiscoveredCode> {
        self.managed.take_discovered()
    }

    /// The .NET processes met since the last call whose memory does not tell what their methods are.
    pub fn take_unreadable(&mut self) -> Vec<(ProcessId, Pid)> {
        self.managed.take_unreadable()
    }

    /// What the user should know.
    pub fn notices(&self) -> impl Iterator<Item = Notice> {
        self.managed.notices()
    }
}

fn kernel_side(sample: &SampleRecord<'_>, leaf_first: &mut Vec<CodeAddress>) {
    let mut chain = sample.kernel_chain();
    match chain.next() {
        Some(ip) => leaf_first.push(CodeAddress::Kernel(ip)),
        None if sample.mode == CpuMode::Kernel => leaf_first.push(CodeAddress::Kernel(sample.ip)),
        None => {}
    }
    // A null return address leads to nothing.
    let callers = chain.filter(|&caller| caller != 0);
    leaf_first.extend(callers.map(|caller| CodeAddress::Kernel(caller - 1)));
}

/// The user addresses that the kernel found along the frame pointers: first the instruction pointer, then callers, each
/// inside its call instruction. Where the processor has kept the calls, they are those of the instructions themselves.
fn frame_pointer_chain<'a>(sample: &SampleRecord<'a>) -> impl Iterator<Item = u64> + use<'a> {
    let are_returns = sample.calls.is_empty();
    let chain = sample.user_chain().enumerate();
    chain.map(move |(at, address)| address.wrapping_sub(u64::from(at > 0 && are_returns)))
}

struct Walk<'a> {
    unwinder: &'a mut Unwinder,
    host: SampledProcess<'a>,
    sample: &'a SampleRecord<'a>,
    stack: StackCopy<'a>,
    leaf_first: &'a mut Vec<CodeAddress>,
    /// Where in `leaf_first` the user side begins.
    first_user: usize,
    guessed: bool,
}

impl Walk<'_> {
    fn user_side(&mut self, registers: perf::Registers) -> Option<Truncation> {
        let mut state = UnwindRegsNative::new(registers.ip, registers.sp, registers.bp);
        let mut frame = FrameAddress::from_instruction_pointer(registers.ip);
        loop {
            if self.leaf_first.len() >= MAX_FRAMES {
                return Some(Truncation::TooDeep);
            }
            let Some(place) = self.place(frame.address_for_lookup()) else {
                if !frame.is_return_address() {
                    return self.unmapped_leaf(frame.address());
                }
                // A caller outside all code is no caller: the frame before was read wrongly.
                if self.leaf_first.len() > self.first_user + 1 || self.guessed {
                    return Some(Truncation::UnwindFailed);
                }
                // Code that no unwind information covers is left as if it had no frame. It may have one.
                state = UnwindRegsNative::new(registers.ip, registers.sp, registers.bp);
                let leaf = FrameAddress::from_instruction_pointer(registers.ip);
                let Ok(Some(caller)) = self.by_frame_pointer(leaf, &mut state) else {
                    return Some(Truncation::UnwindFailed);
                };
                frame = FrameAddress::from_return_address(caller)?;
                continue;
            };
            self.push(place.code, frame.address_for_lookup());
            let below = state.sp();
            if let Some(interrupted) = self.interrupted_by_signal(frame, &place, below) {
                let Interrupted { ip, sp, bp } = interrupted;
                // Nothing called the trampoline: its first instruction comes next.
                if let Some(trampoline) = self.place(frame.address())
                    && let Some(last) = self.leaf_first.last_mut()
                {
                    *last = trampoline.code;
                }
                if sp <= below {
                    // The handler has a stack of its own, elsewhere.
                    return Some(Truncation::UnwindFailed);
                }
                state = UnwindRegsNative::new(ip, sp, bp);
                frame = FrameAddress::from_instruction_pointer(ip);
                continue;
            }
            let caller = match self.caller(frame, &place, &mut state) {
                Ok(Some(address)) => address,
                // Left as if it had no frame, though it may have one, the null is not a return address.
                Ok(None) if !frame.is_return_address() && self.lacks_unwind_info(&place) => {
                    match self.by_frame_pointer(frame, &mut state) {
                        Ok(Some(address)) => address,
                        Ok(None) => return None,
                        Err(_) => return Some(Truncation::UnwindFailed),
                    }
                }
                // A null return address is how hand-written entry points mark the root.
                Ok(None) | Err(Error::ReturnAddressIsNull) => return None,
                // The ABI has rbp 0 at the entry point, which as a rule is assembly without unwind information.
                Err(Error::FramepointerUnwindingMovedBackwards)
                    if state.bp() == 0 && matches!(place.unwind_source, UnwindSource::Elf(..)) =>
                {
                    return None;
                }
                Err(Error::CouldNotReadStack(address)) if self.stack.ends_before(address) => {
                    return Some(Truncation::StackCopyEnded);
                }
                Err(_) => return Some(Truncation::UnwindFailed),
            };
            if state.sp() <= below {
                return Some(Truncation::UnwindFailed);
            }
            frame = FrameAddress::from_return_address(caller)?;
        }
    }

    fn push(&mut self, code: CodeAddress, address: u64) {
        self.leaf_first.push(code);
        self.unwinder.addresses.push(address);
    }

    /// Goes on along the frame pointers where the copy of the stack has ended, if the kernel met the outermost frame too.
    fn continue_by_frame_pointer(&mut self) -> Option<Truncation> {
        let chain: Vec<_> = frame_pointer_chain(self.sample)
            .map(|address| self.place(address).map(|place| place.code))
            .collect();
        let walked = self.leaf_first[self.first_user..].iter();
        let walked: Vec<_> = walked.copied().map(Some).collect();
        match chain::join(&walked, &chain) {
            Some(joint) => self.append_callchain(joint + 1, Truncation::StackCopyEnded),
            None => Some(Truncation::StackCopyEnded),
        }
    }

    /// Takes over the frame-pointer chain from its frame `from` on; `cut` says why the stack ends where the chain ends
    /// before the root.
    fn append_callchain(&mut self, from: usize, cut: Truncation) -> Option<Truncation> {
        let mut outermost = None;
        let chain = frame_pointer_chain(self.sample).enumerate();
        for (at, address) in chain.skip(from) {
            if self.leaf_first.len() >= MAX_FRAMES {
                return Some(Truncation::TooDeep);
            }
            let Some(place) = self.place(address) else {
                return match at {
                    0 => self.unmapped_leaf(address),
                    _ => Some(cut),
                };
            };
            self.push(place.code, address);
            self.guessed |= at > 0;
            outermost = Some(place);
        }
        match outermost {
            Some(place) if self.is_root(&place) => None,
            _ if self.sample.chain_is_full() => Some(Truncation::TooDeep),
            _ => Some(cut),
        }
    }

    /// Whether unwind information alone says that a frame has no caller.
    fn is_root(&mut self, place: &CodeLocation) -> bool {
        let UnwindSource::Elf(id, stated) = place.unwind_source else {
            return false;
        };
        if let Some(&is_root) = self.unwinder.roots.get(&(id, stated)) {
            return is_root;
        }
        // Without a stack there is no other way to an answer.
        let is_root = matches!(self.caller_without_stack(place), Some(Ok(None)));
        let roots = &mut self.unwinder.roots;
        if roots.len() >= MAX_ROOTS {
            roots.clear();
        }
        roots.insert((id, stated), is_root);
        is_root
    }

    /// Without registers and callchain a sample is its own address.
    fn leaf_if_empty(&mut self) {
        let ip = self.sample.ip;
        if !self.leaf_first.is_empty() || ip == 0 {
            return;
        }
        let unmapped = CodeAddress::Unmapped(self.host.process, ip);
        let place = self.place(ip).map(|place| place.code);
        self.push(place.unwrap_or(unmapped), ip);
    }

    /// In an exec the old program's registers are still there when its memory and stack are gone: then there is
    /// no user side.
    fn unmapped_leaf(&mut self, ip: u64) -> Option<Truncation> {
        if self.stack.is_empty() && !self.leaf_first.is_empty() {
            return None;
        }
        self.push(CodeAddress::Unmapped(self.host.process, ip), ip);
        Some(Truncation::UnwindFailed)
    }
}

#[cfg(test)]
mod tests;
