//! Synthetic recordings in both byte orders.

use std::ops::ControlFlow;

use perf_event_open_sys::bindings as sys;

use super::error::Corruption;
use super::reader::Reader;
use crate::perf::Record;

/// Writer of integers and records in one byte order.
#[derive(Default)]
struct Writer {
    is_big: bool,
    bytes: Vec<u8>,
}

impl Writer {
    fn put<const N: usize>(&mut self, mut little: [u8; N]) -> &mut Self {
        if self.is_big {
            little.reverse();
        }
        self.bytes.extend(little);
        self
    }

    fn u64s(&mut self, numbers: &[u64]) -> &mut Self {
        for number in numbers {
            self.put(number.to_le_bytes());
        }
        self
    }

    fn u32s(&mut self, numbers: &[u32]) -> &mut Self {
        for number in numbers {
            self.put(number.to_le_bytes());
        }
        self
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self
    }

    fn record(&mut self, kind: u32, body: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self {
            is_big: self.is_big,
            bytes: Vec::new(),
        };
        body(&mut inner);
        self.u32s(&[kind]);
        self.put(2_u16.to_le_bytes());
        self.put((inner.bytes.len() as u16 + 8).to_le_bytes());
        self.raw(&inner.bytes)
    }
}

/// Returns the output of `perf record -o -`: one event, and records of several types.
fn pipe(is_big: bool) -> Vec<u8> {
    let mut pipe = Writer {
        is_big,
        bytes: Vec::new(),
    };
    pipe.raw(if is_big { b"2ELIFREP" } else { b"PERFILE2" })
        .u64s(&[16]);
    let sample_type = sys::PERF_SAMPLE_IP
        | sys::PERF_SAMPLE_TID
        | sys::PERF_SAMPLE_TIME
        | sys::PERF_SAMPLE_CPU
        | sys::PERF_SAMPLE_READ
        | sys::PERF_SAMPLE_CALLCHAIN
        | sys::PERF_SAMPLE_RAW
        | sys::PERF_SAMPLE_REGS_USER
        | sys::PERF_SAMPLE_STACK_USER;
    // sample_id_all and freq, as the machine lays out bit fields.
    let flags = (1_u64 << 18 | 1 << 10).to_le_bytes();
    let flags = if is_big {
        flags.map(u8::reverse_bits)
    } else {
        flags
    };
    pipe.record(64, |attribute| {
        attribute
            .u32s(&[1, 104])
            .u64s(&[0, 999, sample_type.into(), 0])
            .raw(&flags);
        attribute
            .raw(&[0; 24])
            .u64s(&[0, 0b111])
            .raw(&[0; 16])
            .u64s(&[77]);
    });
    pipe.record(80, |feature| {
        feature.u64s(&[6]).u32s(&[8]).raw(b"s390x\0\0\0");
    });
    let trailer = |record: &mut Writer| {
        record.u32s(&[5, 6]).u64s(&[1000]).u32s(&[3, 0]);
    };
    pipe.record(sys::PERF_RECORD_MMAP2, |mapping| {
        mapping
            .u32s(&[5, 6])
            .u64s(&[0x4000, 0x1000, 0x200])
            .u32s(&[8, 1]);
        mapping.u64s(&[42, 0]).u32s(&[5, 2]).raw(b"/bin/x\0\0");
        trailer(mapping);
    });
    pipe.record(sys::PERF_RECORD_COMM, |comm| {
        comm.u32s(&[5, 6]).raw(b"name\0\0\0\0");
        trailer(comm);
    });
    pipe.record(71, |aux| {
        aux.u64s(&[24, 0, 0, 0]).u32s(&[0, 0]);
    });
    pipe.raw(&[0xee; 24]);
    pipe.record(sys::PERF_RECORD_SAMPLE, |sample| {
        sample
            .u64s(&[0x4010])
            .u32s(&[5, 6])
            .u64s(&[2000])
            .u32s(&[3, 0]);
        sample.u64s(&[9, 2, sys::PERF_CONTEXT_USER, 0x4010]);
        sample.u32s(&[4]).raw(b"raw!").u64s(&[2, 10, 11, 12]);
        sample.u64s(&[8]).raw(b"stack...").u64s(&[8]);
    });
    pipe.record(68, |_| {});
    pipe.bytes
}

fn read(bytes: &[u8]) -> (Vec<String>, Reader<std::io::Cursor<&[u8]>>) {
    let mut reader = Reader::bytes(bytes).unwrap();
    let mut records = Vec::new();
    reader.each(|_, timed| {
        records.push(match timed.record {
            Record::Sample(sample) => {
                let chain: Vec<_> = sample.user_chain().collect();
                let registers = sample.registers;
                format!(
                    "{} {} {} {} {:x} {chain:x?} {:?} {:?} {registers:?}",
                    timed.time,
                    sample.pid,
                    sample.tid,
                    sample.cpu.0,
                    sample.ip,
                    str::from_utf8(sample.raw),
                    str::from_utf8(sample.stack),
                )
            }
            other => format!("{} {other:?}", timed.time),
        });
        ControlFlow::Continue(())
    });
    (records, reader)
}

#[test]
fn both_byte_orders_give_the_same_records() {
    let pipes = [pipe(false), pipe(true)];
    let (little, reader) = read(&pipes[0]);
    assert_eq!(reader.info.arch, "s390x");
    // The event also counts in guests, which is not the default of perf.
    assert_eq!(reader.info.events[0].name, "cpu-clock:HG");
    assert_eq!(
        (reader.info.events[0].period, &*reader.info.events[0].ids),
        (999, &[77][..])
    );
    assert!(reader.corruption.is_none() && reader.malformed == 0);
    let trace = reader.hardware_trace().unwrap();
    assert_eq!(trace, "24 bytes of hardware trace (AUX data: AUX)");
    let (big, reader) = read(&pipes[1]);
    assert!(reader.corruption.is_none() && reader.malformed == 0);
    assert_eq!(little, big);
    assert!(
        little[0].contains("start: 16384") && little[0].contains("inode: 42"),
        "{little:?}"
    );
    assert!(little[1].contains("Comm"), "{little:?}");
    // The registers of another architecture are skipped.
    assert_eq!(
        little[2],
        "2000 5 6 3 4010 [4010] Ok(\"raw!\") Ok(\"stack...\") None"
    );
}

#[test]
fn reports_truncation_at_any_position() {
    let whole = pipe(false);
    let (all, _) = read(&whole);
    for len in 16..whole.len() - 8 {
        let (records, reader) = read(&whole[..len]);
        assert!(all.starts_with(&records) || reader.info.arch.is_empty());
        let is_between_records = reader.corruption.is_none();
        assert!(
            is_between_records || matches!(reader.corruption, Some((_, Corruption::Truncated)))
        );
    }
}

#[test]
fn reports_corrupt_compression() {
    for data in [&b"\x28\xb5\x2f\xfdxxxxxxxxxxxx"[..], b"nonsense", &[0; 40]] {
        let mut bytes = pipe(false);
        let mut record = Writer::default();
        record.record(81, |body| {
            body.raw(data);
        });
        bytes.extend(record.bytes);
        let (records, reader) = read(&bytes);
        assert_eq!(records.len(), 3);
        assert!(reader.corruption.is_some(), "{data:x?}");
    }
}
