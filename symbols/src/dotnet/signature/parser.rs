//! Parser for signatures.

use std::ops::RangeInclusive;

use super::{SignatureError, TypeNameResolver};
use crate::dotnet::element::{Cursor, code, primitive};
use crate::dotnet::metadata::Metadata;
use crate::dotnet::type_name::instantiated;

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

/// Parses a signature and formats its types.
pub(super) struct Parser<'a, N> {
    input: Cursor<'a>,
    names: &'a N,
    /// The module of the tokens, if it overrides the module of the signature.
    module: Option<&'a Metadata>,
    /// The same override for the arguments of a type.
    argument_module: Option<&'a Metadata>,
    /// Remaining bytes of formatted types.
    bytes_left: usize,
    /// Arguments of the last type.
    pub(super) arguments: Vec<String>,
}

impl<'a, N: TypeNameResolver> Parser<'a, N> {
    pub(super) fn new(signature: &'a [u8], names: &'a N) -> Self {
        Self {
            input: Cursor(signature),
            names,
            module: None,
            argument_module: None,
            bytes_left: MAX_FORMATTED_BYTES,
            arguments: Vec::new(),
        }
    }

    /// Returns the number of bytes read from `signature`, which the parser was created for.
    pub(super) fn taken(&self, signature: &[u8]) -> usize {
        signature.len() - self.input.0.len()
    }

    pub(super) fn byte(&mut self) -> Result<u8, SignatureError> {
        self.input.byte().ok_or(SignatureError::Truncated)
    }

    /// Reads a compressed integer.
    pub(super) fn number(&mut self) -> Result<u32, SignatureError> {
        self.input.compressed_u32().ok_or(SignatureError::Truncated)
    }

    /// Reads a number that must be in a range.
    fn number_in(
        &mut self,
        range: RangeInclusive<u32>,
        what: &'static str,
    ) -> Result<u32, SignatureError> {
        let count = self.number()?;
        match range.contains(&count) {
            true => Ok(count),
            false => Err(SignatureError::Count {
                what,
                count,
                min: *range.start(),
                max: *range.end(),
            }),
        }
    }

    /// Reads the address of a type of the runtime.
    fn address(&mut self) -> Result<u64, SignatureError> {
        let address = self.input.array().ok_or(SignatureError::Truncated)?;
        Ok(u64::from_le_bytes(address))
    }

    /// Returns the parameters and the return type.
    pub(super) fn method(&mut self, depth: usize) -> Result<(String, String), SignatureError> {
        let convention = self.byte()?;
        let kind = convention & KIND;
        if OTHER_KINDS.contains(&kind) {
            return Err(SignatureError::NotMethod(kind));
        }
        if convention & GENERIC != 0 {
            self.number()?;
        }
        let count = self.number_in(0..=MAX_ARGUMENTS, "parameters")?;
        let return_type = self.any_type(depth + 1)?;
        let mut parameters = String::from("(");
        for index in 0..count {
            if index > 0 {
                parameters.push(',');
            }
            parameters.push_str(&self.any_type(depth + 1)?);
        }
        parameters.push(')');
        Ok((parameters, return_type))
    }

    pub(super) fn any_type(&mut self, depth: usize) -> Result<String, SignatureError> {
        let name = self.unbudgeted_type(depth)?;
        // An inner type counts again with each outer type, so the budget bounds the work too.
        let left = self.bytes_left.checked_sub(name.len());
        self.bytes_left = left.ok_or(SignatureError::TooLong(MAX_FORMATTED_BYTES))?;
        Ok(name)
    }

    fn unbudgeted_type(&mut self, depth: usize) -> Result<String, SignatureError> {
        expect_depth(depth)?;
        let code = self.byte()?;
        if let Some(keyword) = primitive(code) {
            return Ok(keyword.to_owned());
        }
        match code {
            code::PTR => self.suffixed(depth, "*"),
            code::BYREF => self.suffixed(depth, "&"),
            code::SZ_ARRAY => self.suffixed(depth, "[]"),
            code::ARRAY => self.array(depth),
            code::VALUE_TYPE | code::CLASS => self.token(depth, &[]),
            code::GENERIC_INST => self.instance(depth),
            code::VAR | code::M_VAR => {
                let index = self.number()?;
                let of_method = code == code::M_VAR;
                let prefix = if of_method { "!!" } else { "!" };
                let argument = self.names.argument(of_method, index);
                Ok(argument.map_or_else(|| format!("{prefix}{index}"), str::to_owned))
            }
            code::FN_PTR => {
                let (parameters, return_type) = self.method(depth)?;
                let inner = parameters.get(1..parameters.len() - 1).unwrap_or_default();
                let separator = if inner.is_empty() { "" } else { "," };
                Ok(format!("delegate*<{inner}{separator}{return_type}>"))
            }
            code::MODIFIER_REQUIRED | code::MODIFIER_OPTIONAL => {
                self.number()?;
                self.any_type(depth + 1)
            }
            code::MODIFIER_INTERNAL => {
                self.byte()?;
                self.address()?;
                self.any_type(depth + 1)
            }
            code::INTERNAL => {
                let address = self.address()?;
                self.runtime_type(address, false)
            }
            code::SENTINEL | code::PINNED | code::VALUE_TYPE_NATIVE => self.any_type(depth + 1),
            code::CANON => Ok("System.__Canon".to_owned()),
            code::MODULE => {
                let index = self.number()?;
                self.in_module(index, |parser| parser.any_type(depth + 1))
            }
            other => Err(SignatureError::NotType(other)),
        }
    }

