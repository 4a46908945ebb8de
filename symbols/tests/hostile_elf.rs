//! Corrupt files result in errors, never in panics, and use no more memory than they have.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;

use perfcollect_symbols::demangle::{MAX_NAME_BYTES, demangle};
use perfcollect_symbols::elf::{ElfError, ElfFile};
use proptest::prelude::*;
use test_skip::{Missing, skip};

/// Reads a small real program: some 40 KB, with sections, symbols, notes and PLT stubs.
fn sample() -> Option<Vec<u8>> {
    let programs = ["/usr/bin/true", "/bin/true"];
    let sample = programs.iter().find_map(|path| std::fs::read(path).ok());
    if sample.is_none() {
        skip(Missing::File(programs[0].into()));
    }
    sample
}

fn read_all(bytes: &[u8]) {
    if let Ok(elf) = ElfFile::parse(bytes) {
        let _ = (
            elf.load_segments(),
            elf.build_id(),
            elf.debug_link(),
            elf.has_symtab(),
            elf.unwind_sections(),
        );
        if let Ok(symbols) = elf.symbols() {
            assert!(symbols.iter().all(|symbol| symbol.start < symbol.end));
        }
    }
}

#[test]
fn reads_truncated_files_without_panic() {
    let Some(bytes) = sample() else {
        return;
    };
    for length in (0..bytes.len()).step_by(61).chain(0..130) {
        read_all(&bytes[..length]);
    }
    assert!(matches!(ElfFile::parse(&bytes[..4]), Err(ElfError::NotElf)));
    assert!(
        ElfFile::parse(&bytes[..bytes.len() - 64]).is_err(),
        "truncated section headers"
    );
}

#[test]
fn rejects_sections_larger_than_the_file() {
    let Some(mut bytes) = sample() else {
        return;
    };
    let word = |bytes: &[u8], offset: usize| {
        u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap()) as usize
    };
    let section_headers = word(&bytes, 0x28);
    let count = u16::from_le_bytes([bytes[0x3c], bytes[0x3d]]) as usize;
    // All sections but the section names, which linkers write last.
    for index in 1..count - 1 {
        let size = section_headers + index * 64 + 0x20;
        bytes[size..size + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
    }
    let elf = ElfFile::parse(&bytes).unwrap();
    assert!(matches!(elf.symbols(), Err(ElfError::TooLarge { .. })));
    assert!(matches!(
        elf.unwind_sections(),
        Err(ElfError::TooLarge { .. })
    ));
}

/// The loader does not need section headers: such a file runs, and has a build id.
#[test]
fn open_mapped_accepts_corrupt_section_headers() {
    let Some(bytes) = sample() else {
        return;
    };
    let open = |bytes: &[u8]| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Arc::new(file)
    };
    let file = open(&bytes);
    let valid = ElfFile::open_mapped(file).unwrap();
    assert!(valid.section_error().is_none() && valid.build_id().is_some());
    // e_shoff, e_shentsize, e_shnum, e_shstrndx.
    for (field, value) in [
        (0x28, &(1_u64 << 40).to_le_bytes()[..]),
        (0x3a, &[63, 0]),
        (0x3c, &[0xff, 0xfe]),
        (0x3e, &[0xff, 0xfe]),
    ] {
        let mut bytes = bytes.clone();
        bytes[field..field + value.len()].copy_from_slice(value);
        let file = open(&bytes);
        let error = ElfFile::open(file.clone()).unwrap_err();
        let elf = ElfFile::open_mapped(file).unwrap();
        let section_error = elf.section_error().map(ToString::to_string);
        assert_eq!(section_error, Some(error.to_string()), "{field:#x}");
        assert_eq!(elf.load_segments(), valid.load_segments());
        assert_eq!(elf.build_id(), valid.build_id());
        assert!(!elf.has_symtab() && elf.symbols().unwrap().iter().next().is_none());
    }
    let file = open(b"#!/bin/sh\n");
    assert!(matches!(ElfFile::open_mapped(file), Err(ElfError::NotElf)));
}

