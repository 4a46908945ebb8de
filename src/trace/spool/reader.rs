//! Reading of a spool, up to the first block that is truncated or corrupt.

use std::io::Read;

use thiserror::Error;

use super::block::{BlockError, Blocks};
use super::codec::Codec;
use super::header::Header;
use super::id_remap::IdRemapper;
use super::row::{EventCodeRow, FileRow, JitProcessRow, RowError, SpoolRow};
use super::wire::Input;
use crate::trace::{
    CodeAddress, DoubtfulCode, EventCode, Losses, Methods, Nanos, Outsider, Process, Samples,
    StackId, StackQuality, StackTable, Thread, Truncation,
};

/// Reason why a spool yields no trace.
#[derive(Debug, Error)]
pub enum SpoolError {
    /// perfcollect died before its first write.
    #[error("the file is empty")]
    Empty,
    /// The first block is truncated or corrupt.
    #[error("the first block is not readable: {0}")]
    Block(#[from] BlockError),
    /// The first row is not a header.
    #[error("the header is not readable: {0}")]
    Row(#[from] RowError),
}

/// How a spool ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the proper end of the capture.
    Complete,
    /// After a whole block, but before the end of the capture.
    Open,
    /// With bytes that are no whole block.
    Damaged {
        /// Offset of these bytes.
        at: u64,
        /// Cause.
        why: String,
    },
}

/// A capture as read from its spool, not yet symbolized.
pub struct RawTrace {
    /// Header of the spool, with the results of the capture if it ended properly.
    pub header: Header,
    /// Code addresses; [`crate::trace::FrameId`] is the index. A method of several processes has the
    /// address of the first one.
    pub frames: Vec<CodeAddress>,
    /// Stacks of `frames`.
    pub stacks: StackTable,
    /// Samples in order of time.
    pub samples: Samples,
    /// Times for which threads waited, in order of their ends.
    pub blocked: Samples,
    /// Samples of page faults in order of time, with the number of faults as their weight.
    pub faults: Samples,
    /// Samples of wake-ups in order of time, with the number of wake-ups as their weight.
    pub wakeups: Samples,
    /// The processes that are not of the target, and woke its threads.
    pub outsiders: Vec<Outsider>,
    /// Completeness of the stacks.
    pub quality: StackQuality,
    /// Code with doubtful callers.
    pub doubtful: Vec<DoubtfulCode>,
    /// Lost records.
    pub losses: Losses,
    /// Processes; [`crate::trace::ProcessId`] is the index.
    pub processes: Vec<Process>,
    /// Threads; [`crate::trace::ThreadId`] is the index.
    pub threads: Vec<Thread>,
    /// Files with sampled code; [`crate::trace::ModuleId`] is the index.
    pub files: Vec<FileRow<'static>>,
    /// Processes with JIT code, by process.
    pub jit_processes: Vec<Option<JitProcessRow>>,
    /// Names of dynamically generated code.
    pub methods: Methods,
    /// Code in the stacks of events.
    pub event_code: EventCode,
    /// Time up to which the data is complete.
    pub end: Nanos,
    /// How the spool ends.
    pub ending: Ending,
    /// Length of the whole blocks.
    pub bytes: u64,
}

impl RawTrace {
    /// Reads a spool. Corrupt data ends the reading; all data before it is used.
    ///
    /// # Errors
    /// Returns an error if the header cannot be read.
    pub fn read(spool: impl Read) -> Result<Self, SpoolError> {
        Self::read_into(Samples::default(), spool)
    }

    /// Does the same with an empty list of samples to fill. If that keeps them in a file, so do the times for
    /// which threads waited.
    ///
    /// # Errors
    /// Returns an error if the header cannot be read.
    pub fn read_into(samples: Samples, spool: impl Read) -> Result<Self, SpoolError> {
        let mut blocks = Blocks::new(spool);
        let mut codec = Codec::default();
        let (header, input) = read_header(&mut blocks, &mut codec)?;
        let mut reader = Reader {
            codec,
            id_remap: IdRemapper::default(),
            truncations: Vec::new(),
            trace: Self::new(header, samples),
        };
        let mut at = 0;
        let mut ending = reader.rows(input);
        while let Ok(None) = ending {
            at = blocks.bytes;
            ending = match blocks.next() {
                Ok(Some(rows)) => reader.rows(Input(rows)),
                Ok(None) => Ok(Some(Ending::Open)),
                Err(error) => Err(error.to_string()),
            };
        }
        let mut trace = reader.trace;
        trace.stacks.seal();
        trace.methods.resolve_pending(&trace.frames);
        trace.bytes = blocks.bytes;
        trace.ending = match ending {
            Ok(ending) => ending.unwrap_or(Ending::Open),
            Err(why) => Ending::Damaged { at, why },
        };
        Ok(trace)
    }

    fn new(header: Header, samples: Samples) -> Self {
        Self {
            end: Nanos(header.info.start_ns),
            header,
            frames: Vec::new(),
            stacks: StackTable::default(),
            blocked: samples.in_same_file(1),
            faults: samples.in_same_file(1),
            wakeups: samples.in_same_file(1),
            outsiders: Vec::new(),
            samples,
            quality: StackQuality::default(),
            doubtful: Vec::new(),
            losses: Losses::default(),
            processes: Vec::new(),
            threads: Vec::new(),
            files: Vec::new(),
            jit_processes: Vec::new(),
            methods: Methods::default(),
            event_code: EventCode::default(),
            ending: Ending::Open,
            bytes: 0,
        }
    }
}

impl Header {
    /// Reads only the header of a spool.
    ///
    /// # Errors
    /// Returns an error if the header cannot be read.
    pub fn read(spool: impl Read) -> Result<Self, SpoolError> {
        let mut blocks = Blocks::new(spool);
        read_header(&mut blocks, &mut Codec::default()).map(|(header, _)| header)
    }
}

/// Reads the first row. Returns it with the rest of the first block.
fn read_header<'a>(
    blocks: &'a mut Blocks<impl Read>,
    codec: &mut Codec,
) -> Result<(Header, Input<'a>), SpoolError> {
    let mut input = Input(blocks.next()?.ok_or(SpoolError::Empty)?);
    let SpoolRow::Header(json) = codec.decode(&mut input)? else {
        return Err(RowError::Header.into());
    };
    Ok((header(&json)?, input))
}

