//! The kernel of a recording: where it and its modules lay, and the names of its functions.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::thread::{self, JoinHandle};

use perfcollect_symbols::Aliases;
use perfcollect_symbols::kallsyms::KernelSymbols;

use crate::perf::{CodeMapping, KernelCode};

/// What the kernel's own mapping is called; the name of a symbol follows.
const PROPER: &[u8] = b"[kernel.kallsyms]";
/// Modules, and pieces of the kernel.
const MAX_RANGES: usize = 1 << 16;

/// Where the kernel's code is.
#[derive(Default)]
pub(super) struct Kernel {
    /// By start.
    ranges: Vec<(u64, u64, Box<[u8]>)>,
    /// What the kernel made at run time and is there now, by start: end and name.
    made: BTreeMap<u64, (u64, Box<[u8]>)>,
    symbols: KernelSymbols,
    /// Reads them meanwhile.
    reading: Option<JoinHandle<Option<KernelSymbols>>>,
}

impl Kernel {
    /// Takes functions from a list of them, which takes the kernel long to make.
    pub(super) fn read_symbols(&mut self, kallsyms: &Path) {
        let kallsyms = kallsyms.to_owned();
        self.reading = Some(thread::spawn(move || {
            let file = BufReader::new(File::open(kallsyms).ok()?);
            KernelSymbols::read_by(file, Aliases::AsPerf).ok()
        }));
    }

    /// Takes in a mapping of the kernel's; of a module whose build id the recording lists, perf shows the path.
    pub(super) fn map(&mut self, mapping: &CodeMapping<'_>, is_listed: bool) {
        if self.ranges.len() >= MAX_RANGES {
            return;
        }
        let name: Box<[u8]> = match mapping.path.starts_with(PROPER) {
            true => PROPER.into(),
            false if is_listed => mapping.path.into(),
            false => module_name(mapping.path),
        };
        let end = mapping.start.saturating_add(mapping.len);
        let at = self.ranges.partition_point(|range| range.0 < mapping.start);
        self.ranges.insert(at, (mapping.start, end, name));
    }

    /// Takes in code that came or went.
    pub(super) fn follow(&mut self, code: &KernelCode<'_>) {
        if code.gone {
            self.made.remove(&code.start);
        } else if self.made.len() < MAX_RANGES {
            let end = code.start.saturating_add(code.len.into());
            // A recording of one process does not tell that others' went.
            self.made
                .retain(|start, (behind, _)| *behind <= code.start || end <= *start);
            self.made.insert(code.start, (end, code.name.into()));
        }
    }

    fn made_at(&self, ip: u64) -> Option<&[u8]> {
        let (_, (end, name)) = self.made.range(..=ip).next_back()?;
        (ip < *end).then_some(name)
    }

    /// What an address lies in. Code made at run time is an object of its own, with the name of its only function.
    pub(super) fn object(&self, ip: u64) -> Option<&[u8]> {
        if let Some(name) = self.made_at(ip) {
            return Some(name);
        }
        let behind = self.ranges.partition_point(|range| range.0 <= ip);
        let (_, end, name) = self.ranges.get(behind.checked_sub(1)?)?;
        (ip < *end).then_some(name)
    }

    pub(super) fn name(&mut self, ip: u64) -> Option<&[u8]> {
        if let Some(reading) = self.reading.take() {
            self.symbols = match reading.join() {
                Ok(symbols) => symbols.unwrap_or_default(),
                Err(panic) => std::panic::resume_unwind(panic),
            };
        }
        let by_list = || self.symbols.lookup(ip).map(|found| found.symbol.name);
        self.made_at(ip).or_else(by_list)
    }
}

/// `/lib/modules/6.1/kernel/fs/ext4/ext4.ko.xz` is `[ext4]`.
fn module_name(path: &[u8]) -> Box<[u8]> {
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let suffix = file.windows(3).position(|suffix| suffix == b".ko");
    let Some(suffix) = suffix else {
        return path.into();
    };
    let name = file[..suffix].iter().map(|&byte| match byte {
        b'-' => b'_',
        byte => byte,
    });
    [b'['].into_iter().chain(name).chain([b']']).collect()
}
