//! Recorded ring buffers: the bytes that the kernel wrote for each CPU, in a portable form.
//!
//! The tests that record and replay them (`src/perf/`) and the benches share this file.

// Each of them uses a different part.
#![allow(dead_code, unreachable_pub, clippy::expect_used)]

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// IP, TID, TIME, CALLCHAIN, CPU, PERIOD, REGS_USER, STACK_USER.
pub const SAMPLE_TYPE: u64 = 0x31a7;
/// bp, sp, ip.
pub const USER_REGS: u64 = 0x1c0;
/// The pid of the recorded program. No kernel assigns ids that high.
pub const FIRST_PID: i32 = 1 << 30;

/// Record types (PERF_RECORD_*) with fields that are read or changed.
pub const COMM: u32 = 3;
pub const EXIT: u32 = 4;
pub const FORK: u32 = 7;
pub const SAMPLE: u32 = 9;
pub const MMAP2: u32 = 10;

/// Replaces the path of the program in the recorded ring buffers.
const PROGRAM: &[u8] = b"/program";
const MMAP2_INODE_AT: usize = 48;
const MMAP2_PATH_AT: usize = 72;
const SAMPLE_TIME_AT: usize = 24;
const SAMPLE_CPU_AT: usize = 32;
/// Size of TID, TIME and CPU at the end of all records but samples.
const TRAILER_BYTES: usize = 24;

/// Returns the directory of the recorded ring buffers.
pub fn directory() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "rings"]
        .iter()
        .collect()
}

/// Returns the path of the recorded program.
pub fn program() -> PathBuf {
    directory().join("program")
}

/// Returns the ring buffer of each CPU, as if the program had run from its current path.
pub fn rings() -> Vec<Vec<u8>> {
    let file = |cpu| std::fs::read(directory().join(format!("cpu{cpu}.lz4")));
    (0..)
        .map_while(|cpu| file(cpu).ok())
        .map(|packed| {
            lz4_flex::block::decompress_size_prepended(&packed).expect("the corpus unpacks")
        })
        .map(|ring| records(&ring).flat_map(relocated).collect())
        .collect()
}

/// Returns the records in a part of a ring buffer.
pub fn records(mut ring: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let size: [u8; 2] = ring.get(6..8)?.try_into().ok()?;
        let record = ring.split_off(..usize::from(u16::from_le_bytes(size)))?;
        (!record.is_empty()).then_some(record)
    })
}

/// Returns the type of a record (PERF_RECORD_*).
pub fn kind(record: &[u8]) -> u32 {
    u32::from_le_bytes([record[0], record[1], record[2], record[3]])
}

/// Replaces the process and thread ids in the body and in the trailer of a record.
pub fn map_ids(record: &mut [u8], mut map: impl FnMut(i32) -> i32) {
    let in_body: &[usize] = match kind(record) {
        COMM | MMAP2 => &[8, 12],
        FORK | EXIT => &[8, 12, 16, 20],
        SAMPLE => &[16, 20],
        _ => &[],
    };
    let trailer = record.len() - TRAILER_BYTES;
    let in_trailer: &[usize] = match kind(record) {
        SAMPLE => &[],
        _ => &[trailer, trailer + 4],
    };
    for &at in in_body.iter().chain(in_trailer) {
        let id = &mut record[at..at + 4];
        let mapped = map(i32::from_le_bytes(id.try_into().expect("4 bytes")));
        id.copy_from_slice(&mapped.to_le_bytes());
    }
}

fn time_at(record: &[u8]) -> usize {
    match kind(record) {
        SAMPLE => SAMPLE_TIME_AT,
        _ => record.len() - 16,
    }
}

/// Returns the time of a record, in nanoseconds.
pub fn time(record: &[u8]) -> u64 {
    let at = time_at(record);
    u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"))
}

/// Sets the time and the CPU of a record.
pub fn move_to(record: &mut [u8], time: u64, cpu: u32) {
    let at = time_at(record);
    record[at..at + 8].copy_from_slice(&time.to_le_bytes());
    let at = match kind(record) {
        SAMPLE => SAMPLE_CPU_AT,
        _ => record.len() - 8,
    };
    record[at..at + 4].copy_from_slice(&cpu.to_le_bytes());
}

/// Whether a record reports a mapping of the file with this path.
fn maps_file(record: &[u8], path: &[u8]) -> bool {
    kind(record) == MMAP2
        && record[MMAP2_PATH_AT..].starts_with(path)
        && record[MMAP2_PATH_AT + path.len()] == 0
}

/// Returns a mapping record with another path and inode.
fn with_file(record: &[u8], path: &[u8], inode: u64) -> Vec<u8> {
    let mut new = record[..MMAP2_PATH_AT].to_vec();
    new[MMAP2_INODE_AT..][..8].copy_from_slice(&inode.to_le_bytes());
    new.extend_from_slice(path);
    new.push(0);
    new.resize(new.len().next_multiple_of(8), 0);
    new.extend_from_slice(&record[record.len() - TRAILER_BYTES..]);
    let size = u16::try_from(new.len()).expect("a path of usual length");
    new[6..8].copy_from_slice(&size.to_le_bytes());
    new
}

/// Replaces [`PROGRAM`] by the current path of the program, and updates its inode.
fn relocated(record: &[u8]) -> Vec<u8> {
    if !maps_file(record, PROGRAM) {
        return record.to_vec();
    }
    let program = program();
    let inode = program.metadata().expect("the program is there").ino();
    with_file(record, program.as_os_str().as_bytes(), inode)
}

/// Replaces the path of the recorded program by [`PROGRAM`]: the reverse of `relocated`.
pub fn portable(record: &[u8], path: &[u8]) -> Vec<u8> {
    if maps_file(record, path) {
        with_file(record, PROGRAM, 1)
    } else {
        record.to_vec()
    }
}
