//! ELF files with code in a stack: which of them have symbols, and how many of their frames are
//! symbolized.

use std::collections::BTreeMap;

use perfcollect_symbols::Aliases;

use super::Options;
use super::elf;
use super::identity::Identity;
use crate::capture::Capture;
use crate::download;
use crate::machine::{CodeFile, FileTable};
use crate::trace::{CodeAddress, ModuleId, NameCount};

/// Frames of each file, by whether they are symbolized.
pub(super) type Counts = BTreeMap<ModuleId, NameCount>;

/// ELF files with code in a stack.
pub(super) type Identities = BTreeMap<ModuleId, Identity>;

/// One row per ELF file, most frames first.
pub(super) fn rows(
    counts: &Counts,
    files: &FileTable,
    mut identities: Identities,
) -> Vec<crate::trace::Module> {
    let row = |(&id, &frames): (&ModuleId, &NameCount)| {
        let identity = identities.remove(&id)?;
        Some(crate::trace::Module {
            path: path(files.file(id)).into(),
            build_id: identity.module.map(|module| module.build_id),
            has_symbols: identity.has_symbols,
            frames,
        })
    };
    let mut rows: Vec<_> = counts.iter().filter_map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.frames.named + row.frames.unresolved));
    rows
}

/// Returns the ELF files with code in a stack and a build id, but without symbols on this host.
#[must_use]
pub fn without_symbols(capture: &Capture, options: &Options) -> Vec<download::Module> {
    let frames = capture.raw_trace.frames.iter();
    let mut ids: Vec<_> = frames.filter_map(|&code| of(code)).collect();
    ids.sort_unstable();
    ids.dedup();
    let symbolizer = elf::symbolizer(options, Aliases::Plain);
    let missing = |id: ModuleId| {
        let file = capture.machine.files().file(id);
        let identity = Identity::new(file, &elf::open(&symbolizer, file)?)?;
        identity.module.filter(|_| !identity.has_symbols)
    };
    ids.into_iter().filter_map(missing).collect()
}

/// Returns the file that may have a symbol for an address.
pub(super) fn of(code: CodeAddress) -> Option<ModuleId> {
    match code {
        // A file with corrupt headers declares no addresses.
        CodeAddress::Elf(id, _) | CodeAddress::File(id, _) => Some(id),
        _ => None,
    }
}

fn path(file: &CodeFile) -> String {
    file.clean_path().to_string_lossy().into_owned()
}
