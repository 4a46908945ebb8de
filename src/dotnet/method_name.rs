//! The name of a method, in parts.

use super::stub_kind::StubKind;

/// The name of a compiled method.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MethodName {
    /// The assembly's simple name: `System.Private.CoreLib`. Empty for stubs.
    pub module: String,
    /// `Namespace.Type.Method<arguments>(parameters)`, types as in C#.
    pub method: String,
    /// One of [`perfcollect_symbols::dotnet_name::TIERS`]. `None`: unknown.
    pub tier: Option<&'static str>,
}

impl MethodName {
    /// What stubs are called.
    #[must_use]
    pub fn of_stub(kind: StubKind) -> Self {
        Self {
            module: String::new(),
            method: format!("[stub] {kind}"),
            tier: None,
        }
    }
}
