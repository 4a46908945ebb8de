//! `.gnu_debugdata`, made as distributions make it: the symbols of a stripped library, compressed with xz in a section of it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use perfcollect_symbols::Aliases;
use perfcollect_symbols::elf::{ElfError, ElfFile};

const SOURCE: &str = "
static __attribute__((noinline)) int inner(int x) { __asm__ volatile(\"\" : \"+r\"(x)); return x * 3; }
int outer(int x) { return inner(x) + inner(x + 1); }
int other(int x) { return inner(x) - 1; }
";

/// The functions of a file: address, size, name.
type Functions = Vec<(u64, u64, String)>;

fn run(directory: &Path, tool: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(tool);
    match command.args(arguments).current_dir(directory).status() {
        Ok(status) => {
            assert!(status.success(), "{tool} {arguments:?}");
            true
        }
        Err(error) => {
            eprintln!("skipped: {tool}: {error}");
            false
        }
    }
}

/// `whole.so`, and `stripped.so` with what `bytes` makes of the compressed symbols; `None`: a tool is missing.
fn library(bytes: impl FnOnce(&Path)) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("lib.c"), SOURCE).unwrap();
    let made = run(
        at,
        "cc",
        &["-O1", "-shared", "-fPIC", "-o", "whole.so", "lib.c"],
    ) && run(
        at,
        "objcopy",
        &[
            "--only-keep-debug",
            "--keep-symbol=inner",
            "whole.so",
            "mini",
        ],
    ) && run(at, "xz", &["-k", "mini"]);
    if !made {
        return None;
    }
    bytes(&at.join("mini.xz"));
    let add = "--add-section=.gnu_debugdata=mini.xz";
    run(at, "objcopy", &["-S", add, "whole.so", "stripped.so"]).then_some(folder)
}

fn functions(elf: &ElfFile<'_>) -> Result<Functions, ElfError> {
    let symbols = elf.symbols()?;
    let ours = symbols.iter().filter_map(|symbol| {
        let name = String::from_utf8_lossy(symbol.name).into_owned();
        let is_ours = ["inner", "outer", "other"].contains(&&*name);
        is_ours.then(|| (symbol.start, symbol.end - symbol.start, name))
    });
    Ok(ours.collect())
}

/// Looks at both libraries.
fn with_both(folder: &tempfile::TempDir, look: impl FnOnce(&ElfFile<'_>, &ElfFile<'_>)) {
    let open = |name| File::open(folder.path().join(name)).unwrap();
    let (whole, stripped) = (open("whole.so"), open("stripped.so"));
    look(
        &ElfFile::open(&whole).unwrap(),
        &ElfFile::open(&stripped).unwrap(),
    );
}

#[test]
fn a_stripped_library_has_the_functions_of_the_whole_one() {
    let Some(folder) = library(|_| ()) else {
        return;
    };
    with_both(&folder, |whole, stripped| {
        assert!(!stripped.has_symtab() && stripped.has_all_symbols().unwrap());
        let found = functions(stripped).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(found, functions(whole).unwrap());
    });
}

/// What it exports has names all the same.
#[track_caller]
fn expect_damage(folder: &tempfile::TempDir, told: &str) {
    with_both(folder, |_, stripped| {
        for error in [
            stripped.has_all_symbols().unwrap_err(),
            functions(stripped).unwrap_err(),
        ] {
            assert!(error.to_string().contains(told), "{error}");
        }
        let exported = stripped.dynamic_symbols_with(Aliases::Plain).unwrap();
        let has = |name: &[u8]| exported.iter().any(|symbol| symbol.name == name);
        assert!(has(b"outer") && has(b"other") && !has(b"inner"));
    });
}

#[test]
fn damage_and_what_would_take_too_much_are_told() {
    let cut = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    let Some(folder) = library(cut) else { return };
    expect_damage(&folder, "ELF: .gnu_debugdata: ");

    // `size` zeros that are decompressed with such a dictionary.
    let zeros = |size: u64, dictionary: &'static str| {
        move |path: &Path| {
            let mini = path.with_extension("");
            File::create(&mini).unwrap().set_len(size).unwrap();
            let directory = path.parent().unwrap();
            assert!(run(directory, "xz", &["-kf", dictionary, "mini"]));
        }
    };
    let folder = library(zeros(1000, "--lzma2=preset=0,dict=96MiB")).unwrap();
    expect_damage(&folder, "memory");
    let folder = library(zeros(129 << 20, "-0")).unwrap();
    expect_damage(&folder, "more than the limit of 134217728");
}
