//! Instances of generic methods, from their signatures.

use super::{ReadyToRun, ReadyToRunError, ReadyToRunName};
use crate::dotnet::element::Cursor;
use crate::dotnet::metadata::Metadata;
use crate::dotnet::signature::{self, TypeNameResolver};

/// Flags of an instance's signature.
const HAS_INSTANTIATION: u32 = 0x04;
const HAS_SLOT: u32 = 0x08;
const IS_MEMBER_REF: u32 = 0x10;
const IS_CONSTRAINED: u32 = 0x20;
const HAS_OWNER: u32 = 0x40;
const HAS_MODULE: u32 = 0x80;
const MAX_ARGUMENTS: u32 = 64;

/// A decoded signature of an instance.
pub(super) struct Instance {
    /// Size of the signature.
    pub(super) bytes: usize,
    flags: u32,
    /// The module of the row, or an error if the image does not know it.
    module: Result<u32, ReadyToRunError>,
    row: u32,
    type_arguments: Vec<String>,
    method_arguments: Vec<String>,
}

impl Instance {
    /// Reads the signature at an offset of the instance table. Formats arguments if `is_named`.
    pub(super) fn read(
        image: &ReadyToRun,
        at: usize,
        is_named: bool,
    ) -> Result<Self, ReadyToRunError> {
        let truncated = ReadyToRunError::Truncated(at);
        let bytes = image.instances.get(at..).ok_or(truncated)?;
        let mut input = Cursor(bytes);
        let number = |input: &mut Cursor<'_>| input.compressed_u32().ok_or(truncated);
        let flags = number(&mut input)?;
        if flags & (HAS_SLOT | IS_CONSTRAINED) != 0 {
            return Err(ReadyToRunError::Flags(flags));
        }
        let module = match flags & HAS_MODULE {
            0 => 0,
            _ => image.module_of_index(number(&mut input)?)?,
        };
        let context = Context {
            image,
            module,
            is_named,
        };
        let mut type_arguments = Vec::new();
        // The row is in the module that declares the type.
        let mut row_module = Ok(module);
        if flags & HAS_OWNER != 0 {
            let owner = signature::DeclaringType::read(input.0, &context)?;
            input.take(owner.bytes).ok_or(truncated)?;
            type_arguments = owner.arguments;
            if let Some(index) = owner.module {
                row_module = image.module_of_index(index);
            }
        }
        let row = number(&mut input)?;
        let mut method_arguments = Vec::new();
        if flags & HAS_INSTANTIATION != 0 {
            let count = number(&mut input)?;
            if count > MAX_ARGUMENTS {
                return Err(ReadyToRunError::TooMany {
                    what: "arguments of a generic method",
                    count,
                    limit: MAX_ARGUMENTS,
                });
            }
            for _ in 0..count {
                let (argument, taken) = signature::type_name(input.0, &context)?;
                input.take(taken).ok_or(truncated)?;
                method_arguments.push(argument);
            }
        }
        Ok(Self {
            bytes: bytes.len() - input.0.len(),
            flags,
            module: row_module,
            row,
            type_arguments,
            method_arguments,
        })
    }

    /// Returns the name of an instance that was read with `is_named`.
    pub(super) fn name(&self, image: &ReadyToRun) -> Result<ReadyToRunName, ReadyToRunError> {
        if self.flags & IS_MEMBER_REF != 0 {
            return Err(ReadyToRunError::Flags(self.flags));
        }
        let metadata = image.metadata(self.module?)?;
        ReadyToRun::method_name(
            metadata,
            self.row,
            &self.type_arguments,
            &self.method_arguments,
        )
    }
}

/// Resolves the tokens and module indexes of an instance's signature.
struct Context<'a> {
    image: &'a ReadyToRun,
    module: u32,
    is_named: bool,
}

impl TypeNameResolver for Context<'_> {
    fn metadata(&self) -> Option<&Metadata> {
        self.image.metadata(self.module).ok()
    }

    fn argument(&self, _: bool, _: u32) -> Option<&str> {
        None
    }

    fn runtime_type(&self, _: u64, _: bool) -> Option<String> {
        None
    }

    fn module(&self, index: u32) -> Option<&Metadata> {
        let module = self.image.module_of_index(index).ok()?;
        self.image.metadata(module).ok()
    }

    fn formats_types(&self) -> bool {
        self.is_named
    }
}
