//! `NAME.perf.data`: the samples in the format of `perf record`, for perf and other readers.
//!
//! Readers symbolize addresses with the mapped files. These files lack the symbols of JIT code,
//! ReadyToRun code, inlined functions and separate debug files. Therefore perfcollect writes a
//! symbol file for each module (`image`) to a directory next to `NAME.perf.data`. The addresses are
//! those of the synthetic layout:
//!
//! ```text
//! Trace ── SyntheticLayout ─┬─ image ─── NAME.perf.symbols/libc.so.6, .../vmlinux, ... (ELF, each with a build id)
//!                           └─ record ── NAME.perf.data: COMM, FORK, MMAP2 before the first sample that needs them, SAMPLE, EXIT
//! ```

mod header;
mod image;
mod record;
mod symbol_directory;
mod writer;

use std::collections::HashSet;
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use header::ImageFile;
use image::Image;
pub use symbol_directory::SymbolDirectory;

use super::synthetic_layout::{Module, SyntheticFunction, SyntheticLayout};
use crate::trace::Trace;

/// Maximum path length of the directory. Records contain paths, and have a size of 16 bits.
const MAX_DIRECTORY_BYTES: usize = 4096;
/// perf treats files whose path has this prefix as perf maps.
const PERF_MAPS: &str = "/tmp/perf-";
/// Suffix of kernel files. Readers use a file with kernel code only if it is a kernel module.
const KERNEL_MODULE: &str = ".ko";

/// Writes the samples of `trace` to `out`.
///
/// Calls `keep` with name and content of each symbol file. `symbols` is the absolute path of their
/// directory.
///
/// # Errors
/// Returns errors of `keep` and `out`, and an error if the path `symbols` is too long.
pub fn write(
    trace: &Trace,
    symbols: &Path,
    keep: impl FnMut(&str, &[u8]) -> io::Result<()>,
    out: &mut (impl Write + Seek),
) -> io::Result<()> {
    let code = SyntheticLayout::new(trace);
    let images = images(trace, &code, symbols, keep)?;
    header::start(&trace.info, out)?;
    let mut writer = writer::Writer::new(trace, &code, &images, &mut *out);
    for sample in trace.samples.iter() {
        writer.sample(&sample)?;
    }
    let (times, bytes) = writer.finish()?;
    header::finish(&trace.info, times, &images, bytes, out)
}

/// Creates the symbol file of each module.
fn images(
    trace: &Trace,
    code: &SyntheticLayout,
    symbols: &Path,
    mut keep: impl FnMut(&str, &[u8]) -> io::Result<()>,
) -> io::Result<Vec<ImageFile>> {
    let mut directory = symbols.as_os_str().as_bytes().to_vec();
    if directory.starts_with(PERF_MAPS.as_bytes()) {
        directory.splice(..0, *b"/.");
    }
    if directory.len() > MAX_DIRECTORY_BYTES {
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
            path: [&*directory, b"/", name.as_bytes()].concat(),
            build_id: image.build_id,
            text_offset: image.text_offset,
            is_kernel: module.is_kernel,
        })
    })
    .collect()
}

/// Returns a unique file name for a module.
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
