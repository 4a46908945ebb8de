//! The runtime's events about code: methods compiled, freed, and listed at the end of a session; modules.
//!
//! The runtime states no fields for its own events; these are in its manifest (`ClrEtwAll.man` in dotnet/runtime):
//!
//! ```text
//! method   u64 method, u64 module, u64 start, u32 size, u32 token, u32 flags, namespace, name, signature, u16 runtime, u64 version
//! module   u64 module, u64 assembly, u32 flags, u32 0, path, ...         texts are UTF-16 with a NUL
//! ```

use perfcollect_symbols::dotnet_name::TIERS;

use super::nettrace::EventKind;
use crate::bytes::Bytes;

/// Who tells of code while it is made, and who lists it at the end.
pub(super) const RUNTIME: &str = "Microsoft-Windows-DotNETRuntime";
pub(super) const RUNDOWN: &str = "Microsoft-Windows-DotNETRuntimeRundown";
/// Flag of a method: compiled by the JIT compiler.
const JITTED: u32 = 8;
/// Where the tier is in the flags.
const TIER_SHIFT: u32 = 7;
pub(super) const TIER_MASK: u32 = 7 << TIER_SHIFT;

/// A method as an event tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledMethod {
    /// The runtime's number for it.
    pub id: u64,
    /// The module it is of.
    pub module: u64,
    /// Its first address.
    pub start: u64,
    /// Its bytes.
    pub size: u32,
    /// Made by the JIT compiler, not ahead of time.
    pub is_jitted: bool,
    /// One of [`TIERS`].
    pub tier: Option<&'static str>,
    /// Its type, with the namespace.
    pub namespace: String,
    /// Its own name.
    pub name: String,
    /// What it returns and takes, in the spelling of IL.
    pub signature: String,
    /// The runtime's number for this version of its code; 0 for the first.
    pub version: u64,
}

/// What an event tells of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeEvent {
    /// It is there from now on.
    Loaded(CompiledMethod),
    /// It is there, since some time.
    Listed(CompiledMethod),
    /// It has gone.
    Freed(CompiledMethod),
    /// A module and the path of its file.
    Module {
        /// The runtime's number for it.
        id: u64,
        /// Its path; for modules without a file, a name.
        path: String,
    },
}

/// An event that does not hold what its kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedEvent;

impl CodeEvent {
    /// What an event tells of code; `None`: nothing.
    ///
    /// # Errors
    /// Its payload is not that of its kind.
    pub fn parse(kind: &EventKind, payload: &[u8]) -> Result<Option<Self>, MalformedEvent> {
        let mut bytes = Bytes(payload);
        let event = match (kind.provider.as_str(), kind.id) {
            (RUNTIME, 143) => method(&mut bytes).map(Self::Loaded),
            (RUNTIME, 144) => method(&mut bytes).map(Self::Freed),
            (RUNDOWN, 143 | 144) => method(&mut bytes).map(Self::Listed),
            (RUNTIME, 152) | (RUNDOWN, 153 | 154) => module(&mut bytes),
            _ => return Ok(None),
        };
        event.map(Some).ok_or(MalformedEvent)
    }
}

/// The tier of a method with these flags; `None`: unknown.
pub(super) fn tier_of(flags: u32) -> Option<&'static str> {
    match (flags & TIER_MASK) >> TIER_SHIFT {
        0 => None,
        tier => TIERS.get(tier as usize).copied(),
    }
}

fn method(bytes: &mut Bytes<'_>) -> Option<CompiledMethod> {
    let (id, module, start, size) = (bytes.u64()?, bytes.u64()?, bytes.u64()?, bytes.u32()?);
    let (_token, flags) = (bytes.u32()?, bytes.u32()?);
    Some(CompiledMethod {
        id,
        module,
        start,
        size,
        is_jitted: flags & JITTED != 0,
        tier: tier_of(flags),
        namespace: bytes.utf16z()?,
        name: bytes.utf16z()?,
        signature: bytes.utf16z()?,
        version: bytes.take(2).and_then(|_clr| bytes.u64()).unwrap_or(0),
    })
}

fn module(bytes: &mut Bytes<'_>) -> Option<CodeEvent> {
    let id = bytes.u64()?;
    bytes.take(16)?;
    Some(CodeEvent::Module {
        id,
        path: bytes.utf16z()?,
    })
}
