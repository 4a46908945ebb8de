//! `metadata`: the declaration of a trace in TSDL, in packets.
//!
//! PerfView supports the subset of TSDL that LTTng writes: each declaration starts on a new line,
//! integers have a type, and there are no comments.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::super::time_zero::TimeZero;
use crate::trace::Trace;

const MAGIC: u32 = 0x75d1_1d57;
/// Sizes of a packet and of its header.
const PACKET_BYTES: usize = 4096;
const HEADER_BYTES: usize = 37;

/// Declarations before those of the events.
const TYPES: &str = r#"typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
"#;

const PACKETS: &str = r#"typealias integer { size = 32; align = 8; signed = false; map = clock.monotonic.value; } := uint32_clock_monotonic_t;
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := uint64_clock_monotonic_t;
struct packet_context {
	uint64_clock_monotonic_t timestamp_begin;
	uint64_clock_monotonic_t timestamp_end;
	uint64_t content_size;
	uint64_t packet_size;
	uint64_t packet_seq_num;
	uint64_t events_discarded;
	uint32_t cpu_id;
} align(8);
struct event_header_large {
	enum : uint16_t { compact = 0 ... 65534, extended = 65535 } id;
	variant <id> {
		struct {
			uint32_clock_monotonic_t timestamp;
		} compact;
		struct {
			uint32_t id;
			uint64_clock_monotonic_t timestamp;
		} extended;
	} v;
} align(8);
stream {
	id = 0;
	event.header := struct event_header_large;
	packet.context := struct packet_context;
	event.context := struct {
		integer { size = 32; align = 8; signed = 1; encoding = none; base = 10; } _vpid;
		integer { size = 32; align = 8; signed = 1; encoding = none; base = 10; } _vtid;
		integer { size = 8; align = 8; signed = 1; encoding = UTF8; base = 10; } _procname[17];
	};
};
"#;

/// The fields of all events except the marker event.
const FIELDS: &str = r#"struct {
		integer { size = 32; align = 8; signed = 0; encoding = none; base = 10; } _length;
		integer { size = 32; align = 8; signed = 0; encoding = none; base = 10; } ____data___length;
		integer { size = 8; align = 8; signed = 1; encoding = none; base = 10; } ___data__[ ____data___length ];
	}"#;

pub(super) fn write(trace: &Trace, names: &[String], out: &mut impl Write) -> io::Result<()> {
    let uuid = super::uuid(trace);
    for part in text(trace, names)
        .as_bytes()
        .chunks(PACKET_BYTES - HEADER_BYTES)
    {
        let mut packet = Vec::with_capacity(PACKET_BYTES);
        packet.extend(MAGIC.to_le_bytes());
        packet.extend(uuid.as_bytes());
        packet.extend(0_u32.to_le_bytes());
        for bytes in [HEADER_BYTES + part.len(), PACKET_BYTES] {
            packet.extend((8 * bytes as u32).to_le_bytes());
        }
        // No compression, encryption or checksum; version 1.8.
        packet.extend([0, 0, 0, 1, 8]);
        packet.extend(part);
        packet.resize(PACKET_BYTES, 0);
        out.write_all(&packet)?;
    }
    Ok(())
}

fn text(trace: &Trace, names: &[String]) -> String {
    let uuid = super::uuid(trace);
    let mut text = TYPES.to_owned();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "trace {{\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"{uuid}\";\n\tbyte_order = le;\n\tpacket.header := struct {{\n\
         \t\tuint32_t magic;\n\t\tuint8_t uuid[16];\n\t\tuint32_t stream_id;\n\t\tuint64_t stream_instance_id;\n\t}};\n}};\n\
         env {{\n\thostname = \"localhost\";\n\tdomain = \"ust\";\n\ttracer_name = \"lttng-ust\";\n\ttracer_major = 2;\n\
         \ttracer_minor = 12;\n}};\n\
         clock {{\n\tname = \"monotonic\";\n\tuuid = \"{uuid}\";\n\tdescription = \"Monotonic Clock\";\n\
         \tfreq = 1000000000;\n\toffset = {};\n}};\n",
        TimeZero::new(trace).ctf_offset()
    );
    text.push_str(PACKETS);
    for (id, name) in names.iter().enumerate() {
        let fields = match id {
            0 => "struct {\n\t}",
            _ => FIELDS,
        };
        let _ = write!(
            text,
            "event {{\n\tname = \"{name}\";\n\tid = {id};\n\tstream_id = 0;\n\tloglevel = 13;\n\tfields := {fields};\n}};\n"
        );
    }
    text
}
