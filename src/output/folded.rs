//! `stacks.folded`: one line per distinct stack, for flamegraph.pl, inferno, speedscope and a shell.
//!
//! `process (pid);root;...;leaf COUNT`. Functions without module; suffix `_[k]` for kernel code, `_[j]` for JIT code,
//! `_[i]` for inlined functions, as `stackcollapse-perf --all` writes them; `module+0xoffset` where there is no name.
//! COUNT is in samples. A stack without its root has `[truncated]` below the process.
//!
//! Lines are sorted frame by frame, not byte by byte: `main(int);f` must not come between `main 3` and `main;g`.

use std::io::{self, Write};

use super::call_tree::CallTree;
use super::short_name::NameStyle;
use crate::trace::Trace;

/// Writes the stacks of `trace`, with full names.
///
/// # Errors
/// What `out` returns.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    write_tree(&CallTree::new(trace, NameStyle::Full), out)
}

pub(super) fn write_tree(tree: &CallTree, out: &mut impl Write) -> io::Result<()> {
    tree.for_each_stack(0, |stack, samples| writeln!(out, "{stack} {samples}"))
}
