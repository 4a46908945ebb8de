//! An untrusted function table of Go, in a file that this target writes.
//!
//! The first two bytes select the layout of the table and the parts of the file. The others are
//! edits: an offset in two bytes and the new byte. So every input has a table, without a seed.
#![no_main]

#[path = "../../symbols/tests/go_image/mod.rs"]
mod go_image;

use go_image::{CODE_START, GoImage, LAYOUTS};
use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::go::{GoTable, MAX_FRAMES};

fuzz_target!(|data: &[u8]| {
    let Some((&[layout, parts], edits)) = data.split_first_chunk() else {
        return;
    };
    let image = GoImage {
        layout: LAYOUTS[usize::from(layout) % LAYOUTS.len()],
        has_sections: parts & 1 != 0,
        is_relocated: parts & 2 != 0,
        has_module_data: parts & 4 == 0,
        added_depths: u32::from(parts >> 3),
    };
    let mut bytes = image.bytes();
    for edit in edits.chunks_exact(3) {
        let length = bytes.len();
        bytes[usize::from(u16::from_le_bytes([edit[0], edit[1]])) % length] = edit[2];
    }
    let Ok(elf) = ElfFile::parse(&bytes) else {
        return;
    };
    let Ok(Some(table)) = GoTable::read(&elf) else {
        return;
    };
    for function in table.iter().take(8) {
        assert!(function.start < function.end);
        for (end, size) in function.stack_sizes(64) {
            assert!(function.start < end && end <= function.end);
            assert_eq!(function.stack_bytes(end - 1), size);
        }
        assert!(function.code(64).len() <= 64);
        let step = ((function.end - function.start) / 8).max(1);
        for address in (function.start..function.end)
            .step_by(step as usize)
            .take(9)
        {
            // Another function may contain the address if the entries are not sorted.
            let found = table.lookup(address);
            assert!(found.is_none_or(|found| found.range().contains(&address)));
            let _ = (function.stack_bytes(address), function.line(address));
            let frames = function.frames(address).len();
            assert!((1..=MAX_FRAMES).contains(&frames));
        }
    }
    for address in [0, CODE_START, u64::MAX] {
        let _ = table.lookup(address);
    }
});
