//! Reads the name of a method from the memory of its process.

use std::cell::RefCell;

use perfcollect_symbols::dotnet::signature;
use perfcollect_symbols::dotnet::type_name::{self, push_arguments};

use super::memory::Memory;
use super::method::MethodKey;
use super::method_name::MethodName;
use super::tier::{self, Tiers};
use super::type_reader::{InProcess, MethodTable, TypeReader};

/// Number of bits of a method's token in the MethodDesc. The chunk has the others.
const TOKEN_BITS: u32 = 12;
const TOKEN_MASK: u32 = (1 << TOKEN_BITS) - 1;
/// Kinds of MethodDesc, in the low bits of its flags.
const KIND: u16 = 7;
const INSTANTIATED: u16 = 5;
const DYNAMIC: u16 = 7;
/// Valid sizes of a dynamic method's signature.
const SIGNATURE_BYTES: std::ops::RangeInclusive<u64> = 2..=4096;

/// The result of naming a method.
pub(super) struct NamedMethod {
    pub(super) name: Option<MethodName>,
    /// Whether the method belongs to no assembly and may be freed individually.
    pub(super) is_dynamic: bool,
}

impl<M: Memory> TypeReader<'_, M> {
    /// Reads the name of a method. Returns `None` if the runtime's data is inconsistent.
    pub(super) fn name(&mut self, method: MethodKey, tiers: &mut Tiers) -> Option<NamedMethod> {
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
        let table = self.method_table(table)?;
        if flags & KIND == DYNAMIC {
            return Some(NamedMethod {
                name: self.dynamic_method(method, &table),
                is_dynamic: true,
            });
        }
        let range = self
            .memory
            .u16(chunk.checked_add(self.types.chunk.token_range)?)?;
        let remainder = self.memory.u16(at.checked_add(fields.token_remainder)?)?;
        let row = (u32::from(range) & TOKEN_MASK) << TOKEN_BITS | u32::from(remainder) & TOKEN_MASK;
        let module = self.module(&table)?;
        let metadata = self.metadata(module)?;
        let type_row = self.type_row(&table)?;
        // The best available check that all data read so far is consistent.
        if metadata.owner_of(row)? != type_row {
            return None;
        }
        let definition = metadata.method(row)?;
        let type_arguments = self.type_arguments(&table, 0)?;
        let method_arguments = match flags & KIND {
            INSTANTIATED => self.method_arguments(at)?,
            _ => Vec::new(),
        };
        let owner = type_name::owner(&metadata.type_def_name(type_row)?, &type_arguments);
        let mut name = format!("{owner}.{}", definition.name);
        if !method_arguments.is_empty() {
            push_arguments(&mut name, &method_arguments);
        }
        let in_module = signature::InModule {
            metadata: &metadata,
            of_type: &type_arguments,
            of_method: &method_arguments,
        };
        let (parameters, _) = signature::parameters(definition.signature, &in_module)?;
        name.push_str(&parameters);
        Some(NamedMethod {
            name: Some(MethodName {
                module: metadata.assembly()?.into_owned(),
                method: name,
                tier: tiers.tier(self.memory, &self.types, method, definition.impl_flags),
            }),
            is_dynamic: false,
        })
    }

    /// Reads the name of a method that belongs to no type.
    ///
    /// The runtime reuses the MethodDesc of a freed method while the old code still exists. The
    /// name is valid only if the MethodDesc refers to this code before and after reading.
    fn dynamic_method(&mut self, method: MethodKey, table: &MethodTable) -> Option<MethodName> {
        let before = self.dynamic_method_desc(method)?;
        let name = self.c_string(before.name)?;
        let bytes = self.memory.vec(
            before.signature,
            before.signature_bytes,
            *SIGNATURE_BYTES.end() as usize,
        )?;
        let module = self.module(table)?;
        // IL stubs have the signature of their native function, with tokens of its module.
        let metadata = self.metadata(module);
        let in_process = InProcess {
            reader: RefCell::new(&mut *self),
            metadata: metadata.as_deref(),
        };
        let (parameters, parsed) = signature::parameters(&bytes, &in_process)?;
        // The size in the MethodDesc is sometimes one byte too large.
        if bytes.len() - parsed > 1 {
            return None;
        }
        let module = self.c_string(
            self.memory
                .u64(module.checked_add(self.types.module.name)?)?,
        )?;
        if self.dynamic_method_desc(method)? != before || self.c_string(before.name)? != name {
            return None;
        }
        Some(MethodName {
            module,
            method: format!("dynamicClass.{name}{parameters}"),
            tier: Some(tier::OPTIMIZED),
        })
    }

    fn dynamic_method_desc(&self, method: MethodKey) -> Option<DynamicMethodDesc> {
        let fields = self.types.dynamic;
        let field = |offset| self.memory.u64(method.method_desc.checked_add(offset)?);
        let signature_bytes = field(fields.signature_bytes)? & u64::from(u32::MAX);
        let is_valid =
            field(fields.code)? == method.start && SIGNATURE_BYTES.contains(&signature_bytes);
        is_valid.then_some(DynamicMethodDesc {
            signature: field(fields.signature)?,
            signature_bytes,
            name: field(fields.name)?,
        })
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
        self.format_types(list, count, 0)
    }
}

/// Fields of a `DynamicMethodDesc`.
#[derive(PartialEq, Eq)]
struct DynamicMethodDesc {
    signature: u64,
    signature_bytes: u64,
    name: u64,
}
