//! Reads the name of a method from the memory of its process.

use std::cell::RefCell;

use perfcollect_symbols::dotnet::signature;
use perfcollect_symbols::dotnet::type_name::{self, push_arguments};

use super::memory::Memory;
use super::method::MethodKey;
use super::method_name::{DYNAMIC_CLASS, MethodName};
use super::method_name_error::{MethodDataError, MethodNameError};
use super::tier::{self, Tiers};
use super::type_reader::{InProcess, MethodTable, TypeReader, c_string};

/// Number of bits of a method's token in the MethodDesc. The chunk has the others.
const TOKEN_BITS: u32 = 12;
const TOKEN_MASK: u32 = (1 << TOKEN_BITS) - 1;
/// Kinds of MethodDesc, in the low bits of its flags.
const KIND: u16 = 7;
const INSTANTIATED: u16 = 5;
const DYNAMIC: u16 = 7;
/// Valid sizes of a dynamic method's signature.
const SIGNATURE_BYTES: std::ops::RangeInclusive<u64> = 2..=4096;

impl<M: Memory> TypeReader<'_, M> {
    /// Reads the name of a method.
    ///
    /// # Errors
    /// The runtime's data is inconsistent, or the method is dynamic and has been freed.
    pub(super) fn name(
        &mut self,
        method: MethodKey,
        tiers: &mut Tiers,
    ) -> Result<MethodName, MethodNameError> {
        let (flags, chunk) = self.flags_and_chunk(method.method_desc)?;
        let table = self.method_table_of(chunk)?;
        match flags & KIND {
            DYNAMIC => (self.dynamic_method(method, &table)).map_err(MethodNameError::Dynamic),
            kind => Ok(self.assembly_method(method, kind, chunk, &table, tiers)?),
        }
    }

    /// Reads the flags of a MethodDesc. Returns them and the address of its MethodDescChunk.
    fn flags_and_chunk(&self, method_desc: u64) -> Result<(u16, u64), MethodDataError> {
        let desc = self.structure(method_desc);
        let flags = desc.u16(self.types.method.flags)?;
        let index = desc.u8(self.types.method.chunk_index)?;
        let chunk = method_desc
            .checked_sub(u64::from(index) * 8)
            .and_then(|first| first.checked_sub(self.types.chunk.bytes));
        let chunk = chunk.ok_or(MethodDataError::Address(method_desc, "MethodDesc"))?;
        Ok((flags, chunk))
    }

    fn method_table_of(&self, chunk: u64) -> Result<MethodTable, MethodDataError> {
        self.method_table(self.structure(chunk).u64(self.types.chunk.table)?)
    }

    /// Reads the name of a method of an assembly. `kind` is the kind of its MethodDesc.
    fn assembly_method(
        &mut self,
        method: MethodKey,
        kind: u16,
        chunk: u64,
        table: &MethodTable,
        tiers: &mut Tiers,
    ) -> Result<MethodName, MethodDataError> {
        let at = method.method_desc;
        let range = self.structure(chunk).u16(self.types.chunk.token_range)?;
        let remainder = self.structure(at).u16(self.types.method.token_remainder)?;
        let row = (u32::from(range) & TOKEN_MASK) << TOKEN_BITS | u32::from(remainder) & TOKEN_MASK;
        let module = self.module(table)?;
        let metadata = self.metadata(module)?;
        let type_row = self.type_row(table)?;
        // The best available check that all data read so far is consistent.
        let declaring = metadata.owner_of(row)?;
        if declaring != type_row {
            return Err(MethodDataError::OtherType {
                declaring,
                found: type_row,
            });
        }
        let definition = metadata.method(row)?;
        let type_arguments = self.type_arguments(table, 0)?;
        let method_arguments = match kind {
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
        Ok(MethodName {
            module: metadata.assembly()?.into_owned(),
            method: name,
            tier: match metadata.disables_optimization() {
                true => Some(tier::MIN_OPT),
                false => tiers.tier(self.memory, &self.types, method, definition.impl_flags),
            },
        })
    }

    /// Reads the name of a method that belongs to no type.
    ///
    /// The runtime reuses the MethodDesc of a freed method while the old code still exists. The
    /// name is valid only if the MethodDesc refers to this code before and after reading.
    fn dynamic_method(
        &mut self,
        method: MethodKey,
        table: &MethodTable,
    ) -> Result<MethodName, MethodDataError> {
        let before = self.dynamic_method_desc(method)?;
        let name = c_string(self.memory, before.name)?;
        let bytes = self.memory.vec(
            before.signature,
            before.signature_bytes,
            *SIGNATURE_BYTES.end() as usize,
        )?;
        let module = self.module(table)?;
        // IL stubs have the signature of their native function, with tokens of its module.
        let metadata = self.metadata(module).ok();
        let in_process = InProcess {
            reader: RefCell::new(&mut *self),
            metadata: metadata.as_deref(),
        };
        let (parameters, parsed) = signature::parameters(&bytes, &in_process)?;
        // The size in the MethodDesc is sometimes one byte too large.
        if bytes.len() - parsed > 1 {
            return Err(MethodDataError::SignatureSize {
                address: before.signature,
                bytes: before.signature_bytes,
            });
        }
        let module = c_string(
            self.memory,
            self.structure(module).u64(self.types.module.name)?,
        )?;
        if self.dynamic_method_desc(method)? != before
            || c_string(self.memory, before.name)? != name
        {
            return Err(MethodDataError::OtherCode(method.method_desc));
        }
        Ok(MethodName {
            module,
            method: format!("{DYNAMIC_CLASS}.{name}{parameters}"),
            tier: Some(tier::OPTIMIZED),
        })
    }

    fn dynamic_method_desc(&self, method: MethodKey) -> Result<DynamicMethodDesc, MethodDataError> {
        let fields = self.types.dynamic;
        let desc = self.structure(method.method_desc);
        let signature_bytes = desc.u64(fields.signature_bytes)? & u64::from(u32::MAX);
        if desc.u64(fields.code)? != method.start {
            return Err(MethodDataError::OtherCode(method.method_desc));
        }
        let signature = desc.u64(fields.signature)?;
        if !SIGNATURE_BYTES.contains(&signature_bytes) {
            return Err(MethodDataError::SignatureSize {
                address: signature,
                bytes: signature_bytes,
            });
        }
        Ok(DynamicMethodDesc {
            signature,
            signature_bytes,
            name: desc.u64(fields.name)?,
        })
    }

    fn method_arguments(&mut self, method_desc: u64) -> Result<Vec<String>, MethodDataError> {
        let fields = self.types.instantiated;
        let desc = self.structure(method_desc);
        match desc.u16(fields.count)? {
            0 => Ok(Vec::new()),
            count => {
                let list = desc.u64(fields.arguments)?;
                self.format_types(list, count, 0)
            }
        }
    }
}

/// Fields of a `DynamicMethodDesc`.
#[derive(PartialEq, Eq)]
struct DynamicMethodDesc {
    signature: u64,
    signature_bytes: u64,
    name: u64,
}
