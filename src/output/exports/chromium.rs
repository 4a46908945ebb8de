//! Trace events of Chromium, as `dotnet-trace convert --format Chromium` writes them.
//!
//! Consecutive samples of a thread become calls: a function begins when it appears and ends when it
//! disappears. A sample covers the time before it that it represents.

use std::io::{self, Write};

use super::calls::{Calls, NONE};
use super::json::{self, Scaled};
use super::quality;
use super::tracks::{Track, TrackSamples, Tracks};
use crate::output::short_name::NameStyle;
use crate::trace::Trace;

pub(super) fn write(trace: &Trace, names: NameStyle, out: &mut impl Write) -> io::Result<()> {
    let calls = Calls::new(trace, names);
    let names: Vec<String> = calls.codes.iter().map(|code| code.full_name()).collect();
    out.write_all(b"{\"displayTimeUnit\":\"ms\",\"otherData\":{\"quality\":")?;
    json::string(out, &quality::lines(trace).join("\n"))?;
    out.write_all(b"},\"traceEvents\":[\n")?;
    let mut events = Events {
        calls: &calls,
        names: &names,
        open: Vec::new(),
        path: Vec::new(),
        is_first: true,
        out,
    };
    Tracks::threads(trace, usize::MAX).for_each(|track, samples| {
        events.metadata(track, "process_name", &track.process)?;
        events.metadata(track, "thread_name", &track.name)?;
        events.thread(track, samples, trace.info.start_ns)
    })?;
    out.write_all(b"\n]}\n")
}

struct Events<'a, W> {
    calls: &'a Calls,
    names: &'a [String],
    /// Nodes that have not ended, outermost first.
    open: Vec<u32>,
    path: Vec<u32>,
    is_first: bool,
    out: &'a mut W,
}

impl<W: Write> Events<'_, W> {
    fn thread(&mut self, track: &Track, samples: &TrackSamples<'_>, start: u64) -> io::Result<()> {
        let mut end = 0;
        for sample in samples.iter() {
            let (time, weight) = (sample.time.0.saturating_sub(start), sample.weight.0);
            let begin = time.saturating_sub(weight).max(end);
            // Less is jitter of the timer.
            if begin - end > weight / 2 {
                self.close(track, end, 0)?;
            }
            self.calls
                .path(self.calls.node(sample.stack), &mut self.path);
            let both = self.open.iter().zip(&self.path);
            let shared = both.take_while(|(open, node)| open == node).count();
            self.close(track, begin, shared)?;
            for at in shared..self.path.len() {
                self.event(track, "B", self.path[at], begin)?;
            }
            std::mem::swap(&mut self.open, &mut self.path);
            end = time.max(begin);
        }
        self.close(track, end, 0)
    }

    /// Ends all calls but the first ones.
    fn close(&mut self, track: &Track, time: u64, keep: usize) -> io::Result<()> {
        while self.open.len() > keep {
            let node = self.open.pop().unwrap_or(NONE);
            self.event(track, "E", node, time)?;
        }
        Ok(())
    }

    fn event(&mut self, track: &Track, phase: &str, node: u32, time: u64) -> io::Result<()> {
        let name = &self.names[self.calls.nodes()[node as usize].1 as usize];
        self.begin(track, phase, name)?;
        let ns = i64::try_from(time).unwrap_or(i64::MAX);
        let time = Scaled { ns, digits: 3 };
        write!(self.out, ",\"cat\":\"sampleEvent\",\"ts\":{time}}}")
    }

    /// Names the process or thread of a track.
    fn metadata(&mut self, track: &Track, what: &str, name: &str) -> io::Result<()> {
        self.begin(track, "M", what)?;
        self.out.write_all(b",\"args\":{\"name\":")?;
        json::string(self.out, name)?;
        self.out.write_all(b"}}")
    }

    fn begin(&mut self, track: &Track, phase: &str, name: &str) -> io::Result<()> {
        if !std::mem::take(&mut self.is_first) {
            self.out.write_all(b",\n")?;
        }
        let Track { pid, tid, .. } = track;
        write!(
            self.out,
            "{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid},\"name\":"
        )?;
        json::string(self.out, name)
    }
}
