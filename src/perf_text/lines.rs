//! The lines of the text: a header and, indented by a tab, its frames.

use std::io::{self, BufRead, Read};

use crate::machine::without_mark;
use crate::trace::{Cpu, Nanos, Pid, Tid};

/// Longest line that is read; of others the beginning is.
const MAX_LINE_BYTES: u64 = 64 << 10;
/// Frames of a sample that are kept.
const MAX_FRAMES: usize = 4096;

/// What a sample's first line says. Texts are from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name of the thread.
    pub comm: &'a [u8],
    /// Its process; the thread itself if the text does not tell.
    pub pid: Pid,
    /// Its id.
    pub tid: Tid,
    /// Where it ran, if the text tells.
    pub cpu: Option<Cpu>,
    /// When.
    pub time: Nanos,
    /// What it counted, if the text tells.
    pub period: Option<u64>,
    /// Of which event.
    pub event: &'a [u8],
    /// What follows: the fields of a tracepoint, or a frame.
    pub rest: &'a [u8],
}

/// A code address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Where it is in its object, or in memory.
    pub address: u64,
    /// The function; `[unknown]` without one.
    pub symbol: &'a [u8],
    /// The file, or what stands for one.
    pub object: &'a [u8],
}

impl<'a> Header<'a> {
    /// Reads a line. `None`: it begins no sample.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        // A name may look like what follows it: the first place where all fits is taken.
        let mut words = Words { line, at: 0 };
        words.next()?;
        loop {
            let comm = line[..words.at].trim_ascii();
            let (pid, tid) = match words.next()? {
                word if let Some(ids) = ids(word) => ids,
                _ => continue,
            };
            if let Some(header) = Self::behind_ids(words, comm, pid, tid) {
                return Some(header);
            }
        }
    }

    fn behind_ids(mut words: Words<'a>, comm: &'a [u8], pid: Pid, tid: Tid) -> Option<Self> {
        let mut word = words.next()?;
        let cpu = word
            .strip_prefix(b"[")
            .and_then(|cpu| number(cpu.strip_suffix(b"]")?));
        if cpu.is_some() {
            word = words.next()?;
        }
        let time = time(word.strip_suffix(b":")?)?;
        word = words.next()?;
        let period = number(word);
        if period.is_some() {
            word = words.next()?;
        }
        Some(Self {
            comm,
            pid,
            tid,
            cpu: cpu.and_then(|cpu| u32::try_from(cpu).ok()).map(Cpu),
            time,
            period,
            event: word.strip_suffix(b":")?,
            rest: words.line[words.at..].trim_ascii(),
        })
    }
}

impl<'a> Frame<'a> {
    /// Reads a line without its tab. `None`: it is no frame.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let line = line.trim_ascii();
        let space = line.iter().position(|&byte| byte == b' ')?;
        let address = u64::from_str_radix(str::from_utf8(&line[..space]).ok()?, 16).ok()?;
        let rest = line[space..].strip_suffix(b")")?;
        let whole = without_mark(rest);
        let open = whole.windows(2).rposition(|two| two == b" (")?;
        let symbol = rest[..open].trim_ascii();
        let offset = symbol.windows(3).rposition(|three| three == b"+0x");
        Some(Self {
            address,
            symbol: &symbol[..offset.unwrap_or(symbol.len())],
            object: &rest[open + 2..],
        })
    }
}

/// A sample: its first line, and its frames from the leaf.
#[derive(Default)]
pub struct Sample {
    header: Vec<u8>,
    frames: Vec<u8>,
    ends: Vec<usize>,
}

impl Sample {
    /// What the first line says.
    #[must_use]
    pub fn header(&self) -> Option<Header<'_>> {
        Header::parse(&self.header)
    }

    /// The lines of its frames from the leaf, as they are.
    pub fn frames(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges: Vec<_> = starts.zip(self.ends.iter().copied()).collect();
        ranges
            .into_iter()
            .map(|(start, end)| &self.frames[start..end])
    }

    fn push(&mut self, line: &[u8]) {
        if self.ends.len() < MAX_FRAMES {
            self.frames.extend_from_slice(line);
            self.ends.push(self.frames.len());
        }
    }

    fn clear(&mut self) {
        self.header.clear();
        self.frames.clear();
        self.ends.clear();
    }
}

/// Hands out the samples of a text; returns how many lines are in none.
///
/// # Errors
/// What the input returns; the samples before it were handed out.
pub fn each(mut input: impl BufRead, mut take: impl FnMut(&Sample)) -> io::Result<u64> {
    let (mut line, mut sample, mut strange) = (Vec::new(), Sample::default(), 0);
    while read_line(&mut input, &mut line)? {
        let frame = line.strip_prefix(b"\t");
        match frame {
            Some(frame) if !sample.header.is_empty() => sample.push(frame),
            _ if line.trim_ascii().is_empty() || line.starts_with(b"#") => {}
            _ => {
                hand_out(&mut sample, &mut take);
                match Header::parse(&line) {
                    Some(_) => sample.header.extend_from_slice(&line),
                    None => strange += 1,
                }
            }
        }
    }
    hand_out(&mut sample, &mut take);
    Ok(strange)
}

