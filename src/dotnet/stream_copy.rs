//! Copies the event stream of a process to a file, and finds the code that it refers to.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use super::code_event::module_of_method;
use super::listed_code::ListedCode;
use super::runtime_settings::RuntimeSettings;
use super::session_thread::RuntimeSessionError;
use super::stream_queue::QueueReader;
use super::stream_size::GrowingSize;
use crate::nettrace::{
    AddedEvents, CodeReferences, NettraceErrorKind, OBJECTS_HEADER_BYTES, Reader, StreamPart,
    TraceInfo,
};
use crate::trace::{Nanos, StreamContent, StreamWriter};

/// Minimum interval of calls to [`StreamCopy::on_data`]. Runtimes flush ten times a second.
const DATA_INTERVAL: Duration = Duration::from_millis(50);
/// Interval after which an address is passed on again: other code may be there.
const ADDRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Limit on the addresses that were passed on in an interval, or wait to be.
const MAX_ADDRESSES: usize = 1 << 16;
/// Limit on the modules of a process.
const MAX_MODULES: usize = 1 << 14;

/// What a stream refers to, and at last its end.
#[derive(Debug)]
pub enum StreamItem {
    /// Code addresses in the stacks of events. All are return addresses, as far as is known.
    Addresses(Box<[u64]>),
    /// Ids of modules.
    Modules(Box<[u64]>),
    /// The stream has ended, complete or not.
    End(StreamEnd),
}

/// The end of a stream in its file.
#[derive(Debug)]
pub struct StreamEnd {
    writer: StreamWriter,
    /// Offset in the stream after the last complete block.
    offset: u64,
    /// Main thread of the process.
    thread: u64,
}

impl StreamEnd {
    /// Adds a list of modules to the stream: id, and path of the file.
    ///
    /// # Errors
    /// The file cannot be read or written, or the last block of the stream is too large. The list is
    /// then missing.
    pub fn add_modules<'a>(
        self,
        now: Nanos,
        modules: impl Iterator<Item = (u64, &'a str)>,
    ) -> io::Result<()> {
        // A tick is a nanosecond on Linux.
        let mut list = ListedCode::new(AddedEvents::new(1, self.thread, now.0));
        modules.for_each(|(id, path)| list.module(id, path));
        let bytes = list.objects_at(self.offset);
        match self.writer.insert(self.offset, &bytes)? {
            true => Ok(()),
            false => Err(io::Error::other("the last block is too large")),
        }
    }
}

/// A stream that is copied to a file while it is read.
pub(super) struct StreamCopy<F> {
    parts: QueueReader,
    /// The current part, and how much of it was read.
    part: Vec<u8>,
    read: usize,
    writer: StreamWriter,
    size: Arc<GrowingSize>,
    /// Called after data has arrived.
    on_data: F,
    last_call: Option<Instant>,
    /// Why the file does not grow any more.
    error: Option<RuntimeSessionError>,
}

impl<F: Fn()> StreamCopy<F> {
    pub(super) fn new(parts: QueueReader, file: File, size: Arc<GrowingSize>, on_data: F) -> Self {
        Self {
            parts,
            part: Vec::new(),
            read: 0,
            writer: StreamWriter::new(file),
            size,
            on_data,
            last_call: None,
            error: None,
        }
    }

    /// Copies the whole stream, and adds the settings, if any. Passes on what it refers to, and the
    /// end of a main stream, where a list of modules follows.
    pub(super) fn run(
        mut self,
        content: StreamContent,
        settings: Option<&RuntimeSettings>,
        sender: &SyncSender<StreamItem>,
    ) -> Result<(), RuntimeSessionError> {
        let mut header = Vec::new();
        let _ = (&mut self)
            .take(OBJECTS_HEADER_BYTES as u64)
            .read_to_end(&mut header);
        let info = objects_info(&header);
        let added = settings.zip(info.as_ref());
        let added = added.map_or(0, |(settings, info)| self.add_settings(settings, info));
        let end = self.copy_blocks(&header, sender);
        // What follows the end of the stream, or data that is no stream, is copied as it is.
        let _ = io::copy(&mut self, &mut io::sink());
        if let Some(error) = self.error {
            return Err(error);
        }
        if let (Some(info), Some(offset)) = (info, end)
            && content == StreamContent::Main
        {
            // Without a receiver the capture is over.
            let _ = sender.send(StreamItem::End(StreamEnd {
                writer: self.writer,
                offset: offset + added,
                thread: thread(&info),
            }));
        }
        Ok(())
    }

    /// Adds the settings after the header of the stream. Returns their size.
    fn add_settings(&mut self, settings: &RuntimeSettings, info: &TraceInfo) -> u64 {
        let mut events = AddedEvents::new(0, thread(info), info.start_ticks);
        settings.add_to(&mut events);
        let objects = events.objects_at(OBJECTS_HEADER_BYTES as u64);
        if let Err(error) = self.write(&objects) {
            self.error = Some(error);
        }
        objects.len() as u64
    }

