//! Code lookup in the .NET runtime of a process.

use std::collections::BTreeMap;

use super::contract::Contract;
use super::contract_error::TypeSystemError;
use super::execution_manager::{RangeSection, SectionKind, section_at};
use super::memory::{Memory, ProcessMemory};
use super::method::{CodeBlock, Method};
use super::runtime_error::{AttachError, CodeLookupError};
use super::runtime_file::RuntimeFile;
use super::stub_kind::StubKind;
use super::type_system::TypeSystem;

/// Limit on the methods cached for a process. Beyond it, the cache is cleared.
const MAX_METHODS: usize = 1 << 15;
/// Limit on the cached range sections. webapi has 145.
const MAX_SECTIONS: usize = 1 << 12;

/// The code at an address of JIT memory.
#[derive(Debug)]
pub enum Code<'a> {
    /// A compiled method.
    Method(&'a Method),
    /// A stub: a few instructions that jump elsewhere.
    Stub(Stub),
    /// Code that the runtime does not describe.
    Foreign,
}

/// A range of stubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub {
    /// The purpose of the stubs.
    pub kind: StubKind,
    /// The first known address of the stubs.
    pub begin: u64,
    /// The exclusive end address.
    pub end: u64,
}

impl Stub {
    /// Creates the range of a single address, for a stub of unknown extent.
    fn at(address: u64, kind: StubKind) -> Self {
        Self {
            kind,
            begin: address,
            end: address.saturating_add(1),
        }
    }
}

/// The result of a code lookup.
#[derive(Debug)]
pub struct CodeLookup<'a> {
    /// The code at the address.
    pub code: Code<'a>,
    /// Whether the runtime may free the code and reuse its address at any time.
    pub collectible: bool,
}

/// The runtime of one process.
#[derive(Debug)]
pub struct Runtime<M = ProcessMemory> {
    memory: M,
    contract: Contract,
    /// Address of the DAC table (`g_dacTable`).
    dac_table: u64,
    /// Address of the range section map.
    section_map: u64,
    /// Non-collectible sections by their last address.
    sections: BTreeMap<u64, RangeSection>,
    /// Non-collectible methods by start address.
    methods: BTreeMap<u64, Method>,
    /// The collectible method of the last lookup.
    collectible_method: Option<Method>,
}

impl<M: Memory> Runtime<M> {
    /// Attaches to the runtime of a process, which is loaded at `bias` from its link-time address.
    ///
    /// # Errors
    /// The process has ended, its runtime is not yet initialized, or the version of the runtime is
    /// not supported.
    pub fn attach(memory: M, file: &RuntimeFile, bias: u64) -> Result<Self, AttachError> {
        let descriptor = file.descriptor.map(|svma| svma.wrapping_add(bias));
        let dac_table = file.dac_table.wrapping_add(bias);
        let contract = Contract::of(&memory, descriptor);
        // The descriptor is not readable if the process has ended: that is no unknown version.
        section_map(&memory, dac_table)?;
        Self::new(memory, contract?, dac_table)
    }

    /// Attaches to the runtime whose DAC table is at `dac_table`.
    ///
    /// # Errors
    /// The process has ended, or its runtime is not yet initialized.
    pub fn new(memory: M, contract: Contract, dac_table: u64) -> Result<Self, AttachError> {
        let section_map = section_map(&memory, dac_table)?;
        Ok(Self {
            memory,
            contract,
            dac_table,
            section_map: contract.section_map.unwrap_or(section_map),
            sections: BTreeMap::new(),
            methods: BTreeMap::new(),
            collectible_method: None,
        })
    }

