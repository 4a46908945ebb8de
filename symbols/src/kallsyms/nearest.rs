//! The few functions that name a capture's addresses, picked from all while reading.

/// For each address wanted the last function that begins at or before it, whatever the order of the lines.
///
/// ```text
/// wanted          w0        w1   w2
/// functions   a b |    c  d |    |      slot 0: b, slot 1: d, slot 2: none of its own, so d
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
        let mut wanted = addresses.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        Self {
            slots: wanted.iter().map(|_| None).collect(),
            addresses: wanted,
        }
    }

    pub(super) fn offer(&mut self, start: u64, name: &[u8], rank: u32, tag: u32) {
        let index = self.addresses.partition_point(|&wanted| wanted < start);
        match self.slots.get_mut(index) {
            Some(Some(found)) if (found.start, rank) < (start, found.rank) => {
                found.start = start;
                found.name.clear();
                found.name.extend_from_slice(name);
                (found.rank, found.tag) = (rank, tag);
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

    /// What was found, by address.
    pub(super) fn into_symbols(self) -> impl Iterator<Item = NearestSymbol> {
        self.slots.into_iter().flatten()
    }
}
