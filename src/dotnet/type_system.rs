//! Field offsets of the structures for method names, by version of the runtime.
//!
//! ```text
//! MethodDesc       the runtime's record of a method or of one instantiation; stored in chunks, aligned to 8 bytes
//!                  token of the method = the chunk's range << 12 | the method's remainder
//! MethodDescChunk  directly before its first MethodDesc: -> MethodTable
//! MethodTable      the runtime's record of a type or of one instantiation: -> Module, arguments, token of the type
//! Module           name, -> image with the metadata
//! ```
//! .NET 9 and 10 publish most offsets in their contract descriptor. The others are the same in both
//! versions and were determined by measurement.

use super::contract_error::OffsetError;

/// Field offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TypeSystem {
    pub(super) method: MethodFields,
    pub(super) chunk: ChunkFields,
    pub(super) table: TableFields,
    pub(super) instantiated: InstantiatedFields,
    pub(super) dynamic: DynamicFields,
    pub(super) module: ModuleFields,
    pub(super) version: VersionFields,
}

/// `MethodDesc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MethodFields {
    pub(super) token_remainder: u64,
    pub(super) chunk_index: u64,
    pub(super) flags: u64,
    /// Location of the method's code versions.
    pub(super) versions: Versions,
}

/// Location of a method's code versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Versions {
    /// A pointer in the MethodDesc, at this offset.
    CodeData(u64),
    /// A table of the application domain. See [`super::tier`].
    AppDomain,
}

/// `NativeCodeVersionNode`, and the path to the first one of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VersionFields {
    /// State of versions in a method's code data.
    pub(super) state: u64,
    /// First version in a state.
    pub(super) first: u64,
    pub(super) code: u64,
    pub(super) method: u64,
    pub(super) next: u64,
    pub(super) tier: u64,
}

impl VersionFields {
    /// Returns the size of the part of a version that contains the fields.
    pub(super) fn bytes(&self) -> usize {
        let pointers = self.code.max(self.method).max(self.next);
        (pointers + 8).max(self.tier + 4) as usize
    }
}

/// The offsets of .NET 8 to 10.
const VERSION_FIELDS: VersionFields = VersionFields {
    state: 0,
    first: 16,
    code: 0,
    method: 8,
    next: 24,
    tier: 36,
};

/// `MethodDescChunk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkFields {
    pub(super) bytes: u64,
    pub(super) table: u64,
    pub(super) token_range: u64,
}

/// `MethodTable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableFields {
    pub(super) flags: u64,
    pub(super) base_size: u64,
    pub(super) type_row: TypeRow,
    pub(super) virtuals: u64,
    pub(super) module: u64,
    /// EEClass, or with bit 0 the canonical MethodTable.
    pub(super) canonical: u64,
    pub(super) arguments: u64,
}

/// Location of a type's TypeDef row in its MethodTable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypeRow {
    /// The upper 24 bits of the 32-bit field at this offset.
    Upper(u64),
    /// The 16-bit field at this offset. In this layout the module of generic types has a different
    /// location.
    Short(u64),
}

/// `InstantiatedMethodDesc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InstantiatedFields {
    pub(super) arguments: u64,
    pub(super) count: u64,
}

/// `DynamicMethodDesc`: methods of `DynamicMethod`, and IL stubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DynamicFields {
    pub(super) signature: u64,
    pub(super) signature_bytes: u64,
    pub(super) name: u64,
    /// Pointer to the method's code, after the fields.
    pub(super) code: u64,
}

/// `Module`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModuleFields {
    pub(super) name: u64,
    /// Pointer to the path in UTF-16, empty for a module without a file. .NET 8 has it elsewhere.
    pub(super) path: Option<u64>,
    pub(super) image: ImageFields,
    /// Metadata of a dynamic module (Reflection.Emit).
    pub(super) dynamic: DynamicModuleFields,
}

/// Path from a module to its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageFields {
    /// A field with the address of the image.
    Base(u64),
    /// A chain of pointers, by the offset in each structure.
    Path([u64; 4]),
}

/// Path from a dynamic module to its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DynamicModuleFields {
    /// A pointer to a 32-bit size and the bytes.
    Inline(u64),
    /// A pointer to a 32-bit size and, at +16, a pointer to the bytes.
    Buffer(u64),
}

