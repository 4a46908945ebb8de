//! Types in the memory of a process: which they are, and how they are spelled.

use std::cell::RefCell;
use std::sync::Arc;

use perfcollect_symbols::dotnet::metadata::Metadata;
use perfcollect_symbols::dotnet::signature::TypeNameResolver;
use perfcollect_symbols::dotnet::type_name::instantiated;

use super::memory::Memory;
use super::metadata_cache::{Images, MetadataCache};
use super::type_system::{DynamicModuleFields, ImageFields, TypeRow, TypeSystem};

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

/// What reading takes.
pub(super) struct TypeReader<'a, M> {
    pub(super) memory: &'a M,
    pub(super) types: TypeSystem,
    pub(super) assemblies: &'a mut MetadataCache,
    pub(super) images: &'a mut Images,
}

/// The first fields of a MethodTable.
pub(super) struct Table {
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

impl<M: Memory> TypeReader<'_, M> {
    pub(super) fn table(&self, address: u64) -> Option<Table> {
        let is_aligned = address.is_multiple_of(8);
        let bytes = self.memory.bytes(address).filter(|_| is_aligned)?;
        Some(Table { address, bytes })
    }

    /// The row of a type in its module's metadata.
    pub(super) fn type_row(&self, table: &Table) -> Option<u32> {
        Some(match self.types.table.type_row {
            TypeRow::Upper(offset) => table.u32(offset)? >> 8,
            TypeRow::Short(offset) => table.u16(offset)?.into(),
        })
    }

    pub(super) fn module_of(&self, table: &Table) -> Option<u64> {
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

    pub(super) fn metadata_of(&mut self, module: u64) -> Option<Arc<Metadata>> {
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
            DynamicModuleFields::Inline(offset) => {
                let record = at(module, offset)?;
                (record, record.checked_add(4)?)
            }
            DynamicModuleFields::Buffer(offset) => {
                let record = at(module, offset)?;
                (record, at(record, 16)?)
            }
        };
        let size = self.memory.u32(record)?;
        self.assemblies
            .of_bytes(self.images, self.memory, data, size.into())
    }

    /// The arguments of a type, spelled; none if it takes none.
    pub(super) fn type_arguments(&mut self, table: &Table, depth: usize) -> Option<Vec<String>> {
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

    pub(super) fn spelled_list(
        &mut self,
        list: u64,
        count: u16,
        depth: usize,
    ) -> Option<Vec<String>> {
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
    pub(super) fn spelled(&mut self, handle: u64, depth: usize) -> Option<String> {
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
    pub(super) fn definition(&mut self, handle: u64) -> Option<String> {
        if handle & TYPE_DESC != 0 {
            return None;
        }
        let table = self.table(handle)?;
        self.type_name(&table)
    }

    pub(super) fn type_name(&mut self, table: &Table) -> Option<String> {
        let module = self.module_of(table)?;
        let metadata = self.metadata_of(module)?;
        metadata.type_def_name(self.type_row(table)?)
    }

    /// A text that ends with NUL.
    pub(super) fn text(&self, address: u64) -> Option<String> {
        let mut bytes = [0; MAX_NAME_BYTES];
        let read = self.memory.read(address, &mut bytes);
        let bytes = bytes.get(..read)?;
        let text = bytes.split(|byte| *byte == 0).next()?;
        let is_whole = text.len() < bytes.len() && !text.is_empty();
        let text = std::str::from_utf8(text).ok().filter(|_| is_whole)?;
        (!text.contains(char::is_control)).then(|| text.to_owned())
    }
}

/// Signatures made at run time have addresses of types in place of tokens.
pub(super) struct InProcess<'a, 'b, M> {
    pub(super) reader: RefCell<&'a mut TypeReader<'b, M>>,
    pub(super) metadata: Option<&'a Metadata>,
}

impl<M: Memory> TypeNameResolver for InProcess<'_, '_, M> {
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
