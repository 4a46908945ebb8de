//! Where the fields are that lead from a method to its name, by version of the runtime.
//!
//! ```text
//! MethodDesc       the runtime's record of a method or of one instantiation; kept in chunks, 8 bytes apart
//!                  token of the method = the chunk's range << 12 | the method's remainder
//! MethodDescChunk  right before its first MethodDesc: -> MethodTable
//! MethodTable      the runtime's record of a type or of one instantiation: -> Module, arguments, token of the type
//! Module           name, -> image with the metadata
//! ```
//! 9 and 10 state most of it in their contract descriptor; what they do not is the same in both, and was measured.

/// Offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TypeSystem {
    pub(super) method: MethodFields,
    pub(super) chunk: ChunkFields,
    pub(super) table: TableFields,
    pub(super) instantiated: InstantiatedFields,
    pub(super) dynamic: DynamicFields,
    pub(super) module: ModuleFields,
}

/// `MethodDesc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MethodFields {
    pub(super) token_remainder: u64,
    pub(super) chunk_index: u64,
    pub(super) flags: u64,
    /// Where the versions of its code are found.
    pub(super) versions: Versions,
}

/// Where the versions of a method's code are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Versions {
    /// From a field of the MethodDesc.
    CodeData(u64),
    /// In a table of the application domain; see [`super::tier`].
    OfDomain,
}

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

/// Where a MethodTable has the token of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypeRow {
    /// A 32-bit number's upper 24 bits.
    Upper(u64),
    /// A 16-bit number; the module of generic types is elsewhere than that of others.
    Short(u64),
}

/// `InstantiatedMethodDesc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InstantiatedFields {
    pub(super) arguments: u64,
    pub(super) count: u64,
}

/// `DynamicMethodDesc`: methods made by DynamicMethod, and IL stubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DynamicFields {
    pub(super) signature: u64,
    pub(super) signature_bytes: u64,
    pub(super) name: u64,
    /// Where the method's code is; behind the fields.
    pub(super) code: u64,
}

/// `Module`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModuleFields {
    pub(super) name: u64,
    pub(super) image: ImageFields,
    /// Metadata of a module that is made at run time.
    pub(super) made: DynamicModuleFields,
}

/// The way from a module to its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageFields {
    /// A field.
    Base(u64),
    /// A field of the last of these.
    Path([u64; 4]),
}

/// The way from a module made at run time to its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DynamicModuleFields {
    /// A pointer to a 32-bit size and the bytes.
    Inline(u64),
    /// A pointer to a 32-bit size and, at +16, a pointer to the bytes.
    Buffer(u64),
}

/// What .NET 8 has.
pub(super) const DOTNET_8: TypeSystem = TypeSystem {
    method: MethodFields {
        token_remainder: 0,
        chunk_index: 2,
        flags: 6,
        versions: Versions::OfDomain,
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
        image: ImageFields::Path([0x110, 8, 0x78, 8]),
        made: DynamicModuleFields::Buffer(0x698),
    },
};

impl TypeSystem {
    /// What the descriptor of .NET 9 and later states. `None`: not all that is needed.
    pub(super) fn stated(offset: impl Fn(&str, &str) -> Option<u64>) -> Option<Self> {
        let code_data = offset("MethodDesc", "CodeData").unwrap_or(8);
        let dynamic_bytes = offset("DynamicMethodDesc", "!").unwrap_or(48);
        let or = |structure, field, known| offset(structure, field).unwrap_or(known);
        Some(Self {
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
                signature: or("StoredSigMethodDesc", "Sig", 16),
                signature_bytes: or("StoredSigMethodDesc", "cSig", 24),
                name: offset("DynamicMethodDesc", "MethodName")?,
                code: dynamic_bytes + 8,
            },
            module: ModuleFields {
                // The descriptor leaves it out; it lies before the path.
                name: offset("Module", "Path")?.checked_sub(8)?,
                image: ImageFields::Base(offset("Module", "Base")?),
                made: DynamicModuleFields::Inline(offset("Module", "DynamicMetadata")?),
            },
        })
    }
}