#[test]
fn rejects_huge_sparse_files_and_directories() {
    let mut file = tempfile::tempfile().unwrap();
    let Some(bytes) = sample() else {
        return;
    };
    file.write_all(&bytes[..64]).unwrap();
    file.set_len(1 << 40).unwrap();
    let _ = ElfFile::open(file).map(|elf| elf.symbols());
    assert!(matches!(
        ElfFile::open(File::open("/").unwrap()),
        Err(ElfError::NotRegular)
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn never_panics_on_mutated_bytes(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30),
        header_edits in prop::collection::vec((0..64usize, any::<u8>()), 0..3),
        table_edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..10),
    ) {
        let Some(mut bytes) = sample() else { return Ok(()) };
        let (length, tables) = (bytes.len(), bytes.len() - 2048);
        for (at, byte) in edits {
            bytes[at.index(length)] = byte;
        }
        for (at, byte) in table_edits {
            bytes[tables + at.index(2048)] = byte;
        }
        for (at, byte) in header_edits {
            bytes[at] = byte;
        }
        read_all(&bytes);
    }
}

/// The address of a stub is the address of its section plus an offset, which may overflow.
#[test]
fn reads_sections_at_the_highest_addresses_without_overflow() {
    let Some(mut bytes) = sample() else { return };
    let field = |bytes: &[u8], at: usize, size: usize| {
        let mut field = [0; 8];
        field[..size].copy_from_slice(&bytes[at..][..size]);
        u64::from_le_bytes(field) as usize
    };
    let (headers, count) = (field(&bytes, 40, 8), field(&bytes, 60, 2));
    for header in (0..count).map(|index| headers + index * 64) {
        const EXECUTABLE: usize = 4;
        if field(&bytes, header + 8, 8) & EXECUTABLE != 0 {
            bytes[header + 16..][..8].copy_from_slice(&(u64::MAX - 0x1f).to_le_bytes());
        }
    }
    read_all(&bytes);
}

/// The unsized symbol before, as in assembler code, must not extend over the symbol with the long
/// name.
#[test]
fn truncates_names_of_more_than_64_kib() {
    let directory = tempfile::tempdir().unwrap();
    let [source, object] = ["names.s", "names.o"].map(|name| directory.path().join(name));
    let long = format!("long{}end", "x".repeat(70_000));
    let code = format!(".text\nbefore: nop; nop\n{long}: nop; nop\nafter: nop; nop\n");
    std::fs::write(&source, code).unwrap();
    match Command::new("as")
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .status()
    {
        Ok(status) => assert!(status.success()),
        Err(_) => return skip(Missing::Command("as")),
    }
    let symbols = ElfFile::open(File::open(&object).unwrap())
        .unwrap()
        .symbols()
        .unwrap();
    let names: Vec<&[u8]> = symbols.iter().map(|symbol| symbol.name).collect();
    let [before, truncated, after] = names[..] else {
        panic!("{}", names.len());
    };
    assert_eq!([before, after], [b"before", &b"after"[..]]);
    assert_eq!(symbols.lookup(3).unwrap().name, truncated);
    let expected = format!("{}...", &long[..MAX_NAME_BYTES]);
    assert_eq!(demangle(truncated), expected);
}

/// Zeros have the highest compression ratio. A section that declares more bytes than it can
/// decompress to must be rejected before memory is allocated.
#[test]
fn rejects_impossible_sizes_of_compressed_sections() {
    const SIZE: u64 = 8 << 20;
    let directory = tempfile::tempdir().unwrap();
    let [source, object, compressed] =
        ["zeros.s", "zeros.o", "compressed.o"].map(|name| directory.path().join(name));
    let code = format!(".section .debug_info,\"\",@progbits\n.zero {SIZE}\n");
    std::fs::write(&source, code).unwrap();
    match Command::new("as")
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .status()
    {
        Ok(status) => assert!(status.success()),
        Err(_) => return skip(Missing::Command("as")),
    }
    for (name, kind) in [("zlib", 1_u64), ("zstd", 2)] {
        let option = format!("--compress-debug-sections={name}");
        let mut objcopy = Command::new("objcopy");
        match objcopy.args([&object, &compressed]).arg(option).status() {
            Ok(status) => assert!(status.success(), "{name}"),
            Err(_) => return skip(Missing::Command("objcopy")),
        }
        let mut bytes = std::fs::read(&compressed).unwrap();
        assert!(bytes.len() < SIZE as usize / 100);
        let sections = |bytes: &[u8]| {
            let copied = ElfFile::parse(bytes).unwrap().copied_dwarf_sections();
            copied.map(|sections| sections.is_some())
        };
        assert!(sections(&bytes).unwrap());
        let header = [kind.to_le_bytes(), SIZE.to_le_bytes()].concat();
        let offset = (bytes.windows(16))
            .position(|window| window == header)
            .unwrap();
        bytes[offset + 8..][..8].copy_from_slice(&(SIZE * 20).to_le_bytes());
        let error = sections(&bytes).unwrap_err().to_string();
        assert!(error.contains("declares more bytes"), "{error}");
    }
}
