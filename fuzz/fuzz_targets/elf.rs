//! An untrusted ELF image: headers, identity, unwind sections, symbols.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::elf::ElfFile;

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
