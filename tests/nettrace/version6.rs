//! Rewrites a stream in version 6 of the format, which runtimes do not send.

use std::collections::HashMap;

use perfcollect::nettrace::{Field, FieldType, Reader};

/// Number of events between two sequence points.
const EVENTS_PER_BLOCK: usize = 500;

fn var(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn string(out: &mut Vec<u8>, string: &str) {
    var(out, string.len() as u64);
    out.extend(string.as_bytes());
}

fn sized(out: &mut Vec<u8>, content: &[u8]) {
    out.extend((content.len() as u16).to_le_bytes());
    out.extend(content);
}

fn block(out: &mut Vec<u8>, kind: u32, content: &[u8]) {
    out.extend((content.len() as u32 | kind << 24).to_le_bytes());
    out.extend(content);
}

fn field_list(out: &mut Vec<u8>, fields: &[Field]) {
    out.extend((fields.len() as u16).to_le_bytes());
    for field in fields {
        let mut row = Vec::new();
        string(&mut row, &field.name);
        field_type(&mut row, &field.kind);
        sized(out, &row);
    }
}

fn field_type(out: &mut Vec<u8>, kind: &FieldType) {
    let simple = match kind {
        FieldType::Record(inner) => {
            out.push(1);
            return field_list(out, inner);
        }
        FieldType::Array(element) => {
            out.push(19);
            return field_type(out, element);
        }
        FieldType::Bool { .. } => 3,
        FieldType::Signed { bytes } => [5, 7, 9, 11][bytes.ilog2() as usize],
        FieldType::Unsigned { bytes } => [6, 8, 10, 12][bytes.ilog2() as usize],
        FieldType::Float => 13,
        FieldType::Double => 14,
        FieldType::Guid => 17,
        FieldType::Utf16Text => 18,
        other => panic!("no encoding for {other:?}: the recorded streams do not contain it"),
    };
    out.push(simple);
}

/// Writer state: ids of rows that events refer to, and rows of the next blocks.
#[derive(Default)]
struct Writer {
    /// The metadata id of each provider, event id and version.
    kinds: HashMap<(String, u32, u32), u32>,
    /// The index of each thread, and its last sequence number.
    threads: HashMap<u64, (u64, u32)>,
    metadata: Vec<u8>,
    thread_rows: Vec<u8>,
    stacks: Vec<Vec<u8>>,
    events: Vec<u8>,
    events_in_block: usize,
    /// Time of the previous event of the block.
    last_time: u64,
    last_sequence: u32,
}

impl Writer {
    /// Writes the blocks, rows before the events that refer to them, and a sequence point.
    fn flush(&mut self, out: &mut Vec<u8>) {
        let metadata = std::mem::take(&mut self.metadata);
        block(out, 3, &[&[2, 0, 0xaa, 0xbb], metadata.as_slice()].concat());
        block(out, 6, &std::mem::take(&mut self.thread_rows));
        let mut stacks = Vec::new();
        stacks.extend(1_u32.to_le_bytes());
        stacks.extend((self.stacks.len() as u32).to_le_bytes());
        for stack in self.stacks.drain(..) {
            stacks.extend((stack.len() as u32).to_le_bytes());
            stacks.extend(stack);
        }
        block(out, 5, &stacks);
        let mut events = Vec::new();
        for field in [20_u16, 1] {
            events.extend(field.to_le_bytes());
        }
        events.extend([0; 16]);
        events.append(&mut self.events);
        block(out, 2, &events);
        let mut point = Vec::new();
        point.extend(self.last_time.to_le_bytes());
        point.extend(0_u32.to_le_bytes());
        point.extend((self.threads.len() as u32).to_le_bytes());
        for &(thread, sequence) in self.threads.values() {
            var(&mut point, thread);
            var(&mut point, sequence.into());
        }
        block(out, 4, &point);
        (self.events_in_block, self.last_time, self.last_sequence) = (0, 0, 0);
    }
}

/// Rewrites the events whose index `keep` accepts. The others appear as dropped by the runtime.
pub(crate) fn write(stream: &[u8], keep: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut reader = Reader::open(stream).unwrap();
    let info = reader.info().clone();
    let process = info.process.unwrap();
    let mut out = Vec::from(b"Nettrace");
    for field in [0_u32, 6, 0] {
        out.extend(field.to_le_bytes());
    }
    let mut trace = Vec::new();
    for part in info.start_time {
        trace.extend(part.to_le_bytes());
    }
    trace.extend(info.start_ticks.to_le_bytes());
    trace.extend(info.ticks_per_second.to_le_bytes());
    trace.extend(8_u32.to_le_bytes());
    trace.extend(1_u32.to_le_bytes());
    string(&mut trace, "ProcessId");
    string(&mut trace, &process.to_string());
    block(&mut out, 1, &trace);
    // A block of an unknown kind.
    block(&mut out, 77, b"anything");

    let mut writer = Writer::default();
    let mut index = 0;
    while let Some(event) = reader.next_event().unwrap() {
        index += 1;
        let kind = event.metadata;
        let next = writer.kinds.len() as u32 + 1;
        let key = (kind.provider.clone(), kind.id, kind.version);
        let metadata_id = *writer.kinds.entry(key).or_insert_with(|| {
            let mut row = Vec::new();
            var(&mut row, next.into());
            string(&mut row, &kind.provider);
            var(&mut row, kind.id.into());
            string(&mut row, &kind.name);
            field_list(&mut row, kind.fields.as_deref().unwrap());
            let mut options = vec![3];
            options.extend(kind.keywords.to_le_bytes());
            options.extend([8, kind.level as u8, 9, kind.version as u8]);
            sized(&mut row, &options);
            sized(&mut writer.metadata, &row);
            next
        });
        let next = writer.threads.len() as u64 + 1;
        let thread_rows = &mut writer.thread_rows;
        let (thread, sequence) = writer
            .threads
            .entry(event.capture_thread)
            .or_insert_with(|| {
                let mut row = Vec::new();
                var(&mut row, next);
                row.push(1);
                string(&mut row, "a thread");
                row.push(2);
                var(&mut row, process.into());
                row.push(3);
                var(&mut row, event.capture_thread);
                sized(thread_rows, &row);
                (next, 0)
            });
        *sequence += 1;
        if !keep(index) {
            continue;
        }
        let stack: Vec<u8> = event.stack.addresses().flat_map(u64::to_le_bytes).collect();
        writer.stacks.push(stack);
        let events = &mut writer.events;
        // All fields but the labels. The sequence number is relative to the block's last event.
        events.push(1 | 2 | 4 | 8 | 128);
        var(events, metadata_id.into());
        let increment = sequence.wrapping_sub(1).wrapping_sub(writer.last_sequence);
        var(events, increment.into());
        writer.last_sequence = *sequence;
        var(events, *thread);
        var(events, 0);
        var(events, *thread);
        var(events, writer.stacks.len() as u64);
        var(events, event.time.0.wrapping_sub(writer.last_time));
        writer.last_time = event.time.0;
        var(events, event.payload.len() as u64);
        events.extend(event.payload);
        writer.events_in_block += 1;
        if writer.events_in_block == EVENTS_PER_BLOCK {
            writer.flush(&mut out);
        }
    }
    writer.flush(&mut out);
    block(&mut out, 0, &[]);
    out
}
