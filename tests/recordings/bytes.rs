//! Recordings that no available machine can make, written byte by byte from the documentation of
//! kernel and perf (`tools/perf/Documentation/perf.data-file-format.txt`, `<linux/perf_event.h>`).

use std::ops::ControlFlow;
use std::process::Command;

use perf_event_open_sys::bindings as sys;
use perfcollect::perf::{CALLCHAIN_DEFERRED, CpuMode, Record};
use perfcollect::perf_data::Reader;

use crate::support::perf_script::can_run_perf;

/// `sizeof(struct perf_event_attr)` since Linux 3.7.
const ATTRIBUTE_BYTES: usize = 96;
/// `PERF_CONTEXT_USER_DEFERRED`.
const USER_DEFERRED: u64 = -640_i64 as u64;
const FINISHED_ROUND: u32 = 68;
const HEADER_ATTR: u32 = 64;
const TRACING_DATA: u32 = 66;

/// `perf_event_attr`: type, config, flags, and the contents of samples.
#[derive(Clone, Copy, Default)]
pub(crate) struct Attribute {
    pub(crate) kind: u32,
    pub(crate) config: u64,
    /// The bit field, `disabled` first.
    pub(crate) flags: u64,
    pub(crate) sample_type: u32,
    /// `bp_type` and `bp_addr`.
    pub(crate) breakpoint: (u32, u64),
}

impl Attribute {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.kind.to_le_bytes());
        bytes.extend((ATTRIBUTE_BYTES as u32).to_le_bytes());
        bytes.extend(self.config.to_le_bytes());
        bytes.extend(1000_u64.to_le_bytes());
        bytes.extend(u64::from(self.sample_type).to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(self.breakpoint.0.to_le_bytes());
        bytes.extend(self.breakpoint.1.to_le_bytes());
        bytes.resize(ATTRIBUTE_BYTES, 0);
        bytes
    }
}

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = (8 + body.len()) as u16;
    [
        &kind.to_le_bytes()[..],
        &misc.to_le_bytes(),
        &size.to_le_bytes(),
        body,
    ]
    .concat()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns a piped recording: attributes, then records.
fn pipe(attributes: &[Attribute], records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"PERFILE2\x10\0\0\0\0\0\0\0".to_vec();
    for attribute in attributes {
        bytes.extend(record(HEADER_ATTR, 0, &attribute.bytes()));
    }
    bytes.extend(records.concat());
    bytes
}

/// Returns a recording in a file: header, attributes, records, and no sections.
fn file(attributes: &[Attribute], records: &[Vec<u8>]) -> Vec<u8> {
    let entry = ATTRIBUTE_BYTES as u64 + 16;
    let (header, attributes_bytes) = (104, entry * attributes.len() as u64);
    let records = records.concat();
    let mut bytes = b"PERFILE2".to_vec();
    let places = [
        header,
        entry,
        header,
        attributes_bytes,
        header + attributes_bytes,
        records.len() as u64,
    ];
    bytes.extend(words(&places));
    bytes.resize(header as usize, 0);
    for attribute in attributes {
        bytes.extend(attribute.bytes());
        bytes.extend(words(&[0, 0]));
    }
    bytes.extend(records);
    bytes
}

const SAMPLE_ID_ALL: u64 = 1 << 18;
const EXCLUDES_USER: u64 = 1 << 4;
const EXCLUDES_KERNEL: u64 = 1 << 5;
const EXCLUDES_HYPERVISOR: u64 = 1 << 6;
const EXCLUDES_HOST: u64 = 1 << 19;
const EXCLUDES_GUEST: u64 = 1 << 20;

