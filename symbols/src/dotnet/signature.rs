//! Signatures of methods (ECMA-335 II.23.2) and of ReadyToRun images. Types are spelled as in C#.

use super::element::code;
use super::metadata::Metadata;
use parser::Parser;

pub use error::SignatureError;

mod error;
mod parser;

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
/// Returns the parameters and the size of the signature.
///
/// # Errors
/// The signature is corrupt or too long, or refers to unknown types.
pub fn parameters(
    signature: &[u8],
    names: &impl TypeNameResolver,
) -> Result<(String, usize), SignatureError> {
    let mut parser = Parser::new(signature, names);
    let (parameters, _) = parser.method(0)?;
    Ok((parameters, parser.taken(signature)))
}

/// Formats one type. Returns its name and the size of its signature.
///
/// # Errors
/// As [`parameters`].
pub fn type_name(
    signature: &[u8],
    names: &impl TypeNameResolver,
) -> Result<(String, usize), SignatureError> {
    let mut parser = Parser::new(signature, names);
    let name = parser.any_type(0)?;
    Ok((name, parser.taken(signature)))
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
    pub(super) fn read(
        signature: &[u8],
        names: &impl TypeNameResolver,
    ) -> Result<Self, SignatureError> {
        let mut parser = Parser::new(signature, names);
        let module = match parser.byte()? {
            code::MODULE => Some(parser.number()?),
            _ => None,
        };
        let mut parser = Parser::new(signature, names);
        parser.any_type(0)?;
        Ok(Self {
            module,
            bytes: parser.taken(signature),
            arguments: parser.arguments,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dotnet::metadata::MetadataError;

    /// Resolver that knows nothing.
    struct Unknown;

    impl TypeNameResolver for Unknown {
        fn metadata(&self) -> Option<&Metadata> {
            None
        }

        fn argument(&self, _: bool, _: u32) -> Option<&str> {
            None
        }

        fn runtime_type(&self, _: u64, _: bool) -> Option<String> {
            None
        }

        fn module(&self, _: u32) -> Option<&Metadata> {
            None
        }
    }

    #[test]
    fn formats_parameters_without_metadata() {
        let signature = [0x20, 2, 0x01, 0x1d, 0x08, 0x13, 3];
        let formatted = parameters(&signature, &Unknown).unwrap();
        assert_eq!(formatted, ("(int[],!3)".to_owned(), signature.len()));
    }

    #[test]
    fn reports_why_a_signature_is_rejected() {
        let deep = [&[0, 0][..], &[code::PTR; 17], &[0x08]].concat();
        let count = SignatureError::Count {
            what: "parameters",
            count: 1025,
            min: 0,
            max: 1024,
        };
        for (signature, expected) in [
            (&[][..], SignatureError::Truncated),
            (&[0x06], SignatureError::NotMethod(6)),
            (&[0, 0x84, 0x01], count),
            (&[0, 0, 0x77], SignatureError::NotType(0x77)),
            (&deep, SignatureError::TooDeep(16)),
            (&[0, 0, 0x12, 0x05], SignatureError::NoMetadata),
            (
                &[0, 0, 0x12, 0x00],
                SignatureError::Metadata(MetadataError::NullReference(0)),
            ),
            (&[0, 0, 0x3f, 7, 0x08], SignatureError::NoModule(7)),
            (
                &[0, 0, 0x21, 0x10, 0, 0, 0, 0, 0, 0, 0],
                SignatureError::NoRuntimeType(0x10),
            ),
        ] {
            let error = parameters(signature, &Unknown).unwrap_err();
            assert_eq!(error, expected, "{signature:x?}");
        }
    }
}
