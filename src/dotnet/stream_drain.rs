//! Receives an event stream as fast as the runtime sends it.

use std::io::{self, Read};

use super::stream_queue::StreamQueue;
use crate::nettrace::{OBJECTS_HEADER_BYTES, Reader, Relay};

/// Size of the buffer for a stream that is relayed as it is.
const CHUNK: usize = 1 << 16;

/// Moves a stream to a queue, up to its end or until nobody reads the queue any more.
///
/// Waits only for the stream. If the queue is full, or the user's space, events are left out up to the next sequence
/// point, so that readers count them. A stream that is not of version 4 or 5 ends there, with an
/// error.
pub(super) fn drain(stream: impl Read, queue: &StreamQueue) {
    let mut source = Source {
        stream,
        error: None,
    };
    relay(&mut source, queue);
    queue.end(source.error);
}

fn relay(source: &mut Source<impl Read>, queue: &StreamQueue) {
    let mut header = Vec::new();
    let _ = source
        .by_ref()
        .take(OBJECTS_HEADER_BYTES as u64)
        .read_to_end(&mut header);
    let has_objects = Reader::open(&*header).is_ok_and(|reader| reader.info().version < 6);
    if !queue.push(header) {
        return source.fail_to_write();
    }
    if has_objects {
        let mut blocks = Relay::new(source.by_ref());
        let corrupt = loop {
            match blocks.next_block(|bytes| queue.has_room(bytes)) {
                Ok(Some(block)) => {
                    if !queue.push(block) {
                        return source.fail_to_write();
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        if let Some(error) = corrupt {
            source.error.get_or_insert(io::Error::other(error));
        }
        // Data behind the end, or behind corrupt data, is of no use, but the runtime may wait for
        // its reader.
        let _ = io::copy(source, &mut io::sink());
        return;
    }
    let mut buffer = vec![0; CHUNK];
    while let Ok(read @ 1..) = source.read(&mut buffer) {
        let part = buffer.get(..read).unwrap_or_default();
        if !queue.has_room(read) || !queue.push(part.to_vec()) {
            return source.fail_to_write();
        }
    }
}

/// A stream that keeps its error.
struct Source<R> {
    stream: R,
    error: Option<io::Error>,
}

impl<R> Source<R> {
    /// Ends the stream where the queue has no room for a part that cannot be left out.
    fn fail_to_write(&mut self) {
        let error = io::Error::other(
            "they came faster than they were written, or exceed the space for its user",
        );
        self.error.get_or_insert(error);
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            return match self.stream.read(buffer) {
                Ok(read) => Ok(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The socket of a killed process ends with this error.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
                Err(error) => {
                    self.error = Some(error);
                    Ok(0)
                }
            };
        }
    }
}
