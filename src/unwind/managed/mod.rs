//! Exact unwind rules for frames of .NET code.
//!
//! The runtime keeps unwind information for each function, JIT or ReadyToRun. Decoded instructions
//! provide what it does not describe: epilogues and stubs.

pub(super) mod epilogue;
mod epoch;
mod images;
mod instruction;
mod met_code;
mod operand;
mod processes;
mod prologue;
mod ready_to_run;
mod rule_cache;
pub(super) mod stub;
mod unwind_info;

pub use epoch::Epoch;
pub use met_code::{MetCode, MetKind};
pub use ready_to_run::ReadyToRunImage;

use super::owner_time::OwnerTime;
use crate::dotnet::{Code, FunctionEntry, Image, Memory, Runtime};
use crate::machine::{FileTable, Maps};
use crate::trace::{ModuleId, Nanos, Notice, Pid, ProcessId};
use crate::unwind::rule::UnwindRule;
use framehop::FrameAddress;
use images::Images;
use met_code::Met;
use processes::Processes;
use rule_cache::{AddressSpaceId, Key, RuleCache};
use unwind_info::UnwindInfo;

/// Finds unwind rules and caches them, with the processes and images they come from.
#[derive(Default)]
pub(super) struct ManagedCode {
    rules: RuleCache,
    processes: Processes,
    images: Images,
    /// What the current or last walk met.
    pub(super) met: Met,
}

/// A process at the time of a sample.
#[derive(Clone, Copy, Debug)]
pub struct SampledProcess<'a> {
    /// Row of the process.
    pub process: ProcessId,
    /// Process id.
    pub pid: Pid,
    /// Time of the sample.
    pub time: Nanos,
    /// Validity of what is read of code that may be freed.
    pub epoch: Epoch,
    /// Executable mappings of the process.
    pub maps: &'a Maps,
    /// Files of these mappings.
    pub files: &'a FileTable,
    /// Whether the sample is processed again later. Failed lookups of a preview are not cached.
    pub is_preview: bool,
}

/// Creates a frame address. Returns `None` for a return address of zero.
fn frame_address(ip: u64, interrupted: bool) -> Option<FrameAddress> {
    match interrupted {
        true => Some(FrameAddress::from_instruction_pointer(ip)),
        false => FrameAddress::from_return_address(ip),
    }
}

/// Returns whether the frame was interrupted at this address. Otherwise it called another function.
fn is_interrupted(address: FrameAddress) -> bool {
    !address.is_return_address()
}

/// Location of an instruction in a mapped file, outside the load segments of an ELF file.
#[derive(Clone, Copy)]
pub(super) struct InFile {
    pub(super) file: ModuleId,
    /// File offset of the instruction.
    pub(super) instruction: u64,
    /// File offset of the start of the mapping.
    pub(super) mapped_from: u64,
}

/// Result of a rule lookup. A stable result is valid until the process ends.
struct RuleLookup {
    rule: Option<UnwindRule>,
    /// The same without the frame pointer, if the function does not allocate on the stack after its
    /// prologue.
    by_stack_pointer: Option<UnwindRule>,
    is_stable: bool,
}

impl RuleLookup {
    const NOTHING: Self = Self {
        rule: None,
        by_stack_pointer: None,
        is_stable: false,
    };

    /// Creates a result that needs no frame pointer, or has no other rule.
    fn only(rule: Option<UnwindRule>, is_stable: bool) -> Self {
        Self {
            rule,
            by_stack_pointer: None,
            is_stable,
        }
    }
}

impl ManagedCode {
    /// Returns the rule of a frame in JIT memory.
    pub(super) fn jit_rule(
        &mut self,
        process: &SampledProcess<'_>,
        address: FrameAddress,
    ) -> Option<UnwindRule> {
        let key = Key::of_jit(process.process, address.address(), is_interrupted(address));
        let now = process.epoch;
        if let Some(cached) = self.rules.get(&key, now) {
            return cached;
        }
        let lookup = self
            .processes
            .find(process, address, &mut self.met)
            .unwrap_or(RuleLookup::NOTHING);
        if lookup.rule.is_none() && process.is_preview {
            return None;
        }
        self.cache(&key, &lookup, now)
    }

    /// Returns the rule of a frame in a ReadyToRun image.
    pub(super) fn file_rule(
        &mut self,
        process: &SampledProcess<'_>,
        location: InFile,
        interrupted: bool,
        time: &mut OwnerTime,
    ) -> Option<UnwindRule> {
        let key = Key {
            space: AddressSpaceId::file(location.file),
            ip: location.instruction,
            interrupted,
        };
        let now = process.epoch;
        if let Some(cached) = self.rules.get(&key, now) {
            return cached;
        }
        let lookup = self
            .images
            .find(process.files, location, interrupted, time)
            .unwrap_or(RuleLookup::NOTHING);
        self.cache(&key, &lookup, now)
    }

