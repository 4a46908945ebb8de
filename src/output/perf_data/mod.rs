//! `NAME.perf.data`: the samples as `perf record` would have written them, for perf and whatever reads its files.
//!
//! Readers look up the names of addresses in the files that were mapped, so names that no such file has (code made at run
//! time, precompiled and inlined functions, those of debug files that were found elsewhere) would be lost. So each module is
//! a file of ours with nothing but names (`image`), in a folder beside, and addresses are those of the code map:
//!
//! ```text
//! Trace ── CodeMap ─┬─ image ─── NAME.perf.symbols/libc.so.6, .../vmlinux, ... (ELF, each with a build id of its own)
//!                   └─ record ── NAME.perf.data: COMM, FORK, MMAP2 before the first sample that needs them, SAMPLE, EXIT
//! ```

mod folder;
mod header;
mod image;
mod record;
mod writer;

use std::collections::HashSet;
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use folder::SymbolFolder;
use header::ImageFile;
use image::Image;

use super::synthetic_layout::{Module, SyntheticFunction, SyntheticLayout};
use crate::trace::Trace;

/// Longest path of a folder: the path of a file in it is in a record, whose size is 16 bits.
const MAX_FOLDER_BYTES: usize = 4096;
/// perf takes files whose path begins so for perf maps.
const PERF_MAPS: &str = "/tmp/perf-";
/// Of the kernel's files, readers take the names of all but modules from elsewhere.
const KERNEL_MODULE: &str = ".ko";

/// Writes the samples of `trace`; `keep` is handed the name and the content of each file of the folder `symbols`, which
/// must be absolute.
///
/// # Errors
/// What `keep` or `out` return.
pub fn write(
    trace: &Trace,
    symbols: &Path,
    keep: impl FnMut(&str, &[u8]) -> io::Result<()>,
    out: &mut (impl Write + Seek),
) -> io::Result<()> {
    let code = SyntheticLayout::new(trace);
    let images = images(trace, &code, symbols, keep)?;
    header::begin(&trace.info, out)?;
    let mut writer = writer::Writer::new(trace, &code, &images, &mut *out);
    for sample in trace.samples.iter() {
        writer.sample(&sample)?;
    }
    let (times, bytes) = writer.finish()?;
    header::finish(&trace.info, times, &images, bytes, out)
}

/// Makes the file of each module.
fn images(
    trace: &Trace,
    code: &SyntheticLayout,
    symbols: &Path,
    mut keep: impl FnMut(&str, &[u8]) -> io::Result<()>,
) -> io::Result<Vec<ImageFile>> {
    let mut folder = symbols.as_os_str().as_bytes().to_vec();
    if folder.starts_with(PERF_MAPS.as_bytes()) {
        folder.splice(..0, *b"/.");
    }
    if folder.len() > MAX_FOLDER_BYTES {
        return Err(io::Error::other(
            "the path of the symbol directory is too long",
        ));
    }
    let mut functions: Vec<Vec<&SyntheticFunction>> = vec![Vec::new(); code.modules.len()];
    for function in &code.functions {
        functions[function.module].push(function);
    }
    let mut names = HashSet::new();
    let rows = code.modules.iter().zip(functions);
    rows.map(|(module, functions)| {
        let name = file_name(module, &mut names);
        let image = Image::new(module, &functions, &trace.info.arch);
        let image = image.map_err(io::Error::other)?;
        keep(&name, &image.bytes)?;
        Ok(ImageFile {
            path: [&*folder, b"/", name.as_bytes()].concat(),
            build_id: image.build_id,
            text_offset: image.text_offset,
            is_kernel: module.is_kernel,
        })
    })
    .collect()
}

/// A module's name as that of a file; no other has it.
fn file_name(module: &Module, taken: &mut HashSet<String>) -> String {
    let stem = match module.name.starts_with('.') {
        true => format!("_{}", module.name),
        false => module.name.clone(),
    };
    let suffix = if module.is_kernel { KERNEL_MODULE } else { "" };
    let mut name = format!("{stem}{suffix}");
    let mut count = 1;
    while !taken.insert(name.clone()) {
        count += 1;
        name = format!("{stem}~{count}{suffix}");
    }
    name
}
