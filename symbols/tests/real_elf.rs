//! Comparison of real files with the output of binutils.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::table::SymbolTable;
use test_skip::{Missing, skip};

fn libc() -> Option<PathBuf> {
    let paths = [
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/aarch64-linux-gnu/libc.so.6",
        "/usr/lib64/libc.so.6",
    ];
    let libc = paths.iter().map(PathBuf::from).find(|path| path.exists());
    if libc.is_none() {
        skip(Missing::File(paths[0].to_owned()));
    }
    libc
}

fn readelf(option: &str, path: &Path) -> Option<String> {
    match Command::new("readelf")
        .args([option, "-W"])
        .arg(path)
        .output()
    {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(_) => {
            skip(Missing::Command("readelf"));
            None
        }
    }
}

/// Returns names by address of the defined functions in the output of `readelf`.
fn functions(listing: &str) -> BTreeMap<u64, BTreeSet<String>> {
    let mut functions: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    // Without the GNU OSABI, as in static programs, readelf does not print the type.
    let listing = listing.replace("<OS specific>: 10", "IFUNC");
    for line in listing.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        if let [index, value, _, "FUNC" | "IFUNC", _, _, section, name, ..] = words[..]
            && index.ends_with(':')
            && section.parse::<u32>().is_ok()
        {
            let name = name.split('@').next().unwrap_or(name);
            functions
                .entry(u64::from_str_radix(value, 16).unwrap())
                .or_default()
                .insert(name.to_owned());
        }
    }
    functions
}

fn agree(path: &Path, table: &SymbolTable, expected: &BTreeMap<u64, BTreeSet<String>>) {
    for (&address, names) in expected {
        let found = table
            .lookup(address)
            .unwrap_or_else(|| panic!("{}: nothing at {address:#x}, {names:?}", path.display()));
        let name = String::from_utf8_lossy(found.name).into_owned();
        assert_eq!(
            found.start,
            address,
            "{}: {name} for {names:?}",
            path.display()
        );
        assert!(
            names.contains(&name),
            "{}: {name} at {address:#x} is none of {names:?}",
            path.display()
        );
    }
}

#[test]
fn symbols_of_libc_equal_those_of_readelf() {
    let Some(path) = libc() else {
        return;
    };
    let Some(listing) = readelf("--dyn-syms", &path) else {
        return;
    };
    let file = File::open(&path).unwrap();
    let table = ElfFile::open(file).unwrap().symbols().unwrap();
    let expected = functions(&listing);
    assert!(expected.len() > 1000);
    agree(&path, &table, &expected);
    let unknown: Vec<_> = table
        .iter()
        .filter(|symbol| !symbol.name.ends_with(b"@plt") && !expected.contains_key(&symbol.start))
        .collect();
    assert_eq!(unknown, [], "in the table but not in readelf's");
    eprintln!(
        "{}: {} symbols for {} addresses",
        path.display(),
        table.len(),
        expected.len()
    );
}

#[test]
fn symbols_of_this_test_equal_those_of_readelf() {
    let path = std::env::current_exe().unwrap();
    let Some(listing) = readelf("--symbols", &path) else {
        return;
    };
    let file = File::open("/proc/self/exe").unwrap();
    let table = ElfFile::open(file).unwrap().symbols().unwrap();
    let expected = functions(&listing);
    assert!(expected.len() > 1000);
    agree(&path, &table, &expected);
}

#[test]
fn function_ranges_equal_those_of_readelf() {
    let this_test = std::env::current_exe().unwrap();
    for path in libc().into_iter().chain([this_test]) {
        let Some(listing) = readelf("--debug-dump=frames", &path) else {
            return;
        };
        let expected: BTreeSet<(u64, u64)> = listing
            .lines()
            .filter(|line| line.contains(" FDE "))
            .filter_map(|line| line.split_once("pc=")?.1.split_once(".."))
            .map(|(start, end)| {
                let address = |hex| u64::from_str_radix(hex, 16).unwrap();
                (address(start), address(end))
            })
            .collect();
        assert!(expected.len() > 1000);
        let file = File::open(&path).unwrap();
        let ranges = ElfFile::open(file).unwrap().function_ranges().unwrap();
        let found: BTreeSet<_> = ranges
            .iter()
            .map(|range| (range.start, range.end))
            .collect();
        assert_eq!(found, expected, "{}", path.display());
        for (start, end) in expected.into_iter().filter(|(start, end)| start < end) {
            assert_eq!(ranges.lookup(start), Some(start..end));
            assert_eq!(ranges.lookup(end - 1), Some(start..end));
        }
    }
}

