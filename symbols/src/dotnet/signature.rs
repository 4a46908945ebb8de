//! Signatures of methods (ECMA-335 II.23.2) and of ReadyToRun images. Types are spelled as in C#.

use super::element::{Cursor, code, primitive};
use super::metadata::Metadata;
use super::type_name::instantiated;

/// Nesting limit of types.
const MAX_DEPTH: usize = 16;
/// Limit on the arguments of a method or type.
const MAX_ARGUMENTS: u32 = 1024;
/// Size limit of one formatted signature. A longer one is rejected.
const MAX_FORMATTED_BYTES: usize = 16 << 10;
/// Bits of the first byte of a method's signature.
const GENERIC: u8 = 0x10;
const KIND: u8 = 0x0f;
/// Signature kinds other than method and function pointer.
const OTHER_KINDS: [u8; 6] = [0x06, 0x07, 0x08, 0x0a, 0x0b, 0x0c];

/// Resolves the tokens, type variables and addresses of a signature.
pub trait TypeNameResolver {
    /// Returns the metadata of the module that the signature's tokens refer to.
    fn metadata(&self) -> Option<&Metadata>;

    /// Returns the formatted argument of the signature's type or, with `of_method`, of its method.
    fn argument(&self, of_method: bool, index: u32) -> Option<&str>;

    /// Formats the type at an address of the process. With `is_definition`, the name has no
    /// arguments, because the signature provides them.
    fn runtime_type(&self, address: u64, is_definition: bool) -> Option<String>;

    /// Returns the metadata of another module, which ReadyToRun images reference by index.
    fn module(&self, index: u32) -> Option<&Metadata>;

    /// Returns whether to format types. Otherwise only the size of the signature is of interest.
    fn formats_types(&self) -> bool {
        true
    }
}

/// Resolver for a method of which only the module and the type arguments are known.
#[derive(Clone, Copy, Debug)]
pub struct InModule<'a> {
    /// The module's metadata.
    pub metadata: &'a Metadata,
    /// The formatted type arguments of the declaring type.
    pub of_type: &'a [String],
    /// The formatted type arguments of the method.
    pub of_method: &'a [String],
}

impl TypeNameResolver for InModule<'_> {
    fn metadata(&self) -> Option<&Metadata> {
        Some(self.metadata)
    }

    fn argument(&self, of_method: bool, index: u32) -> Option<&str> {
        let arguments = if of_method {
            self.of_method
        } else {
            self.of_type
        };
        arguments.get(index as usize).map(String::as_str)
    }

    fn runtime_type(&self, _: u64, _: bool) -> Option<String> {
        None
    }

    fn module(&self, _: u32) -> Option<&Metadata> {
        None
    }
}

/// Formats the parameters of a method's signature as `(int,string)`.
///
/// Returns the parameters and the size of the signature, or `None` if the signature is corrupt.
#[must_use]
pub fn parameters(signature: &[u8], names: &impl TypeNameResolver) -> Option<(String, usize)> {
    let mut parser = Parser::new(signature, names);
    let (parameters, _) = parser.method(0)?;
    Some((parameters, signature.len() - parser.input.0.len()))
}

/// Formats one type. Returns its name and the size of its signature.
#[must_use]
pub fn type_name(signature: &[u8], names: &impl TypeNameResolver) -> Option<(String, usize)> {
    let mut parser = Parser::new(signature, names);
    let name = parser.any_type(0)?;
    Some((name, signature.len() - parser.input.0.len()))
}

/// The declaring type in a signature of a ReadyToRun instance.
pub(super) struct DeclaringType {
    /// Index of the type's module, if it overrides the module of the signature.
    pub(super) module: Option<u32>,
    /// The formatted type arguments.
    pub(super) arguments: Vec<String>,
    /// Size of the type's signature.
    pub(super) bytes: usize,
}

impl DeclaringType {
    pub(super) fn read(signature: &[u8], names: &impl TypeNameResolver) -> Option<Self> {
        let mut head = Cursor(signature);
        let module = match head.byte()? {
            code::MODULE => Some(head.compressed_u32()?),
            _ => None,
        };
        let mut parser = Parser::new(signature, names);
        parser.any_type(0)?;
        Some(Self {
            module,
            arguments: parser.arguments,
            bytes: signature.len() - parser.input.0.len(),
        })
    }
}

/// Parses a signature and formats its types.
struct Parser<'a, N> {
    input: Cursor<'a>,
    names: &'a N,
    /// The module of the tokens, if it overrides the module of the signature.
    module: Option<&'a Metadata>,
    /// The same override for the arguments of a type.
    argument_module: Option<&'a Metadata>,
    /// Remaining bytes of formatted types.
    bytes_left: usize,
    /// Arguments of the last type.
    arguments: Vec<String>,
}

impl<'a, N: TypeNameResolver> Parser<'a, N> {
    fn new(signature: &'a [u8], names: &'a N) -> Self {
        Self {
            input: Cursor(signature),
            names,
            module: None,
            argument_module: None,
            bytes_left: MAX_FORMATTED_BYTES,
            arguments: Vec::new(),
        }
    }

    /// Returns the parameters and the return type.
    fn method(&mut self, depth: usize) -> Option<(String, String)> {
        let convention = self.input.byte()?;
        if OTHER_KINDS.contains(&(convention & KIND)) {
            return None;
        }
        if convention & GENERIC != 0 {
            self.input.compressed_u32()?;
        }
        let count = self.input.compressed_u32()?;
        if count > MAX_ARGUMENTS {
            return None;
        }
        let return_type = self.any_type(depth + 1)?;
        let mut parameters = String::from("(");
        for index in 0..count {
            if index > 0 {
                parameters.push(',');
            }
            parameters.push_str(&self.any_type(depth + 1)?);
        }
        parameters.push(')');
        Some((parameters, return_type))
    }

