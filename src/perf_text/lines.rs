//! Splits a text into samples.

use std::io::{BufRead, Read};

use super::error::{OddLine, TextError};
use super::frame::Frame;
use super::header::Header;
use crate::output::perf_text::markers;

/// Maximum length of a line; longer ones are truncated.
const MAX_LINE_BYTES: u64 = 64 << 10;
/// Maximum number of frames of a sample; others are dropped.
const MAX_FRAMES: usize = 4096;
/// Byte order mark that Windows and some editors write first.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Prefixes of perf's messages, which may be mixed into its output.
const MESSAGES: [&[u8]; 10] = [
    b"Warning:",
    b"WARNING:",
    b"Processed ",
    b"Check IO/CPU overload",
    b"[ perf ",
    b"Failed to open ",
    b"failed to open ",
    b"no symbols found in ",
    b"No kallsyms or vmlinux",
    b"'trace' not valid for ",
];

/// A sample: its first line, and its frames, leaf first.
#[derive(Default)]
pub struct Sample {
    /// Ends of the lines in the buffer, and the number of the first line.
    lines_read: u64,
    first_line: u64,
    header: Vec<u8>,
    /// Whether this is a sample only if frames follow.
    is_bare: bool,
    frames: Vec<u8>,
    ends: Vec<usize>,
    /// Whether the input is text of `perf script`: there was a time of a sample, or one with frames.
    is_recognized: bool,
}

impl Sample {
    /// Returns the fields of the first line.
    #[must_use]
    pub fn header(&self) -> Option<Header<'_>> {
        Header::parse(&self.header)
    }

    /// Returns the lines of the frames, leaf first, unchanged.
    pub fn frames(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges: Vec<_> = starts.zip(self.ends.iter().copied()).collect();
        ranges
            .into_iter()
            .map(|(start, end)| &self.frames[start..end])
    }

    fn is_open(&self) -> bool {
        !self.header.is_empty()
    }

    fn push(&mut self, line: &[u8]) {
        if self.ends.len() < MAX_FRAMES {
            self.frames.extend_from_slice(line);
            self.ends.push(self.frames.len());
        }
    }

    fn start(&mut self, line: &[u8]) {
        self.first_line = self.lines_read;
        self.header.extend_from_slice(line);
        self.is_recognized |= Header::with_time(line).is_some();
        self.is_bare = Header::parse(line).is_some_and(|header| header.is_bare());
    }

    /// Describes a line that is none of a sample.
    fn odd(&self, number: u64, line: &[u8]) -> OddLine {
        OddLine::new(number, if self.is_recognized { line } else { &[] })
    }

    fn hand_out(
        &mut self,
        take: &mut impl FnMut(&Self) -> Result<(), TextError>,
    ) -> Result<(), TextError> {
        if !self.is_open() {
            return Ok(());
        }
        if self.is_bare && self.ends.is_empty() {
            return Err(TextError::Odd(self.odd(self.first_line, &self.header)));
        }
        take(self)?;
        self.is_recognized |= !self.ends.is_empty();
        self.header.clear();
        self.frames.clear();
        self.ends.clear();
        Ok(())
    }
}

/// Lines outside samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Number of messages of perf.
    pub messages: u64,
    /// Number of lines among the frames that are not frames, and the first of them.
    pub odd_frames: u64,
    /// See `odd_frames`.
    pub first_odd_frame: Option<OddLine>,
    /// Whether the text ends within the first line of a sample.
    pub ends_within: Option<OddLine>,
}

/// Calls the functions with the samples of a text and with its comments (`# hostname : ...`).
///
/// # Errors
/// The function for samples fails. A line does not start a sample, but only a sample can be there. The input cannot be read.
pub fn each(
    mut input: impl BufRead,
    mut take: impl FnMut(&Sample) -> Result<(), TextError>,
    mut comment: impl FnMut(&[u8]),
) -> Result<Leftovers, TextError> {
    let mut left = Leftovers::default();
    let (mut line, mut sample) = (Line::default(), Sample::default());
    let mut is_after_blank = true;
    while line.read(&mut input)? {
        sample.lines_read += 1;
        let number = sample.lines_read;
        let text = line.text(number == 1);
        match kind(text, sample.is_open(), is_after_blank) {
            // Some texts have an empty line before the frames.
            Kind::Blank if sample.ends.is_empty() && !sample.is_bare => {}
            Kind::Blank => sample.hand_out(&mut take)?,
            Kind::Comment => comment(text),
            Kind::Frame => sample.push(text),
            Kind::Header => {
                sample.hand_out(&mut take)?;
                sample.start(text);
                // perf prints a single frame on the line of its sample, and no empty line after it.
                let header = Header::parse(text);
                if header.is_some_and(|header| Frame::parse(header.rest).is_some()) {
                    sample.hand_out(&mut take)?;
                }
            }
            Kind::Message => left.messages += 1,
            Kind::OddFrame => {
                left.odd_frames += 1;
                let first = || sample.odd(number, text);
                left.first_odd_frame.get_or_insert_with(first);
            }
            Kind::Odd if !line.is_ended => left.ends_within = Some(sample.odd(number, text)),
            Kind::Odd => return Err(TextError::Odd(sample.odd(number, text))),
        }
        is_after_blank = text.trim_ascii().is_empty() || text.starts_with(b"#");
    }
    match sample.hand_out(&mut take) {
        Err(TextError::Odd(last)) if !line.is_ended => left.ends_within = Some(last),
        done => done?,
    }
    Ok(left)
}

