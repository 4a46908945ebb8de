//! Label lists of version 6, which identify the activity of events.
//!
//! ```text
//! block   first id u32 | count u32 | lists         list   labels, the last one with bit 128 in its kind
//! label   kind u8 | 1, 2, 3: 16 bytes | 4: 8 | 5: two strings | 6: string, varint | 7, 9, 10: 1 | 8: 8
//! ```

use hashbrown::HashMap;

use super::trace_info::string;
use crate::bytes::Bytes;

const LAST: u8 = 128;
/// Limit on the lists between two sequence points.
const MAX_LISTS: usize = 1 << 16;

/// The activity of an event. Programs choose the ids. An id is all zero if the program sets none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Activity {
    /// The activity that the thread was executing.
    pub id: [u8; 16],
    /// The activity that this one originates from or transfers to.
    pub related: [u8; 16],
}

#[derive(Debug, Default)]
pub(super) struct Labels(HashMap<u32, Activity>);

impl Labels {
    /// Adds the lists of a block. Returns `None` if it is corrupt or has an unknown label kind.
    ///
    /// A label has no length, so an unknown one cannot be skipped.
    pub(super) fn add(&mut self, payload: &[u8]) -> Option<()> {
        let mut bytes = Bytes(payload);
        let first = bytes.u32()?;
        for index in 0..bytes.u32()? {
            let activity = list(&mut bytes)?;
            if self.0.len() < MAX_LISTS {
                self.0.insert(first.checked_add(index)?, activity);
            }
        }
        Some(())
    }

    pub(super) fn get(&self, id: u32) -> Activity {
        self.0.get(&id).copied().unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

fn list(bytes: &mut Bytes<'_>) -> Option<Activity> {
    let mut activity = Activity::default();
    loop {
        let kind = bytes.u8()?;
        match kind & !LAST {
            1 => activity.id = bytes.array()?,
            2 => activity.related = bytes.array()?,
            3 => bytes.take(16).map(|_| ())?,
            4 | 8 => bytes.take(8).map(|_| ())?,
            5 => string(bytes).and_then(|_| string(bytes)).map(|_| ())?,
            6 => string(bytes).and_then(|_| bytes.varuint()).map(|_| ())?,
            7 | 9 | 10 => bytes.u8().map(|_| ())?,
            _ => return None,
        }
        if kind & LAST != 0 {
            return Some(activity);
        }
    }
}
