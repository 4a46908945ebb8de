//! The name of a method, in parts.

/// The name of a compiled method.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MethodName {
    /// The assembly's simple name: `System.Private.CoreLib`.
    pub module: String,
    /// `Namespace.Type.Method<arguments>(parameters)`, types as in C#.
    pub method: String,
    /// How the code was compiled, in the runtime's word. `None`: not known.
    pub tier: Option<&'static str>,
}