enum Kind {
    Blank,
    Comment,
    Header,
    Frame,
    Message,
    /// Not a frame, but only a frame can be there.
    OddFrame,
    /// Not a sample, but only a sample can be there.
    Odd,
}

/// Classifies a line. `in_sample`: whether frames may follow. perf indents frames with a tab, and
/// the first lines of samples without callers with spaces. Other tools indent frames with spaces,
/// or not at all.
fn kind(line: &[u8], in_sample: bool, is_after_blank: bool) -> Kind {
    let is_header = |header: Option<Header<'_>>| match header {
        Some(header) if header.is_record() => Some(Kind::Message),
        Some(header) if header.is_bare() && !is_after_blank => None,
        Some(_) => Some(Kind::Header),
        None => None,
    };
    // A thread name may start with this character.
    let is_comment = |line| is_end(line) || Header::with_time(line).is_none();
    if line.first() == Some(&b'#') && is_comment(line) {
        return Kind::Comment;
    }
    if line.trim_ascii().is_empty() {
        return Kind::Blank;
    }
    let odd = match !is_after_blank && (in_sample || is_source(line)) {
        true => Kind::OddFrame,
        false => Kind::Odd,
    };
    if in_sample && line.first() == Some(&b'\t') {
        return match Frame::indented(line) {
            Some(_) => Kind::Frame,
            None => odd,
        };
    }
    if let Some(kind) = is_header(Header::with_time(line)) {
        return kind;
    }
    if in_sample && Frame::parse(line).is_some() {
        return Kind::Frame;
    }
    if let Some(kind) = is_header(Header::parse(line)) {
        return kind;
    }
    match MESSAGES.iter().any(|begin| line.starts_with(begin)) {
        true => Kind::Message,
        false => odd,
    }
}

/// Returns whether perfcollect wrote the line for PerfView alone.
fn is_end(line: &[u8]) -> bool {
    let is_event = line.ends_with(markers::END_EVENT.as_bytes())
        || memchr::memmem::find(line, markers::SCHEDULER).is_some();
    line.starts_with(markers::END.as_bytes()) && is_event
}

/// Returns whether the line is the source position of the frame before (`perf script -F +srcline`,
/// `+srccode`).
fn is_source(line: &[u8]) -> bool {
    let is_place = line.starts_with(b"  ") && !line[2..].starts_with(b" ");
    is_place || line.starts_with(b"|")
}

/// The current line, up to the maximum length.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    /// Whether the last line was complete.
    is_ended: bool,
}

impl Line {
    /// Reads the next line. Returns `false` at the end.
    fn read(&mut self, input: &mut impl BufRead) -> Result<bool, TextError> {
        self.bytes.clear();
        let mut limited = input.by_ref().take(MAX_LINE_BYTES);
        let read = limited.read_until(b'\n', &mut self.bytes)?;
        if read == 0 {
            return Ok(false);
        }
        self.is_ended = self.bytes.pop_if(|last| *last == b'\n').is_some();
        if !self.is_ended && read as u64 == MAX_LINE_BYTES {
            input.skip_until(b'\n')?;
            self.is_ended = true;
        }
        Ok(true)
    }

