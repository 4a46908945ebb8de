//! Callers that a source records.

use serde::{Deserialize, Serialize};

/// Callers that the source of a trace recorded, which limits the depth of its stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Callers {
    /// All callers. A stack that does not reach the root of its thread counts as truncated.
    #[default]
    All,
    /// Kernel callers only (`perf record --kernel-callchains`).
    Kernel,
    /// No callers: each sample is one address (`perf record` without `-g`).
    None,
    /// Callers printed by `perf script`, which does not show whether they reach the root.
    AsPrinted,
}
