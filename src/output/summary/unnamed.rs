//! Functions without a name, one row per module.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{TOP, kept};
use crate::output::label;
use crate::trace::{Function, FunctionKind};

/// The functions of a module that have no name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnnamedSummary {
    /// Module, or the kind of code if it has no module.
    pub module: String,
    /// Kind of code.
    pub kind: FunctionKind,
    /// Number of functions, or of addresses where the start of the function is unknown.
    pub functions: u64,
    /// Samples with one of them as leaf.
    pub self_samples: u64,
    /// Samples with one of them in the stack, each counted once.
    pub total_samples: u64,
}

struct Counts {
    kind: FunctionKind,
    functions: u64,
    own: u64,
    total: u64,
    last_stack: usize,
}

/// Counters by module.
#[derive(Default)]
pub(super) struct UnnamedModules<'a>(HashMap<&'a str, Counts>);

impl<'a> UnnamedModules<'a> {
    /// Counts a frame of a stack with `samples` samples.
    pub(super) fn count(
        &mut self,
        code: &'a Function,
        is_new: bool,
        is_leaf: bool,
        stack: usize,
        samples: u64,
    ) {
        let counts = self.0.entry(label::module(code)).or_insert(Counts {
            kind: code.kind,
            functions: 0,
            own: 0,
            total: 0,
            last_stack: usize::MAX,
        });
        counts.functions += u64::from(is_new);
        counts.own += if is_leaf { samples } else { 0 };
        if counts.last_stack != stack {
            counts.last_stack = stack;
            counts.total += samples;
        }
    }

    /// Returns the modules with most self samples.
    pub(super) fn rows(&self) -> Vec<UnnamedSummary> {
        let mut modules: Vec<(&&str, &Counts)> = self.0.iter().collect();
        modules.sort_by_key(|(module, counts)| (Reverse((counts.own, counts.total)), **module));
        modules.truncate(TOP);
        let row = |(module, counts): (&&str, &Counts)| UnnamedSummary {
            module: kept(module),
            kind: counts.kind,
            functions: counts.functions,
            self_samples: counts.own,
            total_samples: counts.total,
        };
        modules.into_iter().map(row).collect()
    }
}
