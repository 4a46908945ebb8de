//! The modules of the functions of a trace.

use rustc_hash::FxHashMap;

use super::calls::Code;
use crate::output::sanitize::terminal;
use crate::trace::{FunctionKind, Trace};

/// A module.
pub(super) struct Module {
    pub(super) name: String,
    /// The name, if the path is not known.
    pub(super) path: String,
    /// In hexadecimal; empty if there is none.
    pub(super) build_id: String,
}

/// The modules, each once. The first one is the program, if one is known.
pub(super) struct Modules {
    rows: Vec<Module>,
    by_name: FxHashMap<String, usize>,
}

impl Modules {
    pub(super) fn new(trace: &Trace, codes: &[Code]) -> Self {
        let files = trace.modules.iter().map(|file| {
            let name = file.path.rsplit('/').next().unwrap_or_default();
            (name, file)
        });
        let files: FxHashMap<&str, _> = files.collect();
        let mut modules = Self {
            rows: Vec::new(),
            by_name: FxHashMap::default(),
        };
        let is_program = |code: &&Code| {
            let path = files.get(&*code.module).map(|file| &*file.path);
            path.is_some_and(|path| !path.contains(".so"))
        };
        let program = codes.iter().find(is_program);
        let codes = program.into_iter().chain(codes);
        for code in codes.filter(|code| !code.module.is_empty()) {
            if modules.by_name.contains_key(&code.module) {
                continue;
            }
            modules
                .by_name
                .insert(code.module.clone(), modules.rows.len());
            let file = files.get(&*code.module);
            let file = file.filter(|_| code.kind == FunctionKind::Native);
            let build_id = file.and_then(|file| file.build_id.as_ref());
            modules.rows.push(Module {
                name: code.module.clone(),
                path: file.map_or(code.module.clone(), |file| {
                    terminal(&file.path).into_owned()
                }),
                build_id: build_id.map(ToString::to_string).unwrap_or_default(),
            });
        }
        modules
    }

    pub(super) fn rows(&self) -> &[Module] {
        &self.rows
    }

    /// Returns the row of a module, `None` for no module.
    pub(super) fn row(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}