    fn runtime_type(&self, address: u64, is_definition: bool) -> Result<String, SignatureError> {
        let name = self.names.runtime_type(address, is_definition);
        name.ok_or(SignatureError::NoRuntimeType(address))
    }

    fn suffixed(&mut self, depth: usize, suffix: &str) -> Result<String, SignatureError> {
        let mut name = self.any_type(depth + 1)?;
        name.push_str(suffix);
        Ok(name)
    }

    /// Reads an array type. The name omits sizes and lower bounds, as C# has none.
    fn array(&mut self, depth: usize) -> Result<String, SignatureError> {
        let mut name = self.any_type(depth + 1)?;
        let rank = self.number_in(1..=32, "dimensions")?;
        for _ in 0..2 {
            for _ in 0..self.number()? {
                self.number()?;
            }
        }
        name.push('[');
        name.extend((1..rank).map(|_| ','));
        name.push(']');
        Ok(name)
    }

    fn instance(&mut self, depth: usize) -> Result<String, SignatureError> {
        expect_depth(depth)?;
        let head = self.input;
        match self.byte()? {
            code::VALUE_TYPE | code::CLASS => {}
            code::INTERNAL => return self.instance_of_internal(depth),
            other => return Err(SignatureError::NotType(other)),
        }
        self.number()?;
        let arguments = self.arguments(depth)?;
        let rest = std::mem::replace(&mut self.input, head);
        self.byte()?;
        let name = self.token(depth, &arguments);
        self.input = rest;
        self.arguments = arguments;
        name
    }

    /// Runs `read` on a part of the signature whose tokens refer to another module.
    fn in_module(
        &mut self,
        index: u32,
        read: impl FnOnce(&mut Self) -> Result<String, SignatureError>,
    ) -> Result<String, SignatureError> {
        if !self.names.formats_types() {
            return read(self);
        }
        let module = self.names.module(index);
        let module = module.ok_or(SignatureError::NoModule(index))?;
        let outer = self.module.replace(module);
        let name = read(self);
        self.module = outer;
        name
    }

    fn instance_of_internal(&mut self, depth: usize) -> Result<String, SignatureError> {
        let address = self.address()?;
        let arguments = self.arguments(depth)?;
        let name = self.runtime_type(address, true)?;
        Ok(instantiated(&name, &arguments))
    }

    fn arguments(&mut self, depth: usize) -> Result<Vec<String>, SignatureError> {
        let count = self.number_in(1..=MAX_ARGUMENTS, "type arguments")?;
        // A module override applies to the type itself, not to its arguments.
        let module = std::mem::replace(&mut self.module, self.argument_module);
        let arguments = (0..count).map(|_| self.any_type(depth + 1)).collect();
        self.module = module;
        arguments
    }

    /// Reads a type token and formats its type with `arguments`.
    fn token(&mut self, depth: usize, arguments: &[String]) -> Result<String, SignatureError> {
        let token = Metadata::type_token(self.number()?)?;
        if !self.names.formats_types() {
            return Ok(String::new());
        }
        let metadata = self.module.or_else(|| self.names.metadata());
        let metadata = metadata.ok_or(SignatureError::NoMetadata)?;
        if let Some(spec) = metadata.type_spec(token)? {
            return self.spec(spec, metadata, depth);
        }
        Ok(instantiated(&metadata.type_name(token)?, arguments))
    }

    fn spec(
        &mut self,
        spec: &'a [u8],
        metadata: &'a Metadata,
        depth: usize,
    ) -> Result<String, SignatureError> {
        let state = (self.input, self.module, self.argument_module);
        self.input = Cursor(spec);
        self.module = Some(metadata);
        self.argument_module = Some(metadata);
        let name = self.any_type(depth + 1);
        (self.input, self.module, self.argument_module) = state;
        name
    }
}

/// Checks the nesting of a type.
fn expect_depth(depth: usize) -> Result<(), SignatureError> {
    match depth <= MAX_DEPTH {
        true => Ok(()),
        false => Err(SignatureError::TooDeep(MAX_DEPTH)),
    }
}
