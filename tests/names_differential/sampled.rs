//! The addresses of a trace with their names.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use perfcollect_symbols::build_id::BuildId;
use perfcollect_symbols::elf::ElfFile;

use crate::support::Saved;

/// Names in `perf.data.txt` are truncated to 2048 bytes.
const COMPARED_CHARS: usize = 1900;
/// Lowest kernel address.
const KERNEL: u64 = 1 << 63;

/// Unique addresses and their functions, innermost first, as [`shown`].
#[derive(Default)]
pub(crate) struct Sampled {
    /// By module, then SVMA.
    pub(crate) modules: BTreeMap<String, BTreeMap<u64, Vec<String>>>,
    /// The function and its module.
    pub(crate) kernel: BTreeMap<u64, (String, String)>,
}

impl Sampled {
    pub(crate) fn of(saved: &Saved) -> Self {
        let mut sampled = Self::default();
        let text = std::str::from_utf8(&saved.perf_text).unwrap();
        for sample in text.split("\n\n") {
            sampled.add(sample);
        }
        sampled
    }

    fn add(&mut self, sample: &str) {
        let frames = sample
            .lines()
            .filter_map(|line| line.strip_prefix('\t'))
            .map(frame);
        let mut frames = frames.peekable();
        while let Some((address, name, module)) = frames.next() {
            // Truncation markers are frames without an address.
            if address == 0 {
                continue;
            }
            if address >= KERNEL {
                self.kernel
                    .insert(address, (shown(name), module.to_owned()));
                continue;
            }
            let mut chain = vec![shown(name)];
            while let Some((_, name, _)) =
                frames.next_if(|next| (next.0, next.2) == (address, module))
            {
                chain.push(shown(name));
            }
            let known = self
                .modules
                .entry(module.to_owned())
                .or_default()
                .entry(address)
                .or_insert_with(|| chain.clone());
            // A recursive function occurs more than once.
            if chain.len() < known.len() {
                *known = chain;
            }
        }
    }
}

/// Parses address, name and module of a stack line.
fn frame(line: &str) -> (u64, &str, &str) {
    let (address, rest) = line.split_once(' ').unwrap();
    let (name, module) = rest
        .strip_suffix(')')
        .and_then(|rest| rest.rsplit_once(" ("))
        .unwrap();
    (u64::from_str_radix(address, 16).unwrap(), name, module)
}

/// Removes everything from a name that `perf.data.txt` writes differently for PerfView: kinds of
/// brackets, spaces, non-ASCII letters, the end.
pub(crate) fn shown(name: &str) -> String {
    let mut shown = String::new();
    for c in name
        .replace("(anonymous namespace)", "(anonymous)")
        .replace("+0x", "_0x")
        .chars()
    {
        match c {
            ' ' => {}
            '[' | '{' => shown.push('('),
            ']' | '}' => shown.push(')'),
            c if c.is_ascii_graphic() => shown.push(c),
            // `\u{e9}`
            c => shown.extend(c.escape_unicode().map(|c| {
                if "{}".contains(c) {
                    if c == '{' { '(' } else { ')' }
                } else {
                    c
                }
            })),
        }
    }
    shown.chars().take(COMPARED_CHARS).collect()
}

/// Returns the build id of a file that still exists.
pub(crate) fn build_id(path: &Path) -> Option<BuildId> {
    let file = File::open(path).ok()?;
    ElfFile::open(file).ok()?.build_id()
}

/// Copies the vDSO from the memory of this process.
pub(crate) fn vdso(directory: &Path) -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let range = maps
        .lines()
        .find(|line| line.ends_with("[vdso]"))
        .and_then(|line| line.split(' ').next());
    let (start, end) = range.and_then(|range| range.split_once('-')).unwrap();
    let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
    let mut memory = File::open("/proc/self/mem").unwrap();
    let mut image = vec![0; (end - start) as usize];
    memory.seek(SeekFrom::Start(start)).unwrap();
    memory.read_exact(&mut image).unwrap();
    let path = directory.join("vdso.so");
    std::fs::write(&path, image).unwrap();
    path
}
