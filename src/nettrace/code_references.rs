//! The code that a stream refers to, while the stream is received.

use std::io::Read;

use super::block::{self, BlockKind, Framing};
use super::error::{NettraceError, NettraceErrorKind};
use super::event_block::EventBlock;
use super::event_metadata::{EventMetadata, EventMetadataTable};
use super::feed::{Feed, free_large};
use super::stacks;
use super::stream_header;

/// A part of a stream that may refer to code.
#[derive(Clone, Copy, Debug)]
pub enum StreamPart<'a> {
    /// An address in the stack of an event. All are return addresses, as far as is known.
    ReturnAddress(u64),
    /// An event, without its stack.
    Event(&'a EventMetadata, &'a [u8]),
}

/// Reader of the stacks and events of a stream, in no particular order within a block.
#[derive(Debug)]
pub struct CodeReferences<R> {
    feed: Feed<R>,
    framing: Framing,
    pointer_bytes: u8,
    metadata: EventMetadataTable,
    /// The last block.
    block: EventBlock,
}

impl<R: Read> CodeReferences<R> {
    /// Reads the header of a stream.
    ///
    /// # Errors
    /// The source is not a nettrace stream, has an unsupported version, or cannot be read.
    pub fn open(source: R) -> Result<Self, NettraceError> {
        let mut feed = Feed::new(source);
        let (framing, info) = stream_header::read(&mut feed)?;
        Ok(Self {
            feed,
            framing,
            pointer_bytes: info.pointer_bytes,
            metadata: EventMetadataTable::default(),
            block: EventBlock::new(framing),
        })
    }

    /// Returns the offset after the last complete block.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.feed.offset()
    }

    /// Reads one block, and passes its parts to `take`. Returns whether more blocks may follow.
    /// Blocks while the source has no data.
    ///
    /// # Errors
    /// The stream is corrupt, truncated, or cannot be read.
    pub fn next_block(
        &mut self,
        mut take: impl FnMut(StreamPart<'_>),
    ) -> Result<bool, NettraceError> {
        let Some((kind, size)) = block::read_header(&mut self.feed, self.framing)? else {
            return Ok(false);
        };
        let offset = self.feed.offset();
        self.feed.block(size, &mut self.block.bytes)?;
        if self.framing == Framing::Objects {
            block::end_object(&mut self.feed)?;
        }
        let corrupt = |description| NettraceError {
            offset,
            kind: NettraceErrorKind::Corrupt(description),
        };
        match kind {
            BlockKind::Metadata => {
                let bytes = &self.block.bytes;
                let added = self.metadata.add_block(bytes, offset, self.framing)?;
                added.ok_or_else(|| corrupt("metadata block"))?;
            }
            BlockKind::Event => {
                self.block.start(offset)?;
                while let Some((header, payload)) = self.block.next()? {
                    if let Some(metadata) = self.metadata.get(header.metadata_id) {
                        let payload = self.block.bytes.get(payload).unwrap_or_default();
                        take(StreamPart::Event(metadata, payload));
                    }
                }
            }
            BlockKind::Stack => {
                let corrupt = || corrupt("stack block");
                for stack in stacks::stacks(&self.block.bytes).ok_or_else(corrupt)? {
                    let (_, stack) = stack.ok_or_else(corrupt)?;
                    let addresses = stacks::addresses(stack, self.pointer_bytes);
                    addresses.for_each(|address| take(StreamPart::ReturnAddress(address)));
                }
            }
            _ => {}
        }
        free_large(&mut self.block.bytes);
        Ok(true)
    }
}
