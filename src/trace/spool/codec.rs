//! Encoding of rows, relative to the rows before them.

use std::ops::Range;

use super::row::{
    EventCodeRow, FileIdentity, FileRow, JitProcessRow, KsymbolRow, MethodRow, RowError, SpoolRow,
};
use super::sample;
use super::wire::{Input, put, put_difference, put_string};
use crate::trace::{
    Blocked, CodeAddress, CpuLosses, CpuPauses, DoubtfulCode, Doubts, FrameId, Losses,
    MAX_WEIGHT_NS, ModuleId, Nanos, Pauses, Pid, ProcessId, Sample, StackId, ThreadId, Tid,
    Truncation, Waker,
};

/// Maximum length of a path or name (the kernel's limit for paths is 4096).
const MAX_STRING_BYTES: usize = 8 << 10;
/// Maximum length of a build id; real build ids have at most 20 bytes.
const MAX_BUILD_ID_BYTES: usize = 64;
/// Maximum length of the header, without and with results.
pub(super) const MAX_HEADER_BYTES: usize = 128 << 10;
/// Maximum number of CPUs with separate losses.
const MAX_CPUS: usize = 2048;
/// Maximum number of frames and of stack nodes. The last id is that of the empty stack.
const MAX_IDS: u32 = u32::MAX - 1;
/// Maximum length of a row.
pub(super) const MAX_ROW_BYTES: usize = MAX_HEADER_BYTES + 1024;

/// State that rows are encoded against. Writer and reader go through the same states.
#[derive(Clone, Default)]
pub(super) struct Codec {
    files: u32,
    processes: u32,
    threads: u32,
    outsiders: u32,
    /// Ids that later rows may refer to.
    frames: Range<u32>,
    nodes: Range<u32>,
    last_address: u64,
    last: Sample,
    last_blocked: Sample,
    last_faults: Sample,
    last_wakeups: Sample,
}

