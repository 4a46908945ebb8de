//! Queue between the thread that receives a stream and the one that writes it.
//!
//! A runtime whose stream nobody reads may hang, so the receiver never waits for the writer.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Maximum size of the queue of one stream, in bytes.
const MAX_BYTES: usize = 32 << 20;
/// Maximum size of all queues, in bytes.
const MAX_ALL_BYTES: usize = 256 << 20;
/// Size that each queue may have in any case, in bytes.
const MIN_BYTES: usize = 1 << 20;
/// Factor of the limits for the parts that are never left out.
const HARD_FACTOR: usize = 2;
/// Memory of a part besides its bytes.
const PART_BYTES: usize = 64;

/// Room for the streams of a capture, in memory and on the disk.
#[derive(Clone, Debug, Default)]
pub struct StreamRoom {
    /// Size of all queues, in bytes.
    queued: Arc<AtomicUsize>,
    /// Size of the streams of a user as received, in bytes.
    received: Arc<AtomicU64>,
    /// Maximum of `received`. `None`: no maximum.
    limit: Option<u64>,
}

impl StreamRoom {
    /// Returns room for the streams of another user, of which `limit` bytes are kept.
    ///
    /// Any process can claim to be a runtime, and send as fast as perfcollect reads.
    #[must_use]
    pub fn of_user(&self, limit: Option<u64>) -> Self {
        Self {
            queued: Arc::clone(&self.queued),
            received: Arc::default(),
            limit,
        }
    }

    /// Returns whether the user may have `factor` times the limit, with a part of this size.
    fn has_space(&self, bytes: usize, factor: u64) -> bool {
        let received = self.received.load(Ordering::Relaxed);
        let received = received.saturating_add(bytes as u64);
        self.limit
            .is_none_or(|limit| received <= limit.saturating_mul(factor))
    }
}

/// Part of a stream that was received and not yet written.
#[derive(Debug)]
pub(super) struct StreamQueue {
    state: Mutex<State>,
    changed: Condvar,
    room: StreamRoom,
}

#[derive(Debug, Default)]
struct State {
    parts: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Whether no part follows, and why if that is an error.
    end: Option<Option<io::Error>>,
    /// Whether nobody reads the queue any more.
    is_abandoned: bool,
}

impl StreamQueue {
    pub(super) fn new(room: StreamRoom) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            room,
        }
    }

    /// Accesses the state. A panic of the other thread cannot leave it inconsistent.
    fn with<T>(&self, access: impl FnOnce(&mut State) -> T) -> T {
        access(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether there is room for a part.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.room.has_space(bytes, 1) && self.with(|state| self.fits(state, bytes + PART_BYTES, 1))
    }

    fn fits(&self, state: &State, size: usize, factor: usize) -> bool {
        let all = self
            .room
            .queued
            .load(Ordering::Relaxed)
            .saturating_add(size);
        let own = state.bytes + size;
        own <= MIN_BYTES || own <= factor * MAX_BYTES && all <= factor * MAX_ALL_BYTES
    }

    /// Adds a part. Returns false if the queue is full, or nobody reads it.
    pub(super) fn push(&self, part: Vec<u8>) -> bool {
        let is_added = self.with(|state| {
            let size = size_of_part(&part);
            let is_added = !state.is_abandoned
                && self.fits(state, size, HARD_FACTOR)
                && self.room.has_space(part.len(), HARD_FACTOR as u64);
            if is_added {
                self.room
                    .received
                    .fetch_add(part.len() as u64, Ordering::Relaxed);
                state.bytes += size;
                // Under the lock, so that the part is not subtracted before.
                self.room.queued.fetch_add(size, Ordering::Relaxed);
                state.parts.push_back(part);
            }
            is_added
        });
        self.changed.notify_one();
        is_added
    }

    /// Ends the queue, with the reason if that is an error.
    pub(super) fn end(&self, error: Option<io::Error>) {
        self.with(|state| state.end = Some(error));
        self.changed.notify_one();
    }

    fn pop(&self) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(part) = state.parts.pop_front() {
                let size = size_of_part(&part);
                state.bytes -= size;
                self.room.queued.fetch_sub(size, Ordering::Relaxed);
                return Ok(Some(part));
            }
            if let Some(error) = &mut state.end {
                return error.take().map_or(Ok(None), Err);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Returns the memory that a part takes.
fn size_of_part(part: &Vec<u8>) -> usize {
    part.capacity() + PART_BYTES
}

/// Reader of a queue. Dropping it abandons the queue.
#[derive(Debug)]
pub(super) struct QueueReader(pub(super) Arc<StreamQueue>);

impl QueueReader {
    /// Waits for the next part. Returns `None` at the end of the stream.
    pub(super) fn next_part(&self) -> io::Result<Option<Vec<u8>>> {
        self.0.pop()
    }
}

impl Drop for QueueReader {
    fn drop(&mut self) {
        self.0.with(|state| {
            state.is_abandoned = true;
            state.parts.clear();
            let left = std::mem::take(&mut state.bytes);
            self.0.room.queued.fetch_sub(left, Ordering::Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_the_space_of_all_streams_of_a_user() {
        let shared = StreamRoom::default();
        let room = shared.of_user(Some(100));
        let queues = [StreamQueue::new(room.clone()), StreamQueue::new(room)];
        assert!(queues[0].has_room(100) && !queues[0].has_room(101));
        assert!(queues[0].push(vec![0; 60]));
        assert!(queues[1].has_room(40) && !queues[1].has_room(41));
        // Parts that cannot be left out have more space, but not any amount.
        assert!(queues[1].push(vec![0; 140]) && !queues[1].push(vec![0; 1]));
        let other = StreamQueue::new(shared.of_user(Some(100)));
        assert!(other.has_room(100) && StreamQueue::new(shared).has_room(1 << 20));
    }
}