    /// Removes a Windows line end and the byte order mark.
    fn text(&self, is_first: bool) -> &[u8] {
        let text = self.bytes.strip_suffix(b"\r").unwrap_or(&self.bytes);
        let mark = text.strip_prefix(BYTE_ORDER_MARK).filter(|_| is_first);
        mark.unwrap_or(text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Returns the name and the frames of each sample.
    fn read(text: &str) -> (Vec<(String, usize)>, Leftovers) {
        let mut seen = Vec::new();
        let take = |sample: &Sample| {
            let comm = String::from_utf8_lossy(sample.header().unwrap().comm).into_owned();
            seen.push((comm, sample.frames().count()));
            Ok(())
        };
        let left = each(text.as_bytes(), take, |_| {}).unwrap();
        (seen, left)
    }

    fn expect(text: &str, expected: &[(&str, usize)]) -> Leftovers {
        let (seen, left) = read(text);
        let seen: Vec<_> = seen
            .iter()
            .map(|(comm, frames)| (&**comm, *frames))
            .collect();
        assert_eq!(seen, expected);
        left
    }

    #[test]
    fn samples_end_where_the_next_begins() {
        let text = "# comment\na 1/1 1.000000: 5 e: \n\t1 f (m)\n\t2 g (m)\n\n\nb 2/2 2.0: e:\n";
        assert_eq!(expect(text, &[("a", 2), ("b", 0)]), Leftovers::default());
        // No empty lines between them, as perf prints tracepoints and samples without callers.
        let text = "  a 1 1.0: 5 e:  1f f (m)\n  b 2 1.0: x:y: z=1 (2)\n  c 3 2.0: x:y: z=1\n";
        assert_eq!(
            expect(text, &[("a", 0), ("b", 0), ("c", 0)]),
            Leftovers::default()
        );
    }

    #[test]
    fn frames_may_be_indented_by_anything() {
        let text =
            "java 1 cycles:\nff f (m)\nfe g (m)\n\ndd 2 1.0: e:\r\n      1f\tf()\t(m)\r\n\r\n";
        assert_eq!(
            expect(text, &[("java", 2), ("dd", 1)]),
            Leftovers::default()
        );
    }

    #[test]
    fn an_empty_line_before_the_frames_ends_no_sample() {
        let text = "a 1 1.0: e:\n\n\t1 f (m)\n\n\t2 g (m)\nb 2 1.0: e:\n\nc 3 1.0: e:\n\t3 h (m)\n";
        let error = each(text.as_bytes(), |_| Ok(()), |_| {}).unwrap_err();
        assert!(error.to_string().starts_with("line 5 "), "{error}");
        let text = text.replace("\t2 g (m)\n", "");
        assert_eq!(
            expect(&text, &[("a", 1), ("b", 0), ("c", 1)]),
            Leftovers::default()
        );
    }

    #[test]
    fn a_name_and_an_id_begin_a_sample_if_frames_follow() {
        assert_eq!(
            expect(
                "java 12 \n\t1 f (m)\n\nperl 13 \n\t1 f (m)\n",
                &[("java", 1), ("perl", 1)]
            ),
            Leftovers::default()
        );
        assert!(each(&b"java 12\n\n\t1 f (m)\n"[..], |_| Ok(()), |_| {}).is_err());
        assert!(expect("# x\njava 12", &[]).ends_within.is_some());
    }

    #[test]
    fn places_in_the_source_are_no_samples() {
        let text =
            "  a 1 1.0: 5 e:  1f f (m)\n  f.c:12\n|12   x = 1;\n  b 2 1.0: e: 1f f (m)\n  f.c:13\n";
        assert_eq!(expect(text, &[("a", 0), ("b", 0)]).odd_frames, 3);
    }

    #[test]
    fn lines_that_are_none_are_reported() {
        let text = "Warning:\nProcessed 3 events and lost 1 chunks!\n\na 1 1.0: e:\n\tWEIRD_LINE\n\t1 f (m)\n\
                    \na 1 1.0: PERF_RECORD_COMM: a:1/1\n\nb 2 [0";
        let left = expect(text, &[("a", 1)]);
        assert_eq!((left.messages, left.odd_frames), (3, 1));
        let odd = left.first_odd_frame.unwrap();
        assert_eq!((odd.number, &*odd.text), (5, "WEIRD_LINE"));
        assert_eq!(left.ends_within.unwrap().number, 10);
        let error = each(&b"a 1 1.0: e:\n\nmain;f 12\n"[..], |_| Ok(()), |_| {}).unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 3 begins no sample as `perf script` prints them: main;f 12 (what is read: `perf script -F comm,pid,tid,cpu,time,period,event,ip,sym,dso`)"
        );
        let error = each(&b"main;f 12\nmain;g 13\n"[..], |_| Ok(()), |_| {}).unwrap_err();
        assert!(error.to_string().starts_with("line 1 "), "{error}");
    }

    /// A link may lead to a private file, and perfcollect mostly runs as root.
    #[test]
    fn quotes_no_line_of_a_file_that_may_be_anything() {
        let lines = [
            "secret:$6$aaaa:19000:0:99999:7:::",
            "secret 12",
            "  secret 12",
            "secret = 1234 # aaaa",
            "secret 12 aaaa: bbbb",
            "-----BEGIN OPENSSH PRIVATE KEY secret-----",
        ];
        for line in lines {
            for text in [
                format!("{line}\n{line}\n"),
                format!("#\n{line}\n\nx\n"),
                line.to_owned(),
            ] {
                let shown = match each(text.as_bytes(), |_| Ok(()), |_| {}) {
                    Ok(left) => format!("{left:?}"),
                    Err(error) => format!("{error} {error:?}"),
                };
                assert!(!shown.contains("secret"), "{text}: {shown}");
            }
        }
    }
}
