//! `.gnu_debugdata`, built as distributions do: the symbols of a stripped library, in xz format.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use perfcollect_symbols::Aliases;
use perfcollect_symbols::elf::{ElfError, ElfFile};
use test_skip::{Missing, skip};

const SOURCE: &str = "
static __attribute__((noinline)) int inner(int x) { __asm__ volatile(\"\" : \"+r\"(x)); return x * 3; }
int outer(int x) { return inner(x) + inner(x + 1); }
int other(int x) { return inner(x) - 1; }
";

/// Functions of a file: address, size, name.
type Functions = Vec<(u64, u64, String)>;

fn run(directory: &Path, tool: &'static str, arguments: &[&str]) -> bool {
    let mut command = Command::new(tool);
    match command.args(arguments).current_dir(directory).status() {
        Ok(status) => {
            assert!(status.success(), "{tool} {arguments:?}");
            true
        }
        Err(_) => {
            skip(Missing::Command(tool));
            false
        }
    }
}

/// Builds `whole.so`, and `stripped.so` with the compressed symbols that `change` has changed.
///
/// Returns `None` if a tool is missing.
fn library(change: impl FnOnce(&Path)) -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("lib.c"), SOURCE).unwrap();
    let is_built = run(
        path,
        "cc",
        &["-O1", "-shared", "-fPIC", "-o", "whole.so", "lib.c"],
    ) && run(
        path,
        "objcopy",
        &[
            "--only-keep-debug",
            "--keep-symbol=inner",
            "whole.so",
            "mini",
        ],
    ) && run(path, "xz", &["-k", "mini"]);
    if !is_built {
        return None;
    }
    change(&path.join("mini.xz"));
    let add = "--add-section=.gnu_debugdata=mini.xz";
    run(path, "objcopy", &["-S", add, "whole.so", "stripped.so"]).then_some(directory)
}

fn functions(elf: &ElfFile) -> Result<Functions, ElfError> {
    let symbols = elf.symbols()?;
    let functions = symbols.iter().filter_map(|symbol| {
        let name = String::from_utf8_lossy(symbol.name).into_owned();
        let is_in_source = ["inner", "outer", "other"].contains(&&*name);
        is_in_source.then(|| (symbol.start, symbol.end - symbol.start, name))
    });
    Ok(functions.collect())
}

/// Calls `check` with both libraries.
fn with_both(directory: &tempfile::TempDir, check: impl FnOnce(&ElfFile, &ElfFile)) {
    let open = |name| File::open(directory.path().join(name)).unwrap();
    let (whole, stripped) = (open("whole.so"), open("stripped.so"));
    check(
        &ElfFile::open(whole).unwrap(),
        &ElfFile::open(stripped).unwrap(),
    );
}

#[test]
fn reads_the_functions_of_a_stripped_library() {
    let Some(directory) = library(|_| ()) else {
        return;
    };
    with_both(&directory, |whole, stripped| {
        assert!(!stripped.has_symtab() && stripped.has_all_symbols().unwrap());
        let found = functions(stripped).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(found, functions(whole).unwrap());
    });
}

/// Expects an error for `.gnu_debugdata`, and the exported symbols in spite of it.
#[track_caller]
fn expect_error(directory: &tempfile::TempDir, message: &str) {
    with_both(directory, |_, stripped| {
        for error in [
            stripped.has_all_symbols().unwrap_err(),
            functions(stripped).unwrap_err(),
        ] {
            assert!(error.to_string().contains(message), "{error}");
        }
        let exported = stripped.dynamic_symbols_with(Aliases::Plain).unwrap();
        let has = |name: &[u8]| exported.iter().any(|symbol| symbol.name == name);
        assert!(has(b"outer") && has(b"other") && !has(b"inner"));
    });
}

#[test]
fn reports_truncated_and_too_large_contents() {
    let truncate = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    let Some(directory) = library(truncate) else {
        return;
    };
    expect_error(&directory, "corrupt ELF .gnu_debugdata: ");

    // `size` zeros, compressed with a dictionary of this size.
    let zeros = |size: u64, dictionary: &'static str| {
        move |path: &Path| {
            let mini = path.with_extension("");
            File::create(&mini).unwrap().set_len(size).unwrap();
            let directory = path.parent().unwrap();
            assert!(run(directory, "xz", &["-kf", dictionary, "mini"]));
        }
    };
    let directory = library(zeros(1000, "--lzma2=preset=0,dict=96MiB")).unwrap();
    expect_error(&directory, "memory");
    let directory = library(zeros(129 << 20, "-0")).unwrap();
    expect_error(&directory, "limit 134217728");
}
