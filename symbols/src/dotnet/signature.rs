//! Signatures of methods (ECMA-335 II.23.2), and of what is precompiled: types as in C#.

use super::element::{Cursor, code, primitive};
use super::metadata::Metadata;
use super::type_name::instantiated;

/// Types within types.
const MAX_DEPTH: usize = 16;
/// Most arguments of a method or type.
const MAX_ARGUMENTS: u32 = 1024;
/// Longest spelling of one signature; beyond, it is refused.
const MAX_TEXT_BYTES: usize = 16 << 10;
/// Bits of the first byte of a method's signature.
const GENERIC: u8 = 0x10;
const KIND: u8 = 0x0f;
/// Kinds of signature that are not of methods or function pointers.
const OTHER_KINDS: [u8; 6] = [0x06, 0x07, 0x08, 0x0a, 0x0b, 0x0c];

/// What a signature's numbers stand for.
pub trait TypeNameResolver {
    /// The module whose tokens the signature has.
    fn metadata(&self) -> Option<&Metadata>;

    /// An argument of the type (or, with `of_method`, of the method) that the signature belongs to, spelled.
    fn argument(&self, of_method: bool, index: u32) -> Option<&str>;

    /// The type at an address of the process, spelled; without its arguments, if the signature gives them.
    fn runtime_type(&self, address: u64, is_definition: bool) -> Option<String>;

    /// Another module, which precompiled code counts by index.
    fn module(&self, index: u32) -> Option<&Metadata>;

    /// Whether types are to be spelled; else only their bytes are counted.
    fn is_spelled(&self) -> bool {
        true
    }
}

/// What is known of a method from its module alone: its arguments, and those of its type.
#[derive(Clone, Copy, Debug)]
pub struct InModule<'a> {
    /// The module.
    pub metadata: &'a Metadata,
    /// The type's arguments, spelled.
    pub of_type: &'a [String],
    /// The method's arguments, spelled.
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

/// The parameters of a method's signature as `(int,string)`, and how many bytes the signature takes. `None`: damaged.
#[must_use]
pub fn parameters(signature: &[u8], names: &impl TypeNameResolver) -> Option<(String, usize)> {
    let mut printer = Printer::new(signature, names);
    let (text, _) = printer.method(0)?;
    Some((text, signature.len() - printer.input.0.len()))
}

/// One type, spelled, and how many bytes it takes.
#[must_use]
pub fn type_name(signature: &[u8], names: &impl TypeNameResolver) -> Option<(String, usize)> {
    let mut printer = Printer::new(signature, names);
    let text = printer.spelled(0)?;
    Some((text, signature.len() - printer.input.0.len()))
}

/// The type that a method of precompiled code is of.
pub(super) struct DeclaringType {
    /// Index of its module, if it is another than usual.
    pub(super) module: Option<u32>,
    /// Its arguments, spelled.
    pub(super) arguments: Vec<String>,
    /// Bytes it takes.
    pub(super) bytes: usize,
}

impl DeclaringType {
    pub(super) fn read(signature: &[u8], names: &impl TypeNameResolver) -> Option<Self> {
        let mut head = Cursor(signature);
        let module = match head.byte()? {
            code::MODULE => Some(head.number()?),
            _ => None,
        };
        let mut printer = Printer::new(signature, names);
        printer.spelled(0)?;
        Some(Self {
            module,
            arguments: printer.arguments,
            bytes: signature.len() - printer.input.0.len(),
        })
    }
}

/// Reads a signature and spells it.
struct Printer<'a, N> {
    input: Cursor<'a>,
    names: &'a N,
    /// A module that tokens are of for now, in place of the usual one.
    module: Option<&'a Metadata>,
    /// The same for the arguments of a type.
    outer: Option<&'a Metadata>,
    left: usize,
    /// Arguments of the type that was read last.
    arguments: Vec<String>,
}

impl<'a, N: TypeNameResolver> Printer<'a, N> {
    fn new(signature: &'a [u8], names: &'a N) -> Self {
        Self {
            input: Cursor(signature),
            names,
            module: None,
            outer: None,
            left: MAX_TEXT_BYTES,
            arguments: Vec::new(),
        }
    }

    /// The parameters and the return type.
    fn method(&mut self, depth: usize) -> Option<(String, String)> {
        let convention = self.input.byte()?;
        if OTHER_KINDS.contains(&(convention & KIND)) {
            return None;
        }
        if convention & GENERIC != 0 {
            self.input.number()?;
        }
        let count = self.input.number()?;
        if count > MAX_ARGUMENTS {
            return None;
        }
        let returned = self.spelled(depth + 1)?;
        let mut text = String::from("(");
        for index in 0..count {
            if index > 0 {
                text.push(',');
            }
            text.push_str(&self.spelled(depth + 1)?);
        }
        text.push(')');
        Some((text, returned))
    }

    fn spelled(&mut self, depth: usize) -> Option<String> {
        let text = self.any(depth)?;
        // What is inside counts again with what it is in: that bounds the work too.
        self.left = self.left.checked_sub(text.len())?;
        Some(text)
    }

