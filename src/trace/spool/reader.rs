//! Reading: from blocks to a recording, as far as they are whole and true.

use std::io::Read;

use thiserror::Error;

use super::block::{BlockError, Blocks};
use super::codec::Codec;
use super::header::Header;
use super::id_remap::IdRemapper;
use super::row::{FileRow, JitProcessRow, RowError, SpoolRow};
use super::wire::Input;
use crate::trace::{
    CodeAddress, Losses, Methods, Nanos, Process, Samples, StackId, StackQuality, StackTable,
    Thread, Truncation,
};

/// Why nothing can be had from a spool.
#[derive(Debug, Error)]
pub enum SpoolError {
    /// The collector died before its first write.
    #[error("it is empty")]
    Empty,
    /// The first block is not whole.
    #[error("its beginning is damaged: {0}")]
    Block(#[from] BlockError),
    /// The first row is not the header.
    #[error("its header is damaged: {0}")]
    Row(#[from] RowError),
}

/// How a spool ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the end of the capture.
    Complete,
    /// At a whole block, but the capture had not ended.
    Open,
    /// With bytes that are no whole block.
    Damaged {
        /// Where they begin.
        at: u64,
        /// What is wrong with them.
        why: String,
    },
}

/// A recording as a spool holds it; names are still to be found.
pub struct RawTrace {
    /// How the capture came to be.
    pub header: Header,
    /// [`crate::trace::FrameId`] is the position.
    pub frames: Vec<CodeAddress>,
    /// Stacks of `frames`.
    pub stacks: StackTable,
    /// Samples in order of time.
    pub samples: Samples,
    /// How complete the stacks are.
    pub quality: StackQuality,
    /// What is missing.
    pub losses: Losses,
    /// [`crate::trace::ProcessId`] is the position.
    pub processes: Vec<Process>,
    /// [`crate::trace::ThreadId`] is the position.
    pub threads: Vec<Thread>,
    /// [`crate::trace::ModuleId`] is the position.
    pub files: Vec<FileRow<'static>>,
    /// By process, for those that run code made at run time.
    pub jit_hosts: Vec<Option<JitProcessRow>>,
    /// What code made at run time is.
    pub methods: Methods,
    /// Up to when everything is in it.
    pub end: Nanos,
    /// How the spool ends.
    pub ending: Ending,
    /// Bytes of its whole blocks.
    pub bytes: u64,
}

impl RawTrace {
    /// Reads a spool from its beginning. What is damaged ends the reading; everything before is used.
    ///
    /// # Errors
    /// If not even the beginning can be read.
    pub fn read(spool: impl Read) -> Result<Self, SpoolError> {
        let mut blocks = Blocks::new(spool);
        let mut codec = Codec::default();
        let (header, input) = begin(&mut blocks, &mut codec)?;
        let mut reader = Reader {
            codec,
            told_again: IdRemapper::default(),
            cuts: Vec::new(),
            recording: Self::new(header),
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
        let mut recording = reader.recording;
        recording.stacks.seal();
        recording.methods.resolve_pending(&recording.frames);
        recording.bytes = blocks.bytes;
        recording.ending = match ending {
            Ok(ending) => ending.unwrap_or(Ending::Open),
            Err(why) => Ending::Damaged { at, why },
        };
        Ok(recording)
    }

    fn new(header: Header) -> Self {
        Self {
            end: Nanos(header.info.start_ns),
            header,
            frames: Vec::new(),
            stacks: StackTable::default(),
            samples: Samples::default(),
            quality: StackQuality::default(),
            losses: Losses::default(),
            processes: Vec::new(),
            threads: Vec::new(),
            files: Vec::new(),
            jit_hosts: Vec::new(),
            methods: Methods::default(),
            ending: Ending::Open,
            bytes: 0,
        }
    }
}

impl Header {
    /// Reads the header of a spool, and nothing else.
    ///
    /// # Errors
    /// If not even the beginning can be read.
    pub fn read(spool: impl Read) -> Result<Self, SpoolError> {
        let mut blocks = Blocks::new(spool);
        begin(&mut blocks, &mut Codec::default()).map(|(header, _)| header)
    }
}

/// The first row, and what follows it in the first block.
fn begin<'a>(
    blocks: &'a mut Blocks<impl Read>,
    codec: &mut Codec,
) -> Result<(Header, Input<'a>), SpoolError> {
    let mut input = Input(blocks.next()?.ok_or(SpoolError::Empty)?);
    let SpoolRow::Header(json) = codec.decode(&mut input)? else {
        return Err(RowError::Header.into());
    };
    let header = serde_json::from_slice(&json).map_err(|_| RowError::Header)?;
    Ok((header, input))
}

struct Reader {
    codec: Codec,
    told_again: IdRemapper,
    recording: RawTrace,
    /// Of each stack node, why its stack is cut.
    cuts: Vec<Option<Truncation>>,
}

impl Reader {
    /// Takes in the rows of a block: `None` if more may come.
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

    /// Tells whether it was the last row.
    fn apply(&mut self, row: SpoolRow<'_>) -> Result<bool, RowError> {
        let RawTrace {
            frames,
            stacks,
            samples,
            processes,
            threads,
            files,
            jit_hosts,
            methods,
            end,
            ..
        } = &mut self.recording;
        match row {
            SpoolRow::Header(_) => return Err(RowError::Header),
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
                });
                jit_hosts.push(None);
            }
            SpoolRow::Thread { process, tid, name } => threads.push(Thread {
                process,
                tid,
                name: lossy(name),
            }),
            SpoolRow::ProcessName(process, name) => processes[process.index()].name = lossy(name),
            SpoolRow::ThreadName(thread, name) => threads[thread.index()].name = lossy(name),
            SpoolRow::JitHost(process, host) => jit_hosts[process.index()] = Some(host),
            SpoolRow::Method(method) => {
                self.told_again.methods = self.told_again.methods.wrapping_add(1);
                methods.insert(&method);
            }
            SpoolRow::Ksymbol(code) => {
                self.told_again.kernel_code = self.told_again.kernel_code.wrapping_add(1);
                methods.follow_kernel(&code);
            }
            SpoolRow::Frame(code) => {
                if self.told_again.frame(code, frames) {
                    methods.push_frame(code);
                }
            }
            SpoolRow::Node(parent, frame) => {
                if let Some((parent, frame)) = self.told_again.stack(parent, frame, stacks) {
                    self.cuts.push(match (parent, frames[frame.index()]) {
                        (StackId::EMPTY, CodeAddress::Cut(why)) => Some(why),
                        (StackId::EMPTY, _) => None,
                        (parent, _) => self.cuts[parent.index()],
                    });
                }
            }
            SpoolRow::Losses(losses) => {
                self.recording.quality.fp_fallback = losses.fp_fallback_stacks;
                self.recording.losses = losses;
            }
            SpoolRow::Clock(time) => *end = time,
            SpoolRow::End(time) => {
                *end = time;
                return Ok(true);
            }
            SpoolRow::Sample(mut sample) => {
                *end = sample.time.max(*end);
                sample.stack = self.told_again.stack_of(sample.stack);
                samples.push(sample);
                let callers = self.recording.header.info.callers;
                let quality = &mut self.recording.quality;
                match sample.stack {
                    StackId::EMPTY => quality.empty += 1,
                    stack => quality.count(self.cuts[stack.index()], callers),
                }
            }
        }
        Ok(false)
    }
}

fn lossy(text: &[u8]) -> Box<str> {
    String::from_utf8_lossy(text).into()
}
