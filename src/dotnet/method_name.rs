//! The parts of a method's name.

use super::stub_kind::StubKind;

/// The name of a compiled method.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MethodName {
    /// The assembly's simple name: `System.Private.CoreLib`. Empty for stubs.
    pub module: String,
    /// `Namespace.Type.Method<arguments>(parameters)`, types as in C#.
    pub method: String,
    /// The optimization tier, one of [`perfcollect_symbols::dotnet_name::TIERS`], if known.
    pub tier: Option<&'static str>,
}

/// Type of dynamic methods, as runtimes call it in their events.
pub(super) const DYNAMIC_CLASS: &str = "dynamicClass";

impl MethodName {
    /// Returns whether it is the name of a dynamic method, which belongs to no assembly.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        let rest = self.method.strip_prefix(DYNAMIC_CLASS);
        rest.is_some_and(|rest| rest.starts_with('.'))
    }

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
