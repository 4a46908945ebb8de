//! Sections of DWARF from anywhere, of the program and of the files that it has parts in, and addresses to look up in them.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::dwarf::{
    Detail, DwarfSections, MAX_FRAMES, PackageSections, SplitSections,
};

fuzz_target!(|data: &[u8]| {
    // Sections in the order in which they are asked for, each with its length in front.
    let rest = RefCell::new(data);
    let take = |len: usize| {
        let (taken, left) = rest.borrow().split_at_checked(len).unwrap_or_default();
        *rest.borrow_mut() = left;
        taken
    };
    let length = || match take(2) {
        &[low, high] => usize::from(u16::from_le_bytes([low, high])),
        _ => 0,
    };
    let section = |_: &'static str| Ok::<_, ()>(take(length()).to_vec());
    let is_big_endian = take(1) == [1];
    let Ok(mut sections) = DwarfSections::load(is_big_endian, section) else {
        return;
    };
    let parts = take(1).first().copied().unwrap_or_default();
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
    let open = |_: &_| SplitSections::load(is_big_endian, section).ok();
    let Ok(debug_info) = sections.debug_info_with(open) else {
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