    /// Copies the blocks after the header. Returns the offset after the last complete one, unless
    /// the stream is corrupt.
    fn copy_blocks(&mut self, header: &[u8], sender: &SyncSender<StreamItem>) -> Option<u64> {
        let mut new = NewCode::new(sender);
        let mut references = CodeReferences::open(header.chain(&mut *self)).ok()?;
        let mut offset;
        let end = loop {
            offset = references.offset();
            match references.next_block(|part| new.insert(part)) {
                Ok(true) => new.send(),
                end => break end,
            }
        };
        new.finish();
        match end {
            Ok(_) => Some(offset),
            Err(error) => matches!(error.kind, NettraceErrorKind::Truncated).then_some(offset),
        }
    }

    fn write(&mut self, part: &[u8]) -> Result<(), RuntimeSessionError> {
        let grown = self.writer.append(part);
        let grown = grown.map_err(RuntimeSessionError::Keep)?;
        self.size.add(part.len() as u64, grown);
        Ok(())
    }

    /// Waits for the next part, and writes it. It is empty at the end of the stream.
    fn next_part(&mut self) -> Result<(), RuntimeSessionError> {
        // Not kept while waiting for the next part.
        self.part = Vec::new();
        self.read = 0;
        let part = self.parts.next_part();
        let Some(part) = part.map_err(RuntimeSessionError::Receive)? else {
            return Ok(());
        };
        if part.is_empty() {
            return Ok(());
        }
        self.write(&part)?;
        self.part = part;
        let is_due = |time: Instant| time.elapsed() >= DATA_INTERVAL;
        if self.last_call.is_none_or(is_due) {
            (self.on_data)();
            self.last_call = Some(Instant::now());
        }
        Ok(())
    }
}

impl<F: Fn()> Read for StreamCopy<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read == self.part.len()
            && self.error.is_none()
            && let Err(error) = self.next_part()
        {
            self.error = Some(error);
        }
        let mut rest = self.part.get(self.read..).unwrap_or_default();
        let read = rest.read(buffer)?;
        self.read += read;
        Ok(read)
    }
}

/// Returns the header of a stream of version 4 or 5.
fn objects_info(header: &[u8]) -> Option<TraceInfo> {
    let info = Reader::open(header).ok()?.info().clone();
    (info.version < 6).then_some(info)
}

/// Returns the main thread of the process of a stream.
fn thread(info: &TraceInfo) -> u64 {
    info.process.unwrap_or(0).into()
}

/// Code that the capture thread does not know yet. The target chooses the numbers, so their hashes
/// have a random seed.
struct NewCode<'a> {
    sender: &'a SyncSender<StreamItem>,
    /// Addresses of the current interval.
    addresses: HashSet<u64>,
    start: Instant,
    modules: HashSet<u64>,
    /// Addresses and modules that were not passed on yet.
    new_addresses: Vec<u64>,
    new_modules: Vec<u64>,
}

impl<'a> NewCode<'a> {
    fn new(sender: &'a SyncSender<StreamItem>) -> Self {
        Self {
            sender,
            addresses: HashSet::default(),
            start: Instant::now(),
            modules: HashSet::default(),
            new_addresses: Vec::new(),
            new_modules: Vec::new(),
        }
    }

    fn insert(&mut self, part: StreamPart<'_>) {
        match part {
            StreamPart::ReturnAddress(address) => {
                if self.new_addresses.len() < MAX_ADDRESSES && self.addresses.insert(address) {
                    self.new_addresses.push(address);
                }
            }
            StreamPart::Event(kind, payload) => {
                if let Some(module) = module_of_method(kind, payload)
                    && self.modules.len() < MAX_MODULES
                    && self.modules.insert(module)
                {
                    self.new_modules.push(module);
                }
            }
        }
    }

    /// Passes on the rest, after the end of the stream.
    fn finish(mut self) {
        // Without a receiver the capture is over.
        for item in self.items() {
            let _ = self.sender.send(item);
        }
    }

    fn items(&mut self) -> [StreamItem; 2] {
        let take = |new: &mut Vec<u64>| std::mem::take(new).into_boxed_slice();
        [
            StreamItem::Modules(take(&mut self.new_modules)),
            StreamItem::Addresses(take(&mut self.new_addresses)),
        ]
    }

    /// Passes on what is new, if there is room for it: a busy capture thread must not delay the
    /// stream.
    fn send(&mut self) {
        for item in self.items() {
            match item {
                StreamItem::Modules(new) | StreamItem::Addresses(new) if new.is_empty() => {}
                item => match self.sender.try_send(item) {
                    Err(TrySendError::Full(StreamItem::Addresses(new))) => {
                        self.new_addresses = new.into_vec();
                    }
                    Err(TrySendError::Full(StreamItem::Modules(new))) => {
                        self.new_modules = new.into_vec();
                    }
                    _ => {}
                },
            }
        }
        if self.start.elapsed() >= ADDRESS_INTERVAL || self.addresses.len() >= MAX_ADDRESSES {
            self.addresses.clear();
            self.start = Instant::now();
        }
    }
}