/// In a stripped library, an unsized symbol extends over all functions after it that are not
/// exported.
#[test]
fn detects_addresses_after_the_function_of_an_unsized_symbol() {
    let directory = tempfile::tempdir().unwrap();
    let (source, whole, stripped) = (
        directory.path().join("bare.c"),
        directory.path().join("whole.so"),
        directory.path().join("stripped.so"),
    );
    let code = r#"
__asm__(".globl bare\nbare: .fill 32, 1, 0x90\n ret\n");
__attribute__((noinline)) static int hidden(int n) { return n * n + 3; }
int entry(int n) { return hidden(n) + hidden(n + 1); }
"#;
    std::fs::write(&source, code).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-shared", "-fPIC", "-fno-toplevel-reorder", "-o"]);
    let Ok(made) = cc.args([&whole, &source]).status() else {
        return skip(Missing::Command("cc"));
    };
    assert!(made.success());
    let mut strip = Command::new("strip");
    let Ok(made) = strip.arg("-o").args([&stripped, &whole]).status() else {
        return skip(Missing::Command("strip"));
    };
    assert!(made.success());
    let whole = File::open(whole).unwrap();
    let whole = ElfFile::open(whole).unwrap().symbols().unwrap();
    let start = |name: &[u8]| {
        whole
            .iter()
            .find(|symbol| symbol.name == name)
            .unwrap()
            .start
    };
    let (bare, hidden) = (start(b"bare"), start(b"hidden"));

    let stripped = File::open(stripped).unwrap();
    let stripped = ElfFile::open(stripped).unwrap();
    let symbols = stripped.symbols().unwrap();
    let symbol = symbols.lookup(hidden).unwrap();
    assert_eq!((symbol.name, symbol.is_sized), (&b"bare"[..], false));
    let functions = stripped.function_ranges().unwrap();
    assert!(
        functions.is_in_later_function(bare, hidden)
            && functions.is_in_later_function(bare, hidden + 1)
    );
    assert!(
        !functions.is_in_later_function(bare, bare + 8)
            && !functions.is_in_later_function(hidden, hidden)
    );
    assert!(symbols.lookup(start(b"entry")).unwrap().is_sized);
}

#[test]
fn function_ranges_do_not_depend_on_the_search_table() {
    let Some(path) = libc() else {
        return;
    };
    let mut bytes = std::fs::read(path).unwrap();
    let elf = ElfFile::parse(&bytes).unwrap();
    let with_table = elf.function_ranges().unwrap();
    let table = elf.unwind_sections().unwrap().eh_frame_hdr.unwrap().data;
    let offset = memchr::memmem::find_iter(&bytes, &table).next().unwrap();
    let mut other = bytes.clone();
    // Changes the encoding of the rows to DW_EH_PE_omit.
    other[offset + 3] = 0xff;
    let without = ElfFile::parse(&other).unwrap();
    let without = without.function_ranges().unwrap();
    for range in with_table.iter().filter(|range| !range.is_empty()) {
        let start = range.start;
        assert_eq!(
            without.lookup(start),
            with_table.lookup(start),
            "{start:#x}"
        );
        assert!(with_table.lookup(start).is_some());
    }
    // A corrupt table finds no function.
    bytes[offset + 12..offset + table.len()].fill(0x7f);
    let corrupt = ElfFile::parse(&bytes).unwrap().function_ranges().unwrap();
    assert_eq!(corrupt.lookup(corrupt.iter().next().unwrap().start), None);
}

#[test]
fn segments_and_build_id_equal_those_of_readelf() {
    let Some(path) = libc() else {
        return;
    };
    let (Some(segments), Some(notes)) = (readelf("--segments", &path), readelf("--notes", &path))
    else {
        return;
    };
    let file = File::open(&path).unwrap();
    let elf = ElfFile::open(file).unwrap();
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    let expected: Vec<_> = segments
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("LOAD"))
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            (
                hex(words[0]),
                hex(words[1]),
                hex(words[3]),
                hex(words[4]),
                line.contains(" E "),
            )
        })
        .collect();
    let found: Vec<_> = elf
        .load_segments()
        .iter()
        .map(|s| {
            (
                s.file_offset,
                s.address,
                s.file_size,
                s.memory_size,
                s.executable,
            )
        })
        .collect();
    assert_eq!(found, expected);
    let hex = elf.build_id().unwrap().to_string();
    assert!(
        notes.contains(&format!("Build ID: {hex}")),
        "{hex} is not in {notes}"
    );
}

