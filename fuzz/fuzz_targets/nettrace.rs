//! An event stream: the whole input, and the input after the preamble of each version.
#![no_main]

use std::cell::Cell;
use std::io;

use libfuzzer_sys::fuzz_target;
use perfcollect::nettrace::{OBJECTS_HEADER_BYTES, Reader, Relay, Value};
use perfcollect::output;
use perfcollect::trace::Trace;

/// The preambles of versions 4 and 6: the start of the object `Trace`, and the header of the block
/// `Trace`.
const OBJECTS: &[u8] =
    b"Nettrace\x14\0\0\0!FastSerialization.1\x05\x05\x01\x04\0\0\0\x04\0\0\0\x05\0\0\0Trace\x06";
const BLOCKS: &[u8] = b"Nettrace\0\0\0\0\x06\0\0\0\0\0\0\0\x28\0\0\x01";

/// Contents of `Trace`: no date, no time, one tick per nanosecond, 8-byte pointers, 0.
fn info() -> Vec<u8> {
    let mut info = vec![0; 24];
    info.extend(1_000_000_000_u64.to_le_bytes());
    info.extend(8_u64.to_le_bytes());
    info
}

fn read(stream: &[u8]) {
    let Ok(mut reader) = Reader::open(stream) else {
        return;
    };
    while let Ok(Some(event)) = reader.next_event() {
        assert!(event.payload.len() <= stream.len());
        assert!(event.stack.addresses().count() * 4 <= stream.len());
        if let Some(fields) = &event.metadata.fields {
            let _ = Value::parse(fields, event.payload);
        }
    }
    assert!(matches!(reader.next_event(), Ok(None)));
    let none = Trace::default();
    let _ = output::nettrace::rewrite(&none, stream, io::sink(), &|| false);
}

/// Relays the blocks of a stream. Every second one that may be left out finds no room.
fn relay(stream: &[u8]) {
    let Some((header, blocks)) = stream.split_at_checked(OBJECTS_HEADER_BYTES) else {
        return;
    };
    for leave_out in [false, true] {
        let is_full = Cell::new(false);
        let has_room = |_| {
            is_full.set(leave_out && !is_full.get());
            !is_full.get()
        };
        let mut relayed = header.to_vec();
        let mut relay = Relay::new(blocks);
        while let Ok(Some(block)) = relay.next_block(has_room) {
            relayed.extend(block);
        }
        assert!(relayed.len() <= stream.len() + 1);
        read(&relayed);
    }
}

fuzz_target!(|data: &[u8]| {
    read(data);
    let info = info();
    let objects = [OBJECTS, &info, &[0; 8], b"\x06", data].concat();
    read(&objects);
    relay(&objects);
    read(&[BLOCKS, &info, data].concat());
});
