//! Function tables of Go that these tests write, for each layout, and malformed ones.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod go_image;

use std::time::{Duration, Instant};

use go_image::{
    C_START, CODE_START, FILES, GOEXIT_START, GoImage, LAYOUTS, Layout, MCALL_START, OUTER,
    OUTER_DEPTHS, OUTER_START,
};
use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::go::{GoError, GoFunction, GoTable};
use proptest::prelude::*;

fn read(bytes: &[u8]) -> Result<Option<GoTable>, GoError> {
    GoTable::read(&ElfFile::parse(bytes).unwrap())
}

fn image(layout: Layout) -> GoImage {
    GoImage {
        layout,
        has_sections: true,
        is_relocated: false,
        has_module_data: true,
        added_depths: 0,
    }
}

fn supported() -> impl Iterator<Item = GoImage> {
    let layouts = LAYOUTS
        .into_iter()
        .filter(|layout| *layout != Layout::Go1_2);
    layouts.flat_map(|layout| {
        [(true, true), (true, false), (false, true), (false, false)].map(
            |(has_sections, is_relocated)| GoImage {
                has_sections,
                is_relocated,
                ..image(layout)
            },
        )
    })
}

/// Returns name and line of each frame.
fn frames(function: &GoFunction<'_>, address: u64) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let frames = function.frames(address).into_iter();
    frames
        .map(|frame| {
            let file = frame.file.map(text).unwrap_or_default();
            let line = frame.line.map(|line| line.to_string()).unwrap_or_default();
            (text(frame.name), format!("{file}:{line}"))
        })
        .collect()
}

#[test]
fn reads_all_layouts() {
    for image in supported() {
        let table = read(&image.bytes()).unwrap().unwrap();
        assert_eq!(table.len(), 4, "{image:?}");
        let functions: Vec<_> = table
            .iter()
            .map(|function| {
                let flags = function.flags;
                let set = [
                    flags.is_top_frame(),
                    flags.writes_stack_pointer(),
                    flags.is_assembly(),
                ];
                (function.name, function.range(), function.id, set)
            })
            .collect();
        let expected = [
            (
                &b"main.outer"[..],
                OUTER_START..OUTER_START + 0x30,
                0,
                [false; 3],
            ),
            (
                b"runtime.goexit",
                GOEXIT_START..GOEXIT_START + 0x10,
                7,
                [true, false, true],
            ),
            (
                b"runtime.mcall",
                MCALL_START..MCALL_START + 0x10,
                12,
                [false, true, true],
            ),
        ];
        assert_eq!(functions, expected, "{image:?}");

        let outer = table.lookup(OUTER_START).unwrap();
        let mut address = OUTER_START;
        for (size, depth) in OUTER_DEPTHS {
            for _ in 0..size {
                assert_eq!(
                    outer.stack_bytes(address),
                    Some(depth as u64),
                    "{address:#x}"
                );
                address += 1;
            }
        }
        assert_eq!(outer.stack_bytes(address), None);
        assert_eq!(outer.stack_bytes(OUTER_START - 1), None);

        let mut address = OUTER_START;
        let a = |line: i32| format!("{}:{line}", FILES[0]);
        let b = |line: i32| format!("{}:{line}", FILES[1]);
        let frame = |name: &str, line| (name.to_owned(), line);
        for (size, index, file, line) in OUTER {
            let expected = match index {
                -1 => vec![frame("main.outer", a(line))],
                0 => vec![frame("main.middle", b(line)), frame("main.outer", a(10))],
                _ => vec![
                    frame("main.inner", b(line)),
                    frame("main.middle", b(20)),
                    frame("main.outer", a(10)),
                ],
            };
            for _ in 0..size {
                let line_at = outer.line(address).unwrap();
                assert_eq!(line_at, (FILES[file as usize].as_bytes(), line as u32));
                assert_eq!(frames(&outer, address), expected, "{image:?} {address:#x}");
                address += 1;
            }
        }
        assert_eq!(outer.line(address), None);
        assert_eq!(frames(&outer, address), []);
    }
}

#[test]
fn does_not_attribute_other_code_to_go_functions() {
    for image in supported() {
        let table = read(&image.bytes()).unwrap().unwrap();
        let name = |address| table.lookup(address).map(|function| function.name);
        for (address, expected) in [
            (0, None),
            (OUTER_START - 1, None),
            (OUTER_START + 0x2f, Some(&b"main.outer"[..])),
            (OUTER_START + 0x30, None),
            (C_START, None),
            (C_START + 0x1f, None),
            (MCALL_START + 0x0f, Some(b"runtime.mcall")),
            (MCALL_START + 0x10, None),
            (MCALL_START + 0x20, None),
            (u64::MAX, None),
        ] {
            assert_eq!(name(address), expected, "{address:#x}");
        }
    }
}

