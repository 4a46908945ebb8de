//! The .NET runtime inside a process: what code it knows.

use std::collections::BTreeMap;

use super::contract::Contract;
use super::execution_manager::{RangeSection, SectionKind, section_at};
use super::memory::{Memory, ProcessMemory};
use super::method::{Method, Start};
use super::runtime_file::RuntimeFile;
use super::stub_kind::StubKind;
use super::type_system::TypeSystem;

/// Most methods that are kept for one process; beyond, all are read anew when they are met.
const MAX_METHODS: usize = 1 << 15;
/// The same for sections; webapi has 145.
const MAX_SECTIONS: usize = 1 << 12;

/// What lies at an address of memory that holds code made at run time.
#[derive(Debug)]
pub enum Code<'a> {
    /// A compiled method.
    Method(&'a Method),
    /// A stub: a few instructions that jump on.
    Stub(Stub),
    /// Code that is not the runtime's to describe.
    Foreign,
}

/// Stubs at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub {
    /// What they are for.
    pub kind: StubKind,
    /// The first address that is known to be of that kind.
    pub begin: u64,
    /// Behind the last.
    pub end: u64,
}

impl Stub {
    /// One that is known by an address in it only.
    fn at(address: u64, kind: StubKind) -> Self {
        Self {
            kind,
            begin: address,
            end: address.saturating_add(1),
        }
    }
}

/// Code, and whether it is there to stay.
#[derive(Debug)]
pub struct CodeLookup<'a> {
    /// What it is.
    pub code: Code<'a>,
    /// It may be freed, and other code put in its place, at any time.
    pub collectible: bool,
}

/// The runtime of one process.
#[derive(Debug)]
pub struct Runtime<M = ProcessMemory> {
    memory: M,
    contract: Contract,
    /// Address of the table for debuggers.
    dac_table: u64,
    /// Address of the range section map.
    top: u64,
    /// By address of the last byte; those that are there to stay.
    sections: BTreeMap<u64, RangeSection>,
    /// By start; those that are there to stay.
    methods: BTreeMap<u64, Method>,
    /// The method found last that is not.
    passing: Option<Method>,
}

impl<M: Memory> Runtime<M> {
    /// The runtime of a process that is loaded so far from where its file states. `None`: not yet set up, or of a
    /// version whose rules are not known.
    pub fn attach(memory: M, file: &RuntimeFile, bias: u64) -> Option<Self> {
        let descriptor = file.descriptor.map(|stated| stated.wrapping_add(bias));
        let contract = Contract::of(&memory, descriptor)?;
        let dac_table = file.dac_table.wrapping_add(bias);
        Self::new(memory, contract, dac_table)
    }

    /// The runtime whose table for debuggers is at `dac_table`. `None`: not yet set up.
    pub fn new(memory: M, contract: Contract, dac_table: u64) -> Option<Self> {
        let top = memory.u64(dac_table).filter(|top| *top != 0)?;
        Some(Self {
            memory,
            contract,
            dac_table,
            top,
            sections: BTreeMap::new(),
            methods: BTreeMap::new(),
            passing: None,
        })
    }

