//! An untrusted ELF image: headers, identity, unwind sections, symbols.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::elf::{ElfFile, FrameSection};

fuzz_target!(|data: &[u8]| {
    let Ok(elf) = ElfFile::parse(data) else {
        return;
    };
    let _ = (
        elf.load_segments(),
        elf.build_id(),
        elf.debug_link(),
        elf.has_all_symbols(),
        elf.unwind_sections(),
        elf.plt_sections(),
        elf.managed_code(),
    );
    for section in [FrameSection::Debug, FrameSection::Eh] {
        let Ok(Some(frames)) = elf.call_frames(section) else {
            continue;
        };
        for segment in elf.load_segments() {
            let (rows, _) = frames.rows(segment.address);
            assert!(rows.is_sorted_by_key(|row| row.range.start));
        }
    }
    if let Ok(ranges) = elf.function_ranges() {
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            // A later range may contain the start, too.
            let found = ranges.lookup(range.start);
            assert!(found.is_none_or(|found| found.contains(&range.start)));
        }
    }
    if let Ok(symbols) = elf.symbols() {
        for symbol in symbols.iter() {
            assert!(symbol.start < symbol.end);
            // An inner symbol may contain the start, too.
            assert!(symbols.lookup(symbol.start).is_some());
        }
    }
});
