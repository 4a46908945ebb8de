//! The space on the disk that a capture may take, together with the trace that is made of it.
//!
//! The trace is written beside the files of the capture and is mostly larger than they are. The
//! capture therefore ends while there is room for it.

use std::fmt;
use std::fs::File;
use std::time::{Duration, Instant};

use rustix::fs::fstatvfs;

use crate::trace::{Notice, NoticeKind};

/// The free space divided by the default limit.
const FREE_PER_LIMIT: u64 = 2;
/// Space that stays free for other programs: a part of that at the start, up to a limit.
const FREE_PER_RESERVE: u64 = 20;
const MAX_RESERVE: u64 = 64 << 20;
/// Interval of reading the free space, which other programs take, too.
const INTERVAL: Duration = Duration::from_secs(1);
/// Estimated size of a trace: without samples and events, for each sample, for each sample with
/// `-perfdata`, for each time without a CPU, and for each byte of events as received. Most traces are smaller.
const TRACE_BYTES: u64 = 512 << 10;
const TRACE_BYTES_PER_SAMPLE: u64 = 300;
const PERF_DATA_BYTES_PER_SAMPLE: u64 = 500;
/// Measured: 30 bytes with few stacks, 430 with different ones of 100 frames.
const TRACE_BYTES_PER_WAIT: u64 = 500;
const TRACE_BYTES_PER_EVENT_BYTE: u64 = 2;

/// Part of the limit that the events of one user may take. Parts of a stream that cannot be left out may
/// take twice as much.
const LIMIT_PER_USER: u64 = 4;

/// What a capture has stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    /// Number of samples.
    pub(super) samples: u64,
    /// Number of times without a CPU.
    pub(super) waits: u64,
    /// Size of the event streams as received.
    pub(super) received: u64,
    /// Size of the spool and of the files of the event streams.
    pub(super) files: u64,
}

/// Limit on the size of the files of a capture and of its trace.
#[derive(Clone, Copy, Debug)]
pub struct DiskBudget {
    limit: Option<u64>,
    free: Option<u64>,
    is_chosen: bool,
    bytes_per_sample: u64,
}

impl DiskBudget {
    /// Minimum limit in bytes. A smaller one ends a capture at its start.
    pub const MIN_BYTES: u64 = 1 << 20;

    /// Creates the budget of a capture whose spool is this file.
    ///
    /// `chosen` is a limit in bytes; 0 is none. The default is half of the free space. The trace may
    /// include a `perf.data`.
    #[must_use]
    pub fn new(spool: &File, chosen: Option<u64>, with_perf_data: bool) -> Self {
        let free = free_space(spool);
        let perf_data = u64::from(with_perf_data) * PERF_DATA_BYTES_PER_SAMPLE;
        Self {
            limit: match chosen {
                Some(0) => None,
                Some(limit) => Some(limit),
                None => free.map(|free| free / FREE_PER_LIMIT),
            },
            free,
            is_chosen: chosen.is_some(),
            bytes_per_sample: TRACE_BYTES_PER_SAMPLE + perf_data,
        }
    }

    /// Returns the free space if it is too small for a capture, as a text.
    #[must_use]
    pub fn lacks_room(&self) -> Option<String> {
        let limit = self.limit.filter(|limit| *limit < Self::MIN_BYTES)?;
        Some(Size(self.free.unwrap_or(limit)).to_string())
    }

    /// Returns how many bytes of events of one user are kept, as received. The others are dropped, so
    /// that no user can end the capture.
    #[must_use]
    pub fn events_of_user(&self) -> Option<u64> {
        // The file of a stream and its part of the trace.
        let bytes_per_byte = 1 + TRACE_BYTES_PER_EVENT_BYTE;
        self.limit
            .map(|limit| limit / LIMIT_PER_USER / bytes_per_byte)
    }

    /// Returns whether there is a limit.
    #[must_use]
    pub fn has_limit(&self) -> bool {
        self.limit.is_some()
    }

    /// Returns whether a capture with a time limit may reach the limit.
    #[must_use]
    pub fn is_notable(&self) -> bool {
        const LARGE: u64 = 16 << 30;
        self.is_chosen || self.limit.is_some_and(|limit| limit < LARGE)
    }

    /// Returns the estimated size of the trace.
    fn trace(&self, stored: &Stored) -> u64 {
        let samples = stored.samples.saturating_mul(self.bytes_per_sample);
        let waits = stored.waits.saturating_mul(TRACE_BYTES_PER_WAIT);
        let events = stored.received.saturating_mul(TRACE_BYTES_PER_EVENT_BYTE);
        let parts = [samples, waits, events].into_iter();
        parts.fold(TRACE_BYTES, u64::saturating_add)
    }
}

impl fmt::Display for DiskBudget {
    /// Writes the limit as a part of a sentence, or nothing if there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit.map(Size) {
            Some(limit) if self.is_chosen => write!(f, "{limit} (-maxsize)"),
            Some(limit) => write!(f, "{limit}, half of the free space (-maxsize)"),
            None => Ok(()),
        }
    }
}

/// Why a capture has to end for lack of space.
#[derive(Debug)]
pub(super) struct NoSpace {
    /// The reason, as a text.
    pub(super) why: String,
    remedy: &'static str,
}

impl NoSpace {
    pub(super) fn notice(&self) -> Notice {
        let what = format!("the capture ended early: {}", self.why);
        Notice::new(NoticeKind::DiskSpace, what, self.remedy)
    }
}

