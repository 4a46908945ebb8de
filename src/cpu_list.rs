//! The kernel's CPU lists, such as `0-3,8,10-11`.

use std::io;

/// Returns the ids of the online CPUs, ascending.
pub(crate) fn online() -> io::Result<Vec<u32>> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse(&list).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("not a CPU list: {list:?}"),
        )
    })
}

fn parse(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // Linux supports at most 8192 CPUs (CONFIG_NR_CPUS).
        if last.checked_sub(first)? > 8192 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_lists_with_gaps_and_rejects_invalid_ones() {
        assert_eq!(parse("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse("0"), Some(vec![0]));
        for bad in ["", "a", "3-1", "0-", "0-4000000000"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
