//! A compilation of a method.

use std::sync::Arc;

use crate::dotnet::CompiledMethod;
use crate::trace::Nanos;

/// The runtime's tier of code that replaces a running method.
const ON_STACK_REPLACEMENT: &str = "OptimizedTier1OSR";

/// Trigger of a compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trigger {
    /// The method is called, or runs for long.
    Foreground,
    /// The method was called often enough for better code.
    TieredBackground,
}

impl Trigger {
    /// Returns PerfView's abbreviation.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Self::Foreground => "FG",
            Self::TieredBackground => "TC",
        }
    }

    /// Returns PerfView's name.
    pub(crate) fn long(self) -> &'static str {
        match self {
            Self::Foreground => "Foreground",
            Self::TieredBackground => "Tiered Compilation Background",
        }
    }
}

/// Memory that the compiler requested and received, in bytes, and the flags of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) hot_code: u64,
    pub(crate) read_only: u64,
    pub(crate) allocated: u64,
    pub(crate) flags: u64,
}

/// A compilation.
#[derive(Debug)]
pub(crate) struct Compilation {
    /// The runtime's id of the method.
    pub(crate) id: u64,
    pub(crate) start: Nanos,
    pub(crate) ns: u64,
    pub(crate) il_bytes: u64,
    pub(crate) native_bytes: u64,
    pub(crate) memory: Option<Memory>,
    pub(crate) tier: &'static str,
    pub(crate) trigger: Trigger,
    /// File name of the module, or the runtime's module id if the name is not yet known.
    pub(crate) module: Result<Arc<str>, u64>,
    /// Full name with type and parameters.
    pub(crate) name: String,
}

impl Compilation {
    /// Creates a compilation from the event at its end.
    pub(crate) fn new(method: &CompiledMethod) -> Self {
        let tier = method.tier.unwrap_or("Unknown");
        let trigger = match method.version {
            0 => Trigger::Foreground,
            _ if tier == ON_STACK_REPLACEMENT => Trigger::Foreground,
            _ => Trigger::TieredBackground,
        };
        let signature = &method.signature;
        let parameters = signature.find('(').map_or("", |at| &signature[at..]);
        Self {
            id: method.id,
            start: Nanos::default(),
            ns: 0,
            il_bytes: 0,
            native_bytes: method.size.into(),
            memory: None,
            tier,
            trigger,
            module: Err(method.module),
            name: format!("{}.{}{parameters}", method.namespace, method.name),
        }
    }
    /// Returns whether the code replaces code that is running.
    pub(crate) fn is_on_stack_replacement(&self) -> bool {
        self.tier == ON_STACK_REPLACEMENT
    }
}
