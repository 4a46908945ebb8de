//! Lines of perf maps that .NET 8.0.33 (`perf-8.map`) and 10.0.12 (`perf-10.map`) wrote.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use perfcollect_symbols::dotnet_name::ManagedName;
use perfcollect_symbols::perf_map::PerfMap;

fn check(content: &[u8]) {
    // .NET 8 ends some lines with NUL.
    let mixed: Vec<u8> = content
        .iter()
        .enumerate()
        .map(|(at, &byte)| {
            if byte == b'\n' && at % 3 == 0 {
                0
            } else {
                byte
            }
        })
        .collect();
    let map = PerfMap::read(mixed.as_slice()).unwrap();
    assert_eq!((map.skipped, map.truncated), (0, false));
    let lines = content
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .count();
    assert_eq!(map.table().len(), lines);
    let (mut methods, mut stubs) = (0, 0);
    for symbol in map.table().iter() {
        match ManagedName::parse(symbol.name) {
            Some(name) => {
                assert!(name.tier.is_some(), "{name:?}");
                assert!(
                    name.method.ends_with(')')
                        && !name.method.contains("::")
                        && !name.method.contains("MT:"),
                    "{name:?}"
                );
                methods += 1;
            }
            None => {
                assert!(
                    symbol.name.starts_with(b"stub"),
                    "{}",
                    String::from_utf8_lossy(symbol.name)
                );
                stubs += 1;
            }
        }
    }
    assert!(
        methods > 15 && stubs == 4,
        "{methods} methods, {stubs} stubs"
    );
}

#[test]
fn parses_all_lines_of_dotnet_8_and_10() {
    check(include_bytes!("data/perf-8.map"));
    check(include_bytes!("data/perf-10.map"));
}
