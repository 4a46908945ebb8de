//! Field offsets of the runtime's structures, by version of the runtime.
//!
//! Since .NET 9 the runtime publishes them in the data contract descriptor for debuggers: a header
//! and JSON at the symbol `DotNetRuntimeContractDescriptor` (docs/design/datacontracts in
//! dotnet/runtime). The descriptor of .NET 9 lacks the structures of the execution manager, which
//! are those of .NET 8.

use serde::Deserialize;
use serde::de::IgnoredAny;

use std::collections::BTreeMap;

use super::contract_error::{ContractError, OffsetError, TypeSystemError};
use super::memory::{Memory, Structure};
use super::type_system::{self, TypeSystem};

/// `DNCCDAC\0`, the first eight bytes of a descriptor of this byte order.
const MAGIC: u64 = 0x0043_4144_4343_4e44;
/// Size limit of a descriptor. The descriptor of .NET 10.0 has 10.5 KB.
const MAX_DESCRIPTOR_BYTES: usize = 256 << 10;
/// Supported versions of the contract `ExecutionManager`.
///
/// They differ in the nibble map. [`super::execution_manager`] distinguishes its two forms by
/// content.
const EXECUTION_MANAGER: [u64; 2] = [1, 2];
/// Supported version of the contract `RuntimeTypeSystem`.
const RUNTIME_TYPE_SYSTEM: u64 = 1;
/// Number of low bits of a method's token in a MethodDesc, according to that contract.
const TOKEN_REMAINDER_BITS: &str = "0xc";
/// Limit on the offsets of these structures.
const MAX_OFFSET: u64 = 4096;

/// Field offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    pub(super) fragment: Fragment,
    pub(super) section: Section,
    pub(super) heap: Heap,
    pub(super) header: Header,
    /// Offsets for method names.
    pub(super) types: Result<TypeSystem, TypeSystemError>,
}

/// `RangeSectionFragment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) next: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) section: u64,
}

/// `RangeSection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) flags: u64,
    pub(super) ready_to_run_module: u64,
    pub(super) heap: u64,
    pub(super) range_list: u64,
}

/// `CodeHeapListNode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heap {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) map_base: u64,
    pub(super) nibble_map: u64,
}

/// `RealCodeHeader`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) method_desc: u64,
    pub(super) unwind_info_count: u64,
    pub(super) unwind_infos: u64,
}

/// The offsets of .NET 8.
pub(super) const DOTNET_8: Contract = Contract {
    fragment: Fragment {
        next: 0,
        start: 8,
        end: 16,
        section: 24,
    },
    section: Section {
        start: 0,
        end: 8,
        flags: 16,
        ready_to_run_module: 32,
        heap: 40,
        range_list: 48,
    },
    heap: Heap {
        start: 16,
        end: 24,
        map_base: 32,
        nibble_map: 40,
    },
    header: Header {
        method_desc: 24,
        unwind_info_count: 32,
        unwind_infos: 36,
    },
    types: Ok(type_system::DOTNET_8),
};

#[derive(Deserialize)]
struct Descriptor {
    contracts: BTreeMap<String, u64>,
    types: BTreeMap<String, BTreeMap<String, Field>>,
    #[serde(default)]
    globals: BTreeMap<String, Global>,
}

/// A global variable of the descriptor. A constant has a value and a type.
#[derive(Deserialize)]
#[serde(untagged)]
enum Global {
    Constant(String, IgnoredAny),
    Other(IgnoredAny),
}

/// A field of the descriptor: its offset, or its offset and type.
#[derive(Deserialize)]
#[serde(untagged)]
enum Field {
    Offset(u64),
    Typed(u64, IgnoredAny),
    Other(IgnoredAny),
}

impl Contract {
    /// Reads the contract of a runtime. A runtime without descriptor is .NET 8.
    ///
    /// # Errors
    /// The descriptor is not readable or malformed, or its contract versions are not supported.
    pub fn of(memory: &impl Memory, descriptor: Option<u64>) -> Result<Self, ContractError> {
        match descriptor {
            None => Ok(DOTNET_8),
            Some(address) => Self::parse(&descriptor_json(memory, address)?),
        }
    }

    /// Parses the JSON of a descriptor.
    ///
    /// # Errors
    /// The JSON is malformed, or its contract versions are not supported.
    pub fn parse(json: &[u8]) -> Result<Self, ContractError> {
        let descriptor: Descriptor = serde_json::from_slice(json)?;
        let types = descriptor.type_system();
        let Some(version) = descriptor.contracts.get("ExecutionManager") else {
            return match descriptor.types.contains_key("RangeSection") {
                true => Err(ContractError::NoExecutionManager),
                false => Ok(Self { types, ..DOTNET_8 }),
            };
        };
        if !EXECUTION_MANAGER.contains(version) {
            return Err(ContractError::ExecutionManager(*version));
        }
        let offset = |structure, field| descriptor.offset(structure, field);
        Ok(Self {
            fragment: Fragment {
                next: offset("RangeSectionFragment", "Next")?,
                start: offset("RangeSectionFragment", "RangeBegin")?,
                end: offset("RangeSectionFragment", "RangeEndOpen")?,
                section: offset("RangeSectionFragment", "RangeSection")?,
            },
            section: Section {
                start: offset("RangeSection", "RangeBegin")?,
                end: offset("RangeSection", "RangeEndOpen")?,
                flags: offset("RangeSection", "Flags")?,
                ready_to_run_module: offset("RangeSection", "R2RModule")?,
                heap: offset("RangeSection", "HeapList")?,
                // The descriptor omits this field, which follows the heap.
                range_list: offset("RangeSection", "HeapList")? + 8,
            },
            heap: Heap {
                start: offset("CodeHeapListNode", "StartAddress")?,
                end: offset("CodeHeapListNode", "EndAddress")?,
                map_base: offset("CodeHeapListNode", "MapBase")?,
                nibble_map: offset("CodeHeapListNode", "HeaderMap")?,
            },
            header: Header {
                method_desc: offset("RealCodeHeader", "MethodDesc")?,
                unwind_info_count: offset("RealCodeHeader", "NumUnwindInfos")?,
                unwind_infos: offset("RealCodeHeader", "UnwindInfos")?,
            },
            types,
        })
    }
}

