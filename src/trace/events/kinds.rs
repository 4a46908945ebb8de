//! Kinds of events that several streams share.

use std::sync::Arc;

use hashbrown::HashSet;

use crate::nettrace::EventMetadata;

/// Limit on the memory of all kinds. A session with many providers has some 20 KB.
const MAX_BYTES: usize = 32 << 20;

/// The metadata of different kinds.
#[derive(Debug, Default)]
pub(super) struct SharedKinds {
    all: HashSet<Arc<EventMetadata>>,
    bytes: usize,
}

impl SharedKinds {
    /// Returns the metadata that all events of this kind share, or `None` if there are too many kinds.
    pub(super) fn get(&mut self, kind: &Arc<EventMetadata>) -> Option<Arc<EventMetadata>> {
        if let Some(known) = self.all.get(kind) {
            return Some(Arc::clone(known));
        }
        if self.bytes + kind.bytes() > MAX_BYTES {
            return None;
        }
        self.bytes += kind.bytes();
        self.all.insert(Arc::clone(kind));
        Some(Arc::clone(kind))
    }
}
