//! Reads types from the memory of a process and formats their names.

use std::cell::RefCell;
use std::sync::Arc;

use perfcollect_symbols::dotnet::metadata::Metadata;
use perfcollect_symbols::dotnet::signature::TypeNameResolver;
use perfcollect_symbols::dotnet::type_name::instantiated;

use super::memory::{Image, Memory, ReadError, Structure};
use super::metadata_cache::{Images, MetadataCache};
use super::method_name_error::MethodDataError;
use super::type_system::{DynamicModuleFields, ImageFields, TypeRow, TypeSystem};

/// Flags of a MethodTable: the low 16 bits are a component size; array; array of one dimension.
const HAS_COMPONENT_SIZE: u32 = 0x8000_0000;
const CATEGORY: u32 = 0x000c_0000;
const ARRAY: u32 = 0x0008_0000;
const VECTOR: u32 = 0x0002_0000;
/// `BaseSize` of a multi-dimensional array, without its dimensions and per dimension.
const ARRAY_BYTES: u32 = 24;
const DIMENSION_BYTES: u32 = 8;
/// Flags of a MethodTable: generic; in .NET 8, the module is in an optional slot.
const GENERIC: u32 = 0x30;
const MODULE_SLOT: u16 = 0x10;
/// Number of bytes read from a MethodTable.
const TABLE_BYTES: usize = 64;
/// Offsets in the dictionary info: the number of dictionaries, the number of arguments of the last.
const DICTIONARIES: u64 = 4;
const ARGUMENTS: u64 = 6;
/// Tag bit of a TypeHandle that is not a MethodTable.
const TYPE_DESC: u64 = 2;
/// Limits on nested types and on the arguments of one type.
const MAX_DEPTH: usize = 16;
const MAX_ARGUMENTS: u16 = 64;
/// Size limit of a name.
const MAX_NAME_BYTES: usize = 1024;

/// Reader with access to the memory and the metadata of a process.
pub(super) struct TypeReader<'a, M> {
    pub(super) memory: &'a M,
    pub(super) types: TypeSystem,
    pub(super) assemblies: &'a mut MetadataCache,
    pub(super) images: &'a mut Images,
}

/// The first bytes of a MethodTable.
pub(super) struct MethodTable {
    address: u64,
    bytes: [u8; TABLE_BYTES],
}

impl MethodTable {
    fn fields(&self) -> Structure<Image<'_>> {
        let image = Image {
            start: self.address,
            bytes: &self.bytes,
        };
        Structure::new(image, self.address)
    }

    fn u64(&self, offset: u64) -> Result<u64, ReadError> {
        self.fields().u64(offset)
    }

    fn u32(&self, offset: u64) -> Result<u32, ReadError> {
        self.fields().u32(offset)
    }

    fn u16(&self, offset: u64) -> Result<u16, ReadError> {
        Ok(self.u32(offset)? as u16)
    }
}

