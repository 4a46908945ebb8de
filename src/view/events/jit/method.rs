//! A compilation of a method.

use std::sync::Arc;

use crate::dotnet::CompiledMethod;
use crate::trace::Nanos;

/// What the runtime calls code that replaces a method's while that runs.
const ON_STACK_REPLACEMENT: &str = "OptimizedTier1OSR";

/// What made the runtime compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trigger {
    /// The method was called, or runs long.
    Foreground,
    /// It was called often, so that better code is worth while.
    TieredBackground,
}

impl Trigger {
    /// PerfView's abbreviation.
    pub(super) fn short(self) -> &'static str {
        match self {
            Self::Foreground => "FG",
            Self::TieredBackground => "TC",
        }
    }

    /// PerfView's words.
    pub(super) fn long(self) -> &'static str {
        match self {
            Self::Foreground => "Foreground",
            Self::TieredBackground => "Tiered Compilation Background",
        }
    }
}

/// What the compiler asked for and got, in bytes.
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
    pub(super) begin: Nanos,
    pub(super) ns: u64,
    pub(super) il_bytes: u64,
    pub(super) native_bytes: u64,
    pub(super) memory: Option<Memory>,
    pub(super) tier: &'static str,
    pub(super) trigger: Trigger,
    /// The file of its module; the runtime's number where it is not known yet.
    pub(super) module: Result<Arc<str>, u64>,
    /// With its type, and what it takes.
    pub(super) name: String,
}

impl Method {
    /// What is told of it at its end.
    pub(super) fn of(method: &CompiledMethod) -> Self {
        let tier = method.tier.unwrap_or("Unknown");
        let trigger = match method.version {
            0 => Trigger::Foreground,
            _ if tier == ON_STACK_REPLACEMENT => Trigger::Foreground,
            _ => Trigger::TieredBackground,
        };
        let signature = &method.signature;
        let takes = signature.find('(').map_or("", |at| &signature[at..]);
        Self {
            begin: Nanos::default(),
            ns: 0,
            il_bytes: 0,
            native_bytes: method.size.into(),
            memory: None,
            tier,
            trigger,
            module: Err(method.module),
            name: format!("{}.{}{takes}", method.namespace, method.name),
        }
    }
}
