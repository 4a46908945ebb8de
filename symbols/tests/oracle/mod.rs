//! Comparison with the output of binutils' addr2line.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use perfcollect_symbols::dwarf::{DebugInfo, Detail, SourceFrame};
use perfcollect_symbols::elf::ElfFile;
use test_skip::{Missing, skip};

/// Output of `addr2line -fi` for an address: functions and `FILE:LINE`, innermost first.
type Chain = Vec<(String, String)>;

fn addr2line(file: &Path, addresses: &[u64]) -> Option<Vec<Chain>> {
    let spawned = Command::new("addr2line")
        .args(["-f", "-i", "-a", "-e"])
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(_) => {
            skip(Missing::Command("addr2line"));
            return None;
        }
    };
    let mut stdin = child.stdin.take().unwrap();
    let input: String = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut chains: Vec<Chain> = Vec::new();
    let mut lines = stdout.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            chains.push(Chain::new());
        } else {
            let location = lines.next().unwrap();
            let location = location.split(" (discriminator").next().unwrap();
            chains
                .last_mut()
                .unwrap()
                .push((line.to_owned(), location.to_owned()));
        }
    }
    assert_eq!(chains.len(), addresses.len());
    Some(chains)
}

fn as_addr2line(frames: &[SourceFrame<'_>]) -> Chain {
    frames
        .iter()
        .map(|frame| {
            let name = frame.name.map_or("??".into(), String::from_utf8_lossy);
            let file = frame.file.unwrap_or("??");
            let line = frame.line.map_or("?".into(), |line| line.to_string());
            (name.into_owned(), format!("{file}:{line}"))
        })
        .collect()
}

/// Compares `count` addresses, spread evenly over all functions of `program`, with addr2line.
///
/// Returns the number of addresses with inlined functions, or `None` without addr2line.
pub(crate) fn compare(debug_info: &DebugInfo, program: &Path, count: usize) -> Option<usize> {
    let file = File::open(program).unwrap();
    let table = ElfFile::open(file).unwrap().symbols().unwrap();
    let code: Vec<_> = table
        .iter()
        .flat_map(|symbol| symbol.start..symbol.end)
        .collect();
    let step = code.len() / count + 1;
    let addresses: Vec<u64> = code.into_iter().step_by(step).collect();
    let expected_chains = addr2line(program, &addresses)?;
    let mut inlined = 0;
    for (&address, expected) in addresses.iter().zip(&expected_chains) {
        let chain = as_addr2line(&debug_info.frames(address, Detail::Lines).unwrap());
        if chain.is_empty() {
            // For code without DWARF, such as the startup code of the C library, addr2line uses
            // the symbol table.
            let location = &expected[0].1;
            let has_no_line = location.ends_with(":?") || location.ends_with(":0");
            assert!(
                expected.len() == 1 && has_no_line,
                "{address:#x}: {expected:?}"
            );
            continue;
        }
        inlined += usize::from(chain.len() > 1);
        let names = |chain: &Chain| {
            chain
                .iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        let locations = |chain: &Chain| {
            chain
                .iter()
                .map(|(_, location)| location.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            locations(&chain),
            locations(expected),
            "at {address:#x}: {:?}",
            names(&chain)
        );
        let (found_names, mut expected_names) = (names(&chain), names(expected));
        // If DWARF has no linkage name for a function, addr2line prints the name of the symbol, also
        // for the innermost function, which is inlined into it.
        let symbol = table.lookup(address).expect("a symbol").name;
        // For assembly, which has lines and no functions, it prints a symbol before the address.
        let has_only_line = found_names == ["??"];
        for (expected, found) in expected_names.iter_mut().zip(&found_names) {
            if expected.as_bytes() == symbol || has_only_line {
                expected.clone_from(found);
            }
        }
        assert_eq!(found_names, expected_names, "at {address:#x}");
    }
    eprintln!(
        "{}: {} addresses, {inlined} with inlined functions",
        program.display(),
        addresses.len()
    );
    Some(inlined)
}

/// A C program with nested inlined functions.
pub(crate) const PROGRAM: &str = "
static inline __attribute__((always_inline)) unsigned inner(unsigned x) {
    for (int i = 0; i < 9; i++) {
        x = x * 31 + 7;
        __asm__ volatile(\"\" : \"+r\"(x));
    }
    return x;
}
static inline __attribute__((always_inline)) unsigned outer(unsigned x) {
    return inner(x) ^ inner(x + 1);
}
__attribute__((noinline)) unsigned caller(unsigned x) {
    return outer(x) + 3;
}
int main(int count, char **values) {
    (void)values;
    return (int)(caller((unsigned)count) + outer((unsigned)count));
}
";
