//! Comparison of functions and lines of real programs with binutils' addr2line.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::path::Path;
use std::process::Command;

use perfcollect_symbols::demangle::{MAX_NAME_BYTES, demangle};
use perfcollect_symbols::dwarf::{Detail, MAX_FRAMES, TRUNCATED};
use perfcollect_symbols::elf::ElfFile;
use test_skip::{Missing, skip};

mod oracle;

/// Compares a program that has its own DWARF.
fn compare(path: &Path, count: usize) -> Option<usize> {
    let file = File::open(path).unwrap();
    let elf = ElfFile::open(file).unwrap();
    let sections = elf.dwarf_sections().expect("DWARF");
    oracle::compare(&sections.into_debug_info().unwrap(), path, count)
}

#[test]
fn frames_of_this_test_equal_those_of_addr2line() {
    let inlined = compare(&std::env::current_exe().unwrap(), 300);
    assert!(inlined.is_none_or(|inlined| inlined > 10), "{inlined:?}");
}

#[test]
fn frames_equal_those_of_addr2line_in_all_dwarf_versions() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("program.c");
    std::fs::write(&source, oracle::PROGRAM).unwrap();
    for version in 2..=5 {
        let program = directory.path().join(format!("program{version}"));
        let status = Command::new("cc")
            .args(["-O2", &format!("-gdwarf-{version}"), "-o"])
            .args([&program, &source])
            .status();
        match status {
            Ok(status) => assert!(status.success()),
            Err(_) => return skip(Missing::Command("cc")),
        }
        let inlined = compare(&program, usize::MAX - 1);
        assert!(inlined.is_none_or(|inlined| inlined > 20), "{inlined:?}");
    }
}

