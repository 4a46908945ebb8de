//! Field offsets of the runtime's structures, by version of the runtime.
//!
//! Since .NET 9 the runtime publishes them in the data contract descriptor for debuggers: a header
//! and JSON at the symbol `DotNetRuntimeContractDescriptor` (docs/design/datacontracts in
//! dotnet/runtime). The descriptor of .NET 9 lacks the structures of the execution manager, which
//! are those of .NET 8.

use serde::Deserialize;
use serde::de::IgnoredAny;

use std::collections::BTreeMap;

use super::memory::Memory;
use super::type_system::{self, TypeSystem};

/// `DNCCDAC\0`, the first eight bytes of a descriptor of this byte order.
const MAGIC: u64 = 0x0043_4144_4343_4e44;
/// Size limit of a descriptor. The descriptor of .NET 10.0 has 10.5 KB.
const MAX_DESCRIPTOR_BYTES: u32 = 256 << 10;
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
    /// Offsets for method names. `None` if the version of that contract is not supported.
    pub(super) types: Option<TypeSystem>,
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
    types: Some(type_system::DOTNET_8),
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
    /// Returns `None` if the descriptor is not readable, or its contract versions are not
    /// supported.
    pub fn of(memory: &impl Memory, descriptor: Option<u64>) -> Option<Self> {
        match descriptor {
            None => Some(DOTNET_8),
            Some(address) => Self::parse(&descriptor_json(memory, address)?),
        }
    }

    /// Parses the JSON of a descriptor.
    #[must_use]
    pub fn parse(json: &[u8]) -> Option<Self> {
        let Descriptor {
            contracts,
            types,
            globals,
        } = serde_json::from_slice(json).ok()?;
        let offset = |structure: &str, field: &str| match types.get(structure)?.get(field)? {
            Field::Offset(offset) | Field::Typed(offset, _) => {
                (*offset <= MAX_OFFSET).then_some(*offset)
            }
            Field::Other(_) => None,
        };
        let remainder_bits = globals.get("MethodDescTokenRemainderBitCount");
        let type_system = matches!(
            (contracts.get("RuntimeTypeSystem"), remainder_bits),
            (Some(&RUNTIME_TYPE_SYSTEM), Some(Global::Constant(bits, _))) if bits == TOKEN_REMAINDER_BITS
        )
        .then(|| TypeSystem::from_descriptor(offset))
        .flatten();
        let Some(version) = contracts.get("ExecutionManager") else {
            return (!types.contains_key("RangeSection")).then_some(Self {
                types: type_system,
                ..DOTNET_8
            });
        };
        if !EXECUTION_MANAGER.contains(version) {
            return None;
        }
        Some(Self {
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
            types: type_system,
        })
    }
}

/// Reads the JSON of the descriptor at an address.
///
/// ```text
/// +0 magic   +8 u32 flags   +12 u32 size of the JSON   +16 pointer to the JSON   +24 pointers to globals
/// ```
fn descriptor_json(memory: &impl Memory, address: u64) -> Option<Vec<u8>> {
    if memory.u64(address)? != MAGIC {
        return None;
    }
    let size = memory.u32(address.checked_add(12)?)?;
    let json = memory.u64(address.checked_add(16)?)?;
    if size > MAX_DESCRIPTOR_BYTES {
        return None;
    }
    let mut bytes = vec![0; size as usize];
    (memory.read(json, &mut bytes) == bytes.len()).then_some(bytes)
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
        types: None,
        ..DOTNET_8
    };

    #[test]
    fn reads_offsets_from_descriptor() {
        assert_eq!(Contract::parse(DOTNET_10.as_bytes()), Some(WITHOUT_TYPES));
        let moved = DOTNET_10.replace("\"HeaderMap\":40", "\"HeaderMap\":48");
        assert_eq!(
            Contract::parse(moved.as_bytes()).unwrap().heap.nibble_map,
            48
        );
    }

    #[test]
    fn rejects_unknown_contracts() {
        for (valid, unknown) in [
            ("\"ExecutionManager\":2", "\"ExecutionManager\":3"),
            ("\"HeaderMap\":40", "\"HeaderMap\":40000"),
            ("\"HeaderMap\"", "\"OtherMap\""),
            ("\"HeaderMap\":40", "\"HeaderMap\":\"40\""),
        ] {
            let json = DOTNET_10.replace(valid, unknown);
            assert_eq!(Contract::parse(json.as_bytes()), None, "{unknown}");
        }
        assert_eq!(Contract::parse(b"{"), None);
    }

    #[test]
    fn uses_dotnet_8_offsets_if_descriptor_lacks_execution_manager() {
        let json = br#"{"contracts":{"Thread":1},"types":{"Thread":{"Id":8}}}"#;
        assert_eq!(Contract::parse(json), Some(WITHOUT_TYPES));
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
        fn read(bytes: &[u8]) -> Option<Contract> {
            let start = 0x1000;
            Contract::of(&Image { start, bytes }, Some(start))
        }
        assert_eq!(read(&bytes), Some(WITHOUT_TYPES));
        assert_eq!(read(&bytes[..100]), None);
        bytes[0] = 0;
        assert_eq!(read(&bytes), None);
    }
}
