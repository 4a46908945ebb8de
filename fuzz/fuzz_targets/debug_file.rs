//! A program, a candidate for its debug file, and a file with the rest of the debug information.
//!
//! All three files are untrusted.
#![no_main]

#[path = "support/parts.rs"]
mod parts;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::debug_file::{Candidate, DebugFileQuery};
use perfcollect_symbols::dwarf::{Detail, DwarfSections, SplitUnit};
use perfcollect_symbols::elf::ElfFile;

use parts::{counted, file};

const PROGRAM: &str = "/opt/app/program";

fuzz_target!(|data: &[u8]| {
    // The lengths of the first two files precede them.
    let (program, rest) = counted(data);
    let (debug, other) = counted(rest);
    let [program, debug, other] = [program, debug, other].map(|bytes| Arc::new(file(bytes)));
    let Ok(own) = ElfFile::open_mapped(program) else {
        return;
    };
    let (build_id, debug_link) = (own.build_id(), own.debug_link());
    let wanted = DebugFileQuery {
        path: Path::new(PROGRAM),
        build_id: build_id.as_ref(),
        debug_link: debug_link.as_ref(),
        directories: &[PathBuf::from("/symbols")],
        perf_cache: Some(Path::new("/root/.debug")),
    };
    let candidates = wanted.candidates();
    check(&candidates);
    assert!(candidates.iter().all(|one| one.path != wanted.path));
    let _ = wanted.check(debug.clone());
    look_up(&own, &other);
    if let Ok(debug) = ElfFile::open(debug) {
        look_up(&debug, &other);
    }
});

/// Asserts that all candidates differ and are absolute.
fn check(candidates: &[Candidate]) {
    for (index, Candidate { path, .. }) in candidates.iter().enumerate() {
        assert!(path.is_absolute());
        assert!(candidates[..index].iter().all(|other| other.path != *path));
    }
}

/// Asserts that sections read on demand and sections read in advance have the same functions.
fn look_up(elf: &ElfFile, other: &Arc<File>) {
    let symbols = elf.symbols().unwrap_or_default();
    let starts: Vec<u64> = symbols.iter().map(|symbol| symbol.start).take(16).collect();
    let (Some(lazy), copied) = (elf.dwarf_sections(), elf.copied_dwarf_sections()) else {
        return;
    };
    let found = names(lazy, elf, other, &starts);
    if let Ok(Some(copied)) = copied {
        for (lazy, copied) in found.iter().zip(names(copied, elf, other, &starts)) {
            assert!(lazy.is_none() || copied.is_none() || *lazy == copied);
        }
    }
}

/// Returns the function and its inlining callers at each address, or `None` if they cannot be read.
fn names(
    mut sections: DwarfSections,
    elf: &ElfFile,
    other: &Arc<File>,
    addresses: &[u64],
) -> Vec<Option<Vec<Option<Vec<u8>>>>> {
    let program = Path::new(PROGRAM);
    if let Some(link) = elf.alt_link() {
        check(&link.candidates(&[program], &[]));
        if let Ok(common) = link.load(other.clone()) {
            sections.set_supplementary(common);
        }
    }
    if let Ok(Some(package)) =
        ElfFile::open(other.clone()).and_then(|other| other.package_sections())
    {
        sections.set_package(package);
    }
    let other = other.clone();
    let open = move |unit: &SplitUnit| {
        check(&unit.candidates(Path::new(PROGRAM), &[]));
        unit.load(other.clone()).ok()
    };
    let Ok(debug_info) = sections.into_debug_info_with(open) else {
        return Vec::new();
    };
    let chain = |&address| {
        let frames = debug_info.frames(address, Detail::Functions).ok()?;
        let names = frames.iter().map(|frame| frame.name.map(<[u8]>::to_vec));
        Some(names.collect())
    };
    addresses.iter().map(chain).collect()
}