    fn any(&mut self, depth: usize) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        let code = self.input.byte()?;
        if let Some(word) = primitive(code) {
            return Some(word.to_owned());
        }
        match code {
            code::PTR => self.suffixed(depth, "*"),
            code::BYREF => self.suffixed(depth, "&"),
            code::SZ_ARRAY => self.suffixed(depth, "[]"),
            code::ARRAY => self.array(depth),
            code::VALUE_TYPE | code::CLASS => self.token(depth, &[]),
            code::GENERIC_INST => self.instance(depth),
            code::VAR | code::M_VAR => {
                let index = self.input.number()?;
                let of_method = code == code::M_VAR;
                let mark = if of_method { "!!" } else { "!" };
                let known = self.names.argument(of_method, index);
                Some(known.map_or_else(|| format!("{mark}{index}"), str::to_owned))
            }
            code::FN_PTR => {
                let (parameters, returned) = self.method(depth)?;
                let inner = parameters.get(1..parameters.len() - 1)?;
                let separator = if inner.is_empty() { "" } else { "," };
                Some(format!("delegate*<{inner}{separator}{returned}>"))
            }
            code::MODIFIER_REQUIRED | code::MODIFIER_OPTIONAL => {
                self.input.number()?;
                self.spelled(depth + 1)
            }
            code::MODIFIER_INTERNAL => {
                self.input.take(9)?;
                self.spelled(depth + 1)
            }
            code::INTERNAL => {
                let address = u64::from_le_bytes(self.input.array()?);
                self.names.runtime_type(address, false)
            }
            code::SENTINEL | code::PINNED | code::VALUE_TYPE_NATIVE => self.spelled(depth + 1),
            code::CANON => Some("System.__Canon".to_owned()),
            code::MODULE => {
                let index = self.input.number()?;
                self.elsewhere(index, |printer| printer.spelled(depth + 1))
            }
            _ => None,
        }
    }

    fn suffixed(&mut self, depth: usize, suffix: &str) -> Option<String> {
        let mut text = self.spelled(depth + 1)?;
        text.push_str(suffix);
        Some(text)
    }

    /// Sizes and lower bounds are left out, as C# has none.
    fn array(&mut self, depth: usize) -> Option<String> {
        let mut text = self.spelled(depth + 1)?;
        let rank = self.input.number()?;
        if !(1..=32).contains(&rank) {
            return None;
        }
        for _ in 0..2 {
            for _ in 0..self.input.number()? {
                self.input.number()?;
            }
        }
        text.push('[');
        text.extend((1..rank).map(|_| ','));
        text.push(']');
        Some(text)
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
        self.input.number()?;
        let arguments = self.arguments(depth)?;
        let behind = std::mem::replace(&mut self.input, head);
        self.input.byte()?;
        let text = self.token(depth, &arguments);
        self.input = behind;
        self.arguments = arguments;
        text
    }

    /// Reads what has tokens of another module.
    fn elsewhere(
        &mut self,
        index: u32,
        read: impl FnOnce(&mut Self) -> Option<String>,
    ) -> Option<String> {
        if !self.names.is_spelled() {
            return read(self);
        }
        let outer = self.module.replace(self.names.module(index)?);
        let text = read(self);
        self.module = outer;
        text
    }

    fn instance_of_internal(&mut self, depth: usize) -> Option<String> {
        let address = u64::from_le_bytes(self.input.array()?);
        let arguments = self.arguments(depth)?;
        let name = self.names.runtime_type(address, true)?;
        Some(instantiated(&name, &arguments))
    }

    fn arguments(&mut self, depth: usize) -> Option<Vec<String>> {
        let count = self.input.number()?;
        if !(1..=MAX_ARGUMENTS).contains(&count) {
            return None;
        }
        // Another module is that of the type only, not of its arguments.
        let module = std::mem::replace(&mut self.module, self.outer);
        let arguments = (0..count).map(|_| self.spelled(depth + 1)).collect();
        self.module = module;
        arguments
    }

    /// The type of the token that comes next, with arguments.
    fn token(&mut self, depth: usize, arguments: &[String]) -> Option<String> {
        let token = Metadata::type_token(self.input.number()?)?;
        if !self.names.is_spelled() {
            return Some(String::new());
        }
        let metadata = self.module.or_else(|| self.names.metadata())?;
        if let Some(spec) = metadata.type_spec(token) {
            return self.spec(spec, metadata, depth);
        }
        Some(instantiated(&metadata.type_name(token)?, arguments))
    }

    fn spec(&mut self, spec: &'a [u8], metadata: &'a Metadata, depth: usize) -> Option<String> {
        let before = (self.input, self.module, self.outer);
        (self.input, self.module, self.outer) = (Cursor(spec), Some(metadata), Some(metadata));
        let text = self.spelled(depth + 1);
        (self.input, self.module, self.outer) = before;
        text
    }
}
