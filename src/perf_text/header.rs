//! The first line of a sample.
//!
//! ```text
//! COMM PID/TID [CPU] SECONDS.FRACTION: PERIOD EVENT: REST     all fields
//! COMM TID SECONDS.FRACTION: EVENT:                           perf 3.10, its default fields
//! COMM TID EVENT:                                             without times
//! ```
//! A name may contain spaces, be missing, or look like the fields that follow it. The first
//! interpretation with a time wins, then the first without one.

use crate::output::perf_text::markers;
use crate::trace::{Cpu, Nanos, Pid, Tid};

/// Latest time that is accepted: 100 years.
const MAX_TIME_NS: u64 = 100 * 366 * 24 * 3600 * 1_000_000_000;
/// Maximum number of words in an event name such as `raw 0x1b7` or `unknown attr type`.
const MAX_EVENT_WORDS: usize = 3;
/// Prefix of the names that perf prints for records other than samples (`--show-task-events` and
/// others).
const RECORD: &[u8] = b"PERF_RECORD_";

/// The fields in the first line of a sample. All strings are untrusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The thread's name; may be empty.
    pub comm: &'a [u8],
    /// The process id, if the text has it. -1: the kernel no longer knew it.
    pub pid: Option<Pid>,
    /// The thread id; -1 likewise.
    pub tid: Tid,
    /// The CPU, if the text has it.
    pub cpu: Option<Cpu>,
    /// The time, if the text has it.
    pub time: Option<Nanos>,
    /// The period, if the text has it.
    pub period: Option<u64>,
    /// The event's name; empty if the text does not have it.
    pub event: &'a [u8],
    /// The rest of the line: the fields of a tracepoint, or a frame.
    pub rest: &'a [u8],
}

impl<'a> Header<'a> {
    /// Parses a line. Returns `None` if it does not start a sample.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        Self::with_time(line).or_else(|| Self::read(line, Self::after_ids_without_time))
    }

    /// Like `parse`, but requires a time, which frames do not have.
    #[must_use]
    pub fn with_time(line: &'a [u8]) -> Option<Self> {
        Self::read(line, Self::after_ids_with_time)
    }

    /// Returns whether the line has only a name and an id, as do many lines outside samples.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.cpu.is_none() && self.time.is_none() && self.event.is_empty()
    }

    /// Returns whether this is the record at time zero that perfcollect writes.
    #[must_use]
    pub fn is_time_zero(&self) -> bool {
        self.comm == markers::TIME_ZERO.as_bytes()
    }

    /// Returns whether this is a record that perf prints among the samples.
    #[must_use]
    pub fn is_record(&self) -> bool {
        self.event.starts_with(RECORD)
    }

    /// Returns the first interpretation in which all fields after the ids are valid.
    fn read(line: &'a [u8], after_ids: impl Fn(Words<'a>, Self) -> Option<Self>) -> Option<Self> {
        let mut words = Words { line, at: 0 };
        loop {
            let comm = line[..words.at].trim_ascii();
            let Some((pid, tid)) = ids(words.next()?) else {
                continue;
            };
            let mut rest = words;
            let header = Self {
                comm,
                pid,
                tid,
                cpu: rest.next_if(cpu),
                time: None,
                period: None,
                event: &[],
                rest: &[],
            };
            if let Some(header) = after_ids(rest, header) {
                return Some(header);
            }
        }
    }

    fn after_ids_with_time(mut words: Words<'a>, header: Self) -> Option<Self> {
        let time = words.next_if(|word| time(word.strip_suffix(b":")?))?;
        let header = Self {
            time: Some(time),
            ..header
        };
        header.after_time(words)
    }

    fn after_ids_without_time(words: Words<'a>, header: Self) -> Option<Self> {
        header.after_time(words)
    }

    fn after_time(self, mut words: Words<'a>) -> Option<Self> {
        if words.rest().is_empty() {
            // Neither period nor event.
            return (!self.comm.is_empty()).then_some(self);
        }
        let mut behind_period = words;
        let period = behind_period.next_if(number);
        if period.is_some()
            && let Some(header) = self.with_event(behind_period)
        {
            return Some(Self { period, ..header });
        }
        if let Some(header) = self.with_event(words) {
            return Some(header);
        }
        // Some records have no field that ends in a colon.
        let event = words.next()?;
        event.starts_with(RECORD).then_some(Self { event, ..self })
    }

    /// Reads the event's name, which ends in a colon.
    fn with_event(self, mut words: Words<'a>) -> Option<Self> {
        let start = words.skip_space();
        for _ in 0..MAX_EVENT_WORDS {
            if words.next()?.ends_with(b":") {
                let event = &words.line[start..words.at - 1];
                let is_name = event.first().is_some_and(u8::is_ascii_alphabetic);
                return is_name.then_some(Self {
                    event,
                    rest: words.rest(),
                    ..self
                });
            }
        }
        None
    }
}

/// The words of a line, and the end of the last one.
#[derive(Clone, Copy)]
struct Words<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Words<'a> {
    /// Returns the start of the next word.
    fn skip_space(&self) -> usize {
        let rest = &self.line[self.at..];
        let space = rest.iter().take_while(|byte| byte.is_ascii_whitespace());
        self.at + space.count()
    }

    fn rest(&self) -> &'a [u8] {
        self.line[self.at..].trim_ascii()
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.skip_space();
        let word = self.line.get(start..)?;
        let len = word.iter().position(u8::is_ascii_whitespace);
        let len = len.unwrap_or(word.len());
        self.at = start + len;
        (len > 0).then(|| &word[..len])
    }

    /// Consumes the next word if it has a `meaning`.
    fn next_if<T>(&mut self, meaning: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        let mut rest = *self;
        let meaning = meaning(rest.next()?)?;
        *self = rest;
        Some(meaning)
    }
}

