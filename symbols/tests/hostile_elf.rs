//! Damaged files are errors, never panics, and cost no memory they do not have.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::io::Write;
use std::process::Command;

use perfcollect_symbols::demangle::{MAX_NAME_BYTES, demangle};
use perfcollect_symbols::elf::{ElfError, ElfFile};
use proptest::prelude::*;

/// A small real program: some 40 KB, with sections, symbols, notes and stubs.
fn sample() -> Option<Vec<u8>> {
    ["/usr/bin/true", "/bin/true"]
        .iter()
        .find_map(|path| std::fs::read(path).ok())
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
fn every_truncation_is_survived() {
    let Some(bytes) = sample() else {
        return eprintln!("skipped: no /usr/bin/true");
    };
    for length in (0..bytes.len()).step_by(61).chain(0..130) {
        read_all(&bytes[..length]);
    }
    assert!(matches!(ElfFile::parse(&bytes[..4]), Err(ElfError::NotElf)));
    assert!(
        ElfFile::parse(&bytes[..bytes.len() - 64]).is_err(),
        "section headers are cut off"
    );
}

#[test]
fn a_section_larger_than_the_file_is_an_error_and_takes_no_memory() {
    let Some(mut bytes) = sample() else {
        return eprintln!("skipped: no /usr/bin/true");
    };
    let at = |bytes: &[u8], offset: usize| {
        u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap()) as usize
    };
    let section_headers = at(&bytes, 0x28);
    let count = u16::from_le_bytes([bytes[0x3c], bytes[0x3d]]) as usize;
    // All but the section names: e_shstrndx is the last here as everywhere.
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

/// The loader takes no section headers: the file runs, its debug file is found by the build id, and the damage is told.
#[test]
fn of_a_running_file_the_segments_are_read_where_the_sections_are_damaged() {
    let Some(bytes) = sample() else {
        return eprintln!("skipped: no /usr/bin/true");
    };
    let open = |bytes: &[u8]| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    };
    let file = open(&bytes);
    let whole = ElfFile::open_mapped(&file).unwrap();
    assert!(whole.section_error().is_none() && whole.build_id().is_some());
    // Where the table is, the size of a header, the number of headers, the header of the names.
    for (field, value) in [
        (0x28, &(1_u64 << 40).to_le_bytes()[..]),
        (0x3a, &[63, 0]),
        (0x3c, &[0xff, 0xfe]),
        (0x3e, &[0xff, 0xfe]),
    ] {
        let mut bytes = bytes.clone();
        bytes[field..field + value.len()].copy_from_slice(value);
        let file = open(&bytes);
        let error = ElfFile::open(&file).unwrap_err();
        let elf = ElfFile::open_mapped(&file).unwrap();
        let damage = elf.section_error().map(ToString::to_string);
        assert_eq!(damage, Some(error.to_string()), "{field:#x}");
        assert_eq!(elf.load_segments(), whole.load_segments());
        assert_eq!(elf.build_id(), whole.build_id());
        assert!(!elf.has_symtab() && elf.symbols().unwrap().iter().next().is_none());
    }
    let file = open(b"#!/bin/sh\n");
    assert!(matches!(ElfFile::open_mapped(&file), Err(ElfError::NotElf)));
}

#[test]
fn a_huge_sparse_file_and_a_directory_are_refused() {
    let mut file = tempfile::tempfile().unwrap();
    let Some(bytes) = sample() else {
        return eprintln!("skipped: no /usr/bin/true");
    };
    file.write_all(&bytes[..64]).unwrap();
    file.set_len(1 << 40).unwrap();
    let _ = ElfFile::open(&file).map(|elf| elf.symbols());
    assert!(matches!(
        ElfFile::open(&File::open("/").unwrap()),
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

/// Stubs are counted from the address of their section on.
#[test]
fn code_at_the_last_addresses_is_read_to_their_end() {
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

/// Where the symbol before has no size, as those of assembler code, it must not reach over the code of the long one.
#[test]
fn a_name_of_more_than_64_kib_is_cut_and_keeps_its_code() {
    let directory = tempfile::tempdir().unwrap();
    let [source, made] = ["names.s", "names.o"].map(|name| directory.path().join(name));
    let long = format!("long{}end", "x".repeat(70_000));
    let code = format!(".text\nbefore: nop; nop\n{long}: nop; nop\nafter: nop; nop\n");
    std::fs::write(&source, code).unwrap();
    match Command::new("as")
        .arg(&source)
        .arg("-o")
        .arg(&made)
        .status()
    {
        Ok(status) => assert!(status.success()),
        Err(error) => return eprintln!("skipped: as (package binutils): {error}"),
    }
    let symbols = ElfFile::open(&File::open(&made).unwrap())
        .unwrap()
        .symbols()
        .unwrap();
    let found: Vec<&[u8]> = symbols.iter().map(|symbol| symbol.name).collect();
    let [before, cut, after] = found[..] else {
        panic!("{}", found.len());
    };
    assert_eq!([before, after], [b"before", &b"after"[..]]);
    assert_eq!(symbols.lookup(3).unwrap().name, cut);
    assert_eq!(demangle(cut), format!("{}...", &long[..MAX_NAME_BYTES]));
}

/// Zeros are the densest there is. What states more than its bytes can decompress to must not take the memory first.
#[test]
fn compressed_sections_state_no_more_than_they_can_hold() {
    const SIZE: u64 = 8 << 20;
    let directory = tempfile::tempdir().unwrap();
    let [source, made, packed] =
        ["zeros.s", "zeros.o", "packed.o"].map(|name| directory.path().join(name));
    let code = format!(".section .debug_info,\"\",@progbits\n.zero {SIZE}\n");
    std::fs::write(&source, code).unwrap();
    let run = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    if !run(Command::new("as").arg(&source).arg("-o").arg(&made)) {
        return eprintln!("skipped: as (package binutils)");
    }
    for (name, kind) in [("zlib", 1_u64), ("zstd", 2)] {
        let option = format!("--compress-debug-sections={name}");
        let mut objcopy = Command::new("objcopy");
        if !run(objcopy.args([&made, &packed]).arg(option)) {
            eprintln!("skipped: objcopy (package binutils) with {name}");
            continue;
        }
        let mut bytes = std::fs::read(&packed).unwrap();
        assert!(bytes.len() < SIZE as usize / 100);
        let sections = |bytes: &[u8]| {
            let copied = ElfFile::parse(bytes).unwrap().copied_dwarf_sections();
            copied.map(|sections| sections.is_some())
        };
        assert!(sections(&bytes).unwrap());
        let head = [kind.to_le_bytes(), SIZE.to_le_bytes()].concat();
        let at = bytes.windows(16).position(|window| window == head).unwrap();
        bytes[at + 8..][..8].copy_from_slice(&(SIZE * 20).to_le_bytes());
        let error = sections(&bytes).unwrap_err().to_string();
        assert!(error.contains("more bytes stated"), "{error}");
    }
}