    /// The process's memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    pub(super) fn types(&self) -> Option<TypeSystem> {
        self.contract.types
    }

    pub(super) fn dac_table(&self) -> u64 {
        self.dac_table
    }

    /// What lies at an address. `None`: it cannot be told now.
    pub fn code_at(&mut self, address: u64) -> Option<CodeLookup<'_>> {
        let Some(section) = self.section(address) else {
            // A process that is gone has none either.
            self.memory.u64(self.dac_table).filter(|top| *top != 0)?;
            return Some(CodeLookup {
                code: Code::Foreign,
                collectible: true,
            });
        };
        let collectible = section.collectible;
        let code = match section.kind {
            SectionKind::Stubs(kind) => Code::Stub(Stub {
                kind,
                begin: section.begin,
                end: section.end,
            }),
            SectionKind::Other => return None,
            SectionKind::CodeHeap(heap) => {
                let start = heap.method_start(&self.memory, address)?;
                self.starting_at(start, address, collectible)?
            }
        };
        // A method ends somewhere; behind it are stubs, data and padding.
        let code = match code {
            Code::Method(method) if method.function_at(address).is_none() => {
                Code::Stub(Stub::at(address, StubKind::Unknown))
            }
            code => code,
        };
        Some(CodeLookup { code, collectible })
    }

    fn section(&mut self, address: u64) -> Option<RangeSection> {
        let behind = self.sections.range(address..).next();
        if let Some((_, section)) = behind.filter(|(_, section)| section.begin <= address) {
            return Some(*section);
        }
        let section = section_at(&self.memory, &self.contract, self.top, address)?;
        if !section.collectible {
            if self.sections.len() >= MAX_SECTIONS {
                self.sections.clear();
            }
            self.sections.insert(section.end - 1, section);
        }
        Some(section)
    }

    /// The code that starts at an address and lies at another.
    fn starting_at(&mut self, start: u64, address: u64, collectible: bool) -> Option<Code<'_>> {
        if collectible {
            return match Start::read(&self.memory, &self.contract, start)? {
                Start::Method(method) => Some(Code::Method(self.passing.insert(method))),
                Start::Stubs(kind) => Some(Code::Stub(Stub::at(address, kind))),
            };
        }
        if !self.methods.contains_key(&start) {
            let method = match Start::read(&self.memory, &self.contract, start)? {
                Start::Method(method) => method,
                Start::Stubs(kind) => return Some(Code::Stub(Stub::at(address, kind))),
            };
            if self.methods.len() >= MAX_METHODS {
                self.methods.clear();
            }
            self.methods.insert(start, method);
        }
        self.methods.get(&start).map(Code::Method)
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract::DOTNET_8;
    use super::super::execution_manager::tests::{NIBBLES, TOP, map_of};
    use super::*;

    const BEGIN: u64 = 0x40_0000;
    const HEADER: u64 = 0x6_0000;
    const DAC_TABLE: u64 = 0x5_0000;

    #[test]
    fn an_address_leads_to_its_function() {
        for flags in [2, 3] {
            let mut bytes = map_of(BEGIN, flags);
            // A method at +0x40 of 0x30 bytes, a block of stubs at +0x100.
            bytes.put_bytes(NIBBLES, &0x0010_0000_u32.to_le_bytes());
            bytes.put_bytes(NIBBLES + 4, &0x1000_0000_u32.to_le_bytes());
            bytes.put(BEGIN + 0x38, HEADER);
            bytes.put(BEGIN + 0xf8, 5);
            bytes.put(HEADER + 32, 1);
            for (at, number) in [(36, 0x40_u32), (40, 0x70), (44, 0x80)] {
                bytes.put_bytes(HEADER + at, &number.to_le_bytes());
            }
            bytes.put(DAC_TABLE, TOP);
            let mut runtime = Runtime::new(bytes.memory(), DOTNET_8, DAC_TABLE).unwrap();
            for _ in 0..2 {
                let found = runtime.code_at(BEGIN + 0x50).unwrap();
                assert_eq!(found.collectible, flags == 3);
                assert!(
                    matches!(found.code, Code::Method(method) if method.key.start == BEGIN + 0x40)
                );
                for stub in [0x70, 0x100, 0x120] {
                    let found = runtime.code_at(BEGIN + stub).unwrap();
                    assert!(matches!(found.code, Code::Stub(_)), "{stub:#x}");
                }
            }
            assert!(runtime.code_at(BEGIN + 0x3f).is_none());
            let outside = runtime.code_at(BEGIN + 0x2_0000).unwrap();
            assert!(matches!(outside.code, Code::Foreign));
            assert_eq!(runtime.methods.len(), usize::from(flags == 2));
        }
    }
}
