//! Field offsets of the runtime's structures, by version of the runtime.
//!
//! Since .NET 9 the runtime publishes them in the data contract descriptor for debuggers: a header
//! and JSON at the symbol `DotNetRuntimeContractDescriptor` (docs/design/datacontracts in
//! dotnet/runtime). The descriptor of .NET 9 lacks the structures of the execution manager, which
//! are those of .NET 8.

use serde::Deserialize;
use serde::de::IgnoredAny;

use std::collections::BTreeMap;

use super::contract_error::{ContractError, OffsetError, TypeSystemError, UnsupportedVersion};
use super::contract_version::ContractVersion;
use super::memory::{Memory, Structure};
use super::type_system::{self, TypeSystem};

/// `DNCCDAC\0`, the first eight bytes of a descriptor of this byte order.
const MAGIC: u64 = 0x0043_4144_4343_4e44;
/// Size limit of a descriptor. The descriptor of .NET 10.0 has 10.5 KB.
const MAX_DESCRIPTOR_BYTES: usize = 256 << 10;
/// Size limit of the pointers of a descriptor. .NET 10.0 has 24.
const MAX_POINTER_BYTES: usize = 64 << 10;
/// The contract for code lookup. Its versions differ in the nibble map.
/// [`super::execution_manager`] distinguishes the two forms by content.
const EXECUTION_MANAGER: &str = "ExecutionManager";
/// The contract for method names.
const RUNTIME_TYPE_SYSTEM: &str = "RuntimeTypeSystem";
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
    /// Address of the range section map, if the descriptor states it.
    pub(super) section_map: Option<u64>,
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
    section_map: None,
    types: Ok(type_system::DOTNET_8),
};

#[derive(Deserialize)]
struct Descriptor {
    #[serde(default)]
    version: u64,
    contracts: BTreeMap<String, ContractVersion>,
    types: BTreeMap<String, BTreeMap<String, Field>>,
    #[serde(default)]
    globals: BTreeMap<String, Global>,
}

/// A global variable of the descriptor: a value and a type, or an index into the pointers of the
/// descriptor and a type.
#[derive(Deserialize)]
#[serde(untagged)]
enum Global {
    Constant(String, IgnoredAny),
    Pointer([u32; 1], IgnoredAny),
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
            Some(address) => {
                let (json, pointers) = read_descriptor(memory, address)?;
                Self::parse(&json, |index| {
                    let pointer = pointers.get(index as usize)?;
                    Some(u64::from_le_bytes(*pointer))
                })
            }
        }
    }

    /// Parses the JSON of a descriptor. `pointer` returns the pointer with an index.
    ///
    /// # Errors
    /// The JSON is malformed, or its contract versions are not supported.
    pub fn parse(json: &[u8], pointer: impl Fn(u32) -> Option<u64>) -> Result<Self, ContractError> {
        let descriptor: Descriptor = serde_json::from_slice(json)?;
        let types = descriptor.type_system();
        let Some(version) = descriptor.contracts.get(EXECUTION_MANAGER) else {
            return match descriptor.types.contains_key("RangeSection") {
                true => Err(ContractError::NoExecutionManager),
                false => Ok(Self { types, ..DOTNET_8 }),
            };
        };
        descriptor.check(EXECUTION_MANAGER, *version)?;
        let section_map = match descriptor
            .globals
            .get("ExecutionManagerCodeRangeMapAddress")
        {
            Some(Global::Pointer([index], _)) => pointer(*index),
            _ => None,
        };
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
                // The descriptor of .NET 10 omits this field, which follows the heap.
                range_list: match offset("RangeSection", "RangeList") {
                    Ok(stated) => stated,
                    Err(_) => offset("RangeSection", "HeapList")? + 8,
                },
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
            section_map,
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

    /// Checks that the version of a contract is supported.
    fn check(
        &self,
        contract: &'static str,
        version: ContractVersion,
    ) -> Result<(), UnsupportedVersion> {
        let is_supported = match (self.version, version) {
            // .NET 9 and 10.
            (0, ContractVersion::Number(1)) => true,
            (0, ContractVersion::Number(2)) => contract == EXECUTION_MANAGER,
            // .NET 11, whose `c1` is the newest version of .NET 10.
            (2, version) => version == ContractVersion::named("c1"),
            _ => false,
        };
        match is_supported {
            true => Ok(()),
            false => Err(UnsupportedVersion {
                contract,
                version,
                descriptor: self.version,
            }),
        }
    }

    fn type_system(&self) -> Result<TypeSystem, TypeSystemError> {
        let version = self.contracts.get(RUNTIME_TYPE_SYSTEM);
        self.check(
            RUNTIME_TYPE_SYSTEM,
            *version.ok_or(TypeSystemError::NoTypeSystem)?,
        )?;
        match self.globals.get("MethodDescTokenRemainderBitCount") {
            Some(Global::Constant(bits, _)) if bits == TOKEN_REMAINDER_BITS => {}
            _ => return Err(TypeSystemError::TokenBits),
        }
        Ok(TypeSystem::from_descriptor(|structure, field| {
            self.offset(structure, field)
        })?)
    }
}

