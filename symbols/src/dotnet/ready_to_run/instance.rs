//! Instances of generic methods, from their signatures.

use super::{ReadyToRun, ReadyToRunName};
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
    pub(super) name: Option<ReadyToRunName>,
}

impl Instance {
    /// Reads the signature at an offset of the instance table. Formats the name if `is_named`.
    pub(super) fn read(image: &ReadyToRun, at: usize, is_named: bool) -> Option<Self> {
        let bytes = image.instances.get(at..)?;
        let mut input = Cursor(bytes);
        let flags = input.compressed_u32()?;
        if flags & (HAS_SLOT | IS_CONSTRAINED) != 0 {
            return None;
        }
        let module = match flags & HAS_MODULE {
            0 => 0,
            _ => image.module_of_index(input.compressed_u32()?)?,
        };
        let context = Context {
            image,
            module,
            is_named,
        };
        let mut type_arguments = Vec::new();
        // The row is in the module that declares the type.
        let mut row_module = Some(module);
        if flags & HAS_OWNER != 0 {
            let owner = signature::DeclaringType::read(input.0, &context)?;
            input.take(owner.bytes)?;
            type_arguments = owner.arguments;
            if let Some(index) = owner.module {
                row_module = image.module_of_index(index);
            }
        }
        let row = input.compressed_u32()?;
        let mut method_arguments = Vec::new();
        if flags & HAS_INSTANTIATION != 0 {
            let count = input.compressed_u32()?;
            if count > MAX_ARGUMENTS {
                return None;
            }
            for _ in 0..count {
                let (argument, taken) = signature::type_name(input.0, &context)?;
                input.take(taken)?;
                method_arguments.push(argument);
            }
        }
        let taken = bytes.len() - input.0.len();
        let name = || {
            if flags & IS_MEMBER_REF != 0 {
                return None;
            }
            let metadata = image.metadata(row_module?)?;
            ReadyToRun::method_name(metadata, row, &type_arguments, &method_arguments)
        };
        Some(Self {
            bytes: taken,
            name: is_named.then(name).flatten(),
        })
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
        self.image.metadata(self.module)
    }

    fn argument(&self, _: bool, _: u32) -> Option<&str> {
        None
    }

    fn runtime_type(&self, _: u64, _: bool) -> Option<String> {
        None
    }

    fn module(&self, index: u32) -> Option<&Metadata> {
        self.image.metadata(self.image.module_of_index(index)?)
    }

    fn formats_types(&self) -> bool {
        self.is_named
    }
}
