//! Functions and lines of real programs against binutils' addr2line.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::path::Path;
use std::process::Command;

use perfcollect_symbols::elf::ElfFile;

mod oracle;

/// With what the program has itself.
fn compare(path: &Path, count: usize) -> Option<usize> {
    let file = File::open(path).unwrap();
    let elf = ElfFile::open(&file).unwrap();
    let sections = elf.dwarf_sections().unwrap().expect("DWARF");
    oracle::compare(&sections.debug_info().unwrap(), path, count)
}

#[test]
fn this_test_agrees_with_addr2line() {
    let inlined = compare(&std::env::current_exe().unwrap(), 300);
    assert!(inlined.is_none_or(|inlined| inlined > 10), "{inlined:?}");
}

#[test]
fn c_programs_of_all_versions_of_dwarf_agree_with_addr2line() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("program.c");
    std::fs::write(&source, oracle::PROGRAM).unwrap();
    for version in 2..=5 {
        let program = directory.path().join(format!("program{version}"));
        let made = Command::new("cc")
            .args(["-O2", &format!("-gdwarf-{version}"), "-o"])
            .args([&program, &source])
            .status();
        match made {
            Ok(status) => assert!(status.success()),
            Err(error) => return eprintln!("skipped: cc: {error}"),
        }
        let inlined = compare(&program, usize::MAX - 1);
        assert!(inlined.is_none_or(|inlined| inlined > 20), "{inlined:?}");
    }
}