/// Compiles a source file of this name. Returns `None` if there is no C compiler.
fn compiled(directory: &Path, name: &str, source: &str) -> Option<std::path::PathBuf> {
    let (source_path, program) = (directory.join(name), directory.join("program"));
    std::fs::write(&source_path, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-g", "-O1", "-nostartfiles", "-Wl,-e,first", "-o"]);
    let Ok(output) = cc.args([&program, &source_path]).output() else {
        skip(Missing::Command("cc"));
        return None;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cc {name}: {stderr}");
    Some(program)
}

#[test]
fn finds_nested_functions() {
    let directory = tempfile::tempdir().unwrap();
    let source = "
int use(int (*)(int));
int first(int x) {
    __attribute__((noinline)) int inner(int y) { return x * y + 3; }
    return use(inner) + inner(x);
}
__attribute__((noinline)) int use(int (*called)(int)) { return called(2) + called(3); }
";
    if let Some(program) = compiled(directory.path(), "nested.c", source) {
        compare(&program, usize::MAX - 1);
        let file = File::open(&program).unwrap();
        let elf = ElfFile::open(file).unwrap();
        let inner = elf.symbols().unwrap();
        let inner = inner
            .iter()
            .find(|symbol| symbol.name.starts_with(b"inner"));
        let start = inner.unwrap().start;
        let sections = elf.dwarf_sections().unwrap();
        let debug_info = sections.into_debug_info().unwrap();
        let frames = debug_info.frames(start, Detail::Functions).unwrap();
        assert_eq!(frames.first().unwrap().name, Some(&b"inner"[..]));
    }
}

/// Returns names and lines of the longest chain at an address of `first`, innermost first.
fn deepest_in_first(program: &Path) -> Vec<(Option<Vec<u8>>, Option<u32>)> {
    let file = File::open(program).unwrap();
    let elf = ElfFile::open(file).unwrap();
    let symbols = elf.symbols().unwrap();
    let first = symbols.iter().find(|symbol| symbol.name == b"first");
    let first = first.unwrap();
    let sections = elf.dwarf_sections().unwrap();
    let debug_info = sections.into_debug_info().unwrap();
    let chains = (first.start..first.end).map(|at| debug_info.frames(at, Detail::Lines).unwrap());
    let deepest = chains.max_by_key(Vec::len).unwrap().into_iter();
    deepest
        .map(|frame| (frame.name.map(<[u8]>::to_vec), frame.line))
        .collect()
}

/// Functions `f1` to `f300`, each inlined into the one before, on the line of its index.
#[test]
fn merges_the_innermost_of_too_many_inlined_functions() {
    const COUNT: usize = 300;
    let directory = tempfile::tempdir().unwrap();
    let prototypes = (1..=COUNT).map(|n| format!("static int f{n}(int);"));
    let head = prototypes.collect::<String>();
    let inline = "static inline __attribute__((always_inline)) int";
    let calls = (1..COUNT).map(|n| format!("{inline} f{n}(int x) {{ return f{}(x); }}\n", n + 1));
    let calls = calls.collect::<String>();
    let source = format!(
        "{head} {calls}{inline} f{COUNT}(int x) {{ __asm__ volatile(\"nop\"); return x; }}\n\
        int first(int x) {{ return f1(x) + 1; }}\n"
    );
    let Some(program) = compiled(directory.path(), "deep.c", &source) else {
        return;
    };
    let deepest = deepest_in_first(&program);
    assert_eq!(deepest.len(), MAX_FRAMES);
    assert_eq!(deepest[0].0.as_deref(), Some(TRUNCATED));
    for (depth, (name, line)) in deepest.iter().rev().enumerate().skip(1) {
        let name = name.as_deref();
        assert_eq!(name.unwrap() == TRUNCATED, depth == MAX_FRAMES - 1);
        if depth < MAX_FRAMES - 1 {
            assert_eq!(name, Some(format!("f{depth}").as_bytes()));
            assert_eq!(*line, Some(depth as u32));
        }
    }
    let (name, _) = deepest.last().unwrap();
    assert_eq!(name.as_deref(), Some(&b"first"[..]));
}

#[test]
fn truncates_names_of_more_than_64_kib() {
    let directory = tempfile::tempdir().unwrap();
    let long = format!("f{}", "x".repeat(70_000));
    let source = format!(
        "static inline __attribute__((always_inline)) int {long}(int x) {{ __asm__ volatile(\"nop\"); return x; }}\n\
        int first(int x) {{ return {long}(x) + 1; }}\n"
    );
    let Some(program) = compiled(directory.path(), "long.c", &source) else {
        return;
    };
    let (name, _) = deepest_in_first(&program).swap_remove(0);
    let truncated = format!("{}...", &long[..MAX_NAME_BYTES]);
    assert_eq!(demangle(&name.unwrap()), truncated);
}

#[test]
fn names_do_not_depend_on_earlier_lookups() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = "    .text\n".to_owned();
    for (name, alias) in [("first", "alias"), ("second", "other"), ("third", "last")] {
        for name in [name, alias] {
            source += &format!("    .globl {name}\n    .type {name}, @function\n{name}:\n");
        }
        source += "    nop\n    ret\n";
        for name in [name, alias] {
            source += &format!("    .size {name}, . - {name}\n");
        }
    }
    let Some(program) = compiled(directory.path(), "aliases.s", &source) else {
        return;
    };
    let file = File::open(&program).unwrap();
    let elf = ElfFile::open(file).unwrap();
    let starts: Vec<u64> = elf
        .symbols()
        .unwrap()
        .iter()
        .map(|symbol| symbol.start)
        .collect();
    assert_eq!(starts.len(), 3);
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let sections = elf.dwarf_sections().unwrap();
        let debug_info = sections.into_debug_info().unwrap();
        for index in order {
            let frames = debug_info.frames(starts[index], Detail::Functions).unwrap();
            let names: Vec<_> = frames.iter().filter_map(|frame| frame.name).collect();
            // Assemblers before binutils 2.35 write no DWARF for functions.
            let expected = [b"alias".as_slice(), b"other", b"last"][index];
            assert!(
                names.is_empty() || names == [expected],
                "{order:?}: {names:?}"
            );
        }
    }
}