/// Reads the JSON and the pointers of the descriptor at an address.
///
/// ```text
/// +0 magic   +8 u32 flags   +12 u32 size of the JSON   +16 -> JSON   +24 u32 number of pointers   +32 -> pointers
/// ```
fn read_descriptor(
    memory: &impl Memory,
    address: u64,
) -> Result<(Vec<u8>, Vec<[u8; 8]>), ContractError> {
    let descriptor = Structure::new(memory, address);
    let found = descriptor.u64(0)?;
    if found != MAGIC {
        return Err(ContractError::Magic { address, found });
    }
    let (json, bytes) = (descriptor.u64(16)?, descriptor.u32(12)?);
    let json = memory.vec(json, bytes.into(), MAX_DESCRIPTOR_BYTES)?;
    let (pointers, count) = (descriptor.u64(32)?, descriptor.u32(24)?);
    let pointers = memory.vec(pointers, u64::from(count) * 8, MAX_POINTER_BYTES)?;
    let (pointers, _) = pointers.as_chunks();
    Ok((json, pointers.to_vec()))
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
        "RealCodeHeader":{"MethodDesc":24,"GCInfo":16,"NumUnwindInfos":32,"UnwindInfos":36}},"globals":{"ExecutionManagerCodeRangeMapAddress":[[1],"pointer"]}}"#;

    fn parse(json: &str) -> Result<Contract, ContractError> {
        Contract::parse(json.as_bytes(), |_| None)
    }

    /// The execution manager of .NET 8, 9 and 10, without a type system.
    const WITHOUT_TYPES: Contract = Contract {
        types: Err(TypeSystemError::NoTypeSystem),
        ..DOTNET_8
    };

    #[test]
    fn reads_offsets_from_descriptor() {
        assert_eq!(parse(DOTNET_10).unwrap(), WITHOUT_TYPES);
        let moved = DOTNET_10.replace("\"HeaderMap\":40", "\"HeaderMap\":48");
        assert_eq!(parse(&moved).unwrap().heap.nibble_map, 48);
    }

    #[test]
    fn rejects_unknown_contracts() {
        let map = "no valid offset of CodeHeapListNode.HeaderMap";
        for (valid, unknown, expected) in [
            (
                "\"ExecutionManager\":2",
                "\"ExecutionManager\":3",
                "version 3 of the contract ExecutionManager is not supported",
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
            let error = parse(&json).unwrap_err().to_string();
            assert!(error.contains(expected), "{unknown}: {error}");
        }
    }

    #[test]
    fn uses_dotnet_8_offsets_if_descriptor_lacks_execution_manager() {
        let json = r#"{"contracts":{"Thread":1},"types":{"Thread":{"Id":8}}}"#;
        assert_eq!(parse(json).unwrap(), WITHOUT_TYPES);
    }

    /// Made by hand from the published changes of .NET 11, of which no build was available.
    #[test]
    fn reads_dotnet_11_descriptor() {
        let json = DOTNET_10
            .replace("\"version\":0", "\"version\":2")
            .replace("\"ExecutionManager\":2", "\"ExecutionManager\":\"c1\"")
            .replace(
                "\"Thread\":1",
                "\"RuntimeTypeSystem\":\"c9\",\"Thread\":\"c1\"",
            )
            .replace("\"HeapList\":40", "\"HeapList\":40,\"RangeList\":56");
        let contract = parse(&json).unwrap();
        assert_eq!(contract.section.range_list, 56);
        let error = contract.types.unwrap_err().to_string();
        let expected =
            "version c9 of the contract RuntimeTypeSystem is not supported (descriptor version 2)";
        assert_eq!(error, expected);
        // The name means nothing without the version of the descriptor, and vice versa.
        for (stated, other) in [("\"version\":2", "\"version\":3"), ("\"c1\"", "1")] {
            let error = parse(&json.replace(stated, other)).unwrap_err();
            assert!(matches!(error, ContractError::Version(_)), "{error}");
        }
    }

    #[test]
    fn reads_descriptor_from_memory() {
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend((DOTNET_10.len() as u32).to_le_bytes());
        bytes.extend(0x1038_u64.to_le_bytes());
        bytes.extend(2_u64.to_le_bytes());
        bytes.extend(0x1028_u64.to_le_bytes());
        bytes.extend(
            [0, 0x7f00_0000_1000_u64]
                .map(u64::to_le_bytes)
                .as_flattened(),
        );
        bytes.extend(DOTNET_10.as_bytes());
        fn read(bytes: &[u8]) -> Result<Contract, ContractError> {
            let start = 0x1000;
            Contract::of(&Image { start, bytes }, Some(start))
        }
        let with_map = Contract {
            section_map: Some(0x7f00_0000_1000),
            ..WITHOUT_TYPES
        };
        assert_eq!(read(&bytes).unwrap(), with_map);
        assert!(matches!(read(&bytes[..100]), Err(ContractError::Read(_))));
        bytes[0] = 0;
        assert!(matches!(read(&bytes), Err(ContractError::Magic { .. })));
    }
}
