//! A whole recording: its records in order of time, each with the event that made it.

use std::io::{Cursor, Read, Seek};
use std::ops::ControlFlow;

use super::attribute::Attribute;
use super::deferred::{Deferred, Waiting};
use super::error::{Corruption, PerfDataError};
use super::events::Events;
use super::file_header::{self, magic};
use super::numbers::{Numbers, Order};
use super::record_stream::{HEADER_BYTES, RecordHeader, RecordStream, is_kernels, user};
use super::recording_info::{MAX_EVENTS, RecordingInfo, printable};
use super::rounds::Rounds;
use super::thread_files::ThreadFiles;
use crate::perf::{DeferredChain, Layout, Record};
use crate::trace::Nanos;

/// Size of the header that a pipe has: magic and this size.
const PIPE_HEADER_BYTES: u64 = 16;
/// Kinds of hardware traces (`enum auxtrace_type`).
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

/// A record, where its time has come.
#[derive(Clone, Copy, Debug)]
pub struct TimedRecord<'a> {
    /// When; 0: it tells what was before the recording.
    pub time: Nanos,
    /// Position of its event in [`RecordingInfo::events`].
    pub event: usize,
    /// What it says.
    pub record: Record<'a>,
}

/// Reads a recording once.
pub struct Reader<R> {
    /// What the file tells besides. In a pipe it grows with the records.
    pub about: RecordingInfo,
    /// Why the records end early, and after how many of their bytes.
    pub damage: Option<(u64, Corruption)>,
    /// Records that could not be parsed.
    pub malformed: u64,
    stream: RecordStream<R>,
    /// What comes behind it.
    threads: ThreadFiles<R>,
    aux_kind: Option<&'static str>,
    /// The first record that tells of the recording, if it was read already.
    first: Option<Vec<u8>>,
    rounds: Rounds,
    /// Whether some event records callchains in two parts.
    defers: bool,
    deferred: Deferred,
    events: Events,
}

impl<R: Read> Reader<R> {
    /// The same with the files of the threads, which have nothing but records.
    pub(super) fn with_threads(mut self, files: impl IntoIterator<Item = R>) -> Self {
        let order = self.about.order;
        let streams = files.into_iter();
        self.threads = ThreadFiles::new(streams.map(|file| RecordStream::new(file, order, None)));
        self
    }

    /// Begins to read: a file, if the input can be sought in, or a pipe.
    ///
    /// # Errors
    /// It is no perf.data file, or its header is damaged.
    pub fn pipe(mut input: R) -> Result<Self, PerfDataError> {
        let (order, size) = magic(&mut input)?;
        if size != PIPE_HEADER_BYTES {
            return Err(PerfDataError::FileInPipe);
        }
        Ok(Self::of_pipe(input, order))
    }

    fn of_pipe(input: R, order: Order) -> Self {
        let about = RecordingInfo {
            order,
            ..RecordingInfo::default()
        };
        Self::new(input, about, None, None)
    }

    fn new(
        input: R,
        about: RecordingInfo,
        left: Option<u64>,
        damage: Option<(u64, Corruption)>,
    ) -> Self {
        let order = about.order;
        let mut reader = Self {
            about,
            damage,
            malformed: 0,
            stream: RecordStream::new(input, order, left),
            threads: ThreadFiles::new([]),
            aux_kind: None,
            first: None,
            rounds: Rounds::default(),
            defers: false,
            deferred: Deferred::default(),
            events: Events::default(),
        };
        reader.begin();
        reader
    }

    /// Reads what stands before the first record of the kernel's: in a pipe, all that a file has in its header.
    fn begin(&mut self) {
        self.place_fields();
        let mut record = Vec::new();
        while self.next(&mut record) {
            match RecordHeader::parse(&record, self.about.order) {
                Some(header) if !is_kernels(header.kind) => self.told(header.kind, &record),
                _ => {
                    self.first = Some(record);
                    break;
                }
            }
        }
        self.about.name_events();
    }

    /// The next record of the file, and behind the last one of those of the threads.
    fn next(&mut self, record: &mut Vec<u8>) -> bool {
        if let Some(first) = self.first.take() {
            *record = first;
            return true;
        }
        let Self {
            about,
            damage,
            stream,
            threads,
            events,
            ..
        } = self;
        match stream.next(record) {
            Ok(true) => return true,
            Ok(false) => {
                // All records are here if nothing but the header is damaged.
                if let Some((at @ 0, _)) = damage {
                    *at = stream.position;
                }
            }
            Err(why) => {
                // What was damaged before says why.
                damage.get_or_insert((0, why)).0 = stream.position;
            }
        }
        let time = |record: &[u8]| events.time_of_raw(record, about);
        threads.next(record, time, |at, why| {
            damage.get_or_insert((at, why));
        })
    }