impl Codec {
    /// Writes a row. Rows written before must define its ids.
    pub(super) fn encode(&mut self, row: &SpoolRow<'_>, out: &mut Vec<u8>) {
        match row {
            SpoolRow::Header(json) => {
                out.push(1);
                put_string(out, json, MAX_HEADER_BYTES);
            }
            SpoolRow::File(file) => {
                out.push(2);
                put_string(out, &file.path, MAX_STRING_BYTES);
                put(out, u64::from(file.pid.0 as u32));
                put(out, file.identity.is_some().into());
                let identity = file.identity.map_or([0; 4], |file| {
                    [file.device, file.inode, file.size, file.modified]
                });
                identity.into_iter().for_each(|value| put(out, value));
                put_string(out, &file.build_id, MAX_BUILD_ID_BYTES);
            }
            SpoolRow::Process {
                pid,
                name,
                command_line,
            } => {
                out.push(3);
                put(out, u64::from(pid.0 as u32));
                put_string(out, name, MAX_STRING_BYTES);
                put_string(out, command_line, MAX_STRING_BYTES);
            }
            SpoolRow::Thread { process, tid, name } => {
                out.push(4);
                put(out, process.0.into());
                put(out, u64::from(tid.0 as u32));
                put_string(out, name, MAX_STRING_BYTES);
            }
            SpoolRow::ProcessName(process, name) => {
                out.push(5);
                put(out, process.0.into());
                put_string(out, name, MAX_STRING_BYTES);
            }
            SpoolRow::ThreadName(thread, name) => {
                out.push(6);
                put(out, thread.0.into());
                put_string(out, name, MAX_STRING_BYTES);
            }
            SpoolRow::ProcessEnd(process, time) => {
                out.push(18);
                put(out, process.0.into());
                put(out, time.0);
            }
            SpoolRow::JitProcess(process, jit) => {
                out.push(7);
                put(out, process.0.into());
                put(out, u64::from(jit.namespace_pid.0 as u32));
                put(out, jit.uid.into());
                put(out, jit.start_ticks);
                put(out, jit.root_device);
                put(out, jit.root_inode);
                put_string(out, &jit.dump, MAX_STRING_BYTES);
            }
            SpoolRow::Frame(code) => self.encode_frame(*code, out),
            SpoolRow::Node(parent, frame) => {
                out.push(9);
                let parent = match *parent {
                    StackId::EMPTY => 0,
                    parent => self.nodes.end - parent.0,
                };
                put(out, parent.into());
                put(out, (self.frames.end - frame.0).into());
            }
            SpoolRow::Losses(losses) => {
                out.push(10);
                encode_losses(losses, out);
            }
            SpoolRow::Doubts(doubts) => {
                out.push(17);
                put(out, doubts.likely);
                put(out, doubts.by_code.len() as u64);
                for code in &doubts.by_code {
                    put_string(out, code.name.as_bytes(), MAX_STRING_BYTES);
                    put(out, code.likely);
                    put(out, code.guessed);
                }
            }
            SpoolRow::Clock(time) => {
                out.push(11);
                put(out, time.0);
            }
            SpoolRow::End(time) => {
                out.push(12);
                put(out, time.0);
            }
            SpoolRow::Method(method) => {
                out.push(13);
                put(out, method.process.0.into());
                put(out, method.start);
                put(out, method.size);
                put_string(out, &method.name, MAX_STRING_BYTES);
                put_string(out, &method.module, MAX_STRING_BYTES);
                put_string(out, &method.tier, MAX_STRING_BYTES);
            }
            SpoolRow::Ksymbol(code) => {
                out.push(14);
                put(out, code.start);
                put(out, code.size);
                put(out, code.unregistered.into());
                put_string(out, &code.name, MAX_STRING_BYTES);
                put_string(out, &code.module, MAX_STRING_BYTES);
            }
            SpoolRow::EventCode(code) => {
                out.push(15);
                put(out, code.process.0.into());
                put(out, code.address);
                put(out, code.since.0);
                put(out, (self.frames.end - code.frame.0).into());
            }
            SpoolRow::Forget => out.push(16),
            SpoolRow::Results(json) => {
                out.push(20);
                put_string(out, json, MAX_HEADER_BYTES);
            }
            SpoolRow::Outsider { pid, name } => {
                out.push(19);
                put(out, u64::from(pid.0 as u32));
                put_string(out, name, MAX_STRING_BYTES);
            }
            SpoolRow::Sample(sample) => sample::encode(sample::SAMPLE, &self.last, sample, out),
            SpoolRow::Blocked(wait) => {
                sample::encode(sample::BLOCKED, &self.last_blocked, wait, out);
            }
            SpoolRow::Faults(faults) => {
                sample::encode(sample::FAULTS, &self.last_faults, faults, out);
            }
            SpoolRow::Wakeups(wakeups) => {
                sample::encode(sample::WAKEUPS, &self.last_wakeups, wakeups, out);
            }
        }
        self.follow(row);
    }

    fn encode_frame(&self, code: CodeAddress, out: &mut Vec<u8>) {
        let (kind, id, address) = match code {
            CodeAddress::Kernel(address) => (0, None, address),
            CodeAddress::Elf(ModuleId(id), address) => (1, Some(id), address),
            CodeAddress::File(ModuleId(id), address) => (2, Some(id), address),
            CodeAddress::Jit(ProcessId(id), address) => (3, Some(id), address),
            CodeAddress::Unmapped(ProcessId(id), address) => (4, Some(id), address),
            CodeAddress::Truncated(why) => {
                let index = Truncation::ALL.iter().position(|&reason| reason == why);
                out.extend([8, 5, index.unwrap_or_default() as u8]);
                return;
            }
            CodeAddress::Blocked(place) => {
                let (kind, number, on) = place.encoded();
                out.extend([8, 6, kind]);
                put(out, number.into());
                out.push(on);
                return;
            }
            CodeAddress::Waker(waker) => {
                let (kind, id) = match waker {
                    Waker::Thread(ThreadId(id)) => (0, Some(id)),
                    Waker::OfOther(ThreadId(id)) => (1, Some(id)),
                    Waker::Outsider(id) => (2, Some(id)),
                    Waker::Interrupt => (3, None),
                };
                out.extend([8, 7, kind]);
                if let Some(id) = id {
                    put(out, id.into());
                }
                return;
            }
        };
        out.extend([8, kind]);
        if let Some(id) = id {
            put(out, id.into());
        }
        put_difference(out, self.last_address, address);
    }