fn hand_out(sample: &mut Sample, take: &mut impl FnMut(&Sample)) {
    if !sample.header.is_empty() {
        take(sample);
        sample.clear();
    }
}

/// The next line without its end, as far as it is kept. `false`: there is none.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = input
        .by_ref()
        .take(MAX_LINE_BYTES)
        .read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read as u64 == MAX_LINE_BYTES {
        input.skip_until(b'\n')?;
    }
    Ok(read > 0)
}

/// The words of a line, and where the last one ended.
#[derive(Clone, Copy)]
struct Words<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = &self.line[self.at..];
        let start = rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let word = &rest[start..];
        let len = word.iter().position(u8::is_ascii_whitespace);
        let len = len.unwrap_or(word.len());
        self.at += start + len;
        Some(&word[..len])
    }
}

/// `PID/TID` or `TID`.
fn ids(word: &[u8]) -> Option<(Pid, Tid)> {
    let id = |digits: &[u8]| number(digits).and_then(|id| i32::try_from(id).ok());
    let slash = word.iter().position(|&byte| byte == b'/');
    let (pid, tid) = match slash {
        Some(slash) => (&word[..slash], &word[slash + 1..]),
        None => (word, word),
    };
    Some((Pid(id(pid)?), Tid(id(tid)?)))
}

/// Decimal digits and nothing else.
fn number(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

/// Seconds and their fraction, of which six or nine digits are printed.
fn time(word: &[u8]) -> Option<Nanos> {
    let point = word.iter().position(|&byte| byte == b'.')?;
    let fraction = &word[point + 1..];
    let unit = 10_u64.checked_pow(9_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?)?;
    let seconds = number(&word[..point])?.checked_mul(1_000_000_000)?;
    seconds.checked_add(number(fraction)? * unit).map(Nanos)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn headers_of_all_kinds() {
        let of = |line: &'static str| Header::parse(line.as_bytes());
        let full = of("      Thread 1/4  1814/1815  [003]  2191.551277:    1000000 cpu-clock: ");
        let full = full.unwrap();
        assert_eq!(full.comm, b"Thread 1/4");
        assert_eq!(
            (full.pid, full.tid, full.cpu),
            (Pid(1814), Tid(1815), Some(Cpu(3)))
        );
        assert_eq!(
            (full.time, full.period),
            (Nanos(2_191_551_277_000), Some(1_000_000))
        );
        assert_eq!((full.event, full.rest), (&b"cpu-clock"[..], &b""[..]));
        let bare = of("sh 12 5.000000001: sched:sched_switch: a:1 [120] S ==> b:2 [120]").unwrap();
        assert_eq!((bare.pid, bare.cpu, bare.period), (Pid(12), None, None));
        assert_eq!(
            (bare.time, bare.event),
            (Nanos(5_000_000_001), &b"sched:sched_switch"[..])
        );
        assert_eq!(bare.rest, b"a:1 [120] S ==> b:2 [120]");
        for bad in [
            "",
            "x",
            "1 2",
            "a 1/2 [0] 3.4:",
            "a 1/2 [0] 3: 1 e:",
            "a 1/2 3.0000000000: e:",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn frames_of_all_kinds() {
        let of = |line: &'static str| {
            let frame = Frame::parse(line.as_bytes()).unwrap();
            let text = |bytes| str::from_utf8(bytes).unwrap();
            (frame.address, text(frame.symbol), text(frame.object))
        };
        assert_eq!(
            of("   1f f(int)+0x2a (/a b/c.so)"),
            (0x1f, "f(int)", "/a b/c.so")
        );
        assert_eq!(
            of("1f g (x) (/c.so (deleted))"),
            (0x1f, "g (x)", "/c.so (deleted)")
        );
        assert_eq!(of("0 [unknown] ([unknown])"), (0, "[unknown]", "[unknown]"));
        for bad in ["", "f", "xyz f (m)", "1f f", "1f (m"] {
            assert_eq!(Frame::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn samples_end_where_the_next_begins() {
        let text = "# comment\n\tlost\na 1/1 1.000000: 5 e: \n\t1 f (m)\n\t2 g (m)\n\nnonsense\nb 2/2 2.0: e:\n";
        let mut seen = Vec::new();
        let strange = each(text.as_bytes(), |sample| {
            seen.push((sample.header().unwrap().pid.0, sample.frames().count()));
        });
        assert_eq!((strange.unwrap(), &seen[..]), (2, &[(1, 2), (2, 0)][..]));
    }
}
