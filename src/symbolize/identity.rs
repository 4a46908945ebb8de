//! Identity of an ELF file.

use perfcollect_symbols::symbolizer::FileSymbolizer;

use crate::download::Module;
use crate::machine::{CodeFile, Content};

/// Identity of an ELF file for servers, and whether it has symbols here.
pub(super) struct Identity {
    /// `None` without a build id.
    pub(super) module: Option<Module>,
    pub(super) has_symbols: bool,
}

impl Identity {
    /// Returns the identity of an ELF file, or `None` for other files.
    pub(super) fn new(file: &CodeFile, symbols: &FileSymbolizer) -> Option<Self> {
        if let Content::Vdso(_) = file.content {
            return None;
        }
        symbols.is_elf().then(|| Self {
            module: Module::new(&symbols.identity()),
            has_symbols: symbols.has_symbols(),
        })
    }
}
