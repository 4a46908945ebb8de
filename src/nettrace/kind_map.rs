//! A value for each kind of event.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::event_metadata::EventMetadata;

/// Limit on the memory of the kinds. A session with many providers has some 20 KB.
const MAX_BYTES: usize = 32 << 20;

/// Values by kind. When there are too many kinds, it forgets all.
#[derive(Debug)]
pub struct KindMap<V> {
    /// By the address of the metadata. The `Arc` keeps the address unique.
    values: FxHashMap<*const EventMetadata, (Arc<EventMetadata>, V)>,
    /// Memory of the metadata.
    bytes: usize,
}

impl<V> Default for KindMap<V> {
    fn default() -> Self {
        Self {
            values: FxHashMap::default(),
            bytes: 0,
        }
    }
}

impl<V: Clone> KindMap<V> {
    /// Returns the value of a kind, which is identified by the address of its metadata.
    pub fn get_or_insert_with(&mut self, kind: &Arc<EventMetadata>, make: impl FnOnce() -> V) -> V {
        let key = Arc::as_ptr(kind);
        if let Some((_, value)) = self.values.get(&key) {
            return value.clone();
        }
        if self.bytes + kind.bytes() > MAX_BYTES {
            *self = Self::default();
        }
        self.bytes += kind.bytes();
        let value = make();
        self.values.insert(key, (Arc::clone(kind), value.clone()));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makes_a_value_again_if_there_are_too_many_kinds() {
        let kind = |id| EventMetadata {
            id,
            name: "x".repeat(MAX_BYTES / 10),
            ..EventMetadata::default()
        };
        let kinds: Vec<_> = (0..12).map(|id| Arc::new(kind(id))).collect();
        let (mut map, mut made) = (KindMap::default(), Vec::new());
        for kind in kinds.iter().chain(&kinds[8..]).chain(&kinds[..1]) {
            let value = map.get_or_insert_with(kind, || {
                made.push(kind.id);
                kind.id
            });
            assert_eq!(value, kind.id);
        }
        assert_eq!(made, (0..12).chain([8, 0]).collect::<Vec<_>>());
        assert!(map.bytes <= MAX_BYTES);
    }
}