fn header(json: &[u8]) -> Result<Header, RowError> {
    serde_json::from_slice(json).map_err(|_| RowError::Header)
}

struct Reader {
    codec: Codec,
    id_remap: IdRemapper,
    trace: RawTrace,
    /// Reason why the stack of each node is truncated.
    truncations: Vec<Option<Truncation>>,
}

impl Reader {
    /// Adds the rows of a block. Returns `None` if more blocks may follow.
    fn rows(&mut self, mut input: Input<'_>) -> Result<Option<Ending>, String> {
        while !input.0.is_empty() {
            let row = self.codec.decode(&mut input);
            match self.apply(row.map_err(|error| error.to_string())?) {
                Ok(false) => {}
                Ok(true) => return Ok(Some(Ending::Complete)),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(None)
    }

    /// Adds a row. Returns whether it was the last row.
    fn apply(&mut self, row: SpoolRow<'_>) -> Result<bool, RowError> {
        let RawTrace {
            frames,
            stacks,
            samples,
            blocked,
            faults,
            wakeups,
            outsiders,
            processes,
            threads,
            files,
            jit_processes,
            methods,
            event_code,
            end,
            ..
        } = &mut self.trace;
        match row {
            SpoolRow::Header(_) => return Err(RowError::Header),
            SpoolRow::Results(json) => self.trace.header = header(&json)?,
            SpoolRow::File(file) => files.push(FileRow {
                path: file.path.into_owned().into(),
                build_id: file.build_id.into_owned().into(),
                ..file
            }),
            SpoolRow::Process {
                pid,
                name,
                command_line,
            } => {
                processes.push(Process {
                    pid,
                    name: lossy(name),
                    command_line: lossy(command_line),
                    ended: None,
                });
                jit_processes.push(None);
            }
            SpoolRow::Thread { process, tid, name } => threads.push(Thread {
                process,
                tid,
                name: lossy(name),
            }),
            SpoolRow::ProcessName(process, name) => processes[process.index()].name = lossy(name),
            SpoolRow::ThreadName(thread, name) => threads[thread.index()].name = lossy(name),
            SpoolRow::ProcessEnd(process, time) => processes[process.index()].ended = Some(time),
            SpoolRow::JitProcess(process, row) => jit_processes[process.index()] = Some(row),
            SpoolRow::Method(method) => methods.insert(&method),
            SpoolRow::Ksymbol(code) => methods.follow_kernel(&code),
            SpoolRow::Frame(code) => self.id_remap.frame(code, frames, methods),
            SpoolRow::Forget => self.id_remap.forget(),
            SpoolRow::Outsider { pid, name } => outsiders.push(Outsider {
                pid,
                name: lossy(name),
            }),
            SpoolRow::Node(parent, frame) => {
                if let Some((parent, frame)) = self.id_remap.stack(parent, frame, stacks) {
                    self.truncations
                        .push(match (parent, frames[frame.index()]) {
                            (StackId::EMPTY, CodeAddress::Truncated(why)) => Some(why),
                            (StackId::EMPTY, _) => None,
                            (parent, _) => self.truncations[parent.index()],
                        });
                }
            }
            SpoolRow::EventCode(row) => {
                let frame = self.id_remap.frame_of(row.frame);
                event_code.insert(EventCodeRow { frame, ..row });
            }
            SpoolRow::Losses(losses) => {
                self.trace.quality.guessed = losses.doubts.guessed;
                self.trace.losses = losses;
            }
            SpoolRow::Doubts(doubts) => {
                self.trace.quality.likely = doubts.likely;
                self.trace.doubtful = doubts.by_code;
            }
            SpoolRow::Clock(time) => *end = time,
            SpoolRow::End(time) => {
                *end = time;
                return Ok(true);
            }
            SpoolRow::Blocked(mut wait) => {
                *end = wait.time.max(*end);
                wait.stack = self.id_remap.stack_of(wait.stack);
                blocked.push(wait);
            }
            SpoolRow::Faults(mut sample) => {
                *end = sample.time.max(*end);
                sample.stack = self.id_remap.stack_of(sample.stack);
                faults.push(sample);
            }
            SpoolRow::Wakeups(mut sample) => {
                *end = sample.time.max(*end);
                sample.stack = self.id_remap.stack_of(sample.stack);
                wakeups.push(sample);
            }
            SpoolRow::Sample(mut sample) => {
                *end = sample.time.max(*end);
                sample.stack = self.id_remap.stack_of(sample.stack);
                samples.push(sample);
                let callers = self.trace.header.info.callers;
                let quality = &mut self.trace.quality;
                match sample.stack {
                    StackId::EMPTY => quality.empty += 1,
                    stack => quality.count(self.truncations[stack.index()], callers),
                }
            }
        }
        Ok(false)
    }
}

fn lossy(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(bytes).into()
}
