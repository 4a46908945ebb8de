//! Relay of a stream of version 4 or 5 that can leave out events.

use std::io::Read;

use super::added_events::OBJECTS_HEADER_BYTES;
use super::block::{self, BlockKind, END_OBJECT, NULL_REFERENCE, ObjectHeader};
use super::error::NettraceError;
use super::feed::{Feed, free_large};

/// Reader of the blocks after the header of a stream, as bytes.
///
/// If there is no room for a block with events or stacks, the relay leaves out all such blocks up to
/// the next sequence point, which makes readers forget stacks and count the missing events.
#[derive(Debug)]
pub struct Relay<R> {
    feed: Feed<R>,
    /// Size of the relayed stream.
    offset: u64,
    payload: Vec<u8>,
    leaves_out: bool,
    is_over: bool,
}

impl<R: Read> Relay<R> {
    /// Reads a stream that follows its header.
    pub fn new(source: R) -> Self {
        let offset = OBJECTS_HEADER_BYTES as u64;
        Self {
            feed: Feed::from_offset(source, offset),
            offset,
            payload: Vec::new(),
            leaves_out: false,
            is_over: false,
        }
    }

    /// Returns the next block, or the end of the stream: what there is of a truncated block, and at
    /// last `None`. Blocks while the source has no data.
    ///
    /// # Errors
    /// The stream is corrupt or cannot be read.
    pub fn next_block(
        &mut self,
        has_room: impl Fn(usize) -> bool,
    ) -> Result<Option<Vec<u8>>, NettraceError> {
        while !self.is_over {
            let Some(header) = ObjectHeader::read(&mut self.feed)? else {
                self.is_over = true;
                return Ok(Some(vec![NULL_REFERENCE]));
            };
            let size = self.feed.u32()?;
            let size = self.feed.check_size(size)?;
            self.feed.align()?;
            let block = self.feed.block(size, &mut self.payload);
            let is_complete = block
                .and_then(|()| block::end_object(&mut self.feed))
                .is_ok();
            self.is_over = !is_complete;
            let mut bytes = Vec::with_capacity(64 + self.payload.len());
            header.put(&mut bytes, self.offset, size as usize);
            bytes.extend_from_slice(&self.payload);
            free_large(&mut self.payload);
            if is_complete {
                bytes.push(END_OBJECT);
            }
            let may_leave_out = matches!(header.kind(), BlockKind::Event | BlockKind::Stack);
            if may_leave_out {
                self.leaves_out |= !has_room(bytes.len());
            } else if header.kind() == BlockKind::SequencePoint && has_room(bytes.len()) {
                self.leaves_out = false;
            }
            if !(may_leave_out && self.leaves_out) {
                self.offset += bytes.len() as u64;
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::super::added_events::tests::{header, kind};
    use super::*;
    use crate::nettrace::{AddedEvents, Reader};

    /// Returns a stream: blocks of four events each, with a sequence point after each of them.
    fn stream(sets: u32) -> Vec<u8> {
        let mut stream = header();
        for set in 0..sets {
            let mut events = AddedEvents::new(set, 9, 2000);
            let kind = events.kind(&kind(set + 1));
            (0..4_u8).for_each(|event| events.event(kind, &vec![event; 5 + set as usize]));
            stream.extend(events.objects_at(stream.len() as u64));
            let mut point = [2000_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat();
            point[8..12].copy_from_slice(&1_u32.to_le_bytes());
            point.truncate(12);
            point.extend(((1_u64 << 31) + u64::from(set)).to_le_bytes());
            point.extend(4_u32.to_le_bytes());
            let header = ObjectHeader {
                version: 2,
                oldest_reader: 0,
                name: b"SPBlock".to_vec(),
            };
            let offset = stream.len() as u64;
            let mut object = Vec::new();
            header.put(&mut object, offset, point.len());
            stream.extend(object);
            stream.extend(point);
            stream.push(END_OBJECT);
        }
        stream.push(NULL_REFERENCE);
        stream
    }

    fn relayed(stream: &[u8], has_room: impl Fn(usize) -> bool) -> Vec<u8> {
        let (header, blocks) = stream.split_at(OBJECTS_HEADER_BYTES);
        let mut relay = Relay::new(blocks);
        let mut relayed = header.to_vec();
        while let Ok(Some(block)) = relay.next_block(&has_room) {
            relayed.extend(block);
        }
        relayed
    }

    #[test]
    fn relays_all_bytes_if_there_is_room() {
        let whole = stream(5);
        for size in OBJECTS_HEADER_BYTES..=whole.len() {
            let relayed = relayed(&whole[..size], |_| true);
            // The start of an object that is truncated is of no use.
            assert!(whole[..size].starts_with(&relayed) && size - relayed.len() < 64);
            assert!(size < whole.len() || relayed.len() == size);
        }
    }

    #[test]
    fn readers_count_what_is_left_out() {
        let whole = stream(5);
        for room in 0..1_u32 << 10 {
            let asked = std::cell::Cell::new(0);
            let has_room = |_| {
                asked.set(asked.get() + 1);
                room >> (asked.get() - 1) & 1 != 0
            };
            let relayed = relayed(&whole, has_room);
            let mut reader = Reader::open(&*relayed).unwrap();
            let mut events = 0;
            while let Some(event) = reader.next_event().unwrap() {
                events += 1;
                assert_eq!(event.payload.len() as u32, 4 + event.metadata.id);
            }
            assert_eq!(events + reader.losses().dropped_events, 20, "{room:b}");
            assert_eq!(reader.losses().unknown_events, 0);
            assert!(room != 0 || events == 0);
        }
    }
}
