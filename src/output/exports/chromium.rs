//! Trace events of Chromium, as `dotnet-trace convert --format Chromium` writes them.
//!
//! Consecutive samples of a thread become calls: a function begins when it appears and ends when it
//! disappears. A sample covers the time before it that it represents.

use std::io::{self, Write};

use super::calls::Calls;
use super::json::{self, Scaled};
use super::quality;
use super::tracks::{TrackSamples, Tracks};
use crate::output::short_name::NameStyle;
use crate::trace::Trace;

pub(super) fn write(trace: &Trace, names: NameStyle, out: &mut impl Write) -> io::Result<()> {
    let calls = Calls::new(trace, names);
    let names = calls.codes.iter().map(|code| {
        let mut name = Vec::new();
        json::string(&mut name, &code.full_name())?;
        Ok(name)
    });
    let names: Vec<Vec<u8>> = names.collect::<io::Result<_>>()?;
    out.write_all(b"{\"displayTimeUnit\":\"ms\",\"otherData\":{\"quality\":")?;
    json::string(out, &quality::lines(trace).join("\n"))?;
    out.write_all(b"},\"traceEvents\":[\n")?;
    let mut events = Events {
        calls: &calls,
        names: &names,
        thread: String::new(),
        head: Vec::new(),
        open: Vec::new(),
        path: Vec::new(),
        is_first: true,
        out,
    };
    Tracks::threads(trace, usize::MAX).for_each(|track, samples| {
        events.thread = format!("\"pid\":{},\"tid\":{}", track.pid, track.tid);
        events.metadata("process_name", &track.process)?;
        events.metadata("thread_name", &track.name)?;
        events.thread(samples, trace.info.start_ns)
    })?;
    out.write_all(b"\n]}\n")
}

struct Events<'a, W> {
    calls: &'a Calls,
    /// Names of the functions in JSON.
    names: &'a [Vec<u8>],
    /// Fields of the events of the thread.
    thread: String,
    /// Start of the events of calls, up to the name.
    head: Vec<u8>,
    /// Nodes that have not ended, outermost first.
    open: Vec<u32>,
    path: Vec<u32>,
    is_first: bool,
    out: &'a mut W,
}

impl<W: Write> Events<'_, W> {
    fn thread(&mut self, samples: &TrackSamples<'_>, start: u64) -> io::Result<()> {
        let mut end = 0;
        for sample in samples.iter() {
            let (time, weight) = (sample.time.0.saturating_sub(start), sample.weight.0);
            let begin = time.saturating_sub(weight).max(end);
            // Less is jitter of the timer.
            if begin - end > weight / 2 {
                self.close(end, 0)?;
            }
            self.calls
                .path(self.calls.node(sample.stack), &mut self.path);
            let both = self.open.iter().zip(&self.path);
            let shared = both.take_while(|(open, node)| open == node).count();
            self.close(begin, shared)?;
            // Readers may take a begin before an end of the same time.
            let begin = begin.saturating_add(1);
            if shared < self.path.len() {
                self.start_calls("B", begin)?;
            }
            for at in shared..self.path.len() {
                self.call(self.path[at])?;
            }
            std::mem::swap(&mut self.open, &mut self.path);
            end = time.max(begin.saturating_add(1));
        }
        self.close(end, 0)
    }

    /// Ends all calls but the first ones.
    fn close(&mut self, time: u64, keep: usize) -> io::Result<()> {
        if self.open.len() > keep {
            self.start_calls("E", time)?;
        }
        while self.open.len() > keep {
            if let Some(node) = self.open.pop() {
                self.call(node)?;
            }
        }
        Ok(())
    }

    /// Sets what the next calls begin or end with: many do at the same time.
    fn start_calls(&mut self, phase: &str, time: u64) -> io::Result<()> {
        self.head.clear();
        let (thread, time) = (&self.thread, microseconds(time));
        // Without the name, speedscope does not find the begin of an end.
        write!(
            self.head,
            "{{\"ph\":\"{phase}\",{thread},\"ts\":{time},\"name\":"
        )
    }

    fn call(&mut self, node: u32) -> io::Result<()> {
        self.separate()?;
        let code = self.calls.nodes()[node as usize].1;
        self.out.write_all(&self.head)?;
        self.out.write_all(&self.names[code as usize])?;
        self.out.write_all(b"}")
    }

    /// Names the process or thread.
    fn metadata(&mut self, what: &str, name: &str) -> io::Result<()> {
        self.separate()?;
        let thread = &self.thread;
        write!(
            self.out,
            "{{\"ph\":\"M\",{thread},\"name\":\"{what}\",\"args\":{{\"name\":"
        )?;
        json::string(self.out, name)?;
        self.out.write_all(b"}}")
    }

    fn separate(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.is_first) {
            true => Ok(()),
            false => self.out.write_all(b",\n"),
        }
    }
}

fn microseconds(ns: u64) -> Scaled {
    let ns = i64::try_from(ns).unwrap_or(i64::MAX);
    Scaled { ns, digits: 3 }
}