#[test]
fn reads_unwind_sections_from_a_file_and_from_memory() {
    let Some(path) = libc() else {
        return;
    };
    let file = File::open(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let (from_file, from_memory) = (
        ElfFile::open(file).unwrap(),
        ElfFile::parse(&bytes).unwrap(),
    );
    let unwind = from_file.unwind_sections().unwrap();
    let (eh_frame, header) = (
        unwind.eh_frame.clone().unwrap(),
        unwind.eh_frame_hdr.clone().unwrap(),
    );
    // Version 1, then the encodings. The pointer to .eh_frame is relative to its own address.
    assert_eq!(header.data[..2], [1, 0x1b]);
    let distance = i32::from_le_bytes(header.data[4..8].try_into().unwrap());
    assert_eq!(
        header
            .address
            .wrapping_add(4)
            .wrapping_add_signed(distance.into()),
        eh_frame.address
    );
    assert!(unwind.text_range.is_some() && unwind.got_range.is_some());
    assert_eq!(from_memory.unwind_sections().unwrap(), unwind);
    assert!(
        from_memory
            .symbols()
            .unwrap()
            .iter()
            .eq(from_file.symbols().unwrap().iter())
    );
}

#[test]
fn addresses_of_dynamic_symbols_equal_those_of_readelf() {
    let Some(path) = libc() else {
        return;
    };
    let Some(listing) = readelf("--dyn-syms", &path) else {
        return;
    };
    let file = File::open(&path).unwrap();
    let elf = ElfFile::open(file).unwrap();
    for name in ["environ", "stdout", "qsort"] {
        let line = listing.lines().find(|line| {
            let symbol = line.split_whitespace().nth(7).unwrap_or_default();
            symbol.split('@').next() == Some(name)
        });
        let address = line
            .and_then(|line| line.split_whitespace().nth(1))
            .unwrap();
        assert_eq!(
            elf.dynamic_symbol(name.as_bytes()).unwrap(),
            Some(u64::from_str_radix(address, 16).unwrap()),
            "{name}"
        );
    }
    assert_eq!(elf.dynamic_symbol(b"environ_").unwrap(), None);
    assert_eq!(elf.dynamic_symbol(b"").unwrap(), None);
    let plt = elf.plt_sections();
    assert!(plt.iter().all(|plt| plt.code.len() % plt.stub_bytes == 0));
    assert!(!plt.is_empty());
}

#[test]
fn plt_symbols_equal_those_of_objdump() {
    let path = Path::new("/usr/bin/env");
    let output = match Command::new("objdump")
        .args(["-d", "-j", ".plt.sec", "-j", ".plt", "-j", ".plt.got"])
        .arg(path)
        .output()
    {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(_) => return skip(Missing::Command("objdump")),
    };
    let Ok(file) = File::open(path) else {
        return skip(Missing::File(path.display().to_string()));
    };
    let table = ElfFile::open(file).unwrap().symbols().unwrap();
    let mut stubs = 0;
    for line in output.lines() {
        if let Some((address, name)) = line
            .strip_suffix("@plt>:")
            .and_then(|line| line.split_once(" <"))
        {
            let address = u64::from_str_radix(address, 16).unwrap();
            if let Some(found) = table.lookup(address).filter(|found| found.name != b"@plt") {
                assert_eq!(
                    String::from_utf8_lossy(found.name),
                    format!("{name}@plt"),
                    "at {address:#x}"
                );
                stubs += 1;
            }
        }
    }
    let named = table
        .iter()
        .filter(|symbol| symbol.name.ends_with(b"@plt"))
        .count();
    eprintln!("{}: {stubs} of {named} stubs compared", path.display());
    assert_eq!(stubs, named);
}

#[test]
fn symbols_of_installed_programs_equal_those_of_readelf() {
    let Ok(directory) = std::fs::read_dir("/usr/bin") else {
        return skip(Missing::File("/usr/bin".into()));
    };
    let mut paths: Vec<_> = directory
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    let mut files = 0;
    for path in paths.iter().step_by(paths.len() / 40 + 1) {
        let elf = File::open(path).ok().map(ElfFile::open);
        let Some(Ok(elf)) = elf else {
            continue;
        };
        let Some(listing) = readelf("--symbols", path) else {
            return;
        };
        agree(path, &elf.symbols().unwrap(), &functions(&listing));
        files += 1;
    }
    eprintln!("{files} programs of /usr/bin compared");
}
