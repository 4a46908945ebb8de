//! From a compiled method to its name, by the runtime's own records in the memory of the process.
//!
//! Nothing is asked of the process, so this works whether it runs or not, and with its diagnostics off. Every name is
//! proved by the assembly's metadata: the type that owns the method there must be the type the runtime has it on. Where
//! something does not fit there is no name.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use perfcollect_symbols::dotnet::metadata::Metadata;
use perfcollect_symbols::dotnet::signature::{self, Names};
use perfcollect_symbols::dotnet::type_name::{self, instantiated, push_arguments};

use super::assemblies::{Assemblies, Images};
use super::memory::Memory;
use super::method::MethodKey;
use super::method_name::MethodName;
use super::runtime::Runtime;
use super::tier::Tiers;
use super::type_system::{ImageFields, MadeFields, TypeRow, TypeSystem};
use crate::machine::MappedFiles;
use crate::trace::ProcessId;

/// Bits of a method's token that the MethodDesc has; the chunk has the others.
const TOKEN_BITS: u32 = 12;
const TOKEN_MASK: u32 = (1 << TOKEN_BITS) - 1;
/// Kinds of MethodDesc, in the low bits of its flags.
const KIND: u16 = 7;
const INSTANTIATED: u16 = 5;
const DYNAMIC: u16 = 7;
/// Flags of a MethodTable: its low 16 bits are a size; array, and array of one dimension.
const HAS_COMPONENT_SIZE: u32 = 0x8000_0000;
const CATEGORY: u32 = 0x000c_0000;
const ARRAY: u32 = 0x0008_0000;
const VECTOR: u32 = 0x0002_0000;
/// Bytes of a MethodTable of an array with one dimension (`BaseSize`), and of each dimension.
const ARRAY_BYTES: u32 = 24;
const DIMENSION_BYTES: u32 = 8;
/// Flags of a MethodTable: generic at all; in 8, its module is in an optional slot.
const GENERIC: u32 = 0x30;
const MODULE_SLOT: u16 = 0x10;
/// Bytes of a MethodTable that are read.
const TABLE_BYTES: usize = 64;
/// Dictionary info before the dictionaries of a type: how many they are, and how many arguments the last has.
const DICTIONARIES: u64 = 4;
const ARGUMENTS: u64 = 6;
/// A TypeHandle with this bit is no MethodTable.
const TYPE_DESC: u64 = 2;
/// Types in types, and arguments of one type.
const MAX_DEPTH: usize = 16;
const MAX_ARGUMENTS: u16 = 64;
/// Longest name in memory.
const MAX_NAME_BYTES: usize = 1024;
/// Signatures of dynamic methods in memory.
const SIGNATURE_BYTES: std::ops::RangeInclusive<u64> = 2..=4096;
/// Refusals are judged from this many names on: by chance, or where the layout is another, nearly all fail.
const TRIAL: u32 = 20;

/// Why a process's methods are no longer named from its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamesOff {
    /// The runtime's records follow rules that are not known here.
    UnknownVersion,
    /// What was read did not fit together.
    Contradictory,
}

impl fmt::Display for NamesOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownVersion => "this version of .NET keeps them in a way that is not known",
            Self::Contradictory => "the runtime's records do not fit together",
        })
    }
}

/// The names of the methods of one process.
#[derive(Debug)]
pub struct MethodNames {
    types: Option<TypeSystem>,
    tiers: Tiers,
    images: Images,
    found: u32,
    refused: u32,
}

impl MethodNames {
    /// Those of a process with this runtime.
    #[must_use]
    pub fn of<M: Memory>(process: ProcessId, files: MappedFiles, runtime: &Runtime<M>) -> Self {
        Self {
            types: runtime.types(),
            tiers: Tiers::new(runtime.dac_table()),
            images: Images::of(process, files),
            found: 0,
            refused: 0,
        }
    }

    /// Why there are none, if there are none.
    #[must_use]
    pub fn off(&self) -> Option<NamesOff> {
        if self.types.is_none() {
            return Some(NamesOff::UnknownVersion);
        }
        let tried = self.found + self.refused;
        (tried >= TRIAL && self.refused > self.found).then_some(NamesOff::Contradictory)
    }