    /// Returns the rule of a frame in JIT memory whose frame pointer is unknown.
    pub(super) fn jit_rule_by_stack_pointer(
        &mut self,
        process: &SampledProcess<'_>,
        address: FrameAddress,
    ) -> Option<UnwindRule> {
        let lookup = self.processes.find(process, address, &mut self.met)?;
        lookup.by_stack_pointer
    }

    /// Returns the rule of a frame in a ReadyToRun image whose frame pointer is unknown.
    pub(super) fn file_rule_by_stack_pointer(
        &mut self,
        process: &SampledProcess<'_>,
        location: InFile,
        interrupted: bool,
        time: &mut OwnerTime,
    ) -> Option<UnwindRule> {
        let lookup = self
            .images
            .find(process.files, location, interrupted, time)?;
        lookup.by_stack_pointer
    }

    fn cache(&mut self, key: &Key, lookup: &RuleLookup, now: Epoch) -> Option<UnwindRule> {
        let epoch = if lookup.is_stable { Epoch::ALWAYS } else { now };
        self.rules.insert(key, lookup.rule, epoch);
        lookup.rule
    }

    /// Passes on the JIT code that the last walk met. Keeps its rules if `keep` returns true.
    pub(super) fn retain_met(
        &mut self,
        process: ProcessId,
        mut keep: impl FnMut(&Runtime, &MetCode) -> bool,
    ) {
        if self.met.code.is_empty() {
            return;
        }
        let Some(runtime) = self.processes.runtime(process) else {
            return;
        };
        for code in &self.met.code {
            if !keep(runtime, code) {
                self.rules
                    .remove(&Key::of_jit(process, code.ip, code.interrupted));
            }
        }
    }

    /// Forgets a process that has ended.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.processes.forget(process);
    }

    /// Returns the runtime of a process. Returns `None` if it has none, or it cannot be read.
    pub(super) fn runtime(&mut self, process: &SampledProcess<'_>) -> Option<&Runtime> {
        self.processes.attached(process, &mut self.met)
    }

    /// Returns whether the runtime of a process describes its JIT code.
    pub(super) fn describes(&self, process: ProcessId) -> bool {
        self.processes.runtime(process).is_some()
    }

    /// Returns why frames fell back to the frame pointer.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        self.processes.notices()
    }
}

/// Unwind information and code of one function, as a fuzz target provides them.
#[derive(Clone, Copy, Debug)]
pub struct FunctionBytes<'a> {
    /// UNWIND_INFO of the function.
    pub unwind_info: &'a [u8],
    /// Code of the function from its start.
    pub code: &'a [u8],
}

/// Returns the rule at an offset from the start of a function.
#[must_use]
pub fn function_rule(
    bytes: FunctionBytes<'_>,
    offset: u64,
    interrupted: bool,
) -> Option<UnwindRule> {
    let start = 1 << 32;
    let function = FunctionEntry {
        begin: start,
        end: start + bytes.code.len() as u64,
        unwind_info: 0,
    };
    let address = frame_address(start + offset, interrupted)?;
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

/// Returns the rule of a frame in a function.
fn rule_in(memory: &impl Memory, function: &FunctionEntry, address: FrameAddress) -> RuleLookup {
    let ip = address.address();
    let offset = ip.wrapping_sub(function.begin);
    let info = UnwindInfo::read(
        memory,
        function.unwind_info,
        function.end.saturating_sub(function.begin),
    );
    // The prologue has no epilogue, but a tail call there may look like one.
    let prologue_bytes = info.as_ref().map_or(0, UnwindInfo::prologue_bytes);
    if is_interrupted(address) && offset >= prologue_bytes {
        let mut code = [0; epilogue::MAX_BYTES];
        let code = read(memory, ip, &mut code);
        if let Some(rule) = epilogue::rule(code, ip, &(function.begin..function.end)) {
            return RuleLookup::only(Some(rule), true);
        }
    }
    if let Some(info) = info {
        return RuleLookup {
            rule: info.rule_at(offset),
            by_stack_pointer: info.rule_by_stack_pointer(offset),
            is_stable: true,
        };
    }
    let mut code = [0; prologue::MAX_BYTES];
    let rule = prologue::rule(read(memory, function.begin, &mut code), offset);
    // The runtime may publish the unwind information later.
    RuleLookup::only(rule, false)
}

/// Returns the rule of a frame in a stub, which belongs to no function.
fn stub_rule(memory: &impl Memory, address: FrameAddress) -> Option<UnwindRule> {
    let mut code = [0; stub::MAX_BYTES];
    let code = read(memory, address.address(), &mut code);
    is_interrupted(address).then(|| stub::rule(code))?
}

fn read<'a>(memory: &impl Memory, address: u64, buffer: &'a mut [u8]) -> &'a [u8] {
    let bytes = memory.read(address, buffer);
    buffer.get(..bytes).unwrap_or_default()
}