/// The offsets of .NET 8.
pub(super) const DOTNET_8: TypeSystem = TypeSystem {
    method: MethodFields {
        token_remainder: 0,
        chunk_index: 2,
        flags: 6,
        versions: Versions::AppDomain,
    },
    chunk: ChunkFields {
        bytes: 24,
        table: 0,
        token_range: 18,
    },
    table: TableFields {
        flags: 0,
        base_size: 4,
        type_row: TypeRow::Short(10),
        virtuals: 12,
        module: 24,
        canonical: 40,
        arguments: 48,
    },
    instantiated: InstantiatedFields {
        arguments: 16,
        count: 26,
    },
    dynamic: DynamicFields {
        signature: 8,
        signature_bytes: 16,
        name: 24,
        code: 0x30,
    },
    module: ModuleFields {
        name: 0x108,
        path: None,
        image: ImageFields::Path([0x110, 8, 0x78, 8]),
        dynamic: DynamicModuleFields::Buffer(0x698),
    },
    version: VERSION_FIELDS,
};

impl TypeSystem {
    /// Reads the offsets from the descriptor of .NET 9 or later.
    ///
    /// # Errors
    /// A required offset is missing or invalid.
    pub(super) fn from_descriptor(
        offset: impl Fn(&'static str, &'static str) -> Result<u64, OffsetError>,
    ) -> Result<Self, OffsetError> {
        let code_data = offset("MethodDesc", "CodeData").unwrap_or(8);
        let dynamic_bytes = offset("DynamicMethodDesc", "!").unwrap_or(48);
        let or_default = |structure, field, default| offset(structure, field).unwrap_or(default);
        let (structure, field) = ("Module", "Path");
        let path = offset(structure, field)?;
        let name = path.checked_sub(8);
        Ok(Self {
            method: MethodFields {
                token_remainder: offset("MethodDesc", "Flags3AndTokenRemainder")?,
                chunk_index: offset("MethodDesc", "ChunkIndex")?,
                flags: offset("MethodDesc", "Flags")?,
                versions: Versions::CodeData(code_data),
            },
            chunk: ChunkFields {
                bytes: offset("MethodDescChunk", "!")?,
                table: offset("MethodDescChunk", "MethodTable")?,
                token_range: offset("MethodDescChunk", "FlagsAndTokenRange")?,
            },
            table: TableFields {
                flags: offset("MethodTable", "MTFlags")?,
                base_size: offset("MethodTable", "BaseSize")?,
                type_row: TypeRow::Upper(offset("MethodTable", "MTFlags2")?),
                virtuals: offset("MethodTable", "NumVirtuals")?,
                module: offset("MethodTable", "Module")?,
                canonical: offset("MethodTable", "EEClassOrCanonMT")?,
                arguments: offset("MethodTable", "PerInstInfo")?,
            },
            instantiated: InstantiatedFields {
                arguments: offset("InstantiatedMethodDesc", "PerInstInfo")?,
                count: offset("InstantiatedMethodDesc", "NumGenericArgs")?,
            },
            dynamic: DynamicFields {
                signature: or_default("StoredSigMethodDesc", "Sig", 16),
                signature_bytes: or_default("StoredSigMethodDesc", "cSig", 24),
                name: offset("DynamicMethodDesc", "MethodName")?,
                code: dynamic_bytes + 8,
            },
            module: ModuleFields {
                // The descriptor omits this field, which precedes the path.
                name: name.ok_or(OffsetError { structure, field })?,
                path: Some(path),
                image: ImageFields::Base(offset("Module", "Base")?),
                dynamic: DynamicModuleFields::Inline(offset("Module", "DynamicMetadata")?),
            },
            version: {
                let node = |field, default| or_default("NativeCodeVersionNode", field, default);
                let known = VERSION_FIELDS;
                let (state, first) = ("MethodDescCodeData", "MethodDescVersioningState");
                VersionFields {
                    state: or_default(state, "VersioningState", known.state),
                    first: or_default(first, "NativeCodeVersionNode", known.first),
                    code: node("NativeCode", known.code),
                    method: node("MethodDesc", known.method),
                    next: node("Next", known.next),
                    tier: node("OptimizationTier", known.tier),
                }
            },
        })
    }
}
