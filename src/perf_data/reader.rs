//! Reader of a whole recording: its records in order of time, each with its event.

use std::io::{Cursor, Read, Seek};
use std::ops::ControlFlow;

use super::attribute::Attribute;
use super::deferred::{DeferredSample, DeferredSamples};
use super::error::{Corruption, PerfDataError};
use super::events::Events;
use super::file_header::{self, magic};
use super::numbers::{Numbers, Order};
use super::record_stream::{HEADER_BYTES, RecordHeader, RecordStream, is_kernel_type, user};
use super::recording_info::{MAX_EVENTS, RecordingInfo, printable};
use super::rounds::Rounds;
use super::thread_files::ThreadFiles;
use crate::perf::{DeferredChain, Layout, Record};
use crate::trace::Nanos;

/// Size of the header of a pipe: magic and header size.
const PIPE_HEADER_BYTES: u64 = 16;
/// Types of hardware traces (`enum auxtrace_type`).
const AUX_KINDS: [&str; 7] = [
    "unknown",
    "Intel PT",
    "Intel BTS",
    "ARM CoreSight ETM",
    "ARM SPE",
    "s390 CPU-MF",
    "HiSilicon PTT",
];
/// `PERF_EVENT_UPDATE__NAME`.
const UPDATE_NAME: u64 = 2;

/// A record with its time and event.
#[derive(Clone, Copy, Debug)]
pub struct TimedRecord<'a> {
    /// Time; 0 for a record of the state before the recording.
    pub time: Nanos,
    /// Index of the event in [`RecordingInfo::events`].
    pub event: usize,
    /// The record.
    pub record: Record<'a>,
}

/// Single-pass reader of a recording.
pub struct Reader<R> {
    /// Metadata. When reading from a pipe, it grows with the records.
    pub info: RecordingInfo,
    /// Reason why the recording is incomplete, and the number of valid bytes of records.
    pub corruption: Option<(u64, Corruption)>,
    /// Number of malformed records.
    pub malformed: u64,
    stream: RecordStream<R>,
    /// Per-thread files, which are read after `stream`.
    threads: ThreadFiles<R>,
    aux_kind: Option<&'static str>,
    /// The first record of the kernel, which `read_preamble` has already read.
    first: Option<Vec<u8>>,
    rounds: Rounds,
    /// Whether an event has deferred callchains.
    defers: bool,
    deferred: DeferredSamples,
    events: Events,
}

impl<R: Read> Reader<R> {
    /// Returns the reader with per-thread files, which contain only records.
    pub(super) fn with_threads(mut self, files: impl IntoIterator<Item = R>) -> Self {
        let order = self.info.order;
        let streams = files.into_iter();
        self.threads = ThreadFiles::new(streams.map(|file| RecordStream::new(file, order, None)));
        self
    }

    /// Opens the output of `perf record -o -`, and reads up to the first record of the kernel.
    ///
    /// # Errors
    /// Returns [`PerfDataError`] if the input is another format or its header is corrupt.
    pub fn pipe(mut input: R) -> Result<Self, PerfDataError> {
        let (order, size) = magic(&mut input)?;
        if size != PIPE_HEADER_BYTES {
            return Err(PerfDataError::FileInPipe);
        }
        Ok(Self::after_pipe_header(input, order))
    }

    fn after_pipe_header(input: R, order: Order) -> Self {
        let info = RecordingInfo {
            order,
            ..RecordingInfo::default()
        };
        Self::new(input, info, None, None)
    }

    fn new(
        input: R,
        info: RecordingInfo,
        record_bytes: Option<u64>,
        corruption: Option<(u64, Corruption)>,
    ) -> Self {
        let order = info.order;
        let mut reader = Self {
            info,
            corruption,
            malformed: 0,
            stream: RecordStream::new(input, order, record_bytes),
            threads: ThreadFiles::new([]),
            aux_kind: None,
            first: None,
            rounds: Rounds::default(),
            defers: false,
            deferred: DeferredSamples::default(),
            events: Events::default(),
        };
        reader.read_preamble();
        reader
    }

