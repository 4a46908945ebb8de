//! The ELF files of a trace.

use perfcollect_symbols::build_id::BuildId;
use serde::{Deserialize, Serialize};

use super::{MAX_MODULES, kept};
use crate::trace::{Module, NameCount, Trace};

/// One ELF file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleSummary {
    /// Path in the mount namespace of a process that mapped the file.
    pub path: String,
    /// Build id in hexadecimal, which identifies the debug file on servers.
    pub build_id: Option<BuildId>,
    /// Whether the file, or a debug file on this host, has a symbol table.
    pub has_symbols: bool,
    /// Symbolized and unresolved frames, counted once per sample.
    pub frames: NameCount,
}

pub(super) fn rows(trace: &Trace) -> Vec<ModuleSummary> {
    let summary = |module: &Module| ModuleSummary {
        path: kept(&module.path),
        build_id: module.build_id.clone(),
        has_symbols: module.has_symbols,
        frames: module.frames,
    };
    let modules = trace.modules.iter().take(MAX_MODULES);
    modules.map(summary).collect()
}