    /// Returns the memory of the process.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    pub(super) fn types(&self) -> Result<TypeSystem, TypeSystemError> {
        self.contract.types
    }

    pub(super) fn dac_table(&self) -> u64 {
        self.dac_table
    }

    /// Looks up the code at an address.
    ///
    /// # Errors
    /// The runtime's structures are currently not readable or inconsistent.
    pub fn code_at(&mut self, address: u64) -> Result<CodeLookup<'_>, CodeLookupError> {
        let Ok(section) = self.section(address) else {
            // The lookup of a process that has ended fails, too.
            self.memory.u64(self.dac_table)?;
            return Ok(CodeLookup {
                code: Code::Foreign,
                collectible: true,
            });
        };
        let collectible = section.collectible;
        let code = match section.kind {
            SectionKind::Stubs(kind) => Code::Stub(Stub {
                kind,
                begin: section.start,
                end: section.end,
            }),
            SectionKind::Other => return Err(CodeLookupError::Invalid("code heap", address)),
            SectionKind::CodeHeap(heap) => {
                let start = heap.method_start(&self.memory, address)?;
                self.code_block(start, address, collectible)?
            }
        };
        // Stubs, data and padding follow the end of a method.
        let code = match code {
            Code::Method(method) if method.function_at(address).is_none() => {
                Code::Stub(Stub::at(address, StubKind::Unknown))
            }
            code => code,
        };
        Ok(CodeLookup { code, collectible })
    }

    fn section(&mut self, address: u64) -> Result<RangeSection, CodeLookupError> {
        let next = self.sections.range(address..).next();
        if let Some((_, section)) = next.filter(|(_, section)| section.start <= address) {
            return Ok(*section);
        }
        let section = section_at(&self.memory, &self.contract, self.section_map, address)?;
        if !section.collectible {
            if self.sections.len() >= MAX_SECTIONS {
                self.sections.clear();
            }
            self.sections.insert(section.end - 1, section);
        }
        Ok(section)
    }

    /// Returns the code of the block that starts at `start` and contains `address`.
    fn code_block(
        &mut self,
        start: u64,
        address: u64,
        collectible: bool,
    ) -> Result<Code<'_>, CodeLookupError> {
        if collectible || !self.methods.contains_key(&start) {
            let method = match CodeBlock::read(&self.memory, &self.contract, start)? {
                CodeBlock::Method(method) => method,
                CodeBlock::Stubs(kind) => return Ok(Code::Stub(Stub::at(address, kind))),
            };
            if collectible {
                return Ok(Code::Method(self.collectible_method.insert(method)));
            }
            if self.methods.len() >= MAX_METHODS {
                self.methods.clear();
            }
            self.methods.insert(start, method);
        }
        let method = self.methods.get(&start).map(Code::Method);
        method.ok_or(CodeLookupError::Invalid("method", address))
    }
}

/// Reads the address of the range section map from the DAC table.
fn section_map(memory: &impl Memory, dac_table: u64) -> Result<u64, AttachError> {
    match memory.u64(dac_table) {
        Ok(0) => Err(AttachError::NotInitialized(dac_table)),
        Ok(map) => Ok(map),
        Err(_) => Err(AttachError::Ended),
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract::DOTNET_8;
    use super::super::contract_error::ContractError;
    use super::super::execution_manager::tests::{Bytes, NIBBLE_MAP, SECTION_MAP, code_heap};
    use super::*;

    const START: u64 = 0x40_0000;
    const HEADER: u64 = 0x6_0000;
    const DAC_TABLE: u64 = 0x5_0000;

    #[test]
    fn distinguishes_an_ended_process_from_an_unknown_version() {
        let file = RuntimeFile {
            dac_table: DAC_TABLE,
            descriptor: Some(HEADER),
            segments: Vec::new(),
        };
        let mut bytes = Bytes(Vec::new());
        let attach = |bytes: &Bytes| Runtime::attach(bytes.memory(), &file, 0).map(|_| ());
        assert!(matches!(attach(&bytes), Err(AttachError::Ended)));
        bytes.put(DAC_TABLE, 0);
        assert!(matches!(
            attach(&bytes),
            Err(AttachError::NotInitialized(DAC_TABLE))
        ));
        bytes.put(DAC_TABLE, SECTION_MAP);
        let error = attach(&bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read the data contract descriptor: cannot read 8 bytes at 0x60000"
        );
        bytes.put(HEADER, 7);
        assert!(matches!(
            attach(&bytes),
            Err(AttachError::Contract(ContractError::Magic { found: 7, .. }))
        ));
    }

    #[test]
    fn finds_methods_and_stubs_by_address() {
        for flags in [2, 3] {
            let mut bytes = code_heap(START, flags);
            // A method at +0x40 of 0x30 bytes, a block of stubs at +0x100.
            bytes.put_bytes(NIBBLE_MAP, &0x0010_0000_u32.to_le_bytes());
            bytes.put_bytes(NIBBLE_MAP + 4, &0x1000_0000_u32.to_le_bytes());
            bytes.put(START + 0x38, HEADER);
            bytes.put(START + 0xf8, 5);
            bytes.put(HEADER + 32, 1);
            for (at, value) in [(36, 0x40_u32), (40, 0x70), (44, 0x80)] {
                bytes.put_bytes(HEADER + at, &value.to_le_bytes());
            }
            bytes.put(DAC_TABLE, SECTION_MAP);
            let mut runtime = Runtime::new(bytes.memory(), DOTNET_8, DAC_TABLE).unwrap();
            for _ in 0..2 {
                let lookup = runtime.code_at(START + 0x50).unwrap();
                assert_eq!(lookup.collectible, flags == 3);
                assert!(
                    matches!(lookup.code, Code::Method(method) if method.key.start == START + 0x40)
                );
                for stub in [0x70, 0x100, 0x120] {
                    let lookup = runtime.code_at(START + stub).unwrap();
                    assert!(matches!(lookup.code, Code::Stub(_)), "{stub:#x}");
                }
            }
            let before = runtime.code_at(START + 0x3f).unwrap_err();
            assert_eq!(before, CodeLookupError::Invalid("method", START + 0x3f));
            let outside = runtime.code_at(START + 0x2_0000).unwrap();
            assert!(matches!(outside.code, Code::Foreign));
            assert_eq!(runtime.methods.len(), usize::from(flags == 2));
        }
    }
}
