//! Rows of code for tables: each method with a name, and one row for those of a module without.

use std::cmp::Reverse;

use super::report::short;
use super::{count, roles};
use crate::output::label::INLINED;
use crate::output::summary::{MethodSummary, Summary, UnnamedSummary};
use crate::trace::FunctionKind;

/// A row of a table of code.
pub(super) struct CodeRow {
    pub(super) name: String,
    pub(super) kind: FunctionKind,
    pub(super) self_samples: u64,
    pub(super) total_samples: u64,
}

/// Returns the rows of a summary: by self samples, then total samples.
///
/// `full` has a row for each function without a name.
pub(super) fn of(summary: &Summary, full: bool) -> Vec<CodeRow> {
    // A summary of an older version has no rows of modules.
    let full = full || summary.unnamed.is_empty();
    let methods = summary.methods.iter();
    let methods = methods.filter(|method| full || !method.is_offset);
    let unnamed = summary.unnamed.iter().filter(|_| !full).map(of_module);
    let mut rows: Vec<CodeRow> = methods.map(of_method).chain(unnamed).collect();
    rows.sort_by_key(|row| Reverse((row.self_samples, row.total_samples)));
    rows
}

fn of_method(method: &MethodSummary) -> CodeRow {
    let separator = match (method.is_offset, &*method.module) {
        (_, "") => "",
        (true, _) => "+",
        (false, _) => "!",
    };
    let suffix = if method.inlined { INLINED } else { "" };
    let (module, name) = (short(&method.module), short(&method.name));
    CodeRow {
        name: format!("{module}{separator}{name}{suffix}"),
        kind: method.kind,
        self_samples: method.self_samples,
        total_samples: method.total_samples,
    }
}

fn of_module(module: &UnnamedSummary) -> CodeRow {
    let role = roles::of_module(&module.module);
    let role = role.map_or_else(String::new, |role| format!(" ({role})"));
    let functions = count(module.functions, "function", "functions");
    CodeRow {
        name: format!(
            "{}{role}, {functions} without a name",
            short(&module.module)
        ),
        kind: module.kind,
        self_samples: module.self_samples,
        total_samples: module.total_samples,
    }
}
