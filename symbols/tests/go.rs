//! Comparison of the function tables of real Go programs with what the linker strips.
//!
//! Each program is compiled as a whole and stripped. The stripped one has only the function table.
//! The whole one has `.symtab`, `.debug_frame` and `.debug_info`, which the results must equal.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use gimli::{BaseAddresses, CfaRule, CieOrFde, DebugFrame, RunTimeEndian, UnwindContext};
use gimli::{UnwindSection, UnwindTableRow};
use perfcollect_symbols::dwarf::{DebugInfo, Detail};
use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::go::{GoFunction, GoTable};
use perfcollect_symbols::symbolizer::{Evidence, FileSource, Symbolizer};
use proptest::prelude::*;
use test_skip::{Missing, skip};

/// A program with inlined, generic, anonymous and variadic functions.
const PROGRAM: &str = r#"package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
)

type shape interface{ area() float64 }
type square struct{ side float64 }

func (s *square) area() float64 { return s.side * s.side }

func inner(x int) int { return x*31 + len(os.Args) }
func middle(x int) int { return inner(x) ^ inner(x+1) }

//go:noinline
func outer(x int) int { return middle(x) + 3 }

func largest[T int | float64](values ...T) (most T) {
	for _, value := range values {
		if value > most {
			most = value
		}
	}
	return
}

func main() {
	defer func() { fmt.Println(recover()) }()
	words := strings.Fields(strings.Repeat("b a ", len(os.Args)))
	sort.Slice(words, func(i, j int) bool { return words[i] < words[j] })
	var shapes = []shape{&square{2}}
	done := make(chan int)
	go func() { done <- outer(len(words)) }()
	fmt.Println(<-done, largest(1, 2), largest(1.5), shapes[0].area(), words)
}
"#;

/// The same with C code, for which another linker links the program.
const C_PART: &str = r#"package main

// static int twice(int x) { volatile int y = x; return y * 2; }
import "C"

func init() { println(C.twice(4)) }
"#;

/// A program as a whole and stripped.
struct Programs {
    _directory: tempfile::TempDir,
    whole: PathBuf,
    stripped: PathBuf,
}

/// How to build a program.
#[derive(Clone, Copy)]
struct Target {
    /// Go's name of the architecture.
    arch: &'static str,
    mode: &'static str,
    has_c: bool,
}

/// What this machine runs.
const NATIVE: Target = Target {
    arch: match cfg!(target_arch = "aarch64") {
        true => "arm64",
        false => "amd64",
    },
    mode: "exe",
    has_c: false,
};

impl Target {
    /// Returns the size of the return address that a call pushes.
    fn return_address_bytes(self) -> i64 {
        match self.arch {
            "amd64" => 8,
            "386" => 4,
            _ => 0,
        }
    }
}

