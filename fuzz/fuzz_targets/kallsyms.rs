//! The symbol list of a kernel.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::kallsyms::KernelSymbols;

fuzz_target!(|data: &[u8]| {
    let Ok(symbols) = KernelSymbols::read(data) else {
        return;
    };
    for found in symbols.iter() {
        let start = found.symbol.start;
        assert_eq!(
            symbols.lookup(start).map(|found| found.symbol.start),
            Some(start)
        );
    }
});
