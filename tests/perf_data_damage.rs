//! Recordings that are damaged: no panic, no hang, bounded memory, and what was before the damage.
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
use support::recording::{can_record, record, record_pipe};
use tempfile::TempDir;

/// Far more than a small file takes.
const LIMIT: Duration = Duration::from_secs(20);

/// Numbers as a fuzzer would choose them, the same in each run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

fn recordings(folder: &TempDir) -> Vec<Vec<u8>> {
    let command = [
        "sh",
        "-c",
        "for i in $(seq 20); do ls /usr >/dev/null; done",
    ];
    let file = folder.path().join("perf.data");
    let mut recordings = Vec::new();
    let ways: [&[&str]; 3] = [
        &["-F", "2999", "-g"],
        &["-F", "2999", "-z", "-g", "-e", "cpu-clock,page-faults"],
        &["-F", "4999", "--call-graph", "dwarf,4096"],
    ];
    for options in ways {
        record(&file, options, command);
        recordings.push(std::fs::read(&file).unwrap());
        record_pipe(&file, options, command);
        recordings.push(std::fs::read(&file).unwrap());
    }
    recordings
}

/// Samples of a recording, and whether it is said to be damaged.
fn read(bytes: &[u8]) -> (usize, bool) {
    let Ok(mut reader) = Reader::bytes(bytes) else {
        return (0, true);
    };
    let mut samples = 0;
    reader.each(|_, entry| {
        samples += usize::from(matches!(entry.record, Record::Sample(_)));
        ControlFlow::Continue(())
    });
    (samples, reader.damage.is_some() || reader.malformed > 0)
}

#[test]
#[ignore = "slow"]
fn damaged_recordings_are_read_as_far_as_they_go() {
    need!(can_record());
    let folder = tempfile::tempdir().unwrap();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for whole in recordings(&folder) {
        let (all, is_damaged) = read(&whole);
        assert!(all > 2 && !is_damaged, "{all}");
        for cut in 1..=10 {
            let (samples, is_damaged) = read(&whole[..whole.len() * cut / 11]);
            assert!(samples <= all);
            // A cut between two records of a pipe cannot be seen.
            assert!(is_damaged || samples < all || cut == 10, "cut {cut}");
        }
        for _ in 0..40 {
            let mut damaged = whole.clone();
            for _ in 0..=numbers.below(8) {
                let at = match numbers.below(3) {
                    0 => numbers.below(damaged.len().min(4096)),
                    _ => numbers.below(damaged.len()),
                };
                damaged[at] = [0, 1, 0x7f, 0x80, 0xff, numbers.below(256) as u8][numbers.below(6)];
            }
            let begin = Instant::now();
            let (samples, _) = read(&damaged);
            assert!(samples <= 2 * all + 1000, "{samples} of {all}");
            if let Ok(mut reader) = Reader::bytes(&damaged) {
                let recorded = RecordingFiles::new(None, None).unwrap();
                print(
                    &mut reader,
                    recorded,
                    Some(Path::new("/dev/null")),
                    Fields::all(),
                    true,
                    sink(),
                    &mut |_| (),
                )
                .unwrap();
            }
            assert!(begin.elapsed() < LIMIT);
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
fn lengths_that_lie_take_no_memory() {
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
    let (samples, is_damaged) = read(&header);
    assert!(samples == 0 && is_damaged);
}
