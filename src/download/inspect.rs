//! What a file is: the debug files it asks for (its own, if it is an ELF file; those of all modules with samples, if it is a trace), and
//! whether it is the debug file that was asked for.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use perfcollect_symbols::elf::ElfFile;
use serde::{Deserialize, Serialize};

use super::module::Module;
use crate::view::archive;

/// What a local file header of a zip begins with.
const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";

/// The debug files a file asks for: none, if it has all symbols.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct MissingDebugFiles {
    /// Of these.
    pub modules: Vec<Module>,
    /// Paths of files whose symbols are missing too, but that have no build id, by which servers know files. Text from outside.
    pub without_build_id: Vec<String>,
}

/// What a file asks for; the message says why that is nothing.
pub(super) fn wanted(path: &Path, file: &File) -> Result<MissingDebugFiles, String> {
    let mut magic = [0; 4];
    // A shorter file is neither.
    let _ = file.read_exact_at(&mut magic, 0);
    if magic == ZIP_MAGIC {
        return of_trace(path, file);
    }
    let elf =
        ElfFile::open(file).map_err(|error| format!("neither a trace nor an ELF file: {error}"))?;
    if elf.has_all_symbols().unwrap_or(false) {
        return Ok(MissingDebugFiles::default());
    }
    let module = Module::of(path, &elf);
    let wanted = |module| MissingDebugFiles {
        modules: vec![module],
        without_build_id: Vec::new(),
    };
    module
        .map(wanted)
        .ok_or_else(|| "it has no build id, by which servers know files".into())
}

fn of_trace(path: &Path, file: &File) -> Result<MissingDebugFiles, String> {
    let summary = archive::summary(path, file).map_err(|error| error.to_string())?;
    if summary.modules.is_empty() {
        return Err(
            "it names no ELF files: an older perfcollect wrote it, or none was sampled".into(),
        );
    }
    let mut wanted = MissingDebugFiles {
        modules: Vec::new(),
        without_build_id: Vec::new(),
    };
    for module in summary.modules {
        match module.build_id {
            _ if module.has_symbols => {}
            Some(build_id) => wanted.modules.push(Module {
                path: module.path,
                build_id,
                debug_link: None,
            }),
            None => wanted.without_build_id.push(module.path),
        }
    }
    Ok(wanted)
}

/// Whether a file is a module's debug file: the message says why not.
pub(super) fn check(file: &File, module: &Module) -> Result<(), String> {
    let elf = ElfFile::open(file)
        .map_err(|error| format!("what came is no debug file and was deleted: {error}"))?;
    match elf.build_id() {
        Some(found) if found == module.build_id => {}
        Some(found) => return Err(format!("what came has build id {found} and was deleted")),
        None => return Err("what came has no build id and was deleted".into()),
    }
    if !elf.has_symtab() {
        return Err("what came has no symbols and was deleted".into());
    }
    // A file that ends too early has the table, but not its end.
    elf.symbols()
        .map(|_| ())
        .map_err(|error| format!("what came is damaged and was deleted: {error}"))
}