    /// Reads a row.
    pub(super) fn decode<'a>(&mut self, input: &mut Input<'a>) -> Result<SpoolRow<'a>, RowError> {
        let row = match input.byte()? {
            1 => SpoolRow::Header(input.string(MAX_HEADER_BYTES)?.into()),
            2 => {
                let path = input.string(MAX_STRING_BYTES)?.into();
                let pid = Pid(input.id()?);
                let is_known = input.integer()? != 0;
                let identity = FileIdentity {
                    device: input.integer()?,
                    inode: input.integer()?,
                    size: input.integer()?,
                    modified: input.integer()?,
                };
                SpoolRow::File(FileRow {
                    path,
                    pid,
                    identity: is_known.then_some(identity),
                    build_id: input.string(MAX_BUILD_ID_BYTES)?.into(),
                })
            }
            3 => SpoolRow::Process {
                pid: Pid(input.id()?),
                name: input.string(MAX_STRING_BYTES)?,
                command_line: input.string(MAX_STRING_BYTES)?,
            },
            4 => SpoolRow::Thread {
                process: self.process(input)?,
                tid: Tid(input.id()?),
                name: input.string(MAX_STRING_BYTES)?,
            },
            5 => SpoolRow::ProcessName(self.process(input)?, input.string(MAX_STRING_BYTES)?),
            6 => SpoolRow::ThreadName(self.thread(input)?, input.string(MAX_STRING_BYTES)?),
            7 => SpoolRow::JitProcess(
                self.process(input)?,
                JitProcessRow {
                    namespace_pid: Pid(input.id()?),
                    uid: input.small()?,
                    start_ticks: input.integer()?,
                    root_device: input.integer()?,
                    root_inode: input.integer()?,
                    dump: input.string(MAX_STRING_BYTES)?.into(),
                },
            ),
            8 | 9 if self.frames.end.max(self.nodes.end) >= MAX_IDS => {
                return Err(RowError::Number);
            }
            8 => SpoolRow::Frame(self.decode_frame(input)?),
            9 => {
                let parent = match input.small()? {
                    0 => StackId::EMPTY,
                    back => StackId(before(&self.nodes, back, "stack node")?),
                };
                let back = input.small()?;
                SpoolRow::Node(parent, FrameId(before(&self.frames, back, "frame")?))
            }
            10 => SpoolRow::Losses(decode_losses(input)?),
            17 => SpoolRow::Doubts(decode_doubts(input)?),
            11 => SpoolRow::Clock(Nanos(input.integer()?)),
            12 => SpoolRow::End(Nanos(input.integer()?)),
            13 => SpoolRow::Method(MethodRow {
                process: self.process(input)?,
                start: input.integer()?,
                size: input.integer()?,
                name: input.string(MAX_STRING_BYTES)?.into(),
                module: input.string(MAX_STRING_BYTES)?.into(),
                tier: input.string(MAX_STRING_BYTES)?.into(),
            }),
            14 => SpoolRow::Ksymbol(KsymbolRow {
                start: input.integer()?,
                size: input.integer()?,
                unregistered: input.integer()? != 0,
                name: input.string(MAX_STRING_BYTES)?.into(),
                module: input.string(MAX_STRING_BYTES)?.into(),
            }),
            15 => {
                let (process, address) = (self.process(input)?, input.integer()?);
                let (since, back) = (Nanos(input.integer()?), input.small()?);
                SpoolRow::EventCode(EventCodeRow {
                    process,
                    address,
                    since,
                    frame: FrameId(before(&self.frames, back, "frame")?),
                })
            }
            16 => SpoolRow::Forget,
            20 => SpoolRow::Results(input.string(MAX_HEADER_BYTES)?.into()),
            19 => SpoolRow::Outsider {
                pid: Pid(input.id()?),
                name: input.string(MAX_STRING_BYTES)?,
            },
            18 => SpoolRow::ProcessEnd(self.process(input)?, Nanos(input.integer()?)),
            kind if sample::is_kind(sample::SAMPLE, kind) => {
                let sample = self.decode_sample(&self.last, kind, input)?;
                if sample.weight.0 > MAX_WEIGHT_NS {
                    return Err(RowError::Weight);
                }
                SpoolRow::Sample(sample)
            }
            kind if sample::is_kind(sample::BLOCKED, kind) => {
                let wait = self.decode_sample(&self.last_blocked, kind, input)?;
                if wait.weight > wait.time {
                    return Err(RowError::Weight);
                }
                SpoolRow::Blocked(wait)
            }
            kind if sample::is_kind(sample::FAULTS, kind) => {
                SpoolRow::Faults(self.decode_sample(&self.last_faults, kind, input)?)
            }
            kind if sample::is_kind(sample::WAKEUPS, kind) => {
                SpoolRow::Wakeups(self.decode_sample(&self.last_wakeups, kind, input)?)
            }
            kind => return Err(RowError::Kind(kind)),
        };
        self.follow(&row);
        Ok(row)
    }

    fn decode_frame(&self, input: &mut Input<'_>) -> Result<CodeAddress, RowError> {
        let file =
            |input: &mut Input<'_>| defined(input.small()?, &(0..self.files), "file").map(ModuleId);
        let address = |input: &mut Input<'_>| input.difference(self.last_address);
        Ok(match input.byte()? {
            0 => CodeAddress::Kernel(address(input)?),
            1 => CodeAddress::Elf(file(input)?, address(input)?),
            2 => CodeAddress::File(file(input)?, address(input)?),
            3 => CodeAddress::Jit(self.process(input)?, address(input)?),
            4 => CodeAddress::Unmapped(self.process(input)?, address(input)?),
            5 => {
                let why = input.byte()?;
                let why = Truncation::ALL.get(usize::from(why));
                CodeAddress::Truncated(*why.ok_or(RowError::Number)?)
            }
            6 => {
                let kind = input.byte()?;
                let number = u16::try_from(input.integer()?).map_err(|_| RowError::Number)?;
                let place = Blocked::decoded(kind, number, input.byte()?);
                CodeAddress::Blocked(place.ok_or(RowError::Number)?)
            }
            7 => {
                let kind = input.byte()?;
                let thread = |input: &mut Input<'_>| {
                    defined(input.small()?, &(0..self.threads), "thread").map(ThreadId)
                };
                CodeAddress::Waker(match kind {
                    0 => Waker::Thread(thread(input)?),
                    1 => Waker::OfOther(thread(input)?),
                    2 => {
                        let row = defined(input.small()?, &(0..self.outsiders), "outsider");
                        Waker::Outsider(row?)
                    }
                    3 => Waker::Interrupt,
                    kind => return Err(RowError::Kind(kind)),
                })
            }
            kind => return Err(RowError::Kind(kind)),
        })
    }

    fn decode_sample(
        &self,
        last: &Sample,
        flags: u8,
        input: &mut Input<'_>,
    ) -> Result<Sample, RowError> {
        let sample = sample::decode(last, flags, input)?;
        // Checks fields that did not differ as well: no sample precedes the first one.
        defined(sample.thread.0, &(0..self.threads), "thread")?;
        if sample.stack != StackId::EMPTY {
            defined(sample.stack.0, &self.nodes, "stack node")?;
        }
        Ok(sample)
    }

    fn process(&self, input: &mut Input<'_>) -> Result<ProcessId, RowError> {
        defined(input.small()?, &(0..self.processes), "process").map(ProcessId)
    }

    fn thread(&self, input: &mut Input<'_>) -> Result<ThreadId, RowError> {
        defined(input.small()?, &(0..self.threads), "thread").map(ThreadId)
    }

    fn follow(&mut self, row: &SpoolRow<'_>) {
        match row {
            SpoolRow::File(_) => self.files += 1,
            SpoolRow::Process { .. } => self.processes += 1,
            SpoolRow::Thread { .. } => self.threads += 1,
            SpoolRow::Frame(code) => {
                self.frames.end += 1;
                match *code {
                    CodeAddress::Kernel(address)
                    | CodeAddress::Elf(_, address)
                    | CodeAddress::File(_, address)
                    | CodeAddress::Jit(_, address)
                    | CodeAddress::Unmapped(_, address) => self.last_address = address,
                    CodeAddress::Truncated(_) | CodeAddress::Blocked(_) | CodeAddress::Waker(_) => {
                    }
                }
            }
            SpoolRow::Node(..) => self.nodes.end += 1,
            SpoolRow::Outsider { .. } => self.outsiders += 1,
            SpoolRow::Sample(sample) => self.last = *sample,
            SpoolRow::Blocked(wait) => self.last_blocked = *wait,
            SpoolRow::Faults(faults) => self.last_faults = *faults,
            SpoolRow::Wakeups(wakeups) => self.last_wakeups = *wakeups,
            SpoolRow::Forget => {
                self.frames.start = self.frames.end;
                self.nodes.start = self.nodes.end;
            }
            _ => {}
        }
    }
}