    /// Reads the records before the first record of the kernel.
    ///
    /// In a pipe they contain the metadata that a file has in its header.
    fn read_preamble(&mut self) {
        self.rebuild_layouts();
        let mut record = Vec::new();
        while self.next(&mut record) {
            match RecordHeader::parse(&record, self.info.order) {
                Some(header) if !is_kernel_type(header.kind) => {
                    self.process_user_type(header.kind, &record);
                }
                _ => {
                    self.first = Some(record);
                    break;
                }
            }
        }
        self.info.name_events();
    }

    /// Reads the next record of the file, and after the last one those of the per-thread files.
    fn next(&mut self, record: &mut Vec<u8>) -> bool {
        if let Some(first) = self.first.take() {
            *record = first;
            return true;
        }
        let Self {
            info,
            corruption,
            stream,
            threads,
            events,
            ..
        } = self;
        match stream.next(record) {
            Ok(true) => return true,
            Ok(false) => {
                // If only the header or the sections are corrupt, all records are valid.
                if let Some((at @ 0, _)) = corruption {
                    *at = stream.position;
                }
            }
            Err(found) => {
                // The first corruption is reported.
                corruption.get_or_insert((0, found)).0 = stream.position;
            }
        }
        let time = |record: &[u8]| events.time_of_raw(record, info);
        threads.next(record, time, |at, found| {
            corruption.get_or_insert((at, found));
        })
    }

    /// Describes the hardware trace of the recording, which is skipped, by size and type.
    #[must_use]
    pub fn hardware_trace(&self) -> Option<String> {
        let bytes = self.stream.aux_bytes + self.threads.aux_bytes();
        (bytes > 0).then(|| {
            let kind = self.aux_kind.unwrap_or("AUX");
            format!("{bytes} bytes of hardware trace (AUX data: {kind})")
        })
    }

    /// Returns the number of deferred samples whose user part was not recorded.
    #[must_use]
    pub fn without_user_callers(&self) -> u64 {
        self.deferred.missing
    }

