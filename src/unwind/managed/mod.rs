//! Frames of .NET code, exactly: by the unwind information that the runtime keeps for each function, JIT-compiled or
//! precompiled, and by the instructions where that is silent.

pub(super) mod epilogue;
mod images;
mod instruction;
mod named_ranges;
mod operand;
mod processes;
mod prologue;
mod ready_to_run;
mod rule;
mod rule_cache;
pub(super) mod stub;
mod unwind_info;

pub use named_ranges::DiscoveredCode;
pub use ready_to_run::ReadyToRunImage;
pub use rule::UnwindRule;

pub(super) use rule::{Registers, StepError};

use crate::dotnet::{Code, FunctionEntry, Image, Memory};
use crate::machine::{FileTable, Maps};
use crate::trace::{ModuleId, Nanos, Notice, Pid, ProcessId};
use framehop::FrameAddress;
use images::Images;
use processes::Processes;
use rule_cache::{AddressSpaceId, Epoch, Key, RuleCache};
use unwind_info::UnwindInfo;

/// Finds rules, and keeps what it took to find them.
#[derive(Default)]
pub(super) struct ManagedCode {
    rules: RuleCache,
    processes: Processes,
    images: Images,
}

/// A process at the time of a sample.
#[derive(Clone, Copy, Debug)]
pub struct SampledProcess<'a> {
    /// The process.
    pub process: ProcessId,
    /// Its id.
    pub pid: Pid,
    /// When.
    pub time: Nanos,
    /// What it has mapped as code.
    pub maps: &'a Maps,
    /// The files of these mappings.
    pub files: &'a FileTable,
    /// The sample comes again: what is not found now may be found then, so that only what is found is kept.
    pub is_preview: bool,
}

/// Returns `None` for a return address of zero.
fn frame_address(ip: u64, interrupted: bool) -> Option<FrameAddress> {
    match interrupted {
        true => Some(FrameAddress::from_instruction_pointer(ip)),
        false => FrameAddress::from_return_address(ip),
    }
}

/// Whether the frame was interrupted at this address, in place of a call before it.
fn is_interrupted(address: FrameAddress) -> bool {
    !address.is_return_address()
}

/// A place in a mapped file that is no ELF file, at least not there.
#[derive(Clone, Copy)]
pub(super) struct InFile {
    pub(super) file: ModuleId,
    /// Offset in the file of the instruction that the frame is at.
    pub(super) instruction: u64,
    /// Where in the file the mapping begins.
    pub(super) mapped_from: u64,
}

/// A rule, and whether it holds as long as the process lives.
struct RuleLookup {
    rule: Option<UnwindRule>,
    is_stable: bool,
}

impl RuleLookup {
    const NOTHING: Self = Self {
        rule: None,
        is_stable: false,
    };
}

impl ManagedCode {
    /// The rule of a frame in memory that holds code made at run time.
    pub(super) fn jit_rule(
        &mut self,
        host: &SampledProcess<'_>,
        address: FrameAddress,
    ) -> Option<UnwindRule> {
        let key = Key {
            space: AddressSpaceId::process(host.process),
            ip: address.address(),
            interrupted: is_interrupted(address),
        };
        let now = Epoch::of(host.time);
        if let Some(known) = self.rules.get(&key, now) {
            return known;
        }
        let found = self
            .processes
            .find(host, address)
            .unwrap_or(RuleLookup::NOTHING);
        if found.rule.is_none() && host.is_preview {
            return None;
        }
        self.keep(&key, &found, now)
    }

    /// The rule of a frame in a precompiled image.
    pub(super) fn file_rule(
        &mut self,
        host: &SampledProcess<'_>,
        place: InFile,
        interrupted: bool,
    ) -> Option<UnwindRule> {
        let key = Key {
            space: AddressSpaceId::file(place.file),
            ip: place.instruction,
            interrupted,
        };
        let now = Epoch::of(host.time);
        if let Some(known) = self.rules.get(&key, now) {
            return known;
        }
        let found = self
            .images
            .find(host.files, place, interrupted)
            .unwrap_or(RuleLookup::NOTHING);
        self.keep(&key, &found, now)
    }

    fn keep(&mut self, key: &Key, found: &RuleLookup, now: Epoch) -> Option<UnwindRule> {
        let period = if found.is_stable { Epoch::ALWAYS } else { now };
        self.rules.insert(key, found.rule, period);
        found.rule
    }

    /// The code made at run time that was met since the last call.
    pub(super) fn take_discovered(&mut self) -> Vec<DiscoveredCode> {
        self.processes.take_discovered()
    }

    /// The processes met since the last call whose memory does not tell what their methods are.
    pub(super) fn take_unreadable(&mut self) -> Vec<(ProcessId, Pid)> {
        self.processes.take_unreadable()
    }

    /// Why frames had to be guessed, or have no names.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        self.processes.notices()
    }
}

/// A function by itself: what a fuzzer varies.
#[derive(Clone, Copy, Debug)]
pub struct FunctionBytes<'a> {
    /// Its UNWIND_INFO.
    pub unwind_info: &'a [u8],
    /// Its code, from its start on.
    pub code: &'a [u8],
}

/// The rule at so many bytes behind the start of a function.
#[must_use]
pub fn function_rule(
    bytes: FunctionBytes<'_>,
    offset: u64,
    interrupted: bool,
) -> Option<UnwindRule> {
    let begin = 1 << 32;
    let function = FunctionEntry {
        begin,
        end: begin + bytes.code.len() as u64,
        unwind_info: 0,
    };
    let address = frame_address(begin + offset, interrupted)?;
    rule_in(&bytes, &function, address).rule
}

impl Memory for FunctionBytes<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let (start, bytes) = match address >> 32 {
            0 => (0, self.unwind_info),
            _ => (1 << 32, self.code),
        };
        Image { start, bytes }.read(address, buffer)
    }
}

/// The rule of a frame in a function.
fn rule_in(memory: &impl Memory, function: &FunctionEntry, address: FrameAddress) -> RuleLookup {
    let ip = address.address();
    let offset = ip.wrapping_sub(function.begin);
    let info = UnwindInfo::read(
        memory,
        function.unwind_info,
        function.end.saturating_sub(function.begin),
    );
    // In the prologue there is no epilogue, but a tail call may look like one.
    let prologue_bytes = info.as_ref().map_or(0, UnwindInfo::prologue_bytes);
    if is_interrupted(address) && offset >= prologue_bytes {
        let mut code = [0; epilogue::MAX_BYTES];
        let code = read(memory, ip, &mut code);
        if let Some(rule) = epilogue::rule(code, ip, &(function.begin..function.end)) {
            return RuleLookup {
                rule: Some(rule),
                is_stable: true,
            };
        }
    }
    if let Some(info) = info {
        return RuleLookup {
            rule: info.rule_at(offset),
            is_stable: true,
        };
    }
    let mut code = [0; prologue::MAX_BYTES];
    RuleLookup {
        rule: prologue::rule(read(memory, function.begin, &mut code), offset),
        // What was not there may come.
        is_stable: false,
    }
}

/// The rule of a frame in code that belongs to no function.
fn stub_rule(memory: &impl Memory, address: FrameAddress) -> Option<UnwindRule> {
    let mut code = [0; stub::MAX_BYTES];
    let code = read(memory, address.address(), &mut code);
    is_interrupted(address).then(|| stub::rule(code))?
}

fn read<'a>(memory: &impl Memory, address: u64, buffer: &'a mut [u8]) -> &'a [u8] {
    let read = memory.read(address, buffer);
    buffer.get(..read).unwrap_or_default()
}