fn decode_doubts(input: &mut Input<'_>) -> Result<Doubts, RowError> {
    let mut doubts = Doubts {
        likely: input.integer()?,
        ..Doubts::default()
    };
    for _ in 0..input.integer()?.min(Doubts::MAX_CODE as u64) {
        let name = input.string(MAX_STRING_BYTES)?;
        doubts.by_code.push(DoubtfulCode {
            name: String::from_utf8_lossy(name).into_owned(),
            likely: input.integer()?,
            guessed: input.integer()?,
        });
    }
    Ok(doubts)
}

fn encode_losses(losses: &Losses, out: &mut Vec<u8>) {
    // Without `..`, the compiler rejects a field that is not written.
    let Losses {
        samples_seen,
        unattributed,
        doubts,
        lost_records,
        by_cpu,
        lost_samples,
        pauses,
        malformed_records,
        late_records,
    } = losses;
    put(out, *samples_seen);
    put(out, *unattributed);
    put(out, doubts.guessed);
    put(out, *lost_records);
    put(out, *lost_samples);
    put(out, *malformed_records);
    put(out, *late_records);
    let by_cpu = &by_cpu[..by_cpu.len().min(MAX_CPUS)];
    put(out, by_cpu.len() as u64);
    for on in by_cpu {
        put(out, on.cpu.into());
        put(out, on.records);
        put(out, on.samples);
        put(out, on.first_ns);
        put(out, on.last_ns);
    }
    let pauses = &pauses.0[..pauses.0.len().min(MAX_CPUS)];
    put(out, pauses.len() as u64);
    for on in pauses {
        put(out, on.cpu.into());
        put(out, on.times);
        put(out, on.paused_ns);
        put(out, on.first_ns);
        put(out, on.last_ns);
    }
}

