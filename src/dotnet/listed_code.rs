//! The events with which a rundown lists modules and methods, for streams without a rundown.

use super::code_event::{JITTED, RUNDOWN, flags_of};
use crate::bytes::put_utf16z;
use crate::nettrace::{AddedEvents, EventMetadata};

/// Event ids and versions of the rundown.
const METHOD: (u32, u32) = (144, 1);
const MODULE: (u32, u32) = (154, 2);
/// Number of the runtime in its process (ClrInstanceID).
const RUNTIME_INSTANCE: u16 = 0;

/// A method to list.
#[derive(Clone, Copy, Debug)]
pub struct ListedMethod<'a> {
    /// Id of its module.
    pub module: u64,
    /// First address of the code.
    pub start: u64,
    /// Size of the code in bytes.
    pub size: u32,
    /// Whether the code is JIT code, not ReadyToRun code.
    pub is_jitted: bool,
    /// Tier: one of [`perfcollect_symbols::dotnet_name::TIERS`], if known.
    pub tier: Option<&'a str>,
    /// Declaring type with its namespace.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// Parameters in parentheses.
    pub signature: &'a str,
}

/// Events that list modules and methods.
#[derive(Debug)]
pub struct ListedCode {
    events: AddedEvents,
    module_kind: u32,
    method_kind: u32,
    methods: u64,
}

impl ListedCode {
    /// Creates an empty list in a set of events.
    #[must_use]
    pub fn new(mut events: AddedEvents) -> Self {
        let mut kind = |(id, version)| {
            events.kind(&EventMetadata {
                provider: RUNDOWN.to_owned(),
                id,
                version,
                level: 4,
                ..EventMetadata::default()
            })
        };
        Self {
            module_kind: kind(MODULE),
            method_kind: kind(METHOD),
            events,
            methods: 0,
        }
    }

    /// Returns whether events of this kind list methods.
    #[must_use]
    pub fn is_method(kind: &EventMetadata) -> bool {
        kind.provider == RUNDOWN && kind.id == METHOD.0
    }

    /// Adds a module: its id, and the path of its file.
    pub fn module(&mut self, id: u64, path: &str) {
        let mut payload = id.to_le_bytes().to_vec();
        // No assembly and no flags.
        payload.extend([0; 8 + 4 + 4]);
        put_utf16z(&mut payload, path);
        let native_path = "";
        put_utf16z(&mut payload, native_path);
        payload.extend(RUNTIME_INSTANCE.to_le_bytes());
        // The ids, ages and empty paths of two files with debug information.
        payload.extend([0; 2 * (16 + 4 + 2)]);
        self.events.event(self.module_kind, &payload);
    }

    /// Adds a method. Its id is its number.
    pub fn method(&mut self, method: &ListedMethod<'_>) {
        self.methods += 1;
        let mut payload = Vec::new();
        for number in [self.methods, method.module, method.start] {
            payload.extend(number.to_le_bytes());
        }
        let token = 0;
        let jitted = if method.is_jitted { JITTED } else { 0 };
        let flags = jitted | method.tier.map_or(0, flags_of);
        for number in [method.size, token, flags] {
            payload.extend(number.to_le_bytes());
        }
        for text in [method.namespace, method.name, method.signature] {
            put_utf16z(&mut payload, text);
        }
        payload.extend(RUNTIME_INSTANCE.to_le_bytes());
        self.events.event(self.method_kind, &payload);
    }

    /// Returns the objects to insert at an offset of the stream, between two objects.
    #[must_use]
    pub fn objects_at(self, offset: u64) -> Vec<u8> {
        self.events.objects_at(offset)
    }
}