impl Descriptor {
    fn offset(&self, structure: &'static str, field: &'static str) -> Result<u64, OffsetError> {
        let fields = self.types.get(structure);
        match fields.and_then(|fields| fields.get(field)) {
            Some(Field::Offset(offset) | Field::Typed(offset, _)) if *offset <= MAX_OFFSET => {
                Ok(*offset)
            }
            _ => Err(OffsetError { structure, field }),
        }
    }

    fn type_system(&self) -> Result<TypeSystem, TypeSystemError> {
        if self.contracts.get("RuntimeTypeSystem") != Some(&RUNTIME_TYPE_SYSTEM) {
            return Err(TypeSystemError::Version);
        }
        match self.globals.get("MethodDescTokenRemainderBitCount") {
            Some(Global::Constant(bits, _)) if bits == TOKEN_REMAINDER_BITS => {}
            _ => return Err(TypeSystemError::TokenBits),
        }
        Ok(TypeSystem::from_descriptor(|structure, field| {
            self.offset(structure, field)
        })?)
    }
}

/// Reads the JSON of the descriptor at an address.
///
/// ```text
/// +0 magic   +8 u32 flags   +12 u32 size of the JSON   +16 pointer to the JSON   +24 pointers to globals
/// ```
fn descriptor_json(memory: &impl Memory, address: u64) -> Result<Vec<u8>, ContractError> {
    let descriptor = Structure::new(memory, address);
    let found = descriptor.u64(0)?;
    if found != MAGIC {
        return Err(ContractError::Magic { address, found });
    }
    let size = descriptor.u32(12)?;
    let json = descriptor.u64(16)?;
    Ok(memory.vec(json, size.into(), MAX_DESCRIPTOR_BYTES)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dotnet::memory::Image;

    /// The relevant part of the descriptor of .NET 10.0.12, with both notations of fields.
    const DOTNET_10: &str = r#"{"version":0,"baseline":"empty","contracts":{"ExecutionManager":2,"Thread":1},"types":{
        "RangeSectionFragment":{"RangeBegin":[8,"pointer"],"RangeEndOpen":16,"RangeSection":24,"Next":0},
        "RangeSection":{"RangeBegin":0,"RangeEndOpen":8,"NextForDelete":64,"JitManager":24,"Flags":16,"HeapList":40,"R2RModule":32},
        "CodeHeapListNode":{"Next":0,"StartAddress":16,"EndAddress":24,"MapBase":32,"HeaderMap":40},
        "RealCodeHeader":{"MethodDesc":24,"GCInfo":16,"NumUnwindInfos":32,"UnwindInfos":36}},"globals":{"X":[[1],"pointer"]}}"#;

    /// The execution manager of .NET 8, 9 and 10, without a type system.
    const WITHOUT_TYPES: Contract = Contract {
        types: Err(TypeSystemError::Version),
        ..DOTNET_8
    };

    #[test]
    fn reads_offsets_from_descriptor() {
        assert_eq!(
            Contract::parse(DOTNET_10.as_bytes()).unwrap(),
            WITHOUT_TYPES
        );
        let moved = DOTNET_10.replace("\"HeaderMap\":40", "\"HeaderMap\":48");
        assert_eq!(
            Contract::parse(moved.as_bytes()).unwrap().heap.nibble_map,
            48
        );
    }

    #[test]
    fn rejects_unknown_contracts() {
        let map = "no valid offset of CodeHeapListNode.HeaderMap";
        for (valid, unknown, expected) in [
            (
                "\"ExecutionManager\":2",
                "\"ExecutionManager\":3",
                "version 3 of the contract ExecutionManager",
            ),
            (
                "\"ExecutionManager\":2,",
                "",
                "no version of the contract ExecutionManager",
            ),
            ("\"HeaderMap\":40", "\"HeaderMap\":40000", map),
            ("\"HeaderMap\"", "\"OtherMap\"", map),
            ("\"HeaderMap\":40", "\"HeaderMap\":\"40\"", map),
            ("{", "", "malformed data contract descriptor"),
        ] {
            let json = DOTNET_10.replacen(valid, unknown, 1);
            let error = Contract::parse(json.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{unknown}: {error}");
        }
    }

    #[test]
    fn uses_dotnet_8_offsets_if_descriptor_lacks_execution_manager() {
        let json = br#"{"contracts":{"Thread":1},"types":{"Thread":{"Id":8}}}"#;
        assert_eq!(Contract::parse(json).unwrap(), WITHOUT_TYPES);
    }

    #[test]
    fn reads_descriptor_from_memory() {
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend((DOTNET_10.len() as u32).to_le_bytes());
        bytes.extend(0x1028_u64.to_le_bytes());
        bytes.extend([0; 16]);
        bytes.extend(DOTNET_10.as_bytes());
        fn read(bytes: &[u8]) -> Result<Contract, ContractError> {
            let start = 0x1000;
            Contract::of(&Image { start, bytes }, Some(start))
        }
        assert_eq!(read(&bytes).unwrap(), WITHOUT_TYPES);
        assert!(matches!(read(&bytes[..100]), Err(ContractError::Read(_))));
        bytes[0] = 0;
        assert!(matches!(read(&bytes), Err(ContractError::Magic { .. })));
    }
}