/// Parses `PID/TID` or `TID`; each may be -1.
fn ids(word: &[u8]) -> Option<(Option<Pid>, Tid)> {
    let id = |digits: &[u8]| match digits {
        b"-1" => Some(-1),
        digits => number(digits).and_then(|id| i32::try_from(id).ok()),
    };
    let slash = word.iter().position(|&byte| byte == b'/');
    Some(match slash {
        Some(slash) => {
            let pid = id(&word[..slash])?;
            (Some(Pid(pid)), Tid(id(&word[slash + 1..])?))
        }
        None => (None, Tid(id(word)?)),
    })
}

/// Parses `[003]`; perf prints `[-01]` if the recording has no CPU.
fn cpu(word: &[u8]) -> Option<Cpu> {
    let inside = word.strip_prefix(b"[")?.strip_suffix(b"]")?;
    match inside.strip_prefix(b"-") {
        Some(digits) => number(digits).map(|_| Cpu(0)),
        None => number(inside)
            .and_then(|cpu| u32::try_from(cpu).ok())
            .map(Cpu),
    }
}

/// Parses decimal digits only.
fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| str::from_utf8(digits).ok()?.parse().ok())?
}

/// Parses seconds and up to nine fraction digits.
fn time(word: &[u8]) -> Option<Nanos> {
    let point = word.iter().position(|&byte| byte == b'.')?;
    let fraction = &word[point + 1..];
    let unit = 10_u64.checked_pow(9_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?)?;
    let seconds = number(&word[..point])?.checked_mul(1_000_000_000)?;
    let time = seconds.checked_add(number(fraction)? * unit)?;
    (time <= MAX_TIME_NS).then_some(Nanos(time))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn header(line: &'static str) -> Header<'static> {
        Header::parse(line.as_bytes()).unwrap_or_else(|| panic!("{line:?}"))
    }

    #[test]
    fn reads_all_fields() {
        let full =
            header("      Thread 1/4  1814/1815  [003]  2191.551277:    1000000 cpu-clock: ");
        assert_eq!(full.comm, b"Thread 1/4");
        assert_eq!((full.pid, full.tid), (Some(Pid(1814)), Tid(1815)));
        assert_eq!((full.cpu, full.period), (Some(Cpu(3)), Some(1_000_000)));
        assert_eq!(full.time, Some(Nanos(2_191_551_277_000)));
        assert_eq!((full.event, full.rest), (&b"cpu-clock"[..], &b""[..]));
        let tracepoint = header("sh 12 5.000000001: sched:sched_switch: a:1 [120] S ==> b:2 [120]");
        assert_eq!((tracepoint.pid, tracepoint.tid), (None, Tid(12)));
        assert_eq!(tracepoint.cpu, None);
        assert_eq!(tracepoint.time, Some(Nanos(5_000_000_001)));
        assert_eq!(tracepoint.event, b"sched:sched_switch");
        assert_eq!(tracepoint.rest, b"a:1 [120] S ==> b:2 [120]");
    }

    #[test]
    fn reads_other_dialects() {
        let comm = |line| header(line).comm;
        // No name, or a number as name.
        assert_eq!(comm("     2/2\t\t[000] 0.0:\t\t\t1 event: x"), b"");
        assert_eq!(
            comm("9     9 [002] 203265.377019:    1001001 cpu-clock: "),
            b"9"
        );
        assert_eq!(comm("k/2    3/3\t\t[000] 0.0: 1 event: "), b"k/2");
        assert_eq!(comm(":1234  1234 5.000001: cycles: "), b":1234");
        assert_eq!(comm("java 19983 cycles:"), b"java");
        assert_eq!(comm("java 12688/12764 [001] 65.708352: "), b"java");
        assert!(header("java 12688 ").is_bare() && !header("java 12688 cycles:").is_bare());
        let reaped = header("             :-1    -1 [-01] 5.000001:  7 raw 0x1b7: ");
        assert_eq!((reaped.pid, reaped.tid), (None, Tid(-1)));
        assert_eq!(
            (reaped.comm, reaped.event),
            (&b":-1"[..], &b"raw 0x1b7"[..])
        );
        assert_eq!((reaped.cpu, reaped.period), (Some(Cpu(0)), Some(7)));
        let simpleperf = header("Gecko\t25122 [007] 115539.936601:\t\t1000000 task-clock:u:");
        assert_eq!(
            (simpleperf.comm, simpleperf.tid),
            (&b"Gecko"[..], Tid(25122))
        );
        let single =
            header("dd 1 5.000001:   1 cycles:      7fa68b1f2d84 _dl_start+0x4 (/usr/lib/ld.so)");
        assert_eq!(single.rest, b"7fa68b1f2d84 _dl_start+0x4 (/usr/lib/ld.so)");
    }

    #[test]
    fn recognizes_records() {
        for line in [
            "perf 7/7 5.000001: PERF_RECORD_COMM: perf:7/7",
            "perf 7 [000] 5.000001: PERF_RECORD_MMAP2 7/7: [0x1(0x2) @ 0 0:1 2 3]: r-xp /x",
            "perf 7 5.000001: PERF_RECORD_SWITCH IN",
        ] {
            assert!(header(line).is_record(), "{line}");
        }
    }

    #[test]
    fn refuses_what_is_no_header() {
        for line in [
            "",
            "x",
            "1",
            "a 1/2 [0] 3.4",
            "a 1/2 [0] 3: 1 e",
            "a 1/2 3.0000000000: e f",
            "\t   7f9ca5486ec5 __libc_start_main (/lib/libc-2.19.so)",
        ] {
            assert_eq!(Header::parse(line.as_bytes()), None, "{line}");
        }
    }
}
