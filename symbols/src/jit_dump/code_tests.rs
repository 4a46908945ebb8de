//! The records of a function of Node.js 20 (`--perf-prof`), with short code.
#![allow(clippy::unwrap_used)]

use std::io::{Seek, Write};

use proptest::prelude::*;

use super::*;
use crate::elf::Saved;

/// `.eh_frame` of a function of 356 bytes: `push rbp` before 16, `mov rbp, rsp` before 18, `pop rbp`
/// before 188.
const EH_FRAME: &str = "1800000000000000037a4c520001781002ff1b0c07089001000000002000000020000000\
                        74feffff61010000004f0e108602430d0602a30d07410e08520c061000000000";
const START: u64 = 0x7fef_6000_6900;
const CODE_BYTES: usize = 356;

fn eh_frame() -> Vec<u8> {
    let digits = EH_FRAME.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

#[derive(Default)]
struct Records(Vec<u8>);

impl Records {
    fn new() -> Self {
        let mut records = Self::default();
        for word in [0x4a69_5444_u32, 1, 40, 62, 0, 7] {
            records.0.extend(word.to_le_bytes());
        }
        records.0.extend([0; 16]);
        records
    }

    fn add(mut self, kind: u32, time: u64, words: &[u64], rest: &[u8]) -> Self {
        let bytes = PREFIX_BYTES + words.len() * 8 + rest.len();
        self.0.extend(kind.to_le_bytes());
        self.0.extend((bytes as u32).to_le_bytes());
        self.0.extend(time.to_le_bytes());
        self.0
            .extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.0.extend(rest);
        self
    }

    /// As V8 writes it: with a header table of 20 bytes.
    fn unwinding(self, eh_frame: &[u8]) -> Self {
        let words = [eh_frame.len() as u64 + 20, 20, 0];
        let rest = [eh_frame, &[0; 20]].concat();
        self.add(UNWINDING_INFO, 0, &words, &rest)
    }

    fn load(self, time: u64, start: u64, code: &[u8]) -> Self {
        let words = [7, start, start, code.len() as u64, 0];
        self.add(LOAD, time, &words, &[b"name\0", code].concat())
    }

    fn read(self) -> Result<JitDumpCode, JitDumpError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&self.0).unwrap();
        file.rewind().unwrap();
        JitDumpCode::read(file)
    }
}

#[test]
fn reads_code_and_unwind_information_of_a_function() {
    let code = [0x90; CODE_BYTES];
    let records = Records::new().unwinding(&eh_frame()).load(5, START, &code);
    let dump = records.load(6, START + 512, &[1, 2, 3]).read().unwrap();
    let function = dump.lookup(START + 100, 10).unwrap();
    let (rows, _) = dump.call_frames(function).unwrap().rows(START + 100);
    let frames: Vec<_> = rows
        .iter()
        .map(|row| (row.range.start - START, row.cfa, row.frame_pointer))
        .collect();
    let saved = Saved::AtCfa(-16);
    assert_eq!(
        frames,
        [
            (0, Some((7, 8)), Saved::Same),
            (15, Some((7, 16)), saved),
            (18, Some((6, 16)), saved),
            (181, Some((7, 16)), saved),
            (182, Some((7, 8)), saved),
            (200, Some((6, 16)), saved),
        ]
    );
    let other = dump.lookup(START + 513, 10).unwrap();
    let range = START + 513..START + 515;
    assert_eq!(dump.code(other, range).unwrap(), [2, 3]);
    assert!(dump.code(other, START + 513..START + 516).is_err());
    assert!(dump.call_frames(other).is_none());
    assert!(dump.lookup(START + 400, 10).is_none());
}

#[test]
fn later_functions_replace_earlier_ones() {
    let dump = Records::new()
        .load(5, START, &[1; 16])
        .load(9, START, &[2; 16]);
    let words = [7, 0, START, START + 64, 16, 0];
    let dump = dump.add(MOVE, 12, &words, &[]).read().unwrap();
    let first_byte = |address, time| {
        let function = dump.lookup(address, time).unwrap();
        dump.code(function, address..address + 1).unwrap()[0]
    };
    assert_eq!(
        [5, 8, 9, 99].map(|time| first_byte(START, time)),
        [1, 1, 2, 2]
    );
    // The clock of the recording is another.
    assert_eq!(first_byte(START, 1), 1);
    assert_eq!(first_byte(START + 64, 12), 2);
}

proptest! {
    #[test]
    fn accepts_damaged_files(at in 0_usize..600, byte in any::<u8>(), length in 0_usize..700) {
        let records = Records::new().unwinding(&eh_frame()).load(5, START, &[0x90; CODE_BYTES]);
        let mut bytes = records.0;
        bytes.truncate(length);
        if let Some(damaged) = bytes.get_mut(at) {
            *damaged = byte;
        }
        if let Ok(dump) = Records(bytes).read()
            && let Some(function) = dump.lookup(START, 9)
        {
            let _ = dump.code(function, function.range.clone());
            let _ = dump.call_frames(function).map(|frames| frames.rows(START));
        }
    }
}
