//! The name of one method, read from the memory of its process.

use std::cell::RefCell;

use perfcollect_symbols::dotnet::signature;
use perfcollect_symbols::dotnet::type_name::{self, push_arguments};

use super::memory::Memory;
use super::method::MethodKey;
use super::method_name::MethodName;
use super::tier::{self, Tiers};
use super::type_reader::{InProcess, Table, TypeReader};

/// Bits of a method's token that the MethodDesc has; the chunk has the others.
const TOKEN_BITS: u32 = 12;
const TOKEN_MASK: u32 = (1 << TOKEN_BITS) - 1;
/// Kinds of MethodDesc, in the low bits of its flags.
const KIND: u16 = 7;
const INSTANTIATED: u16 = 5;
const DYNAMIC: u16 = 7;
/// Signatures of dynamic methods in memory.
const SIGNATURE_BYTES: std::ops::RangeInclusive<u64> = 2..=4096;

/// What came of naming a method.
pub(super) struct NamedMethod {
    pub(super) name: Option<MethodName>,
    /// It belongs to no assembly, and may be freed by itself.
    pub(super) is_dynamic: bool,
}

impl<M: Memory> TypeReader<'_, M> {
    /// The name of a method. `None`: what is there does not fit together.
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
        let table = self.table(table)?;
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
        Some(NamedMethod {
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
            tier: Some(tier::OPTIMIZED),
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
}

/// What a dynamic method is known by.
#[derive(PartialEq, Eq)]
struct DynamicRecord {
    signature: u64,
    signature_bytes: u64,
    name: u64,
}
