//! One linear pass over the code of a file: where instructions are, and what they refer to.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use perfcollect_symbols::elf::CodeImage;

/// Limit of the jumps, calls and loads of addresses. libcoreclr.so has 200 000 jumps.
const MAX_REFERENCES: usize = 2 << 20;

/// Bits of addresses of a segment.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(bytes: usize) -> Self {
        Self(vec![0; bytes.div_ceil(64)])
    }

    fn set(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    fn has(&self, index: usize) -> bool {
        self.0
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 != 0)
    }
}

/// Instructions of an executable segment.
struct Region {
    start: u64,
    /// First bytes of instructions.
    instructions: Bits,
    /// Targets of direct jumps.
    targets: Bits,
}

/// What the pass found.
#[derive(Default)]
pub(super) struct Sweep {
    regions: Vec<Region>,
    /// Targets of direct calls.
    pub(super) calls: Vec<u64>,
    /// Addresses in code that an instruction loads: those of functions, mostly.
    pub(super) loaded: Vec<u64>,
    /// These, and ends of padding: functions may start there.
    pub(super) candidates: Vec<u64>,
    /// Target and source of each direct jump.
    pub(super) jumps: Vec<(u64, u64)>,
}

impl Sweep {
    pub(super) fn new(image: &CodeImage) -> Self {
        let mut sweep = Self::default();
        for segment in image.segments.iter().filter(|segment| segment.executable) {
            sweep.regions.push(Region {
                start: segment.address,
                instructions: Bits::new(segment.data.len()),
                targets: Bits::new(segment.data.len()),
            });
        }
        let segments = image.segments.iter().filter(|segment| segment.executable);
        for (region, segment) in segments.enumerate() {
            sweep.add(region, segment.address, &segment.data, image);
        }
        for (target, _) in &sweep.jumps {
            for region in &mut sweep.regions {
                if let Some(index) = target.checked_sub(region.start) {
                    region.targets.set(index as usize);
                }
            }
        }
        sweep.calls.sort_unstable();
        sweep.calls.dedup();
        sweep.loaded.sort_unstable();
        sweep.loaded.dedup();
        sweep.candidates.extend(&sweep.loaded);
        sweep.candidates.sort_unstable();
        sweep.candidates.dedup();
        sweep
    }

    fn add(&mut self, region: usize, start: u64, code: &[u8], image: &CodeImage) {
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        // Whether control cannot reach this address from the one before, or only if a call returns, and
        // whether padding was there.
        let (mut ended, mut called, mut padded) = (true, false, false);
        while decoder.can_decode() {
            let at = decoder.position();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                // The next instruction may start in any byte of it.
                let _ = decoder.set_position(at + 1);
                decoder.set_ip(start.wrapping_add(at as u64 + 1));
                continue;
            }
            if let Some(region) = self.regions.get_mut(region) {
                region.instructions.set(at);
            }
            if is_padding(&instruction) {
                padded = true;
                continue;
            }
            let ip = instruction.ip();
            let is_aligned = ip.is_multiple_of(16);
            let is_start = ended && (padded || is_aligned) || called && padded && is_aligned;
            if is_start && self.candidates.len() < MAX_REFERENCES {
                self.candidates.push(ip);
            }
            padded = false;
            called = matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            );
            ended = matches!(
                instruction.flow_control(),
                FlowControl::Return
                    | FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
            );
            self.refer(&instruction, image);
        }
    }

    fn refer(&mut self, instruction: &Instruction, image: &CodeImage) {
        if self.jumps.len() + self.calls.len() + self.loaded.len() >= MAX_REFERENCES {
            return;
        }
        let is_code = |address| image.code_at(address).is_some();
        match instruction.flow_control() {
            FlowControl::Call if is_near(instruction) => {
                let target = instruction.near_branch_target();
                // `call` of the next instruction gets its address.
                if target != instruction.next_ip() && is_code(target) {
                    self.calls.push(target);
                }
            }
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
                if is_near(instruction) =>
            {
                let target = instruction.near_branch_target();
                if is_code(target) {
                    self.jumps.push((target, instruction.ip()));
                }
            }
            _ => {
                let loaded = match instruction.code() {
                    Code::Lea_r64_m if instruction.is_ip_rel_memory_operand() => {
                        instruction.ip_rel_memory_address()
                    }
                    Code::Mov_r32_imm32 => instruction.immediate32().into(),
                    _ => return,
                };
                if is_code(loaded) {
                    self.loaded.push(loaded);
                }
            }
        }
    }

    fn bit(&self, address: u64, bits: impl Fn(&Region) -> &Bits) -> bool {
        self.regions.iter().any(|region| {
            let index = address.checked_sub(region.start);
            index.is_some_and(|index| bits(region).has(index as usize))
        })
    }

    /// Returns whether an instruction starts at an address.
    pub(super) fn is_instruction(&self, address: u64) -> bool {
        self.bit(address, |region| &region.instructions)
    }

    /// Returns whether a direct jump leads to an address.
    pub(super) fn is_target(&self, address: u64) -> bool {
        self.bit(address, |region| &region.targets)
    }

    /// Returns the memory that it occupies, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let bits = self
            .regions
            .iter()
            .map(|region| region.instructions.0.len() * 16);
        let addresses = self.calls.len() + self.loaded.len() + self.candidates.len();
        bits.sum::<usize>() + (addresses + self.jumps.len() * 2) * 8
    }
}

pub(in crate::unwind) fn is_near(instruction: &Instruction) -> bool {
    matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    )
}

/// Returns whether compilers put the instruction between functions.
pub(super) fn is_padding(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Nop | Mnemonic::Int3 => true,
        // `xchg ax, ax` has a name in the decoder only with some prefixes.
        Mnemonic::Xchg => instruction.op0_register() == instruction.op1_register(),
        _ => false,
    }
}
