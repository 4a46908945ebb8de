//! Writes a stream anew in version 6 of the format, which runtimes do not send.

use std::collections::HashMap;

use perfcollect::nettrace::{Field, FieldType, Reader};

/// Events between two sequence points.
const EVENTS_A_BLOCK: usize = 500;

fn var(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn text(out: &mut Vec<u8>, text: &str) {
    var(out, text.len() as u64);
    out.extend(text.as_bytes());
}

fn sized(out: &mut Vec<u8>, content: &[u8]) {
    out.extend((content.len() as u16).to_le_bytes());
    out.extend(content);
}

fn block(out: &mut Vec<u8>, kind: u32, content: &[u8]) {
    out.extend((content.len() as u32 | kind << 24).to_le_bytes());
    out.extend(content);
}

fn fields(out: &mut Vec<u8>, of: &[Field]) {
    out.extend((of.len() as u16).to_le_bytes());
    for field in of {
        let mut row = Vec::new();
        text(&mut row, &field.name);
        field_type(&mut row, &field.kind);
        sized(out, &row);
    }
}

fn field_type(out: &mut Vec<u8>, kind: &FieldType) {
    let simple = match kind {
        FieldType::Record(inner) => {
            out.push(1);
            return fields(out, inner);
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
        other => panic!("{other:?} is not in the streams that are rewritten"),
    };
    out.push(simple);
}

/// What has been written of the rows that events refer to.
#[derive(Default)]
struct Written {
    /// The id of each kind: provider, number, version.
    kinds: HashMap<(String, u32, u32), u32>,
    /// The index of each thread, and the events it has made.
    threads: HashMap<u64, (u64, u32)>,
    metadata: Vec<u8>,
    thread_rows: Vec<u8>,
    stacks: Vec<Vec<u8>>,
    events: Vec<u8>,
    events_in_block: usize,
    /// Of the event before in the block.
    last_time: u64,
    last_sequence: u32,
}

impl Written {
    /// Puts down what has come together, rows before the events that refer to them, and a sequence point.
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
        for number in [20_u16, 1] {
            events.extend(number.to_le_bytes());
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

/// The stream with the events that `keep` wants, by their number; the others are as if dropped by the runtime.
pub(crate) fn write(stream: &[u8], keep: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut reader = Reader::open(stream).unwrap();
    let info = *reader.info();
    let process = info.process.unwrap();
    let mut out = Vec::from(b"Nettrace");
    for number in [0_u32, 6, 0] {
        out.extend(number.to_le_bytes());
    }
    let mut trace = Vec::new();
    for part in info.began {
        trace.extend(part.to_le_bytes());
    }
    trace.extend(info.began_ticks.to_le_bytes());
    trace.extend(info.ticks_per_second.to_le_bytes());
    trace.extend(8_u32.to_le_bytes());
    trace.extend(1_u32.to_le_bytes());
    text(&mut trace, "ProcessId");
    text(&mut trace, &process.to_string());
    block(&mut out, 1, &trace);
    // A kind of block that is not known.
    block(&mut out, 77, b"anything");

    let mut written = Written::default();
    let mut number = 0;
    while let Some(event) = reader.next_event().unwrap() {
        number += 1;
        let kind = event.kind;
        let next = written.kinds.len() as u32 + 1;
        let key = (kind.provider.clone(), kind.id, kind.version);
        let metadata_id = *written.kinds.entry(key).or_insert_with(|| {
            let mut row = Vec::new();
            var(&mut row, next.into());
            text(&mut row, &kind.provider);
            var(&mut row, kind.id.into());
            text(&mut row, &kind.name);
            fields(&mut row, kind.fields.as_deref().unwrap());
            let mut options = vec![3];
            options.extend(kind.keywords.to_le_bytes());
            options.extend([8, kind.level as u8, 9, kind.version as u8]);
            sized(&mut row, &options);
            sized(&mut written.metadata, &row);
            next
        });
        let next = written.threads.len() as u64 + 1;
        let thread_rows = &mut written.thread_rows;
        let (thread, sequence) = written
            .threads
            .entry(event.capture_thread)
            .or_insert_with(|| {
                let mut row = Vec::new();
                var(&mut row, next);
                row.push(1);
                text(&mut row, "a thread");
                row.push(2);
                var(&mut row, process.into());
                row.push(3);
                var(&mut row, event.capture_thread);
                sized(thread_rows, &row);
                (next, 0)
            });
        *sequence += 1;
        if !keep(number) {
            continue;
        }
        let stack: Vec<u8> = event.stack.addresses().flat_map(u64::to_le_bytes).collect();
        written.stacks.push(stack);
        let events = &mut written.events;
        // All fields but the labels; the sequence number counts from the last event of the block.
        events.push(1 | 2 | 4 | 8 | 128);
        var(events, metadata_id.into());
        let step = sequence.wrapping_sub(1).wrapping_sub(written.last_sequence);
        var(events, step.into());
        written.last_sequence = *sequence;
        var(events, *thread);
        var(events, 0);
        var(events, *thread);
        var(events, written.stacks.len() as u64);
        var(events, event.time.0.wrapping_sub(written.last_time));
        written.last_time = event.time.0;
        var(events, event.payload.len() as u64);
        events.extend(event.payload);
        written.events_in_block += 1;
        if written.events_in_block == EVENTS_A_BLOCK {
            written.flush(&mut out);
        }
    }
    written.flush(&mut out);
    block(&mut out, 0, &[]);
    out
}