/// If the recording has no name, `perf evlist` derives it, as does perfcollect.
#[test]
fn events_without_a_name_have_that_of_perf() {
    need!(can_run_perf());
    let modifiers = [
        0,
        EXCLUDES_GUEST,
        EXCLUDES_HOST,
        EXCLUDES_KERNEL | EXCLUDES_HYPERVISOR | EXCLUDES_GUEST,
        EXCLUDES_KERNEL | EXCLUDES_HYPERVISOR,
        EXCLUDES_USER | EXCLUDES_HYPERVISOR | EXCLUDES_GUEST,
        EXCLUDES_KERNEL | EXCLUDES_HOST,
        1 << 15,
        2 << 15 | EXCLUDES_GUEST,
        3 << 15 | EXCLUDES_GUEST | EXCLUDES_KERNEL,
    ];
    let mut attributes = Vec::new();
    for flags in modifiers {
        let kinds = [
            (sys::PERF_TYPE_HARDWARE, 0..10),
            (sys::PERF_TYPE_SOFTWARE, 0..9),
            (sys::PERF_TYPE_RAW, 0x1b7..0x1b8),
        ];
        for (kind, configs) in kinds {
            attributes.extend(configs.map(|config| Attribute {
                kind,
                config,
                flags,
                ..Attribute::default()
            }));
        }
        for cache in 0..7 {
            // perf calls others `invalid-cache`.
            let accesses = match cache {
                1 => &[0, 2][..],
                4 | 5 => &[0],
                _ => &[0, 1, 2],
            };
            for access in accesses {
                attributes.extend([0, 1].map(|result| Attribute {
                    kind: sys::PERF_TYPE_HW_CACHE,
                    config: cache | access << 8 | result << 16,
                    flags,
                    ..Attribute::default()
                }));
            }
        }
        attributes.extend((1..8).map(|access| Attribute {
            kind: sys::PERF_TYPE_BREAKPOINT,
            flags,
            breakpoint: (access, 0x40_1000),
            ..Attribute::default()
        }));
    }
    for attribute in &mut attributes {
        // perf distinguishes them by it.
        attribute.sample_type = sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_IDENTIFIER;
        attribute.flags |= SAMPLE_ID_ALL;
    }
    let comm = record(
        sys::PERF_RECORD_COMM,
        0,
        &words(&[
            1 << 32 | 1,
            u64::from_le_bytes(*b"init\0\0\0\0"),
            1 << 32 | 1,
            0,
        ]),
    );
    let bytes = file(&attributes, &[comm]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("perf.data");
    std::fs::write(&path, &bytes).unwrap();
    let output = Command::new("perf")
        .args(["evlist", "-i"])
        .arg(&path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let theirs: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(theirs.len(), attributes.len(), "{text} {said}");
    let reader = Reader::bytes(&bytes).unwrap();
    let ours: Vec<_> = reader
        .info
        .events
        .iter()
        .map(|event| &*event.name)
        .collect();
    for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(*ours, theirs, "{at}");
    }
}

/// Returns a sample of thread 7: time, callchain.
fn sample(time: u64, chain: &[u64]) -> Vec<u8> {
    let body = [
        &[0xffff_ffff_8100_0000, 7 << 32 | 7, time, chain.len() as u64],
        chain,
    ]
    .concat();
    let kernel = sys::PERF_RECORD_MISC_KERNEL as u16;
    record(sys::PERF_RECORD_SAMPLE, kernel, &words(&body))
}

/// Returns the fields that `sample_id_all` appends to other records.
fn id_of(time: u64) -> [u64; 2] {
    [7 << 32 | 7, time]
}

/// Returns the user part of a callchain.
fn deferred(time: u64, cookie: u64, chain: &[u64]) -> Vec<u8> {
    let body = [&[cookie, chain.len() as u64], chain, &id_of(time)].concat();
    record(CALLCHAIN_DEFERRED, 0, &words(&body))
}

/// Time, kernel addresses, user addresses.
type ReadSample = (u64, Vec<u64>, Vec<u64>);

fn samples(records: &[Vec<u8>]) -> (Vec<ReadSample>, u64) {
    let attribute = Attribute {
        kind: sys::PERF_TYPE_SOFTWARE,
        // And defer_callchain.
        flags: SAMPLE_ID_ALL | 1 << 38,
        sample_type: sys::PERF_SAMPLE_IP
            | sys::PERF_SAMPLE_TID
            | sys::PERF_SAMPLE_TIME
            | sys::PERF_SAMPLE_CALLCHAIN,
        ..Attribute::default()
    };
    let bytes = pipe(&[attribute], records);
    let mut reader = Reader::bytes(&bytes).unwrap();
    let mut read = Vec::new();
    reader.each(|_, entry| {
        if let Record::Sample(sample) = entry.record {
            let side = |wanted| {
                let addresses = sample.addresses().filter(move |(mode, _)| *mode == wanted);
                addresses.map(|(_, address)| address).collect()
            };
            read.push((entry.time.0, side(CpuMode::Kernel), side(CpuMode::User)));
        }
        ControlFlow::Continue(())
    });
    assert!(reader.corruption.is_none() && reader.malformed == 0 && reader.late() == 0);
    (read, reader.without_user_callers())
}

/// Linux 6.19 records user callers when a thread returns from the kernel; two samples may share
/// them.
#[test]
fn user_callers_that_come_later_join_their_samples() {
    const KERNEL: u64 = sys::PERF_CONTEXT_KERNEL;
    const USER: u64 = sys::PERF_CONTEXT_USER;
    let round = record(FINISHED_ROUND, 0, &[]);
    let (read, missing) = samples(&[
        sample(10, &[KERNEL, 1, 2, USER_DEFERRED, 99]),
        sample(20, &[KERNEL, 3, USER_DEFERRED, 99]),
        sample(30, &[USER, 4, 5]),
        round.clone(),
        sample(40, &[USER, 6]),
        round.clone(),
        // Of another kernel entry, and without a marker.
        deferred(50, 98, &[7]),
        deferred(60, 99, &[USER, 8, 9]),
        sample(70, &[KERNEL, 1, USER_DEFERRED, 100]),
        deferred(80, 100, &[10]),
        round.clone(),
        sample(90, &[KERNEL, 1, USER_DEFERRED, 101]),
        round.clone(),
        round,
    ]);
    let expected: [ReadSample; 6] = [
        (10, vec![1, 2], vec![8, 9]),
        (20, vec![3], vec![8, 9]),
        (30, vec![], vec![4, 5]),
        (40, vec![], vec![6]),
        (70, vec![1], vec![10]),
        (90, vec![1], vec![]),
    ];
    assert_eq!((&read[..], missing), (&expected[..], 1));
}

/// If the thread ends before it returns to user space, its samples are completed without callers.
#[test]
fn samples_of_a_thread_that_ends_wait_no_longer() {
    let exit = [&[7 << 32 | 7, 7 << 32 | 7, 20], &id_of(20)[..]].concat();
    let (read, missing) = samples(&[
        sample(10, &[sys::PERF_CONTEXT_KERNEL, 1, USER_DEFERRED, 99]),
        record(sys::PERF_RECORD_EXIT, 0, &words(&exit)),
        // A reused cookie does not belong to them.
        deferred(30, 99, &[5]),
    ]);
    assert_eq!((read, missing), (vec![(10, vec![1], vec![])], 1));
}

/// Returns what perf copies of tracefs for one tracepoint.
fn tracing_data(system: &str, format: &str) -> Vec<u8> {
    let mut data = b"\x17\x08\x44tracing0.6\0\0\x08\0\x10\0\0".to_vec();
    for name in ["header_page", "header_event"] {
        data.extend(name.as_bytes());
        data.push(0);
        data.extend(words(&[0]));
    }
    let count = |count: u32| count.to_le_bytes();
    data.extend([count(0), count(1)].concat());
    data.extend(system.as_bytes());
    data.push(0);
    data.extend(count(1));
    data.extend(words(&[format.len() as u64]));
    data.extend(format.as_bytes());
    // No kallsyms, no printk_formats.
    data.extend([count(0), count(0)].concat());
    data
}

/// Old pipes contain no event names, but the formats of tracepoints.
#[test]
fn tracepoints_of_old_pipes_have_their_names() {
    let tracepoint = |config| Attribute {
        kind: sys::PERF_TYPE_TRACEPOINT,
        config,
        ..Attribute::default()
    };
    let data = tracing_data("sched", "name: sched_switch\nID: 1329\nformat:\n");
    let size = (data.len() as u32).to_le_bytes();
    let padding = vec![0; data.len().next_multiple_of(8) - data.len()];
    let record = [record(TRACING_DATA, 0, &size), data, padding].concat();
    let bytes = pipe(&[tracepoint(1329), tracepoint(7)], &[record]);
    let reader = Reader::bytes(&bytes).unwrap();
    let names: Vec<_> = reader
        .info
        .events
        .iter()
        .map(|event| &*event.name)
        .collect();
    assert_eq!(names, ["sched:sched_switch", "event-2-0x7"]);
}
