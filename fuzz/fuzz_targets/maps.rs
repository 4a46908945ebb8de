//! A file /proc/PID/maps, in which the process has chosen the paths.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::process::{parse_all_maps, parse_maps};

fuzz_target!(|data: &[u8]| {
    let executable = parse_all_maps(data).filter(|line| line.executable);
    assert!(executable.eq(parse_maps(data)));
    for line in parse_all_maps(data) {
        let permissions = if line.executable { "--xp" } else { "---p" };
        let (major, minor) = line.device;
        let mut text = format!(
            "{:x}-{:x} {permissions} {:x} {major:x}:{minor:x} {} ",
            line.start, line.end, line.file_offset, line.inode
        )
        .into_bytes();
        text.extend(line.path);
        assert!(parse_all_maps(&text).eq([line]));
    }
});