    /// The hardware trace of the recording, which is passed over, in words: its size and kind.
    #[must_use]
    pub fn hardware_trace(&self) -> Option<String> {
        let bytes = self.stream.aux_bytes + self.threads.aux_bytes();
        (bytes > 0).then(|| {
            let kind = self.aux_kind.unwrap_or("AUX");
            format!("{bytes} bytes of hardware trace (AUX data: {kind})")
        })
    }

    /// Samples whose callers in user space were to be recorded later, and were not.
    #[must_use]
    pub fn without_user_callers(&self) -> u64 {
        self.deferred.missing
    }

    /// Records that came later than their round.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.rounds.late
    }

    /// Hands out all records in order of time, until there are no more or `each` has enough.
    pub fn each(
        &mut self,
        mut each: impl FnMut(&RecordingInfo, TimedRecord<'_>) -> ControlFlow<()>,
    ) {
        let mut record = Vec::new();
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue() && self.next(&mut record) {
            flow = self.take(&mut record, &mut each);
        }
        self.end_waiting();
        let _ = self.hand_out(flow, &mut each, |rounds, give| rounds.end(give));
    }

    fn take(
        &mut self,
        record: &mut [u8],
        each: &mut impl FnMut(&RecordingInfo, TimedRecord<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let order = self.about.order;
        let Some(header) = RecordHeader::parse(record, order) else {
            return ControlFlow::Continue(());
        };
        let go = ControlFlow::Continue(());
        if header.kind == user::FINISHED_ROUND {
            let wait = self.deferred.oldest();
            return self.hand_out(go, each, |rounds, give| rounds.end_round(wait, give));
        }
        if !is_kernels(header.kind) {
            self.told(header.kind, record);
            return go;
        }
        self.events.swap(record, &self.about);
        let Some(event) = self.events.of(record) else {
            self.malformed += 1;
            return go;
        };
        match self.events.time(event, record) {
            // As perf does: what has no time is told at once.
            Nanos(0 | u64::MAX) => self.hand_out(go, each, |_, give| give(Nanos(0), event, record)),
            time => {
                if !self.defers || !self.defer(time, event, record) {
                    self.rounds.push(time, event, record);
                }
                match self.rounds.is_full(self.deferred.bytes()) {
                    true => {
                        self.end_waiting();
                        self.hand_out(go, each, |rounds, give| rounds.make_room(give))
                    }
                    false => go,
                }
            }
        }
    }

    /// Takes a record that has to do with callchains in two parts. `false`: it is another.
    fn defer(&mut self, time: Nanos, event: u32, record: &[u8]) -> bool {
        let layout = &self.events.layouts[event as usize];
        if let Some(chain) = layout.deferred_chain(record) {
            for waiting in self.deferred.take(chain.key) {
                // Many samples may claim the same callers; there is room for so many.
                let is_full = self.rounds.is_full(self.deferred.bytes());
                self.deferred.missing += u64::from(is_full);
                let chain = (!is_full).then_some(&chain);
                push_joined(&mut self.rounds, &self.events, waiting, chain);
            }
            return true;
        }
        if let Some(key) = layout.waits_for(record) {
            let record = record.to_vec();
            self.deferred.push(
                key,
                Waiting {
                    time,
                    event,
                    record,
                },
            );
            return true;
        }
        if let Ok(Record::Exit { tid, .. }) = layout.parse(record) {
            let ended = self.deferred.give_up(tid);
            self.push_without_user(ended);
        }
        false
    }

    /// The user part of the samples that wait comes no more.
    fn end_waiting(&mut self) {
        let all = self.deferred.give_up_all();
        self.push_without_user(all);
    }

    fn push_without_user(&mut self, samples: Vec<Waiting>) {
        for waiting in samples {
            push_joined(&mut self.rounds, &self.events, waiting, None);
        }
    }

    /// Parses what comes out of the rounds.
    fn hand_out(
        &mut self,
        mut flow: ControlFlow<()>,
        each: &mut impl FnMut(&RecordingInfo, TimedRecord<'_>) -> ControlFlow<()>,
        which: impl FnOnce(&mut Rounds, &mut dyn FnMut(Nanos, u32, &[u8])),
    ) -> ControlFlow<()> {
        let Self {
            about,
            malformed,
            rounds,
            events,
            ..
        } = self;
        which(rounds, &mut |time, event, bytes| {
            if flow.is_break() {
                return;
            }
            let event = event as usize;
            let layout = events.layouts.get(event);
            match layout.map(|layout| layout.parse(bytes)) {
                Some(Ok(record)) => {
                    let entry = TimedRecord {
                        time,
                        event,
                        record,
                    };
                    flow = each(about, entry);
                }
                _ => *malformed += 1,
            }
        });
        flow
    }

    /// A record of perf's own.
    fn told(&mut self, kind: u32, record: &[u8]) {
        let order = self.about.order;
        let body = &record[HEADER_BYTES..];
        let mut numbers = Numbers::new(body, order);
        match kind {
            user::HEADER_ATTR => self.attribute(body),
            user::EVENT_UPDATE => self.update(numbers),
            user::HEADER_FEATURE => {
                let number = numbers.u64().and_then(|number| u32::try_from(number).ok());
                let knew_machine = !self.about.arch.is_empty();
                if let Some(number) = number {
                    self.about.section(number, numbers.bytes.0);
                }
                // It tells what registers mean.
                if !knew_machine && !self.about.arch.is_empty() {
                    self.place_fields();
                }
            }
            user::BUILD_ID => self.about.build_id(record, order),
            user::AUXTRACE_INFO => {
                let kind = numbers.u32().and_then(|kind| usize::try_from(kind).ok());
                self.aux_kind = kind.and_then(|kind| AUX_KINDS.get(kind).copied());
            }
            user::TRACING_DATA => {
                self.about.tracing_data = std::mem::take(&mut self.stream.tracing_data);
            }
            _ => {}
        }
    }

    /// An attribute, whose length it states itself, and the ids.
    fn attribute(&mut self, body: &[u8]) {
        let order = self.about.order;
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
            && self.about.events.len() < MAX_EVENTS
        {
            self.about.events.push(attribute);
            self.place(self.about.events.len() - 1);
        }
    }

    /// Type of the update, id of the event, what is new.
    fn update(&mut self, mut numbers: Numbers<'_>) {
        let (Some(kind), Some(id)) = (numbers.u64(), numbers.u64()) else {
            return;
        };
        let event = self.events.by_id.get(&id).copied();
        if let (UPDATE_NAME, Some(event)) = (kind, event) {
            let name = numbers.bytes.c_string();
            let name = printable(&String::from_utf8_lossy(name));
            self.about.events[event as usize].name = name;
        }
    }

    /// Takes in what all attributes say.
    fn place_fields(&mut self) {
        self.events = Events::default();
        (0..self.about.events.len()).for_each(|event| self.place(event));
    }

    /// Takes in where an event's records have their fields.
    fn place(&mut self, event: usize) {
        let Events { layouts, by_id } = &mut self.events;
        let attribute = &mut self.about.events[event];
        self.defers |= attribute.defers_user_callers;
        attribute.format.foreign_registers = !matches!(&*self.about.arch, "" | "x86_64");
        if layouts.len() == event {
            layouts.push(Layout::of_known(attribute.format));
            by_id.extend(attribute.ids.iter().map(|&id| (id, event as u32)));
        }
    }
}

/// Puts a sample that waited among the others.
fn push_joined(
    rounds: &mut Rounds,
    events: &Events,
    waiting: Waiting,
    user: Option<&DeferredChain<'_>>,
) {
    let Waiting {
        time,
        event,
        record,
    } = waiting;
    let layout = &events.layouts[event as usize];
    let joined = layout.join(&record, user);
    rounds.push(time, event, joined.as_deref().unwrap_or(&record));
}

impl<R: Read + Seek> Reader<R> {
    /// Begins to read a file, or a pipe that was kept in one.
    ///
    /// # Errors
    /// It is no perf.data file, or its header is damaged.
    pub fn file(mut input: R) -> Result<Self, PerfDataError> {
        let (order, size) = magic(&mut input)?;
        if size == PIPE_HEADER_BYTES {
            return Ok(Self::of_pipe(input, order));
        }
        let begin = file_header::read(&mut input, order, size)?;
        let damage = begin.damage.map(|damage| (0, damage));
        Ok(Self::new(input, begin.about, begin.bytes, damage))
    }
}

impl<R: Read + 'static> Reader<R> {
    /// The same, whatever is read from.
    pub(super) fn boxed(self) -> Reader<Box<dyn Read>> {
        Reader {
            about: self.about,
            damage: self.damage,
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
    /// The same from memory.
    ///
    /// # Errors
    /// As [`Reader::file`].
    pub fn bytes(bytes: &'a [u8]) -> Result<Self, PerfDataError> {
        Self::file(Cursor::new(bytes))
    }
}