    /// Returns the number of records that were written after their round.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.rounds.late
    }

    /// Passes all records to `each` in order of time, until `each` breaks.
    pub fn each(
        &mut self,
        mut each: impl FnMut(&RecordingInfo, TimedRecord<'_>) -> ControlFlow<()>,
    ) {
        let mut record = Vec::new();
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue() && self.next(&mut record) {
            flow = self.process(&mut record, &mut each);
        }
        self.push_all_incomplete();
        let _ = self.flush(flow, &mut each, |rounds, out| rounds.flush_all(out));
    }

    fn process(
        &mut self,
        record: &mut [u8],
        each: &mut impl FnMut(&RecordingInfo, TimedRecord<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let order = self.info.order;
        let Some(header) = RecordHeader::parse(record, order) else {
            return ControlFlow::Continue(());
        };
        let go = ControlFlow::Continue(());
        if header.kind == user::FINISHED_ROUND {
            let deferred_since = self.deferred.oldest();
            return self.flush(go, each, |rounds, out| {
                rounds.end_round(deferred_since, out)
            });
        }
        if !is_kernel_type(header.kind) {
            self.process_user_type(header.kind, record);
            return go;
        }
        self.events.to_native_order(record, &self.info);
        let Some(event) = self.events.index_of(record) else {
            self.malformed += 1;
            return go;
        };
        match self.events.time(event, record) {
            // Like perf, passes records without time on immediately.
            Nanos(0 | u64::MAX) => self.flush(go, each, |_, out| out(Nanos(0), event, record)),
            time => {
                if !self.defers || !self.defer(time, event, record) {
                    self.rounds.push(time, event, record);
                }
                match self.rounds.is_full(self.deferred.bytes()) {
                    true => {
                        self.push_all_incomplete();
                        self.flush(go, each, |rounds, out| rounds.flush_half(out))
                    }
                    false => go,
                }
            }
        }
    }

    /// Processes a record with a part of a deferred callchain.
    ///
    /// Returns `false` for another record, which the caller must process.
    fn defer(&mut self, time: Nanos, event: u32, record: &[u8]) -> bool {
        let layout = &self.events.layouts[event as usize];
        if let Some(chain) = layout.deferred_chain(record) {
            for sample in self.deferred.take(chain.key) {
                // Many samples may refer to the same callers, so the memory of copies is bounded.
                let is_full = self.rounds.is_full(self.deferred.bytes());
                self.deferred.missing += u64::from(is_full);
                let chain = (!is_full).then_some(&chain);
                push_joined(&mut self.rounds, &self.events, sample, chain);
            }
            return true;
        }
        if let Some(key) = layout.waits_for(record) {
            let record = record.to_vec();
            self.deferred.push(
                key,
                DeferredSample {
                    time,
                    event,
                    record,
                },
            );
            return true;
        }
        if let Ok(Record::Exit { tid, .. }) = layout.parse(record) {
            let samples = self.deferred.take_incomplete(tid);
            self.push_incomplete(samples);
        }
        false
    }

    /// Stops waiting for the user parts of all deferred samples.
    fn push_all_incomplete(&mut self) {
        let samples = self.deferred.take_all_incomplete();
        self.push_incomplete(samples);
    }

    fn push_incomplete(&mut self, samples: Vec<DeferredSample>) {
        for sample in samples {
            push_joined(&mut self.rounds, &self.events, sample, None);
        }
    }

    /// Parses the records that `flush_rounds` flushes, and passes them to `each`.
    fn flush(
        &mut self,
        mut flow: ControlFlow<()>,
        each: &mut impl FnMut(&RecordingInfo, TimedRecord<'_>) -> ControlFlow<()>,
        flush_rounds: impl FnOnce(&mut Rounds, &mut dyn FnMut(Nanos, u32, &[u8])),
    ) -> ControlFlow<()> {
        let Self {
            info,
            malformed,
            rounds,
            events,
            ..
        } = self;
        flush_rounds(rounds, &mut |time, event, bytes| {
            if flow.is_break() {
                return;
            }
            let event = event as usize;
            let layout = events.layouts.get(event);
            match layout.map(|layout| layout.parse(bytes)) {
                Some(Ok(record)) => {
                    let timed = TimedRecord {
                        time,
                        event,
                        record,
                    };
                    flow = each(info, timed);
                }
                _ => *malformed += 1,
            }
        });
        flow
    }

    /// Processes one of perf's own (user-type) records.
    fn process_user_type(&mut self, kind: u32, record: &[u8]) {
        let order = self.info.order;
        let body = &record[HEADER_BYTES..];
        let mut numbers = Numbers::new(body, order);
        match kind {
            user::HEADER_ATTR => self.add_attribute(body),
            user::EVENT_UPDATE => self.update_event(numbers),
            user::HEADER_FEATURE => {
                let section = numbers.u64().and_then(|id| u32::try_from(id).ok());
                let had_arch = !self.info.arch.is_empty();
                if let Some(section) = section {
                    self.info.section(section, numbers.bytes.0);
                }
                // The layout of registers depends on the architecture.
                if !had_arch && !self.info.arch.is_empty() {
                    self.rebuild_layouts();
                }
            }
            user::BUILD_ID => self.info.add_build_id(record, order),
            user::AUXTRACE_INFO => {
                let kind = numbers.u32().and_then(|kind| usize::try_from(kind).ok());
                self.aux_kind = kind.and_then(|kind| AUX_KINDS.get(kind).copied());
            }
            user::TRACING_DATA => {
                self.info.tracing_data = std::mem::take(&mut self.stream.tracing_data);
            }
            _ => {}
        }
    }

    /// Adds an event from its attribute, which contains its own size, and its ids.
    fn add_attribute(&mut self, body: &[u8]) {
        let order = self.info.order;
        let size = || {
            let mut numbers = Numbers::new(body.get(4..)?, order);
            usize::try_from(numbers.u32()?).ok()
        };
        let read = || {
            let (attribute, ids) = body.split_at_checked(size()?)?;
            let mut attribute = Attribute::parse(attribute, order)?;
            attribute.set_ids(ids, order);
            Some(attribute)
        };
        if let Some(attribute) = read()
            && self.info.events.len() < MAX_EVENTS
        {
            self.info.events.push(attribute);
            self.add_layout(self.info.events.len() - 1);
        }
    }

    /// Applies an update of an event: type of the update, id of the event, new value.
    fn update_event(&mut self, mut numbers: Numbers<'_>) {
        let (Some(kind), Some(id)) = (numbers.u64(), numbers.u64()) else {
            return;
        };
        let event = self.events.by_id.get(&id).copied();
        if let (UPDATE_NAME, Some(event)) = (kind, event) {
            let name = numbers.bytes.c_string();
            let name = printable(&String::from_utf8_lossy(name));
            self.info.events[event as usize].name = name;
        }
    }

    /// Recomputes the record layouts of all events.
    fn rebuild_layouts(&mut self) {
        self.events = Events::default();
        (0..self.info.events.len()).for_each(|event| self.add_layout(event));
    }

    /// Adds the record layout of an event.
    fn add_layout(&mut self, event: usize) {
        let Events { layouts, by_id } = &mut self.events;
        let attribute = &mut self.info.events[event];
        self.defers |= attribute.defers_user_callers;
        attribute.format.foreign_registers = !matches!(&*self.info.arch, "" | "x86_64");
        if layouts.len() == event {
            layouts.push(Layout::from_supported_fields(attribute.format));
            by_id.extend(attribute.ids.iter().map(|&id| (id, event as u32)));
        }
    }
}

/// Adds a deferred sample, joined with its user part, to the rounds.
fn push_joined(
    rounds: &mut Rounds,
    events: &Events,
    sample: DeferredSample,
    user: Option<&DeferredChain<'_>>,
) {
    let DeferredSample {
        time,
        event,
        record,
    } = sample;
    let layout = &events.layouts[event as usize];
    let joined = layout.join(&record, user);
    rounds.push(time, event, joined.as_deref().unwrap_or(&record));
}

impl<R: Read + Seek> Reader<R> {
    /// Opens a file, which may contain the output of `perf record -o -`.
    ///
    /// # Errors
    /// Returns [`PerfDataError`] if the file has another format or its header is corrupt.
    pub fn file(mut input: R) -> Result<Self, PerfDataError> {
        let (order, size) = magic(&mut input)?;
        if size == PIPE_HEADER_BYTES {
            return Ok(Self::after_pipe_header(input, order));
        }
        let header = file_header::read(&mut input, order, size)?;
        let corruption = header.corruption.map(|corruption| (0, corruption));
        Ok(Self::new(input, header.info, header.bytes, corruption))
    }
}

impl<R: Read + 'static> Reader<R> {
    /// Returns the reader with a boxed input.
    pub(super) fn boxed(self) -> Reader<Box<dyn Read>> {
        Reader {
            info: self.info,
            corruption: self.corruption,
            malformed: self.malformed,
            stream: self.stream.boxed(),
            threads: ThreadFiles::new([]),
            aux_kind: self.aux_kind,
            first: self.first,
            rounds: self.rounds,
            defers: self.defers,
            deferred: self.deferred,
            events: self.events,
        }
    }
}

impl<'a> Reader<Cursor<&'a [u8]>> {
    /// Opens a recording in memory.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::file`].
    pub fn bytes(bytes: &'a [u8]) -> Result<Self, PerfDataError> {
        Self::file(Cursor::new(bytes))
    }
}