fn decode_losses(input: &mut Input<'_>) -> Result<Losses, RowError> {
    let mut losses = Losses {
        samples_seen: input.integer()?,
        unattributed: input.integer()?,
        doubts: Doubts {
            guessed: input.integer()?,
            ..Doubts::default()
        },
        lost_records: input.integer()?,
        lost_samples: input.integer()?,
        malformed_records: input.integer()?,
        late_records: input.integer()?,
        by_cpu: Vec::new(),
        pauses: Pauses::default(),
    };
    for _ in 0..input.integer()?.min(MAX_CPUS as u64) {
        losses.by_cpu.push(CpuLosses {
            cpu: input.small()?,
            records: input.integer()?,
            samples: input.integer()?,
            first_ns: input.integer()?,
            last_ns: input.integer()?,
        });
    }
    for _ in 0..input.integer()?.min(MAX_CPUS as u64) {
        losses.pauses.0.push(CpuPauses {
            cpu: input.small()?,
            times: input.integer()?,
            paused_ns: input.integer()?,
            first_ns: input.integer()?,
            last_ns: input.integer()?,
            ..CpuPauses::default()
        });
    }
    Ok(losses)
}

fn defined(id: u32, ids: &Range<u32>, what: &'static str) -> Result<u32, RowError> {
    let undefined = RowError::Undefined {
        what,
        id: id.into(),
    };
    ids.contains(&id).then_some(id).ok_or(undefined)
}

/// Returns the id that is `back` before the next one.
fn before(ids: &Range<u32>, back: u32, what: &'static str) -> Result<u32, RowError> {
    defined(ids.end.checked_sub(back).unwrap_or(u32::MAX), ids, what)
}
