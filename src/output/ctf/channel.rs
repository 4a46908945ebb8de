//! `channel0_0`: the events, in packets.
//!
//! ```text
//! packet   magic u32 | uuid | stream u32 | instance u64 || start u64 | end u64 | content bits u64 | packet bits u64 |
//!          sequence number u64 | discarded u64 | cpu u32 || events
//! event    u16 0xffff | id u32 | time u64 || pid i32 | tid i32 | name[17] || length u32 | length u32 | payload
//! ```
//! No field is aligned. Events have the extended header: PerfView interprets two equal times in
//! compact headers as a wrap-around.

use std::io::{self, Write};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::event_json;
use super::super::time_zero::TimeZero;
use super::names::{self, EVENT_SOURCE, RUNTIME_INFORMATION};
use crate::bytes::put_utf16z;
use crate::nettrace::{EventMetadata, KindMap};
use crate::trace::{RuntimeEvent, Trace};

const MAGIC: u32 = 0xc1fc_1fc1;
const HEADER_BYTES: usize = 84;
/// A packet ends when it contains this many bytes.
const PACKET_BYTES: usize = 1 << 20;
/// Maximum size of a payload. PerfView stores the size in 16 bits and would misread a larger event.
const MAX_PAYLOAD_BYTES: usize = u16::MAX as usize;
const PROCESS_NAME_BYTES: usize = 17;
/// Offset of the command line in the event with which a runtime describes itself.
const COMMAND_LINE_AT: usize = 25;
/// Name of the marker event at time zero.
const MARKER: &str = "marker:start";

/// Writes events in order of time.
pub struct Channel<'a, W> {
    trace: &'a Trace,
    zero: TimeZero,
    out: W,
    /// Events of the current packet.
    events: Vec<u8>,
    packet: u64,
    start: u64,
    end: u64,
    /// Process names by id.
    processes: FxHashMap<i32, [u8; PROCESS_NAME_BYTES]>,
    names: Vec<String>,
    ids: FxHashMap<String, u32>,
    ids_by_kind: KindMap<Option<u32>>,
    /// Buffer for a converted payload, reused to avoid allocations.
    converted: Vec<u8>,
}

impl<'a, W: Write> Channel<'a, W> {
    /// Creates a channel that starts with the marker event.
    pub fn new(trace: &'a Trace, out: W) -> Self {
        let mut channel = Self {
            trace,
            zero: TimeZero::new(trace),
            out,
            events: Vec::new(),
            packet: 0,
            start: 1,
            end: 1,
            processes: trace
                .processes
                .iter()
                .map(|process| (process.pid.0, name_bytes(&process.name)))
                .collect(),
            names: vec![MARKER.to_owned()],
            ids: FxHashMap::default(),
            ids_by_kind: KindMap::default(),
            converted: Vec::new(),
        };
        channel.header(0, 1, 0, 0);
        channel
    }

    fn header(&mut self, id: u32, time: u64, pid: i32, tid: i32) {
        self.events.extend([0xff; 2]);
        self.events.extend(id.to_le_bytes());
        self.events.extend(time.to_le_bytes());
        self.events.extend(pid.to_le_bytes());
        self.events.extend(tid.to_le_bytes());
        let name = self.processes.get(&pid).copied().unwrap_or_default();
        self.events.extend(name);
    }

    /// Writes an event, unless PerfView does not support its kind or it is too large.
    ///
    /// # Errors
    /// Returns errors of the output.
    pub fn event(&mut self, event: &RuntimeEvent) -> io::Result<()> {
        let Some(id) = self.id(&event.metadata) else {
            return Ok(());
        };
        let mut converted = std::mem::take(&mut self.converted);
        converted.clear();
        match self.names.get(id as usize).map(String::as_str) {
            Some(EVENT_SOURCE) => wrap(event, &mut converted),
            Some(RUNTIME_INFORMATION) => self.add_command_line(event, &mut converted),
            _ => {}
        }
        let payload = match converted.is_empty() {
            true => &event.payload[..],
            false => &converted[..],
        };
        if payload.len() <= MAX_PAYLOAD_BYTES {
            self.end = self.zero.ctf_time(event.time).max(self.end);
            let time = self.end;
            self.header(id, time, event.process.0, event.thread.0);
            let length = (payload.len() as u32).to_le_bytes();
            self.events.extend(length);
            self.events.extend(length);
            self.events.extend_from_slice(payload);
        }
        self.converted = converted;
        if self.events.len() >= PACKET_BYTES {
            self.write_packet(0)?;
        }
        Ok(())
    }

    fn id(&mut self, kind: &Arc<EventMetadata>) -> Option<u32> {
        self.ids_by_kind.get_or_insert_with(kind, || {
            let name = names::name(kind)?;
            let id = self.ids.entry(name).or_insert_with_key(|name| {
                self.names.push(name.clone());
                self.names.len() as u32 - 1
            });
            Some(*id)
        })
    }

    /// Adds the command line to the event with which a runtime describes itself, if it is empty
    /// there.
    ///
    /// The rundown at the end of a session omits it. PerfView has no other name for the process.
    fn add_command_line(&self, event: &RuntimeEvent, out: &mut Vec<u8>) {
        let mut processes = self.trace.processes.iter();
        let process = processes.find(|process| process.pid == event.process);
        let split = event.payload.split_at_checked(COMMAND_LINE_AT);
        if let (Some(process), Some((before, [0, 0, after @ ..]))) = (process, split) {
            out.extend_from_slice(before);
            put_utf16z(out, &process.command_line);
            out.extend_from_slice(after);
        }
    }

    fn write_packet(&mut self, discarded: u64) -> io::Result<()> {
        let bits = 8 * (HEADER_BYTES + self.events.len()) as u64;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(MAGIC.to_le_bytes());
        header.extend(super::uuid(self.trace).as_bytes());
        header.extend([0; 12]);
        for field in [self.start, self.end, bits, bits, self.packet, discarded] {
            header.extend(field.to_le_bytes());
        }
        header.extend([0; 4]);
        self.out.write_all(&header)?;
        self.out.write_all(&self.events)?;
        self.events.clear();
        self.packet += 1;
        self.start = self.end;
        Ok(())
    }

    /// Writes the last packet, with the number of lost events.
    ///
    /// Returns the names of the event kinds. The index of a name is the event id.
    ///
    /// # Errors
    /// Returns errors of the output.
    pub fn finish(mut self) -> io::Result<Vec<String>> {
        let streams = self.trace.events.streams().iter();
        let lost = streams
            .map(|stream| stream.counts.losses.dropped_events)
            .sum();
        self.write_packet(lost)?;
        Ok(self.names)
    }
}

/// Returns a name with a NUL, truncated to the size of the field.
fn name_bytes(name: &str) -> [u8; PROCESS_NAME_BYTES] {
    let mut bytes = [0; PROCESS_NAME_BYTES];
    let kept = name.bytes().take(PROCESS_NAME_BYTES - 1);
    bytes.iter_mut().zip(kept).for_each(|(to, from)| *to = from);
    bytes
}

/// Appends an event of another provider: id, name, provider and fields as JSON, with strings in
/// UTF-16.
fn wrap(event: &RuntimeEvent, out: &mut Vec<u8>) {
    out.extend(event.metadata.id.to_le_bytes());
    let json = event_json::payload(&event.metadata, &event.payload).to_string();
    for text in [&event.metadata.name, &event.metadata.provider, &json] {
        put_utf16z(out, text);
    }
}
