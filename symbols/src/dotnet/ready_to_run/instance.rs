//! Instances of generic methods, by their signatures.

use super::{PrecompiledName, ReadyToRun};
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

/// What a signature of an instance says.
pub(super) struct Instance {
    pub(super) bytes: usize,
    pub(super) name: Option<PrecompiledName>,
}

impl Instance {
    /// The instance whose signature is at a place, with or without its name.
    pub(super) fn read(image: &ReadyToRun, at: usize, is_named: bool) -> Option<Self> {
        let bytes = image.instances.get(at..)?;
        let mut input = Cursor(bytes);
        let flags = input.number()?;
        if flags & (HAS_SLOT | IS_CONSTRAINED) != 0 {
            return None;
        }
        let module = match flags & HAS_MODULE {
            0 => 0,
            _ => image.module_of_index(input.number()?)?,
        };
        let context = Context {
            image,
            module,
            is_named,
        };
        let mut of_type = Vec::new();
        // The row is one of the module that the type is of.
        let mut row_module = Some(module);
        if flags & HAS_OWNER != 0 {
            let owner = signature::DeclaringType::read(input.0, &context)?;
            input.take(owner.bytes)?;
            of_type = owner.arguments;
            if let Some(index) = owner.module {
                row_module = image.module_of_index(index);
            }
        }
        let row = input.number()?;
        let mut of_method = Vec::new();
        if flags & HAS_INSTANTIATION != 0 {
            let count = input.number()?;
            if count > MAX_ARGUMENTS {
                return None;
            }
            for _ in 0..count {
                let (argument, taken) = signature::type_name(input.0, &context)?;
                input.take(taken)?;
                of_method.push(argument);
            }
        }
        let taken = bytes.len() - input.0.len();
        let name = || {
            if flags & IS_MEMBER_REF != 0 {
                return None;
            }
            ReadyToRun::method_name(image.metadata(row_module?)?, row, &of_type, &of_method)
        };
        Some(Self {
            bytes: taken,
            name: is_named.then(name).flatten(),
        })
    }
}

/// What the numbers of an instance's signature stand for.
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

    fn is_spelled(&self) -> bool {
        self.is_named
    }
}