    fn any_type(&mut self, depth: usize) -> Option<String> {
        let name = self.unbudgeted_type(depth)?;
        // An inner type counts again with each outer type, so the budget bounds the work too.
        self.bytes_left = self.bytes_left.checked_sub(name.len())?;
        Some(name)
    }

    fn unbudgeted_type(&mut self, depth: usize) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        let code = self.input.byte()?;
        if let Some(keyword) = primitive(code) {
            return Some(keyword.to_owned());
        }
        match code {
            code::PTR => self.suffixed(depth, "*"),
            code::BYREF => self.suffixed(depth, "&"),
            code::SZ_ARRAY => self.suffixed(depth, "[]"),
            code::ARRAY => self.array(depth),
            code::VALUE_TYPE | code::CLASS => self.token(depth, &[]),
            code::GENERIC_INST => self.instance(depth),
            code::VAR | code::M_VAR => {
                let index = self.input.compressed_u32()?;
                let of_method = code == code::M_VAR;
                let prefix = if of_method { "!!" } else { "!" };
                let argument = self.names.argument(of_method, index);
                Some(argument.map_or_else(|| format!("{prefix}{index}"), str::to_owned))
            }
            code::FN_PTR => {
                let (parameters, return_type) = self.method(depth)?;
                let inner = parameters.get(1..parameters.len() - 1)?;
                let separator = if inner.is_empty() { "" } else { "," };
                Some(format!("delegate*<{inner}{separator}{return_type}>"))
            }
            code::MODIFIER_REQUIRED | code::MODIFIER_OPTIONAL => {
                self.input.compressed_u32()?;
                self.any_type(depth + 1)
            }
            code::MODIFIER_INTERNAL => {
                self.input.take(9)?;
                self.any_type(depth + 1)
            }
            code::INTERNAL => {
                let address = u64::from_le_bytes(self.input.array()?);
                self.names.runtime_type(address, false)
            }
            code::SENTINEL | code::PINNED | code::VALUE_TYPE_NATIVE => self.any_type(depth + 1),
            code::CANON => Some("System.__Canon".to_owned()),
            code::MODULE => {
                let index = self.input.compressed_u32()?;
                self.in_module(index, |parser| parser.any_type(depth + 1))
            }
            _ => None,
        }
    }

    fn suffixed(&mut self, depth: usize, suffix: &str) -> Option<String> {
        let mut name = self.any_type(depth + 1)?;
        name.push_str(suffix);
        Some(name)
    }

    /// Reads an array type. The name omits sizes and lower bounds, as C# has none.
    fn array(&mut self, depth: usize) -> Option<String> {
        let mut name = self.any_type(depth + 1)?;
        let rank = self.input.compressed_u32()?;
        if !(1..=32).contains(&rank) {
            return None;
        }
        for _ in 0..2 {
            for _ in 0..self.input.compressed_u32()? {
                self.input.compressed_u32()?;
            }
        }
        name.push('[');
        name.extend((1..rank).map(|_| ','));
        name.push(']');
        Some(name)
    }

    fn instance(&mut self, depth: usize) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        let head = self.input;
        let kind = self.input.byte()?;
        match kind {
            code::VALUE_TYPE | code::CLASS => {}
            code::INTERNAL => return self.instance_of_internal(depth),
            _ => return None,
        }
        self.input.compressed_u32()?;
        let arguments = self.arguments(depth)?;
        let rest = std::mem::replace(&mut self.input, head);
        self.input.byte()?;
        let name = self.token(depth, &arguments);
        self.input = rest;
        self.arguments = arguments;
        name
    }

    /// Runs `read` on a part of the signature whose tokens refer to another module.
    fn in_module(
        &mut self,
        index: u32,
        read: impl FnOnce(&mut Self) -> Option<String>,
    ) -> Option<String> {
        if !self.names.formats_types() {
            return read(self);
        }
        let outer = self.module.replace(self.names.module(index)?);
        let name = read(self);
        self.module = outer;
        name
    }

    fn instance_of_internal(&mut self, depth: usize) -> Option<String> {
        let address = u64::from_le_bytes(self.input.array()?);
        let arguments = self.arguments(depth)?;
        let name = self.names.runtime_type(address, true)?;
        Some(instantiated(&name, &arguments))
    }

    fn arguments(&mut self, depth: usize) -> Option<Vec<String>> {
        let count = self.input.compressed_u32()?;
        if !(1..=MAX_ARGUMENTS).contains(&count) {
            return None;
        }
        // A module override applies to the type itself, not to its arguments.
        let module = std::mem::replace(&mut self.module, self.argument_module);
        let arguments = (0..count).map(|_| self.any_type(depth + 1)).collect();
        self.module = module;
        arguments
    }

    /// Reads a type token and formats its type with `arguments`.
    fn token(&mut self, depth: usize, arguments: &[String]) -> Option<String> {
        let token = Metadata::type_token(self.input.compressed_u32()?)?;
        if !self.names.formats_types() {
            return Some(String::new());
        }
        let metadata = self.module.or_else(|| self.names.metadata())?;
        if let Some(spec) = metadata.type_spec(token) {
            return self.spec(spec, metadata, depth);
        }
        Some(instantiated(&metadata.type_name(token)?, arguments))
    }

    fn spec(&mut self, spec: &'a [u8], metadata: &'a Metadata, depth: usize) -> Option<String> {
        let state = (self.input, self.module, self.argument_module);
        self.input = Cursor(spec);
        self.module = Some(metadata);
        self.argument_module = Some(metadata);
        let name = self.any_type(depth + 1);
        (self.input, self.module, self.argument_module) = state;
        name
    }
}
