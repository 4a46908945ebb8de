//! Selection of the functions of given addresses while the list is read.

/// For each address, the last function that starts at or before it. Lines may be in any order.
///
/// ```text
/// addresses       w0        w1   w2
/// functions   a b |    c  d |    |      slot 0: b, slot 1: d, slot 2: empty, so w2 is in d, too
/// ```
pub(super) struct Nearest {
    addresses: Vec<u64>,
    slots: Vec<Option<NearestSymbol>>,
}

pub(super) struct NearestSymbol {
    pub(super) start: u64,
    pub(super) name: Vec<u8>,
    pub(super) rank: u32,
    pub(super) tag: u32,
}

impl Nearest {
    pub(super) fn new(addresses: &[u64]) -> Self {
        let mut addresses = addresses.to_vec();
        addresses.sort_unstable();
        addresses.dedup();
        Self {
            slots: addresses.iter().map(|_| None).collect(),
            addresses,
        }
    }

    pub(super) fn offer(&mut self, start: u64, name: &[u8], rank: u32, tag: u32) {
        let index = self.addresses.partition_point(|&address| address < start);
        match self.slots.get_mut(index) {
            Some(Some(nearest)) if (nearest.start, rank) < (start, nearest.rank) => {
                nearest.start = start;
                nearest.name.clear();
                nearest.name.extend_from_slice(name);
                (nearest.rank, nearest.tag) = (rank, tag);
            }
            Some(slot @ None) => {
                *slot = Some(NearestSymbol {
                    start,
                    name: name.to_vec(),
                    rank,
                    tag,
                });
            }
            _ => {}
        }
    }

    /// Returns the selected functions, sorted by address.
    pub(super) fn into_symbols(self) -> impl Iterator<Item = NearestSymbol> {
        self.slots.into_iter().flatten()
    }
}
