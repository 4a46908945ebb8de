//! A finished capture, read back from its spool.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;

use super::command::CommandEnd;
use super::error::CaptureError;
use super::notable::notable_losses;
use super::snapshot::Snapshot;
use crate::machine::Machine;
use crate::perf::Granted;
use crate::trace::spool::{Ending, SpoolEnd, SpoolError};
use crate::trace::{CaptureInfo, EventStreams, Notice, NoticeKind, RawTrace, Samples};

/// Remedy for files that cannot grow.
pub(super) const MORE_ROOM: &str = "free some space, raise the file size limit (`ulimit -f`), or use an output \
    name in a directory on another disk";

/// Reason why a capture ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A signal (Ctrl-C, SIGTERM, SIGHUP).
    Signal,
    /// The time limit.
    Limit,
    /// The command ended, with this status.
    Command(CommandEnd),
    /// All processes of the target ended.
    TargetGone,
    /// The files reached the limit of their size, or the trace may not fit on the disk.
    DiskSpace(String),
    /// The spool cannot grow: the disk is full, or fails.
    Spool(String),
    /// An event stream cannot grow.
    Events(String),
    /// Waiting for samples failed.
    Wait(String),
    /// The capture is an import: perf recorded it.
    Recorded,
    /// perfcollect was killed or the system crashed; the capture was recovered.
    Died,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal => f.write_str("signal"),
            Self::Limit => f.write_str("time limit"),
            Self::Command(status) => write!(f, "command ended: {status}"),
            Self::TargetGone => f.write_str("all processes of the target ended"),
            Self::DiskSpace(why) => write!(f, "space on the disk: {why}"),
            Self::Spool(why) => write!(f, "the spool cannot grow: {why}"),
            Self::Events(why) => write!(f, "events cannot be kept: {why}"),
            Self::Wait(why) => write!(f, "cannot wait for samples: {why}"),
            Self::Recorded => f.write_str("recorded by perf"),
            Self::Died => f.write_str("killed"),
        }
    }
}

/// A finished capture before symbolization.
pub struct Capture {
    /// Samples.
    pub raw_trace: RawTrace,
    /// Processes, mappings and files at the end.
    pub machine: Machine,
    /// Reason why kernel addresses cannot be symbolized, if any.
    pub kernel_mismatch: Option<String>,
    /// Symbols of the kernel, if they are not those of the running one.
    pub kallsyms: Option<PathBuf>,
    /// Origin and conditions of the capture.
    pub info: CaptureInfo,
    /// Notices for the user.
    pub notices: Vec<Notice>,
    /// Reason why the capture ended.
    pub end: End,
    /// Blocks that the spool lacks because the disk was full.
    pub unwritten: Vec<u8>,
    /// Events of .NET runtimes; empty until their streams are read.
    pub events: EventStreams,
}

impl Capture {
    /// Creates a capture without events, with the notices about its losses.
    pub(super) fn new(raw_trace: RawTrace, machine: Machine, info: CaptureInfo, end: End) -> Self {
        let mut notices = Vec::new();
        if let Ending::Damaged { at, why } = &raw_trace.ending {
            notices.push(Notice::new(
                NoticeKind::SpoolCorrupt,
                format!("the spool is not readable from byte {at} on: {why}"),
                "",
            ));
        }
        let is_imported = end == End::Recorded;
        notices.extend(notable_losses(&raw_trace.losses, &info, is_imported));
        Self {
            raw_trace,
            machine,
            kernel_mismatch: None,
            kallsyms: None,
            info,
            notices,
            end,
            unwritten: Vec::new(),
            events: EventStreams::default(),
        }
    }

    /// Returns whether there is anything but CPU samples, events and what threads waited for.
    #[must_use]
    pub fn has_others(&self) -> bool {
        self.info.has_input_or_output()
            || !self.raw_trace.faults.is_empty()
            || !self.raw_trace.wakeups.is_empty()
    }
}

/// A capture that has stopped. Its samples are in its spool.
pub struct StoppedCapture {
    pub(super) spooled: SpoolEnd,
    pub(super) machine: Machine,
    pub(super) info: CaptureInfo,
    pub(super) granted: Granted,
    pub(super) end: End,
    pub(super) notices: Vec<Notice>,
    pub(super) snapshot: Option<Snapshot>,
}

impl StoppedCapture {
    /// Takes the threads of the target when the capture ended. `None` if it has none, or is the whole
    /// machine.
    pub fn take_snapshot(&mut self) -> Option<Snapshot> {
        self.snapshot.take()
    }

    /// Returns the reason why the capture ended.
    #[must_use]
    pub fn end(&self) -> End {
        match &self.spooled.error {
            Some(error) => End::Spool(error.to_string()),
            None => self.end.clone(),
        }
    }

    /// Returns the sampling that the kernel granted.
    #[must_use]
    pub fn granted(&self) -> Granted {
        self.granted
    }

    /// Reads the capture back from its spool. `samples` is an empty list to fill.
    ///
    /// # Errors
    /// Returns an error if the spool cannot be read.
    pub fn read(self, mut spool: &File, samples: Samples) -> Result<Capture, CaptureError> {
        let end = self.end();
        let SpoolEnd {
            written,
            kept,
            error,
        } = self.spooled;
        let mut notices = Vec::new();
        if let Some(error) = error {
            // The file may end with a partial block, whose space is needed.
            let _ = spool.set_len(written);
            notices.push(Notice::new(
                NoticeKind::SpoolFull,
                format!("the capture ended early: its spool could not grow ({error})"),
                MORE_ROOM,
            ));
        }
        spool
            .rewind()
            .map_err(|error| SpoolError::Block(error.into()))?;
        let raw_trace = RawTrace::read_into(samples, spool.take(written).chain(&kept[..]))?;
        let mut capture = Capture::new(raw_trace, self.machine, self.info, end);
        capture.info.end = capture.end.to_string();
        capture.notices.splice(..0, notices);
        capture.notices.extend(self.notices);
        capture.unwritten = kept;
        Ok(capture)
    }
}
