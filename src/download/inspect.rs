//! Inspects files: lists the debug files that an ELF file or a trace lacks, and checks downloads.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use perfcollect_symbols::elf::ElfFile;
use serde::{Deserialize, Serialize};

use super::module::Module;
use crate::trace_archive::TraceArchive;

/// Magic of a local file header of a zip archive.
const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";
/// First bytes of a `.nettrace`.
const NETTRACE_MAGIC: [u8; 4] = *b"Nett";

/// The debug files that a file lacks. Empty if it has all symbols.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct MissingDebugFiles {
    /// Modules without symbols.
    pub modules: Vec<Module>,
    /// Untrusted paths of files without symbols and without a build id, which servers need.
    pub without_build_id: Vec<String>,
    /// Whether these are the modules of a trace.
    #[serde(default)]
    pub is_trace: bool,
}

/// Returns the debug files that a file lacks, or the reason why they cannot be determined.
pub(super) fn wanted(path: &Path, file: &Arc<File>) -> Result<MissingDebugFiles, String> {
    let mut magic = [0; 4];
    // A shorter file is neither a trace nor an ELF file, which `ElfFile::open` reports.
    let _ = file.read_exact_at(&mut magic, 0);
    if magic == ZIP_MAGIC {
        return wanted_by_trace(path, file);
    }
    if magic == NETTRACE_MAGIC {
        let archive = path.with_extension("trace.zip");
        return Err(format!(
            "pass {}; the .nettrace beside it is updated, too",
            archive.display()
        ));
    }
    let elf = ElfFile::open(file.clone())
        .map_err(|error| format!("neither a trace nor an ELF file: {error}"))?;
    if elf.has_all_symbols().unwrap_or(false) {
        return Ok(MissingDebugFiles::default());
    }
    let module = Module::from_elf(path, &elf);
    let missing = |module| MissingDebugFiles {
        modules: vec![module],
        ..MissingDebugFiles::default()
    };
    module
        .map(missing)
        .ok_or_else(|| "no build id, which servers need".into())
}

fn wanted_by_trace(path: &Path, file: &File) -> Result<MissingDebugFiles, String> {
    let file = file.try_clone().map_err(|error| error.to_string())?;
    let summary = TraceArchive::from_file(path, file).and_then(|archive| archive.summary());
    let summary = summary.map_err(|error| error.to_string())?;
    if summary.modules.is_empty() && summary.blocked.is_some() {
        return Err(
            "the trace has no samples, and what its threads waited for has the names of the capture: \
             `collect -symbols` gives them more"
                .into(),
        );
    }
    if summary.modules.is_empty() {
        return Err(
            "the trace lists no ELF files: none was sampled, or an older perfcollect wrote it"
                .into(),
        );
    }
    let mut missing = MissingDebugFiles {
        is_trace: true,
        ..MissingDebugFiles::default()
    };
    for module in summary.modules {
        match module.build_id {
            _ if module.has_symbols || module.frames.unresolved == 0 => {}
            Some(build_id) => missing.modules.push(Module {
                path: module.path,
                build_id,
                debug_link: None,
            }),
            None => missing.without_build_id.push(module.path),
        }
    }
    Ok(missing)
}

/// Checks that a file is a module's debug file.
///
/// # Errors
/// Returns the reason why it is not.
pub(super) fn check(file: &Arc<File>, module: &Module) -> Result<(), String> {
    let elf = ElfFile::open(file.clone())
        .map_err(|error| format!("deleted the downloaded file: not a debug file: {error}"))?;
    match elf.build_id() {
        Some(id) if id == module.build_id => {}
        Some(id) => return Err(format!("deleted the downloaded file: its build id is {id}")),
        None => return Err("deleted the downloaded file: it has no build id".into()),
    }
    if !elf.has_symtab() {
        return Err("deleted the downloaded file: it has no symbols".into());
    }
    // A truncated file may contain only the start of the table.
    elf.symbols()
        .map(|_| ())
        .map_err(|error| format!("deleted the downloaded file: corrupt: {error}"))
}
