//! The code at the addresses in the stacks of events.

use std::collections::HashMap;

use rustc_hash::FxHashSet;

use crate::trace::spool::EventCodeRow;
use crate::trace::{FrameId, Nanos, ProcessId};

/// Frames of the addresses in stacks, by time.
///
/// An address of freed code may belong to another method later.
#[derive(Debug, Default)]
pub struct EventCode {
    /// By address. A target chooses the addresses, so their hashes have a random seed.
    frames: HashMap<(ProcessId, u64), Frames>,
    processes: FxHashSet<ProcessId>,
}

/// Frames of one address, with the times after which they are valid.
#[derive(Debug)]
struct Frames {
    first: FrameId,
    later: Vec<(Nanos, FrameId)>,
}

impl EventCode {
    /// Adds a row. Rows of an address must be in order of time.
    pub(crate) fn insert(&mut self, row: EventCodeRow) {
        let EventCodeRow {
            process,
            address,
            since,
            frame,
        } = row;
        self.processes.insert(process);
        let frames = self
            .frames
            .entry((process, address))
            .or_insert_with(|| Frames {
                first: frame,
                later: Vec::new(),
            });
        let last = frames
            .later
            .last()
            .map_or(frames.first, |(_, frame)| *frame);
        if last != frame {
            frames.later.push((since, frame));
        }
    }

    /// Iterates over all frames, some more than once, in no order.
    pub fn frames(&self) -> impl Iterator<Item = FrameId> {
        self.frames.values().flat_map(|frames| {
            let later = frames.later.iter().map(|(_, frame)| *frame);
            std::iter::once(frames.first).chain(later)
        })
    }

    /// Returns whether the code in stacks of a process is known.
    #[must_use]
    pub fn has(&self, process: ProcessId) -> bool {
        self.processes.contains(&process)
    }

    /// Returns the frame of an address in the stack of an event, if it is known.
    #[must_use]
    pub fn frame(&self, process: ProcessId, address: u64, time: Nanos) -> Option<FrameId> {
        let frames = self.frames.get(&(process, address))?;
        let started = frames.later.partition_point(|(since, _)| *since < time);
        let last = started
            .checked_sub(1)
            .and_then(|last| frames.later.get(last));
        Some(last.map_or(frames.first, |(_, frame)| *frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_belongs_to_the_code_of_its_time() {
        let mut code = EventCode::default();
        let process = ProcessId(1);
        for (since, frame) in [(0, 7), (20, 7), (30, 8), (50, 7)] {
            code.insert(EventCodeRow {
                process,
                address: 0x100,
                since: Nanos(since),
                frame: FrameId(frame),
            });
        }
        let frame = |time| code.frame(process, 0x100, Nanos(time)).map(|frame| frame.0);
        let found = [0, 30, 31, 50, 51, 99].map(frame);
        assert_eq!(found, [7, 7, 8, 8, 7, 7].map(Some));
        assert_eq!(code.frame(ProcessId(2), 0x100, Nanos(1)), None);
        assert_eq!(code.frame(process, 0x101, Nanos(1)), None);
    }
}
