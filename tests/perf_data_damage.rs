//! Corrupt recordings: no panic, no hang, bounded memory, and all records before the corruption.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::io::sink;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use perfcollect::machine::RecordingFiles;
use perfcollect::perf::Record;
use perfcollect::perf_data::Reader;
use perfcollect::script::{Fields, print};
use support::random::Random;
use support::recording::{can_record, record, record_pipe};
use tempfile::TempDir;

/// Time limit to detect a hang, far longer than reading a small file takes.
const LIMIT: Duration = Duration::from_secs(20);

fn recordings(directory: &TempDir) -> Vec<Vec<u8>> {
    let command = [
        "sh",
        "-c",
        "for i in $(seq 20); do ls /usr >/dev/null; done",
    ];
    let file = directory.path().join("perf.data");
    let mut recordings = Vec::new();
    let variants: [&[&str]; 3] = [
        &["-F", "2999", "-g"],
        &["-F", "2999", "-z", "-g", "-e", "cpu-clock,page-faults"],
        &["-F", "4999", "--call-graph", "dwarf,4096"],
    ];
    for options in variants {
        record(&file, options, command);
        recordings.push(std::fs::read(&file).unwrap());
        record_pipe(&file, options, command);
        recordings.push(std::fs::read(&file).unwrap());
    }
    recordings
}

/// Returns the number of samples and whether the reader reports corruption.
fn read(bytes: &[u8]) -> (usize, bool) {
    let Ok(mut reader) = Reader::bytes(bytes) else {
        return (0, true);
    };
    let mut samples = 0;
    reader.each(|_, timed| {
        samples += usize::from(matches!(timed.record, Record::Sample(_)));
        ControlFlow::Continue(())
    });
    (samples, reader.corruption.is_some() || reader.malformed > 0)
}

#[test]
#[ignore = "slow"]
fn reads_corrupt_recordings_up_to_the_corruption() {
    need!(can_record());
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut below = |end: usize| random.below(end as u64) as usize;
    for whole in recordings(&directory) {
        let (all, is_corrupt) = read(&whole);
        assert!(all > 2 && !is_corrupt, "{all}");
        for elevenths in 1..=10 {
            let (samples, is_corrupt) = read(&whole[..whole.len() * elevenths / 11]);
            assert!(samples <= all);
            // Truncation between two records of a pipe cannot be detected.
            let is_detected = is_corrupt || samples < all;
            assert!(is_detected || elevenths == 10, "{elevenths}/11");
        }
        for _ in 0..40 {
            let mut corrupt = whole.clone();
            for _ in 0..=below(8) {
                let at = match below(3) {
                    0 => below(corrupt.len().min(4096)),
                    _ => below(corrupt.len()),
                };
                corrupt[at] = [0, 1, 0x7f, 0x80, 0xff, below(256) as u8][below(6)];
            }
            let start = Instant::now();
            let (samples, _) = read(&corrupt);
            assert!(samples <= 2 * all + 1000, "{samples} of {all}");
            if let Ok(mut reader) = Reader::bytes(&corrupt) {
                let files = RecordingFiles::new(None, None).unwrap();
                print(
                    &mut reader,
                    files,
                    Some(Path::new("/dev/null")),
                    Fields::all(),
                    true,
                    sink(),
                    &mut |_| (),
                )
                .unwrap();
            }
            assert!(start.elapsed() < LIMIT);
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 1 << 20, "{peak} KiB");
}

#[test]
fn invalid_lengths_allocate_no_memory() {
    let mut header = b"PERFILE2".to_vec();
    for number in [104_u64, 144, 104, 144, 248, u64::MAX - 300, 0, 0] {
        header.extend(number.to_le_bytes());
    }
    header.extend([0xff; 32]);
    header.resize(104, 0);
    header.extend([0; 128]);
    header.extend([248_u64.to_le_bytes(), u64::MAX.to_le_bytes()].concat());
    let mut record = vec![9, 0, 0, 0, 1, 0, 0xff, 0xff];
    record.resize(2000, 0xff);
    header.extend(record);
    let (samples, is_corrupt) = read(&header);
    assert!(samples == 0 && is_corrupt);
}