/// Compares what a capture has stored with its budget.
pub(super) struct DiskWatch<'a> {
    budget: DiskBudget,
    spool: &'a File,
    last_read: Instant,
}

impl<'a> DiskWatch<'a> {
    pub(super) fn new(budget: DiskBudget, spool: &'a File) -> Self {
        Self {
            budget,
            spool,
            last_read: Instant::now(),
        }
    }

    /// Returns the reason if the capture has to end.
    pub(super) fn check(&mut self, stored: &Stored) -> Option<NoSpace> {
        let limit = self.budget.limit?;
        let trace = self.budget.trace(stored);
        if stored.files.saturating_add(trace) > limit {
            let (what, remedy) = match self.budget.is_chosen {
                true => (
                    format!("-maxsize {}", Size(limit)),
                    "give a larger -maxsize, a lower -freq, or fewer events, or leave out -threadtime",
                ),
                false => (
                    "half of the free space".into(),
                    "give a larger -maxsize, free some space, or use a name on another disk",
                ),
            };
            let (files, trace) = (Size(stored.files), Size(trace));
            let why =
                format!("{what} reached: {files} of temporary files and up to {trace} of trace");
            return Some(NoSpace { why, remedy });
        }
        if self.last_read.elapsed() < INTERVAL {
            return None;
        }
        self.last_read = Instant::now();
        let free = free_space(self.spool)?;
        let at_start = self.budget.free.unwrap_or(free);
        let reserve = (at_start / FREE_PER_RESERVE).min(MAX_RESERVE);
        (trace.saturating_add(reserve) > free).then(|| NoSpace {
            why: format!(
                "only {} are free, and the trace may need {}",
                Size(free),
                Size(trace)
            ),
            remedy: "free some space, or use a name on another disk",
        })
    }
}

/// Returns the space on the disk of a file that is free for users without privileges, if the file
/// system reports its size.
fn free_space(file: &File) -> Option<u64> {
    let disk = fstatvfs(file).ok()?;
    (disk.f_blocks > 0).then(|| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// A size in bytes, written in the largest unit that it fills.
#[derive(Clone, Copy, Debug)]
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("GiB", 1 << 30), ("MiB", 1 << 20)];
        let unit = units.into_iter().find(|(_, bytes)| self.0 >= *bytes);
        let (unit, bytes) = unit.unwrap_or(("KiB", 1 << 10));
        let (whole, tenths) = (self.0 / bytes, self.0 % bytes * 10 / bytes);
        match whole < 10 && tenths > 0 {
            true => write!(f, "{whole}.{tenths} {unit}"),
            false => write!(f, "{whole} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(budget: DiskBudget, stored: Stored) -> Option<String> {
        let spool = tempfile::tempfile().unwrap();
        let mut watch = DiskWatch::new(budget, &spool);
        watch.last_read -= INTERVAL;
        watch.check(&stored).map(|reason| reason.why)
    }

    #[test]
    fn half_of_the_free_space_is_the_limit_unless_one_is_chosen() {
        let spool = tempfile::tempfile().unwrap();
        let free = free_space(&spool).unwrap();
        let budget = |chosen| DiskBudget::new(&spool, chosen, false);
        assert!(budget(None).limit.unwrap().abs_diff(free / 2) < 1 << 30);
        assert_eq!(budget(Some(7 << 20)).to_string(), "7 MiB (-maxsize)");
        assert_eq!(budget(Some(0)).limit, None);
        assert!(budget(Some(7 << 20)).lacks_room().is_none());
        assert!(budget(Some(7)).lacks_room().is_some());
    }

    #[test]
    fn the_estimated_trace_counts() {
        let budget = |limit, with_perf_data| {
            DiskBudget::new(&tempfile::tempfile().unwrap(), Some(limit), with_perf_data)
        };
        let stored = Stored {
            samples: 10_000,
            waits: 2000,
            received: 4 << 20,
            files: 1 << 20,
        };
        let rows = 10_000 * TRACE_BYTES_PER_SAMPLE + 2000 * TRACE_BYTES_PER_WAIT;
        let total = (1 << 20) + TRACE_BYTES + rows + (8 << 20);
        assert_eq!(reason(budget(total, false), stored), None);
        let why = reason(budget(total - 1, false), stored).unwrap();
        assert!(
            why.starts_with("-maxsize 13 MiB reached: 1 MiB of temporary files and"),
            "{why}"
        );
        assert!(reason(budget(total, true), stored).is_some());
        let huge = Stored {
            samples: u64::MAX,
            waits: u64::MAX,
            ..stored
        };
        assert_eq!(reason(budget(0, false), huge), None);
        let why = reason(budget(u64::MAX, false), huge).unwrap();
        assert!(
            why.starts_with("only ") && why.contains(" free, and the trace may need "),
            "{why}"
        );
    }

    #[test]
    fn sizes_have_the_largest_unit() {
        let sizes = [
            0,
            3 << 10,
            1_600_000,
            10 << 20,
            (3 << 30) + (1 << 29),
            u64::MAX,
        ];
        let sizes = sizes.map(|bytes| Size(bytes).to_string());
        let expected = [
            "0 KiB",
            "3 KiB",
            "1.5 MiB",
            "10 MiB",
            "3.5 GiB",
            "17179869183 GiB",
        ];
        assert_eq!(sizes, expected);
    }
}
