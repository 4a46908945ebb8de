//! A capture that has ended, read back from its spool.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;

use super::error::CaptureError;
use super::notable::notable_losses;
use crate::machine::Machine;
use crate::trace::spool::{Ending, SpoolEnd, SpoolError};
use crate::trace::{CaptureInfo, EventStreams, Notice, RawTrace};

/// What to do where files cannot grow.
pub(super) const MORE_ROOM: &str = "free some space, raise the limit of file sizes (`ulimit -f`), or name the trace \
    with a directory on another disk";

/// Why the capture ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A signal (Ctrl-C, SIGTERM, SIGHUP).
    Signal,
    /// The time limit.
    Limit,
    /// The command ended; how.
    Command(String),
    /// All wanted processes are gone.
    TargetGone,
    /// The spool cannot grow: the disk is full, or fails.
    Spool(String),
    /// The same of the events of a runtime.
    Events(String),
    /// Waiting for samples failed.
    Wait(String),
    /// It was recorded before, by perf.
    Recorded,
    /// The collector was killed, or the machine was: what is there was recovered.
    Died,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal => f.write_str("signal"),
            Self::Limit => f.write_str("time limit"),
            Self::Command(status) => write!(f, "command ended: {status}"),
            Self::TargetGone => f.write_str("all wanted processes are gone"),
            Self::Spool(why) => write!(f, "the spool cannot grow: {why}"),
            Self::Events(why) => write!(f, "events cannot be kept: {why}"),
            Self::Wait(why) => write!(f, "cannot wait for samples: {why}"),
            Self::Recorded => f.write_str("recorded by perf"),
            Self::Died => f.write_str("killed"),
        }
    }
}

/// A finished capture whose frames have no names yet.
pub struct Capture {
    /// Samples.
    pub recording: RawTrace,
    /// The machine at the end.
    pub machine: Machine,
    /// Why kernel addresses say nothing any more, if they do not.
    pub kernel_gone: Option<String>,
    /// What names them, if it is not this kernel's own list.
    pub kallsyms: Option<PathBuf>,
    /// How the capture came to be.
    pub info: CaptureInfo,
    /// Degradations.
    pub notices: Vec<Notice>,
    /// Why it ended.
    pub end: End,
    /// Blocks the spool lacks, because the disk was full.
    pub unwritten: Vec<u8>,
    /// Events of .NET runtimes; none until they are read from where their streams were kept.
    pub events: EventStreams,
}

impl Capture {
    /// A capture without events, with the notices that its recording is due.
    pub(super) fn new(recording: RawTrace, machine: Machine, info: CaptureInfo, end: End) -> Self {
        let mut notices = Vec::new();
        if let Ending::Damaged { at, why } = &recording.ending {
            notices.push(Notice::new(
                format!("what came after byte {at} of the spool is missing: {why}"),
                "",
            ));
        }
        let is_imported = end == End::Recorded;
        notices.extend(notable_losses(&recording.losses, &info, is_imported));
        Self {
            recording,
            machine,
            kernel_gone: None,
            kallsyms: None,
            info,
            notices,
            end,
            unwritten: Vec::new(),
            events: EventStreams::default(),
        }
    }
}

/// From the spool of a capture that has ended to the capture.
pub(super) fn read_back(
    mut spool: &File,
    spooled: SpoolEnd,
    machine: Machine,
    info: CaptureInfo,
    mut end: End,
) -> Result<Capture, CaptureError> {
    let SpoolEnd {
        written,
        kept,
        error,
    } = spooled;
    let mut notices = Vec::new();
    if let Some(error) = error {
        // A piece of a block may be there, and its room is needed.
        let _ = spool.set_len(written);
        notices.push(Notice::new(
            format!("the capture ended early: its spool could not grow ({error})"),
            MORE_ROOM,
        ));
        end = End::Spool(error.to_string());
    }
    spool
        .rewind()
        .map_err(|error| SpoolError::Block(error.into()))?;
    let recording = RawTrace::read(spool.take(written).chain(&kept[..]))?;
    let mut capture = Capture::new(recording, machine, info, end);
    capture.notices.splice(..0, notices);
    capture.unwritten = kept;
    Ok(capture)
}
