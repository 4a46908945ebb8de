//! The parts of a method's name.

use super::stub_kind::StubKind;

/// The name of a compiled method.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MethodName {
    /// The assembly's simple name: `System.Private.CoreLib`. Empty for stubs.
    pub module: String,
    /// `Namespace.Type.Method<arguments>(parameters)`, types as in C#.
    pub method: String,
    /// The optimization tier, as the runtime prints it, if known.
    pub tier: Option<&'static str>,
}

impl MethodName {
    /// Returns the name of stubs.
    #[must_use]
    pub fn of_stub(kind: StubKind) -> Self {
        Self {
            module: String::new(),
            method: format!("[stub] {kind}"),
            tier: None,
        }
    }
}
