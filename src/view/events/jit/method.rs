//! A compilation of a method.

use std::sync::Arc;

use crate::dotnet::CompiledMethod;
use crate::trace::Nanos;

/// The runtime's tier of code that replaces a running method.
const ON_STACK_REPLACEMENT: &str = "OptimizedTier1OSR";

/// Trigger of a compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trigger {
    /// The method is called, or runs for long.
    Foreground,
    /// The method was called often enough for better code.
    TieredBackground,
}

impl Trigger {
    /// Returns PerfView's abbreviation.
    pub(super) fn short(self) -> &'static str {
        match self {
            Self::Foreground => "FG",
            Self::TieredBackground => "TC",
        }
    }

    /// Returns PerfView's name.
    pub(super) fn long(self) -> &'static str {
        match self {
            Self::Foreground => "Foreground",
            Self::TieredBackground => "Tiered Compilation Background",
        }
    }
}

/// Memory that the compiler requested and received, in bytes, and the flags of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) hot_code: u64,
    pub(super) read_only: u64,
    pub(super) allocated: u64,
    pub(super) flags: u64,
}

/// A compilation.
#[derive(Debug)]
pub(super) struct Method {
    pub(super) start: Nanos,
    pub(super) ns: u64,
    pub(super) il_bytes: u64,
    pub(super) native_bytes: u64,
    pub(super) memory: Option<Memory>,
    pub(super) tier: &'static str,
    pub(super) trigger: Trigger,
    /// File name of the module, or the runtime's module id if the name is not yet known.
    pub(super) module: Result<Arc<str>, u64>,
    /// Full name with type and parameters.
    pub(super) name: String,
}

impl Method {
    /// Creates a compilation from the event at its end.
    pub(super) fn new(method: &CompiledMethod) -> Self {
        let tier = method.tier.unwrap_or("Unknown");
        let trigger = match method.version {
            0 => Trigger::Foreground,
            _ if tier == ON_STACK_REPLACEMENT => Trigger::Foreground,
            _ => Trigger::TieredBackground,
        };
        let signature = &method.signature;
        let parameters = signature.find('(').map_or("", |at| &signature[at..]);
        Self {
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
}