    /// The name of a method. `None`: it is gone, or what is there does not fit together.
    pub fn name(
        &mut self,
        memory: &impl Memory,
        assemblies: &mut Assemblies,
        method: MethodKey,
    ) -> Option<MethodName> {
        if self.off().is_some() {
            return None;
        }
        let mut reader = Reader {
            memory,
            types: self.types?,
            assemblies,
            images: &mut self.images,
        };
        let name = reader.name(method, &mut self.tiers);
        match &name {
            Some(Named { name: Some(_), .. }) => self.found = self.found.saturating_add(1),
            // A method that was freed is no contradiction.
            Some(Named {
                is_dynamic: true, ..
            }) => {}
            _ => self.refused = self.refused.saturating_add(1),
        }
        name?.name
    }
}

/// What came of naming a method.
struct Named {
    name: Option<MethodName>,
    /// It belongs to no assembly, and may be freed by itself.
    is_dynamic: bool,
}

struct Reader<'a, M> {
    memory: &'a M,
    types: TypeSystem,
    assemblies: &'a mut Assemblies,
    images: &'a mut Images,
}

/// The first fields of a MethodTable.
struct Table {
    address: u64,
    bytes: [u8; TABLE_BYTES],
}

impl Table {
    fn u64(&self, offset: u64) -> Option<u64> {
        let at = usize::try_from(offset).ok()?;
        Some(u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    fn u32(&self, offset: u64) -> Option<u32> {
        let at = usize::try_from(offset).ok()?;
        Some(u32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    fn u16(&self, offset: u64) -> Option<u16> {
        Some(self.u32(offset)? as u16)
    }
}

impl<M: Memory> Reader<'_, M> {
    fn name(&mut self, method: MethodKey, tiers: &mut Tiers) -> Option<Named> {
        let at = method.method_desc;
        let fields = self.types.method;
        let flags = self.memory.u16(at.checked_add(fields.flags)?)?;
        let index = self.memory.u8(at.checked_add(fields.chunk_index)?)?;
        let chunk = at
            .checked_sub(u64::from(index) * 8)?
            .checked_sub(self.types.chunk.bytes)?;
        let table = self
            .memory
            .u64(chunk.checked_add(self.types.chunk.table)?)?;
        let table = self.table(table)?;
        if flags & KIND == DYNAMIC {
            return Some(Named {
                name: self.dynamic_method(method, &table),
                is_dynamic: true,
            });
        }
        let range = self
            .memory
            .u16(chunk.checked_add(self.types.chunk.token_range)?)?;
        let remainder = self.memory.u16(at.checked_add(fields.token_remainder)?)?;
        let row = (u32::from(range) & TOKEN_MASK) << TOKEN_BITS | u32::from(remainder) & TOKEN_MASK;
        let module = self.module_of(&table)?;
        let metadata = self.metadata_of(module)?;
        let type_row = self.type_row(&table)?;
        // The best proof there is that all that was read belongs together.
        if metadata.owner_of(row)? != type_row {
            return None;
        }
        let definition = metadata.method(row)?;
        let of_type = self.type_arguments(&table, 0)?;
        let of_method = match flags & KIND {
            INSTANTIATED => self.method_arguments(at)?,
            _ => Vec::new(),
        };
        let owner = type_name::owner(&metadata.type_def_name(type_row)?, &of_type);
        let mut name = format!("{owner}.{}", definition.name);
        if !of_method.is_empty() {
            push_arguments(&mut name, &of_method);
        }
        let in_module = signature::InModule {
            metadata: &metadata,
            of_type: &of_type,
            of_method: &of_method,
        };
        let (parameters, _) = signature::parameters(definition.signature, &in_module)?;
        name.push_str(&parameters);
        Some(Named {
            name: Some(MethodName {
                module: metadata.assembly()?.into_owned(),
                method: name,
                tier: tiers.of(self.memory, &self.types, method, definition.impl_flags),
            }),
            is_dynamic: false,
        })
    }

    /// A method that belongs to no type. Freed, its record is used for another while the old code still is there: only
    /// what names this very code, before and after it was read, counts.
    fn dynamic_method(&mut self, method: MethodKey, table: &Table) -> Option<MethodName> {
        let before = self.dynamic_record(method)?;
        let name = self.text(before.name)?;
        let bytes = self.memory.vec(
            before.signature,
            before.signature_bytes,
            *SIGNATURE_BYTES.end() as usize,
        )?;
        let module = self.module_of(table)?;
        // Stubs for native functions have the signature of these, with tokens of the module that declares them.
        let metadata = self.metadata_of(module);
        let in_process = InProcess {
            reader: RefCell::new(&mut *self),
            metadata: metadata.as_deref(),
        };
        let (parameters, taken) = signature::parameters(&bytes, &in_process)?;
        // The runtime counts a byte too many at times.
        if bytes.len() - taken > 1 {
            return None;
        }
        let module = self.text(
            self.memory
                .u64(module.checked_add(self.types.module.name)?)?,
        )?;
        if self.dynamic_record(method)? != before || self.text(before.name)? != name {
            return None;
        }
        Some(MethodName {
            module,
            method: format!("dynamicClass.{name}{parameters}"),
            tier: Some(super::tier::OPTIMIZED),
        })
    }

    fn dynamic_record(&self, method: MethodKey) -> Option<DynamicRecord> {
        let fields = self.types.dynamic;
        let field = |offset| self.memory.u64(method.method_desc.checked_add(offset)?);
        let signature_bytes = field(fields.signature_bytes)? & u64::from(u32::MAX);
        let is_alive =
            field(fields.code)? == method.start && SIGNATURE_BYTES.contains(&signature_bytes);
        is_alive.then_some(DynamicRecord {
            signature: field(fields.signature)?,
            signature_bytes,
            name: field(fields.name)?,
        })
    }

    fn table(&self, address: u64) -> Option<Table> {
        let is_aligned = address.is_multiple_of(8);
        let bytes = self.memory.bytes(address).filter(|_| is_aligned)?;
        Some(Table { address, bytes })
    }

    /// The row of a type in its module's metadata.
    fn type_row(&self, table: &Table) -> Option<u32> {
        Some(match self.types.table.type_row {
            TypeRow::Upper(offset) => table.u32(offset)? >> 8,
            TypeRow::Short(offset) => table.u16(offset)?.into(),
        })
    }

    fn module_of(&self, table: &Table) -> Option<u64> {
        let fields = self.types.table;
        let TypeRow::Short(_) = fields.type_row else {
            return table.u64(fields.module);
        };
        let flags = table.u32(fields.flags)?;
        if flags & HAS_COMPONENT_SIZE != 0 || flags & GENERIC == 0 {
            return table.u64(fields.module);
        }
        // In 8 that field of a generic type is where it was loaded for; the module it is of is with the canonical one.
        let canonical = match table.u64(fields.canonical)? {
            shared if shared & 1 != 0 => &self.table(shared & !1)?,
            _ => table,
        };
        let flags = canonical.u16(8)?;
        if flags & MODULE_SLOT == 0 {
            return canonical.u64(fields.module);
        }
        let offset = match (flags & 15).count_ones() {
            slot @ (0 | 1) => 0x30 + 8 * u64::from(slot),
            slot => {
                let virtuals = u64::from(canonical.u16(fields.virtuals)?);
                0x40 + 8 * u64::from(slot - 2) + 8 * virtuals.div_ceil(8)
            }
        };
        self.memory.u64(canonical.address.checked_add(offset)?)
    }

    fn metadata_of(&mut self, module: u64) -> Option<Arc<Metadata>> {
        let fields = self.types.module;
        let at = |address: u64, offset: u64| self.memory.u64(address.checked_add(offset)?);
        let base = match fields.image {
            ImageFields::Base(offset) => at(module, offset),
            ImageFields::Path(path) => path.into_iter().try_fold(module, |at_, offset| {
                at(at_, offset).filter(|next| *next != 0)
            }),
        };
        if let Some(base) = base.filter(|base| *base != 0) {
            return self.assemblies.of_image(self.images, self.memory, base);
        }
        let (record, data) = match fields.made {
            MadeFields::Inline(offset) => {
                let record = at(module, offset)?;
                (record, record.checked_add(4)?)
            }
            MadeFields::Buffer(offset) => {
                let record = at(module, offset)?;
                (record, at(record, 16)?)
            }
        };
        let size = self.memory.u32(record)?;
        self.assemblies
            .of_bytes(self.images, self.memory, data, size.into())
    }

    /// The arguments of a type, spelled; none if it takes none.
    fn type_arguments(&mut self, table: &Table, depth: usize) -> Option<Vec<String>> {
        let fields = self.types.table;
        let flags = table.u32(fields.flags)?;
        if flags & HAS_COMPONENT_SIZE != 0 || flags & GENERIC == 0 {
            return Some(Vec::new());
        }
        let dictionaries = table.u64(fields.arguments)?;
        let info = dictionaries.checked_sub(8)?;
        let count = self.memory.u16(info.checked_add(DICTIONARIES)?)?;
        let arguments = self.memory.u16(info.checked_add(ARGUMENTS)?)?;
        let last = u64::from(count.checked_sub(1)?) * 8;
        let list = self.memory.u64(dictionaries.checked_add(last)?)?;
        self.spelled_list(list, arguments, depth)
    }

    fn method_arguments(&mut self, method_desc: u64) -> Option<Vec<String>> {
        let fields = self.types.instantiated;
        let count = self.memory.u16(method_desc.checked_add(fields.count)?)?;
        if count == 0 {
            return Some(Vec::new());
        }
        let list = self
            .memory
            .u64(method_desc.checked_add(fields.arguments)?)?;
        self.spelled_list(list, count, 0)
    }

    fn spelled_list(&mut self, list: u64, count: u16, depth: usize) -> Option<Vec<String>> {
        if !(1..=MAX_ARGUMENTS).contains(&count) {
            return None;
        }
        let bytes = self.memory.vec(list, u64::from(count) * 8, usize::MAX)?;
        let (handles, _) = bytes.as_chunks();
        let handles = handles.iter().copied().map(u64::from_le_bytes);
        handles
            .map(|handle| self.spelled(handle, depth + 1))
            .collect()
    }

    /// The type of a TypeHandle.
    fn spelled(&mut self, handle: u64, depth: usize) -> Option<String> {
        if handle & TYPE_DESC != 0 || depth > MAX_DEPTH {
            return None;
        }
        let table = self.table(handle)?;
        let fields = self.types.table;
        let flags = table.u32(fields.flags)?;
        if flags & CATEGORY == ARRAY {
            let mut text = self.spelled(table.u64(fields.arguments)?, depth + 1)?;
            let dimensions = match flags & VECTOR {
                0 => table.u32(fields.base_size)?.checked_sub(ARRAY_BYTES)? / DIMENSION_BYTES,
                _ => 1,
            };
            if !(1..=32).contains(&dimensions) {
                return None;
            }
            text.push('[');
            text.extend((1..dimensions).map(|_| ','));
            text.push(']');
            return Some(text);
        }
        let name = self.type_name(&table)?;
        Some(instantiated(&name, &self.type_arguments(&table, depth)?))
    }

    /// The name of the type of a TypeHandle, without arguments.
    fn definition(&mut self, handle: u64) -> Option<String> {
        if handle & TYPE_DESC != 0 {
            return None;
        }
        let table = self.table(handle)?;
        self.type_name(&table)
    }

    fn type_name(&mut self, table: &Table) -> Option<String> {
        let module = self.module_of(table)?;
        let metadata = self.metadata_of(module)?;
        metadata.type_def_name(self.type_row(table)?)
    }

    /// A text that ends with NUL.
    fn text(&self, address: u64) -> Option<String> {
        let mut bytes = [0; MAX_NAME_BYTES];
        let read = self.memory.read(address, &mut bytes);
        let bytes = bytes.get(..read)?;
        let text = bytes.split(|byte| *byte == 0).next()?;
        let is_whole = text.len() < bytes.len() && !text.is_empty();
        let text = std::str::from_utf8(text).ok().filter(|_| is_whole)?;
        (!text.contains(char::is_control)).then(|| text.to_owned())
    }
}

/// What a dynamic method is known by.
#[derive(PartialEq, Eq)]
struct DynamicRecord {
    signature: u64,
    signature_bytes: u64,
    name: u64,
}

/// Signatures made at run time have addresses of types in place of tokens.
struct InProcess<'a, 'b, M> {
    reader: RefCell<&'a mut Reader<'b, M>>,
    metadata: Option<&'a Metadata>,
}

impl<M: Memory> Names for InProcess<'_, '_, M> {
    fn metadata(&self) -> Option<&Metadata> {
        self.metadata
    }

    fn argument(&self, _: bool, _: u32) -> Option<&str> {
        None
    }

    fn runtime_type(&self, address: u64, is_definition: bool) -> Option<String> {
        let mut reader = self.reader.try_borrow_mut().ok()?;
        match is_definition {
            true => reader.definition(address),
            false => reader.spelled(address, 0),
        }
    }

    fn module(&self, _: u32) -> Option<&Metadata> {
        None
    }
}
