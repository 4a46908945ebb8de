//! Facts about the session of a stream and its process.

use crate::bytes::Bytes;
use crate::nettrace::TraceInfo;
use crate::output::sanitize::truncate;
use crate::output::utc::UtcTime;
use crate::trace::{CaptureInfo, Nanos, Pid};

/// Event of the samples of running managed threads.
const SAMPLES: &str = "managed-thread-samples";
/// Maximum length of a command line and of other texts, in bytes.
const MAX_TEXT_BYTES: usize = 4096;
/// Maximum length of a process name, as in Linux.
const MAX_NAME_BYTES: usize = 15;
/// Name of a process whose command line is unknown.
const UNKNOWN_PROCESS: &str = "dotnet";
/// Period of samples if the stream has none, in nanoseconds.
const SAMPLE_PERIOD_NS: u64 = 1_000_000;
/// Maximum period of samples, in nanoseconds.
const MAX_SAMPLE_PERIOD_NS: u64 = 1_000_000_000;

/// What a stream reports about its session and process.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Arguments, joined by spaces; empty if they are unknown.
    pub(super) command_line: String,
    architecture: String,
    /// Time of the first and last event of the process.
    first: Option<Nanos>,
    last: Option<Nanos>,
    /// Start of the rundown, which follows all events.
    rundown: Option<Nanos>,
}

impl Session {
    /// Reads a `ProcessInfo` event.
    pub(super) fn take_process_info(&mut self, payload: &[u8]) {
        let mut bytes = Bytes(payload);
        let mut next = || {
            let text = bytes.utf16z().unwrap_or_default();
            truncate(&text, MAX_TEXT_BYTES).to_owned()
        };
        self.command_line = next();
        let _operating_system = next();
        self.architecture = next();
    }

    /// Counts the time of an event of the process.
    pub(super) fn take_time(&mut self, time: Nanos) {
        self.first = Some(self.first.map_or(time, |first| first.min(time)));
        self.last = Some(self.last.map_or(time, |last| last.max(time)));
    }

    /// Counts the time of an event of the rundown.
    pub(super) fn take_rundown(&mut self, time: Nanos) {
        self.rundown = Some(self.rundown.map_or(time, |first| first.min(time)));
    }

    /// Returns the name that Linux gives the process: the start of that of its program.
    pub(super) fn process_name(&self) -> Box<str> {
        let program = self.command_line.split(' ').next().unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default();
        match truncate(name, MAX_NAME_BYTES) {
            "" => UNKNOWN_PROCESS.into(),
            name => name.into(),
        }
    }

    /// Returns the origin and conditions of a trace with this session.
    pub(super) fn capture_info(&self, header: &TraceInfo, process: Pid) -> CaptureInfo {
        let started = header.nanos(header.start_ticks);
        let first = self.first.or(self.rundown).unwrap_or(started);
        let start = started.min(first);
        let end = self.last.max(self.rundown).unwrap_or(start).max(start);
        let period_ns = header.sample_period_ns.map_or(0, u64::from);
        let is_plausible = (1..=MAX_SAMPLE_PERIOD_NS).contains(&period_ns);
        CaptureInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            arch: match &*self.architecture {
                "x64" => "x86_64".into(),
                "arm64" => "aarch64".into(),
                other => other.into(),
            },
            cpus: header.cpus.unwrap_or(0),
            event: SAMPLES.into(),
            period_ns: match is_plausible {
                true => period_ns,
                false => SAMPLE_PERIOD_NS,
            },
            start_ns: start.0,
            end_ns: end.0,
            start_unix_ns: UtcTime::unix_ns_of(header.start_time).unwrap_or(0),
            target: format!("pid {process}"),
            counts_time: Some(false),
            ..CaptureInfo::default()
        }
    }
}
