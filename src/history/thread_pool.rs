//! The thread pool of a process: its threads, their number over time, and its queue.

use crate::bytes::Bytes;
use crate::trace::{Nanos, RuntimeEvent};

/// Ids of the thread pool's events.
const THREAD_START: u32 = 50;
const THREAD_STOP: u32 = 51;
const SAMPLE: u32 = 54;
const ADJUSTMENT: u32 = 55;
const MIN_MAX: u32 = 59;
const COUNT: u32 = 60;
/// Ids of the framework's events about work items.
pub(super) const ITEM_QUEUED: u32 = 30;
pub(super) const ITEM_TAKEN: u32 = 31;
/// Reasons to change the number of threads: work waited for long, or threads block each other.
const STARVATION: u32 = 6;
const COOPERATIVE_BLOCKING: u32 = 8;

/// What the events of a thread pool report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ThreadPool {
    /// Whether there was an event.
    pub(crate) is_seen: bool,
    /// Threads that started and stopped.
    pub(crate) started: u64,
    pub(crate) stopped: u64,
    /// First and largest reported number of threads.
    pub(crate) first_threads: Option<u32>,
    pub(crate) max_threads: u32,
    /// Limits of the number of threads, as last reported.
    pub(crate) limits: Option<(u16, u16)>,
    /// Changes of the number of threads.
    pub(crate) adjustments: u64,
    /// How often threads were added because no work was done for long.
    pub(crate) starvations: u64,
    /// First and last time of these.
    pub(crate) starved: Option<(Nanos, Nanos)>,
    /// How often threads were added because others wait for tasks.
    pub(crate) blocking: u64,
    /// Largest reported number of work items per second.
    pub(crate) max_throughput: f64,
    /// Work items that were queued, if the runtime reports them.
    pub(crate) queued: u64,
    /// Largest number of items that waited at once, of those that were queued during the events.
    pub(crate) max_waiting: u64,
    waiting: u64,
    /// Last reported number of threads.
    threads: Option<u32>,
}

impl ThreadPool {
    /// Returns whether an event is about the thread pool.
    pub(super) fn is_event(id: u32) -> bool {
        matches!(
            id,
            THREAD_START | THREAD_STOP | SAMPLE | ADJUSTMENT | MIN_MAX | COUNT
        )
    }

    /// Takes an event of the thread pool. Returns `None` if its payload is too short.
    pub(super) fn take(&mut self, event: &RuntimeEvent) -> Option<()> {
        self.is_seen = true;
        let mut payload = Bytes(&event.payload);
        match event.metadata.id {
            THREAD_START => {
                self.started += 1;
                self.counted(payload.u32()?);
            }
            THREAD_STOP => {
                self.stopped += 1;
                self.counted(payload.u32()?);
            }
            COUNT => self.counted(payload.u32()?),
            SAMPLE => self.max_throughput = self.max_throughput.max(rate(&mut payload)?),
            ADJUSTMENT => {
                let _average = rate(&mut payload)?;
                let (threads, reason) = (payload.u32()?, payload.u32()?);
                self.adjustments += 1;
                // After others have waited for tasks, the number decreases again.
                let is_growth = self.threads.is_none_or(|before| threads > before);
                self.counted(threads);
                match reason {
                    _ if !is_growth => {}
                    STARVATION => {
                        self.starvations += 1;
                        let first = self.starved.map_or(event.time, |(first, _)| first);
                        self.starved = Some((first, event.time));
                    }
                    COOPERATIVE_BLOCKING => self.blocking += 1,
                    _ => {}
                }
            }
            MIN_MAX => self.limits = Some((payload.u16()?, payload.u16()?)),
            _ => {}
        }
        Some(())
    }

    /// Takes an event about a work item.
    pub(super) fn take_item(&mut self, event: &RuntimeEvent) {
        match event.metadata.id {
            ITEM_QUEUED => {
                self.is_seen = true;
                self.queued += 1;
                self.waiting += 1;
                self.max_waiting = self.max_waiting.max(self.waiting);
            }
            ITEM_TAKEN => self.waiting = self.waiting.saturating_sub(1),
            _ => {}
        }
    }

    fn counted(&mut self, threads: u32) {
        self.threads = Some(threads);
        self.first_threads.get_or_insert(threads);
        self.max_threads = self.max_threads.max(threads);
    }
}

/// Reads a rate, which may be any floating-point number.
fn rate(payload: &mut Bytes<'_>) -> Option<f64> {
    let rate = payload.array().map(f64::from_le_bytes)?;
    Some(if rate.is_finite() { rate } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::test_events::event;

    fn adjustment(throughput: f64, threads: u32, reason: u32) -> Vec<u8> {
        let mut payload = throughput.to_le_bytes().to_vec();
        payload.extend([threads, reason].map(u32::to_le_bytes).concat());
        payload
    }

    #[test]
    fn counts_reasons_threads_and_queue() {
        let mut pool = ThreadPool::default();
        let mut take = |id, time, payload: Vec<u8>| pool.take(&event(id, time, 1, payload));
        take(THREAD_START, 1, 4_u32.to_le_bytes().to_vec());
        for (time, threads) in [(2, 5), (3, 6)] {
            take(ADJUSTMENT, time, adjustment(1.0, threads, STARVATION));
        }
        for (time, threads) in [(4, 9), (5, 7)] {
            let payload = adjustment(f64::NAN, threads, COOPERATIVE_BLOCKING);
            take(ADJUSTMENT, time, payload);
        }
        take(ADJUSTMENT, 5, adjustment(1.0, 3, 0)[..15].to_vec());
        take(SAMPLE, 6, f64::INFINITY.to_le_bytes().to_vec());
        take(SAMPLE, 6, 2.5_f64.to_le_bytes().to_vec());
        let (queued, taken) = (ITEM_QUEUED, ITEM_TAKEN);
        for id in [taken, queued, queued, queued, taken, queued] {
            pool.take_item(&event(id, 7, 1, Vec::new()));
        }
        let expected = ThreadPool {
            is_seen: true,
            started: 1,
            first_threads: Some(4),
            max_threads: 9,
            adjustments: 4,
            starvations: 2,
            starved: Some((Nanos(2000), Nanos(3000))),
            blocking: 1,
            max_throughput: 2.5,
            queued: 4,
            max_waiting: 3,
            waiting: 3,
            threads: Some(7),
            ..ThreadPool::default()
        };
        assert_eq!(pool, expected);
    }
}
