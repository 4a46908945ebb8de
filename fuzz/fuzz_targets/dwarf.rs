//! Untrusted DWARF sections of a program and of its supplementary, package and split files.
#![no_main]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::dwarf::{
    Detail, DwarfSections, MAX_FRAMES, PackageSections, SplitSections,
};

/// The rest of the input.
struct Input(Mutex<VecDeque<u8>>);

impl Input {
    /// Returns the next `len` bytes, or no bytes if fewer remain.
    fn take(&self, len: usize) -> Vec<u8> {
        let mut rest = self.0.lock().expect("no thread has panicked");
        match len <= rest.len() {
            true => rest.drain(..len).collect(),
            false => Vec::new(),
        }
    }

    /// Returns the next section. Its length precedes it.
    fn section(&self) -> Vec<u8> {
        let length = match self.take(2)[..] {
            [low, high] => u16::from_le_bytes([low, high]),
            _ => 0,
        };
        self.take(length.into())
    }
}

fuzz_target!(|data: &[u8]| {
    // The sections are in the order of the requests. Their lengths precede them.
    let input = Arc::new(Input(Mutex::new(data.iter().copied().collect())));
    let section = |_: &'static str| Ok::<_, ()>(input.section());
    let is_big_endian = input.take(1) == [1];
    let Ok(mut sections) = DwarfSections::load(is_big_endian, section) else {
        return;
    };
    let parts = input.take(1).first().copied().unwrap_or_default();
    if parts & 1 != 0
        && let Ok(common) = DwarfSections::load(is_big_endian, section)
    {
        sections.set_supplementary(common);
    }
    if parts & 2 != 0
        && let Ok(package) = PackageSections::load(is_big_endian, section)
    {
        sections.set_package(package);
    }
    let rest = input.clone();
    let open =
        move |_: &_| SplitSections::load(is_big_endian, |_| Ok::<_, ()>(rest.section())).ok();
    let Ok(debug_info) = sections.into_debug_info_with(open) else {
        return;
    };
    for address in [
        0,
        1,
        0x1000,
        0x1139,
        0x1800,
        1 << 32,
        u64::MAX - 1,
        u64::MAX,
    ] {
        if let Ok(frames) = debug_info.frames(address, Detail::Lines) {
            assert!(frames.len() <= MAX_FRAMES);
        }
    }
});
