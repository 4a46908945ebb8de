//! Which callers a recording asked for.

use serde::{Deserialize, Serialize};

/// Which callers the source of a trace recorded, so how far its stacks can reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Callers {
    /// All of them: a stack that does not reach the root of its thread is marked as truncated.
    #[default]
    All,
    /// Those in the kernel only (`perf record --kernel-callchains`).
    Kernel,
    /// None: each sample is one address (`perf record` without `-g`).
    None,
    /// Those that a text shows; it does not show whether they reach the root.
    AsPrinted,
}
