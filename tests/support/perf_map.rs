//! The perf map that a process writes.

use std::collections::BTreeMap;

/// The names in it: the newest at each address.
pub fn perf_map(pid: u32) -> BTreeMap<u64, String> {
    let map = std::fs::read(format!("/tmp/perf-{pid}.map")).unwrap();
    let lines = map.split(|byte| matches!(byte, b'\n' | 0));
    let lines = lines.filter_map(|line| {
        let line = std::str::from_utf8(line).ok()?;
        let (start, rest) = line.split_once(' ')?;
        let (_, name) = rest.split_once(' ')?;
        let start = u64::from_str_radix(start.trim_start_matches("0x"), 16).ok()?;
        Some((start, name.to_owned()))
    });
    lines.collect()
}