#[test]
fn reports_unsupported_tables() {
    let old = read(&image(Layout::Go1_2).bytes()).unwrap_err();
    assert_eq!(
        old.to_string(),
        "cannot read Go function table: Go 1.15 and earlier are not supported"
    );
    let searched = GoImage {
        has_sections: false,
        ..image(Layout::Go1_2)
    };
    assert!(matches!(read(&searched.bytes()), Err(GoError::TooOld)));

    let at = |bytes: &[u8]| {
        let magic = bytes
            .windows(4)
            .position(|word| word == [0xf1, 0xff, 0xff, 0xff]);
        magic.unwrap()
    };
    let mut bytes = image(Layout::Go1_20).bytes();
    let magic = at(&bytes);
    bytes[magic] = 0xf2;
    assert!(matches!(
        read(&bytes),
        Err(GoError::UnknownMagic(0xffff_fff2))
    ));
    for (offset, value) in [(6, 3), (7, 4), (8, 0xff), (0x20, 0xff), (0x21, 0xff)] {
        let mut bytes = image(Layout::Go1_20).bytes();
        bytes[magic + offset] = value;
        let error = read(&bytes).unwrap_err();
        assert!(matches!(error, GoError::Corrupt(_)), "{offset:#x}: {error}");
    }
}

/// Go 1.26 writes no start of the code to the header.
#[test]
fn needs_module_data_for_the_start_of_the_code() {
    for image in supported() {
        let image = GoImage {
            has_module_data: false,
            ..image
        };
        let result = read(&image.bytes());
        if image.layout == Layout::Go1_26 {
            assert!(matches!(result, Err(GoError::NoCodeStart)), "{result:?}");
            continue;
        }
        let table = result.unwrap().unwrap();
        let outer = table.lookup(OUTER_START + 0x10).unwrap();
        let frames = frames(&outer, OUTER_START + 0x10);
        // Go 1.16 has the address of inlined functions in the record of the function.
        let count = if image.layout == Layout::Go1_16 { 3 } else { 1 };
        assert_eq!(frames.len(), count, "{image:?}");
        let (name, line) = frames.last().unwrap();
        let line_at = if count == 3 {
            "/src/a.go:10"
        } else {
            "/src/b.go:30"
        };
        assert_eq!((name.as_str(), line.as_str()), ("main.outer", line_at));
    }
}

#[test]
fn returns_none_for_files_without_a_table() {
    for image in supported().filter(|image| image.has_sections) {
        let mut bytes = image.bytes();
        let name = bytes
            .windows(10)
            .position(|name| name == b".gopclntab")
            .unwrap();
        bytes[name..name + 10].copy_from_slice(b".rodata\0\0\0");
        assert!(read(&bytes).unwrap().is_none());
        // GNU ld puts the table into another section. The file has other sections of Go.
        bytes[name..name + 10].copy_from_slice(b".go.module");
        assert_eq!(read(&bytes).unwrap().unwrap().len(), 4);
    }
}

/// A table may have as many pc values as the file has bytes.
#[test]
fn bounds_time_for_long_tables() {
    for layout in [Layout::Go1_16, Layout::Go1_26] {
        let added_depths = 2 << 20;
        let bytes = GoImage {
            added_depths,
            ..image(layout)
        }
        .bytes();
        assert!(bytes.len() > 4 << 20);
        let table = read(&bytes).unwrap().unwrap();
        let start = Instant::now();
        // One call decodes 1 048 576 ranges. The first has 16 bytes, the others one.
        let mcall = table.lookup(MCALL_START).unwrap();
        assert_eq!(mcall.end, MCALL_START + 0x10 + (1 << 20) - 1);
        assert!(table.lookup(mcall.end).is_none());
        let all = table.iter().last().unwrap();
        assert_eq!(all.end, MCALL_START + 0x10 + u64::from(added_depths));
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{:?}",
            start.elapsed()
        );
    }
}

/// Uses all that a table has, at some addresses of each function.
fn read_all(bytes: &[u8]) {
    let Ok(elf) = ElfFile::parse(bytes) else {
        return;
    };
    let Ok(Some(table)) = GoTable::read(&elf) else {
        return;
    };
    for function in table.iter().take(64) {
        assert!(function.start < function.end);
        let step = ((function.end - function.start) / 8).max(1);
        for address in (function.start..function.end)
            .step_by(step as usize)
            .take(9)
        {
            let found = table.lookup(address).map(|found| found.range());
            assert!(found.is_none_or(|found| found.contains(&address)));
            let _ = (function.stack_bytes(address), function.line(address));
            assert!(!function.frames(address).is_empty());
        }
    }
    for address in [0, CODE_START, u64::MAX] {
        let _ = table.lookup(address);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(3000)
    })]

    #[test]
    fn never_panics_on_mutated_bytes(
        layout in prop::sample::select(&LAYOUTS[1..]),
        has_sections in any::<bool>(),
        is_relocated in any::<bool>(),
        edits in prop::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![any::<u8>(), Just(0), Just(0xff)]),
            0..12,
        ),
    ) {
        let image = GoImage {
            has_sections,
            is_relocated,
            ..image(layout)
        };
        let mut bytes = image.bytes();
        for (at, byte) in edits {
            let length = bytes.len() - 64;
            bytes[64 + at.index(length)] = byte;
        }
        read_all(&bytes);
    }

    #[test]
    fn never_panics_on_truncated_files(
        layout in prop::sample::select(&LAYOUTS[1..]),
        is_relocated in any::<bool>(),
        length in any::<prop::sample::Index>(),
    ) {
        let image = GoImage {
            has_sections: false,
            is_relocated,
            ..image(layout)
        };
        let bytes = image.bytes();
        read_all(&bytes[..length.index(bytes.len())]);
    }
}
