//! The runtime's events about code: methods and modules, when they are loaded and in the rundown.
//!
//! The runtime declares no fields for these events. They are in its manifest (`ClrEtwAll.man` in
//! dotnet/runtime):
//!
//! ```text
//! method   u64 method, u64 module, u64 start, u32 size, u32 token, u32 flags, namespace, name, signature, u16 runtime, u64 version
//! module   u64 module, u64 assembly, u32 flags, u32 0, path, ...         strings are NUL-terminated UTF-16
//! ```

use perfcollect_symbols::dotnet_name::TIERS;

use crate::bytes::Bytes;
use crate::nettrace::EventMetadata;

/// Providers of events about new code, and of the rundown.
pub(super) const RUNTIME: &str = "Microsoft-Windows-DotNETRuntime";
pub(super) const RUNDOWN: &str = "Microsoft-Windows-DotNETRuntimeRundown";
/// Method flag of JIT code.
pub(super) const JITTED: u32 = 8;
/// Position of the tier in the method flags.
const TIER_SHIFT: u32 = 7;
pub(super) const TIER_MASK: u32 = 7 << TIER_SHIFT;

/// A compiled method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledMethod {
    /// The method id (MethodID).
    pub id: u64,
    /// The id of the method's module.
    pub module: u64,
    /// The first address of the code.
    pub start: u64,
    /// The size of the code.
    pub size: u32,
    /// Whether the code is JIT code, not ReadyToRun code.
    pub is_jitted: bool,
    /// The optimization tier: one of [`TIERS`].
    pub tier: Option<&'static str>,
    /// The declaring type with its namespace.
    pub namespace: String,
    /// The method's name.
    pub name: String,
    /// The method's signature as the runtime prints it, in IL syntax.
    pub signature: String,
    /// The id of the code version (ReJITID). 0 for the first version.
    pub version: u64,
}

/// An event about code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeEvent {
    /// The method has just been compiled or loaded.
    Loaded(CompiledMethod),
    /// The rundown lists the method.
    Listed(CompiledMethod),
    /// The method's code has been freed.
    Freed(CompiledMethod),
    /// A module and the path of its file.
    Module {
        /// The module id.
        id: u64,
        /// The path of the file, or the name of a module without a file.
        path: String,
    },
}

/// Error for a payload that does not have the fields of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedEvent;

impl CodeEvent {
    /// Parses an event. Returns `None` if it is not about code.
    ///
    /// # Errors
    /// The payload does not have the fields of its event.
    pub fn parse(kind: &EventMetadata, payload: &[u8]) -> Result<Option<Self>, MalformedEvent> {
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

/// Returns the id of the module of a method that is being compiled, was loaded or was freed.
pub(super) fn module_of_method(kind: &EventMetadata, payload: &[u8]) -> Option<u64> {
    if kind.provider != RUNTIME || !(141..=145).contains(&kind.id) {
        return None;
    }
    let mut bytes = Bytes(payload);
    let _method = bytes.u64()?;
    bytes.u64()
}

/// Returns the tier in method flags, as the runtime prints it.
pub(super) fn tier_of(flags: u32) -> Option<&'static str> {
    match (flags & TIER_MASK) >> TIER_SHIFT {
        0 => None,
        tier => TIERS.get(tier as usize).copied(),
    }
}

/// Returns the method flags of a tier. They have room for the first [`TIERS`] only.
pub(super) fn flags_of(tier: &str) -> u32 {
    let position = TIERS.iter().position(|known| *known == tier);
    let flags = position.map_or(0, |position| (position as u32) << TIER_SHIFT);
    if flags & !TIER_MASK == 0 { flags } else { 0 }
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
