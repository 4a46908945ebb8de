//! Lists of labels of version 6, which say what activity events belong to.
//!
//! ```text
//! block   first id u32 | number u32 | lists        list   labels, the last one with bit 128 in its kind
//! label   kind u8 | 1, 2, 3: 16 bytes | 4: 8 | 5: two texts | 6: text, number | 7, 9, 10: 1 | 8: 8
//! ```

use rustc_hash::FxHashMap;

use super::trace_info::text;
use crate::bytes::Bytes;

const LAST: u8 = 128;
/// Most lists that are kept from one sequence point to the next.
const MAX_LISTS: usize = 1 << 16;

/// What an event is part of: ids as programs give them, all 0 where they gave none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Activity {
    /// What its thread was at work on.
    pub id: [u8; 16],
    /// What that came from, or goes over to.
    pub related: [u8; 16],
}

#[derive(Debug, Default)]
pub(super) struct Labels(FxHashMap<u32, Activity>);

impl Labels {
    /// Takes a block in. `None`: it is damaged, or has labels of a kind that is not known, which have no length.
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
            5 => text(bytes).and_then(|_| text(bytes)).map(|_| ())?,
            6 => text(bytes).and_then(|_| bytes.varuint()).map(|_| ())?,
            7 | 9 | 10 => bytes.u8().map(|_| ())?,
            _ => return None,
        }
        if kind & LAST != 0 {
            return Some(activity);
        }
    }
}
