//! What binutils' addr2line says of a program, and the comparison with it.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use perfcollect_symbols::dwarf::{DebugInfo, Detail, SourceFrame};
use perfcollect_symbols::elf::ElfFile;
use test_skip::{Missing, skip};

/// What `addr2line -fi` says of an address: functions and `FILE:LINE`, innermost first.
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
    let asked: String = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let writer = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut chains: Vec<Chain> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            chains.push(Chain::new());
        } else {
            let place = lines.next().unwrap();
            let place = place.split(" (discriminator").next().unwrap();
            chains
                .last_mut()
                .unwrap()
                .push((line.to_owned(), place.to_owned()));
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

/// Compares at so many addresses, evenly spread over all functions of `program`, which addr2line understands; returns how many of
/// them have inlined functions.
pub(crate) fn compare(debug_info: &DebugInfo<'_>, program: &Path, count: usize) -> Option<usize> {
    let file = File::open(program).unwrap();
    let table = ElfFile::open(&file).unwrap().symbols().unwrap();
    let code: Vec<_> = table
        .iter()
        .flat_map(|symbol| symbol.start..symbol.end)
        .collect();
    let step = code.len() / count + 1;
    let addresses: Vec<u64> = code.into_iter().step_by(step).collect();
    let theirs = addr2line(program, &addresses)?;
    let mut inlined = 0;
    for (&address, theirs) in addresses.iter().zip(&theirs) {
        let ours = as_addr2line(&debug_info.frames(address, Detail::Lines).unwrap());
        if ours.is_empty() {
            // Where there is no DWARF, such as in the startup code of the C library, addr2line asks the symbol table.
            let place = &theirs[0].1;
            let has_no_line = place.ends_with(":?") || place.ends_with(":0");
            assert!(theirs.len() == 1 && has_no_line, "{address:#x}: {theirs:?}");
            continue;
        }
        inlined += usize::from(ours.len() > 1);
        let names = |chain: &Chain| {
            chain
                .iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        let places = |chain: &Chain| {
            chain
                .iter()
                .map(|(_, place)| place.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            places(&ours),
            places(theirs),
            "at {address:#x}: {:?}",
            names(&ours)
        );
        let (our_names, mut their_names) = (names(&ours), names(theirs));
        // Where DWARF has no linkage name for the innermost function, addr2line gives it the name of the symbol, though that is the function
        // it is inlined into.
        let symbol = table.lookup(address).expect("it is from the table").name;
        if their_names[0].as_bytes() == symbol {
            their_names[0].clone_from(&our_names[0]);
        }
        assert_eq!(our_names, their_names, "at {address:#x}");
    }
    eprintln!(
        "{}: {} addresses, {inlined} with inlined functions",
        program.display(),
        addresses.len()
    );
    Some(inlined)
}

/// A C program in which functions are inlined into each other.
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
