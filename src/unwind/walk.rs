//! Walking one sample's stack.

use framehop::{
    CacheNative, Error, FrameAddress, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder as _,
};

use super::module::{ElfModule, FileUnwinder};
use super::stack_copy::StackCopy;
use crate::machine::{Backing, FileTable, Mapping, Maps};
use crate::perf::{Abi, CpuMode, Registers, SampleRecord};
use crate::trace::{CodeAddress, ModuleId, ProcessId, Truncation};

/// Deepest stack that is kept. PerfView's reader overflows its own stack at some ten thousand.
const MAX_FRAMES: usize = 1024;

/// Everything walking needs besides the sample: made once, used for all processes.
#[derive(Default)]
pub struct Unwinder {
    /// By [`ModuleId`]; `None`: not read yet.
    modules: Vec<Option<Option<ElfModule>>>,
    /// Rules by (address, file), shared by all files.
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// Walks code no file describes, by the frame pointer.
    frame_pointers: FileUnwinder,
}

/// Where a user address lies.
struct Place {
    code: CodeAddress,
    /// The file to unwind with and the address in its own terms.
    elf: Option<(ModuleId, u64)>,
}

impl Unwinder {
    /// Fills `leaf_first` with the sample's code addresses and tells why they end before the root, if they do.
    ///
    /// Addresses of callers lie inside their call instruction: return address minus one.
    pub fn walk(
        &mut self,
        sample: &SampleRecord<'_>,
        process: ProcessId,
        maps: &Maps,
        files: &FileTable,
        leaf_first: &mut Vec<CodeAddress>,
    ) -> Option<Truncation> {
        leaf_first.clear();
        kernel_side(sample, leaf_first);
        match (sample.abi, sample.registers) {
            (Abi::None, _) => None,
            (Abi::Bits64, Some(registers)) => {
                let mut walk = Walk {
                    unwinder: self,
                    process,
                    maps,
                    files,
                    stack: StackCopy::new(registers.sp, sample.stack),
                    leaf_first,
                };
                walk.user_side(registers)
            }
            _ => Some(Truncation::NoRegisters),
        }
    }

    fn module(&mut self, id: ModuleId, files: &FileTable) -> Option<&ElfModule> {
        if self.modules.len() <= id.index() {
            self.modules.resize_with(id.index() + 1, || None);
        }
        self.modules[id.index()]
            .get_or_insert_with(|| ElfModule::read(&files.file(id).content))
            .as_ref()
    }
}

fn kernel_side(sample: &SampleRecord<'_>, leaf_first: &mut Vec<CodeAddress>) {
    let mut chain = sample.kernel_chain();
    match chain.next() {
        Some(ip) => leaf_first.push(CodeAddress::Kernel(ip)),
        None if sample.mode == CpuMode::Kernel => leaf_first.push(CodeAddress::Kernel(sample.ip)),
        None => {}
    }
    leaf_first.extend(chain.map(|caller| CodeAddress::Kernel(caller.wrapping_sub(1))));
}

struct Walk<'a> {
    unwinder: &'a mut Unwinder,
    process: ProcessId,
    maps: &'a Maps,
    files: &'a FileTable,
    stack: StackCopy<'a>,
    leaf_first: &'a mut Vec<CodeAddress>,
}

impl Walk<'_> {
    fn user_side(&mut self, registers: Registers) -> Option<Truncation> {
        let mut state = UnwindRegsNative::new(registers.ip, registers.sp, registers.bp);
        let mut frame = FrameAddress::from_instruction_pointer(registers.ip);
        loop {
            if self.leaf_first.len() >= MAX_FRAMES {
                return Some(Truncation::TooDeep);
            }
            let Some(place) = self.place(frame.address_for_lookup()) else {
                if frame.is_return_address() {
                    // A caller outside all code is no caller: the frame before was read wrongly.
                    return Some(Truncation::LostTrack);
                }
                return self.unmapped_leaf(registers.ip);
            };
            self.leaf_first.push(place.code);
            let below = state.sp();
            let caller = match self.caller(frame, &place, &mut state) {
                Ok(Some(address)) => FrameAddress::from_return_address(address),
                Ok(None) | Err(Error::ReturnAddressIsNull) => None,
                // The ABI has rbp 0 at the entry point, which as a rule is assembly without unwind information.
                Err(Error::FramepointerUnwindingMovedBackwards)
                    if state.bp() == 0 && place.elf.is_some() =>
                {
                    None
                }
                Err(Error::CouldNotReadStack(address)) if self.stack.ends_before(address) => {
                    return Some(Truncation::StackCopyEnded);
                }
                Err(_) => return Some(Truncation::LostTrack),
            };
            // A null return address is how hand-written entry points mark the root.
            frame = caller?;
            if state.sp() <= below {
                return Some(Truncation::LostTrack);
            }
        }
    }

    /// In an exec the old program's registers are still there when its memory and stack are gone: then there is
    /// no user side.
    fn unmapped_leaf(&mut self, ip: u64) -> Option<Truncation> {
        if self.stack.is_empty() && !self.leaf_first.is_empty() {
            return None;
        }
        self.leaf_first
            .push(CodeAddress::Unmapped(self.process, ip));
        Some(Truncation::LostTrack)
    }

    fn place(&mut self, address: u64) -> Option<Place> {
        let mapping = self.maps.find(address)?;
        let Backing::File(id) = mapping.backing else {
            return Some(Place {
                code: CodeAddress::Jit(self.process, address),
                elf: None,
            });
        };
        let offset = Mapping::file_offset_of(mapping, address);
        let stated = self
            .unwinder
            .module(id, self.files)
            .and_then(|module| module.address_of(offset));
        Some(match stated {
            Some(stated) => Place {
                code: CodeAddress::Elf(id, stated),
                elf: Some((id, stated)),
            },
            None => Place {
                code: CodeAddress::File(id, offset),
                elf: None,
            },
        })
    }

    /// One step: the return address, with `state` moved to the caller; `None` at the root.
    fn caller(
        &mut self,
        frame: FrameAddress,
        place: &Place,
        state: &mut UnwindRegsNative,
    ) -> Result<Option<u64>, Error> {
        let stack = self.stack;
        let mut read = |address| stack.read(address).ok_or(());
        let Unwinder {
            modules,
            cache,
            frame_pointers,
        } = &mut *self.unwinder;
        let module = place.elf.and_then(|(id, stated)| {
            let module = modules.get(id.index())?.as_ref()?.as_ref()?;
            Some((module, stated))
        });
        let Some((module, stated)) = module else {
            return frame_pointers.unwind_frame(frame, state, cache, &mut read);
        };
        let stated = if frame.is_return_address() {
            FrameAddress::from_return_address(stated + 1).ok_or(Error::ReturnAddressIsNull)?
        } else {
            FrameAddress::from_instruction_pointer(stated)
        };
        module
            .unwinder
            .unwind_frame(stated, state, cache, &mut read)
    }
}