impl<M: Memory> TypeReader<'_, M> {
    pub(super) fn structure(&self, address: u64) -> Structure<&M> {
        Structure::new(self.memory, address)
    }

    pub(super) fn method_table(&self, address: u64) -> Result<MethodTable, MethodDataError> {
        if !address.is_multiple_of(8) {
            return Err(MethodDataError::Address(address, "MethodTable"));
        }
        let bytes = self.memory.bytes(address)?;
        Ok(MethodTable { address, bytes })
    }

    /// Returns the TypeDef row of a type.
    pub(super) fn type_row(&self, table: &MethodTable) -> Result<u32, ReadError> {
        Ok(match self.types.table.type_row {
            TypeRow::Upper(offset) => table.u32(offset)? >> 8,
            TypeRow::Short(offset) => table.u16(offset)?.into(),
        })
    }

    /// Returns the address of a type's module.
    pub(super) fn module(&self, table: &MethodTable) -> Result<u64, MethodDataError> {
        let fields = self.types.table;
        let TypeRow::Short(_) = fields.type_row else {
            return Ok(table.u64(fields.module)?);
        };
        let flags = table.u32(fields.flags)?;
        if flags & HAS_COMPONENT_SIZE != 0 || flags & GENERIC == 0 {
            return Ok(table.u64(fields.module)?);
        }
        // In .NET 8 this field of a generic type is its loader module. The canonical MethodTable
        // has the declaring module.
        let canonical = match table.u64(fields.canonical)? {
            shared if shared & 1 != 0 => &self.method_table(shared & !1)?,
            _ => table,
        };
        let flags = canonical.u16(8)?;
        if flags & MODULE_SLOT == 0 {
            return Ok(canonical.u64(fields.module)?);
        }
        let offset = match (flags & 15).count_ones() {
            slot @ (0 | 1) => 0x30 + 8 * u64::from(slot),
            slot => {
                let virtuals = u64::from(canonical.u16(fields.virtuals)?);
                0x40 + 8 * u64::from(slot - 2) + 8 * virtuals.div_ceil(8)
            }
        };
        Ok(self.structure(canonical.address).u64(offset)?)
    }

    pub(super) fn metadata(&mut self, module: u64) -> Result<Arc<Metadata>, MethodDataError> {
        let fields = self.types.module;
        let pointer = |address: u64, offset: u64| self.structure(address).u64(offset).ok();
        let base = match fields.image {
            ImageFields::Base(offset) => pointer(module, offset),
            ImageFields::Path(path) => path.into_iter().try_fold(module, |address, offset| {
                pointer(address, offset).filter(|next| *next != 0)
            }),
        };
        if let Some(base) = base.filter(|base| *base != 0) {
            return Ok(self.assemblies.image(self.images, self.memory, base)?);
        }
        let (header, data) = match fields.dynamic {
            DynamicModuleFields::Inline(offset) => {
                let header = self.structure(module).u64(offset)?;
                (header, header.checked_add(4))
            }
            DynamicModuleFields::Buffer(offset) => {
                let header = self.structure(module).u64(offset)?;
                (header, Some(self.structure(header).u64(16)?))
            }
        };
        let data = data.ok_or(MethodDataError::Address(header, "dynamic module"))?;
        let size = self.memory.u32(header)?;
        Ok(self
            .assemblies
            .dynamic_module(self.images, self.memory, data, size.into())?)
    }

    /// Formats the arguments of a type. The result is empty for a type without arguments.
    pub(super) fn type_arguments(
        &mut self,
        table: &MethodTable,
        depth: usize,
    ) -> Result<Vec<String>, MethodDataError> {
        let fields = self.types.table;
        let flags = table.u32(fields.flags)?;
        if flags & HAS_COMPONENT_SIZE != 0 || flags & GENERIC == 0 {
            return Ok(Vec::new());
        }
        let dictionaries = table.u64(fields.arguments)?;
        let info = dictionaries.checked_sub(8);
        let info = info.ok_or(MethodDataError::Address(dictionaries, "dictionary"))?;
        let info = self.structure(info);
        let count = info.u16(DICTIONARIES)?;
        let arguments = info.u16(ARGUMENTS)?;
        let last = count.checked_sub(1);
        let last = last.ok_or(MethodDataError::Count(0, "dictionaries"))?;
        let list = self.structure(dictionaries).u64(u64::from(last) * 8)?;
        self.format_types(list, arguments, depth)
    }

    /// Formats the types of an array of TypeHandles.
    pub(super) fn format_types(
        &mut self,
        list: u64,
        count: u16,
        depth: usize,
    ) -> Result<Vec<String>, MethodDataError> {
        if !(1..=MAX_ARGUMENTS).contains(&count) {
            return Err(MethodDataError::Count(count.into(), "arguments"));
        }
        let bytes = self.memory.vec(list, u64::from(count) * 8, usize::MAX)?;
        let (handles, _) = bytes.as_chunks();
        let handles = handles.iter().copied().map(u64::from_le_bytes);
        handles
            .map(|handle| self.format_type(handle, depth + 1))
            .collect()
    }

    /// Formats the type of a TypeHandle.
    pub(super) fn format_type(
        &mut self,
        handle: u64,
        depth: usize,
    ) -> Result<String, MethodDataError> {
        if depth > MAX_DEPTH {
            return Err(MethodDataError::TooDeep(MAX_DEPTH));
        }
        expect_method_table(handle)?;
        let table = self.method_table(handle)?;
        let fields = self.types.table;
        let flags = table.u32(fields.flags)?;
        if flags & CATEGORY == ARRAY {
            let mut name = self.format_type(table.u64(fields.arguments)?, depth + 1)?;
            let dimensions = match flags & VECTOR {
                0 => {
                    let bytes = table.u32(fields.base_size)?.checked_sub(ARRAY_BYTES);
                    bytes.map_or(0, |bytes| bytes / DIMENSION_BYTES)
                }
                _ => 1,
            };
            if !(1..=32).contains(&dimensions) {
                return Err(MethodDataError::Count(dimensions, "dimensions"));
            }
            name.push('[');
            name.extend((1..dimensions).map(|_| ','));
            name.push(']');
            return Ok(name);
        }
        let name = self.type_name(&table)?;
        Ok(instantiated(&name, &self.type_arguments(&table, depth)?))
    }

    /// Formats the type of a TypeHandle without arguments.
    pub(super) fn format_definition(&mut self, handle: u64) -> Result<String, MethodDataError> {
        expect_method_table(handle)?;
        let table = self.method_table(handle)?;
        self.type_name(&table)
    }

    pub(super) fn type_name(&mut self, table: &MethodTable) -> Result<String, MethodDataError> {
        let module = self.module(table)?;
        let metadata = self.metadata(module)?;
        Ok(metadata.type_def_name(self.type_row(table)?)?)
    }
}

/// Reads a NUL-terminated name.
pub(super) fn c_string(memory: &impl Memory, address: u64) -> Result<String, MethodDataError> {
    let mut bytes = [0; MAX_NAME_BYTES];
    let read = memory.read(address, &mut bytes);
    let bytes = bytes.get(..read).unwrap_or_default();
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_complete = name.len() < bytes.len() && !name.is_empty();
    let name = std::str::from_utf8(name).ok().filter(|_| is_complete);
    let name = name.filter(|name| !name.contains(char::is_control));
    let name = name.ok_or(MethodDataError::Name(address))?;
    Ok(name.to_owned())
}

/// Checks that a TypeHandle is the address of a MethodTable.
fn expect_method_table(handle: u64) -> Result<(), MethodDataError> {
    match handle & TYPE_DESC {
        0 => Ok(()),
        _ => Err(MethodDataError::Address(handle, "MethodTable")),
    }
}

/// Resolver for signatures of dynamic methods, which have addresses of types in place of tokens.
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
        let name = match is_definition {
            true => reader.format_definition(address),
            false => reader.format_type(address, 0),
        };
        name.ok()
    }

    fn module(&self, _: u32) -> Option<&Metadata> {
        None
    }
}