fn build(target: Target) -> Option<Programs> {
    let Target { arch, mode, has_c } = target;
    for (command, is_needed) in [("go", true), ("gcc", has_c)] {
        if is_needed && Command::new(command).arg("--help").output().is_err() {
            skip(Missing::Command(command));
            return None;
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let mut sources = vec![("main.go", PROGRAM)];
    if has_c {
        sources.push(("c.go", C_PART));
    }
    for (name, text) in &sources {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let compile = |name: &str, flags: &str| {
        let output = Command::new("go")
            .args(["build", "-p", "1", "-ldflags", flags, "-o", name])
            .arg(format!("-buildmode={mode}"))
            .args(sources.iter().map(|(name, _)| name))
            .current_dir(directory.path())
            .env("CGO_ENABLED", if has_c { "1" } else { "0" })
            .env("GOARCH", arch)
            .env("GOTOOLCHAIN", "local")
            .env("GOFLAGS", "")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        directory.path().join(name)
    };
    Some(Programs {
        whole: compile("whole", ""),
        stripped: compile("stripped", "-s -w"),
        _directory: directory,
    })
}

fn elf(path: &Path) -> ElfFile {
    ElfFile::open(File::open(path).unwrap()).unwrap()
}

fn table(path: &Path) -> GoTable {
    GoTable::read(&elf(path)).unwrap().unwrap()
}

/// Returns a name without what only one of both tables has.
///
/// The symbol table has a suffix for the calling convention, and DWARF and the symbol table have
/// type arguments, which function tables of Go 1.18 to 1.20 shorten.
fn plain(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let name = name.strip_suffix(".abi0").unwrap_or(&name);
    match (name.find('['), name.rfind(']')) {
        (Some(start), Some(end)) if start < end => {
            format!("{}[...]{}", &name[..start], &name[end + 1..])
        }
        _ => name.to_owned(),
    }
}

/// Asserts that at least 99.9 % agree.
fn assert_agreement(what: &str, count: usize, different: &[String]) {
    eprintln!("{what}: {count} compared, {} differ", different.len());
    assert!(count > 1000, "{what}: {count}");
    let shown = &different[..different.len().min(20)];
    assert!(
        different.len() * 1000 <= count,
        "{what}: {} of {count}: {shown:#?}",
        different.len()
    );
}

fn compare(target: Target) {
    let Some(programs) = build(target) else {
        return;
    };
    let stripped = table(&programs.stripped);
    assert!(!elf(&programs.stripped).has_symtab());
    names(&stripped, &programs.whole);
    depths(&stripped, &programs.whole, target.return_address_bytes());
    lines_and_inlined(&stripped, &programs.whole);
    symbolized(&stripped, &programs.stripped);
    if target.arch == "amd64" {
        switches(&stripped);
    }
    if target.has_c {
        let symbols = elf(&programs.whole).symbols().unwrap();
        let twice = symbols
            .iter()
            .find(|symbol| symbol.name.ends_with(b"_Cfunc_twice"));
        // Go has a function with this name, too, which calls the one in C.
        let twice = twice.filter(|symbol| !symbol.name.starts_with(b"main."));
        assert!(stripped.lookup(twice.unwrap().start).is_none());
    }
}

/// Compares with the functions of the symbol table, both ways.
fn names(table: &GoTable, whole: &Path) {
    let symbols = elf(whole).symbols().unwrap();
    let mut different = Vec::new();
    let mut count = 0;
    let (mut first, mut last) = (u64::MAX, 0);
    for function in table.iter() {
        (first, last) = (first.min(function.start), last.max(function.end));
        count += 1;
        let symbol = symbols.lookup(function.start);
        let is_same = symbol.is_some_and(|symbol| {
            symbol.start == function.start
                && plain(symbol.name) == plain(function.name)
                && symbol.end >= function.end
        });
        if !is_same {
            let name = symbol.map(|symbol| plain(symbol.name));
            different.push(format!("{function:?}: {name:?}"));
        }
        assert_eq!(
            table.lookup(function.end - 1).unwrap().start,
            function.start
        );
    }
    assert!(count <= table.len());
    assert_agreement("names", count, &different);

    // C code is before, between or after Go's code.
    let mut missing = Vec::new();
    let mut count = 0;
    for symbol in symbols.iter().filter(|symbol| symbol.is_sized) {
        let function = table.lookup(symbol.start);
        // Names of Go have a package.
        let is_go = symbol.name.contains(&b'.') && (first..last).contains(&symbol.start);
        if is_go {
            count += 1;
            if function.is_none_or(|function| function.start != symbol.start) {
                missing.push(plain(symbol.name));
            }
        } else if let Some(function) = function {
            assert_eq!(plain(function.name), plain(symbol.name));
        }
    }
    assert_agreement("symbols", count, &missing);
}

/// Compares with what the symbolizer makes of the table.
fn symbolized(table: &GoTable, stripped: &Path) {
    let symbolizer = Symbolizer::default();
    let file = symbolizer.file(FileSource::open(stripped).unwrap());
    let (mut inlined, mut exported) = (0, 0);
    for function in table.iter() {
        let address = function.end - 1;
        let frames = file.frames(address).unwrap();
        let expected = function.frames(address);
        assert_eq!(frames.len(), expected.len());
        for (frame, expected) in frames.iter().zip(&expected) {
            // C code calls some functions, so dynamic symbols name them.
            match frame.evidence {
                Evidence::SymbolTable => exported += 1,
                evidence => assert_eq!(evidence, Evidence::GoTable),
            }
            assert_eq!(frame.symbol, expected.name);
            assert_eq!(frame.file.map(str::as_bytes), expected.file);
            assert_eq!(frame.line, expected.line);
        }
        let outer = frames.last().unwrap();
        assert_eq!(
            (outer.start, outer.is_inlined),
            (Some(function.start), false)
        );
        inlined += frames.len() - 1;
        let symbol = file.symbol(function.start).unwrap();
        assert_eq!(symbol.start, function.start);
        assert_eq!(symbol.name, function.name);
    }
    assert!(inlined > 0 && exported < 20, "{inlined} {exported}");
    assert!(file.take_problems().is_empty());
}

/// Compares the stack depth with all rows of `.debug_frame`.
fn depths(table: &GoTable, whole: &Path, return_address_bytes: i64) {
    let section = elf(whole).debug_frame().unwrap().unwrap();
    let header: [u8; 6] = std::fs::read(whole).unwrap()[..6].try_into().unwrap();
    let endian = match header[5] {
        1 => RunTimeEndian::Little,
        _ => RunTimeEndian::Big,
    };
    let mut debug_frame = DebugFrame::new(&section.data, endian);
    debug_frame.set_address_size(header[4] * 4);
    let bases = BaseAddresses::default();
    let mut context = UnwindContext::new();
    let mut entries = debug_frame.entries(&bases);
    let mut different = Vec::new();
    let mut count = 0;
    while let Some(entry) = entries.next().unwrap() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(DebugFrame::cie_from_offset).unwrap();
        // Code of C has unwind information, too.
        let Some(function) = table.lookup(fde.initial_address()) else {
            continue;
        };
        let mut rows = fde.rows(&debug_frame, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            let row: &UnwindTableRow<_> = row;
            let expected = match row.cfa() {
                CfaRule::RegisterAndOffset { offset, .. } => offset - return_address_bytes,
                other => panic!("{other:?}"),
            };
            // The linker ends the last row one byte early, so that it may be empty.
            if row.start_address() == row.end_address() {
                continue;
            }
            count += 1;
            for address in [row.start_address(), row.end_address() - 1] {
                let depth = function.stack_bytes(address);
                // Assembly of AArch64 removes its frame before it returns to another address.
                let expected = u64::try_from(expected).ok();
                // The row ends with the function, whose code padding may follow.
                if depth != expected && address < function.end {
                    let (start, end) = (row.start_address(), row.end_address());
                    let place = format!("{address:#x} of {start:#x}..{end:#x}");
                    different.push(format!(
                        "{place}: {depth:?}, not {expected:?}, {function:x?}"
                    ));
                }
            }
        }
    }
    eprintln!("depths: {count} rows");
    assert!(count > 3000, "{count}");
    assert_eq!(different, Vec::<String>::new());
}

/// Compares lines and inlined functions with DWARF, at addresses spread over all functions.
fn lines_and_inlined(table: &GoTable, whole: &Path) {
    let sections = elf(whole).copied_dwarf_sections().unwrap().unwrap();
    let debug_info = sections.into_debug_info().unwrap();
    let addresses = table.iter().flat_map(|function| {
        let step = (function.end - function.start).div_ceil(16) as usize;
        (function.start..function.end).step_by(step)
    });
    let [mut lines, mut inlined] = [(); 2].map(|()| Vec::new());
    let (mut count, mut inlined_count) = (0, 0);
    for address in addresses {
        let function = table.lookup(address).unwrap();
        let (found, expected) = both(&debug_info, &function, address);
        if expected.is_empty() {
            continue;
        }
        count += 1;
        if found[0].1 != expected[0].1 {
            lines.push(format!("{address:#x}: {found:?}, not {expected:?}"));
        }
        // DWARF has no calls that are inlined into generated methods of pointers.
        let is_generated = found.last().unwrap().1 == "<autogenerated>:1";
        if expected.len() > 1 || found.len() > 1 && !is_generated {
            inlined_count += 1;
            if found != expected {
                inlined.push(format!("{address:#x}: {found:?}, not {expected:?}"));
            }
        }
    }
    assert_agreement("lines", count, &lines);
    assert_agreement("inlined", inlined_count, &inlined);
}

type Frames = Vec<(String, String)>;

fn both(debug_info: &DebugInfo, function: &GoFunction<'_>, address: u64) -> (Frames, Frames) {
    let found = function.frames(address).into_iter().map(|frame| {
        let file = String::from_utf8_lossy(frame.file.unwrap_or(b"?"));
        (
            plain(frame.name),
            format!("{file}:{}", frame.line.unwrap_or(0)),
        )
    });
    let expected = debug_info.frames(address, Detail::Lines).unwrap();
    let expected = expected.iter().map(|frame| {
        let (file, line) = (frame.file.unwrap_or("?"), frame.line.unwrap_or(0));
        // The directory of a unit is `.`.
        let file = file.strip_prefix("./").unwrap_or(file);
        (plain(frame.name.unwrap_or(b"?")), format!("{file}:{line}"))
    });
    (found.collect(), expected.collect())
}

/// The functions that end a stack or switch to another one have their flags.
fn switches(table: &GoTable) {
    let functions: HashMap<_, _> = table
        .iter()
        .map(|function| (function.name, function))
        .collect();
    let flags = |name: &str| functions[name.as_bytes()].flags;
    for name in ["runtime.goexit", "runtime.mstart"] {
        assert!(flags(name).is_top_frame(), "{name}");
    }
    for name in ["runtime.systemstack", "runtime.mcall", "runtime.morestack"] {
        assert!(flags(name).writes_stack_pointer(), "{name}");
    }
    for name in ["main.main", "main.outer"] {
        assert_eq!(flags(name).0, 0, "{name}");
    }
}

#[test]
fn static_program_equals_its_debug_information() {
    compare(NATIVE);
}

#[test]
fn position_independent_program_equals_its_debug_information() {
    compare(Target {
        mode: "pie",
        ..NATIVE
    });
}

#[test]
fn program_with_c_code_equals_its_debug_information() {
    compare(Target {
        has_c: true,
        ..NATIVE
    });
}

/// GNU ld puts the table into `.data.rel.ro`, so that it is searched.
#[test]
fn position_independent_program_with_c_code_equals_its_debug_information() {
    compare(Target {
        mode: "pie",
        has_c: true,
        ..NATIVE
    });
}

/// Instructions of four bytes, and return addresses in a register.
#[test]
fn program_for_aarch64_equals_its_debug_information() {
    compare(Target {
        arch: "arm64",
        ..NATIVE
    });
}

/// Words of four bytes, in big-endian byte order.
#[test]
fn program_for_mips_equals_its_debug_information() {
    compare(Target {
        arch: "mips",
        ..NATIVE
    });
}

/// Without section headers, the table is searched in the segments.
#[test]
fn finds_the_table_without_section_headers() {
    for mode in ["exe", "pie"] {
        let Some(programs) = build(Target { mode, ..NATIVE }) else {
            return;
        };
        let mut bytes = std::fs::read(&programs.stripped).unwrap();
        // e_shoff, and e_shnum with e_shstrndx.
        bytes[0x28..0x30].fill(0);
        bytes[0x3c..0x40].fill(0);
        let searched = GoTable::read(&ElfFile::parse(&bytes).unwrap())
            .unwrap()
            .unwrap();
        let table = table(&programs.stripped);
        let rows = |table: &GoTable| -> Vec<_> {
            let functions = table.iter();
            functions
                .map(|function| (function.range(), function.name.to_vec()))
                .collect()
        };
        assert_eq!(rows(&searched), rows(&table), "{mode}");
        let frames = |table: &GoTable| -> usize {
            let functions = table.iter();
            functions
                .map(|function| function.frames(function.end - 1).len())
                .sum()
        };
        assert!(frames(&table) > table.len(), "{mode}");
        assert_eq!(frames(&searched), frames(&table), "{mode}");
    }
}

/// Flips bits of a real table.
#[test]
fn reads_corrupt_tables_without_panic() {
    let Some(programs) = build(NATIVE) else {
        return;
    };
    let bytes = std::fs::read(&programs.stripped).unwrap();
    let magic = [0xff, 0xff, 0xff, 0, 0, 1, 8];
    let start = bytes.windows(7).position(|window| window == magic).unwrap() - 1;
    let length = (bytes.len() - start).min(1 << 20);
    let edits = prop::collection::vec((0..length, 0..8_u8), 1..2000);
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(48)
    };
    let header = prop::collection::vec((0..96_usize, 0..8_u8), 0..2);
    proptest!(config, |(edits in edits, header in header)| {
        let mut bytes = bytes.clone();
        for (at, bit) in edits.into_iter().chain(header) {
            bytes[start + at] ^= 1 << bit;
        }
        let Ok(Some(table)) = GoTable::read(&ElfFile::parse(&bytes).unwrap()) else {
            return Ok(());
        };
        for function in table.iter() {
            prop_assert!(function.start < function.end);
            for address in [function.start, function.end - 1] {
                let _ = (function.stack_bytes(address), function.line(address));
                prop_assert!(!function.frames(address).is_empty());
                let _ = table.lookup(address);
            }
        }
    });
}
