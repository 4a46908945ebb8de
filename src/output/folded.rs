//! `stacks.folded`: one line per distinct stack, for flamegraph.pl, inferno, speedscope and a
//! shell.
//!
//! Format: `process (pid);root;...;leaf COUNT`, with COUNT in samples.
//!
//! Functions have no module. They have the suffixes of `stackcollapse-perf --all`: `_[k]` for
//! kernel code, `_[j]` for JIT code, `_[i]` for inlined functions. An unresolved frame is
//! `module+0xoffset`. A stack without its root has `[truncated]` below the process. Stacks by thread have
//! `name (tid)`, or `name (COUNT threads)`, below the process.
//!
//! Lines are sorted by frame, not by byte: `main(int);f` must not be between `main 3` and `main;g`.

use std::io::{self, Write};

use super::call_tree::{CallTrees, Detail, Measure};
use super::short_name::NameStyle;
use crate::trace::Trace;

/// Writes the stacks of `trace`, with full names.
///
/// # Errors
/// Returns errors of `out`.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    write_trees(&CallTrees::new(trace, NameStyle::Full, false), out)
}

/// Writes something else than samples by stack, with full names.
///
/// # Errors
/// Returns errors of `out`.
pub(super) fn write_measured(
    trace: &Trace,
    measure: Measure,
    out: &mut impl Write,
) -> io::Result<()> {
    write_trees(
        &CallTrees::measured(trace, NameStyle::Full, false, measure),
        out,
    )
}

/// Passes each line to `take`, without its end.
pub(crate) fn each(trace: &Trace, mut take: impl FnMut(&str)) {
    let mut line = String::new();
    // It fails only if the closure does.
    let _ = CallTrees::new(trace, NameStyle::Full, false).for_each_stack(Detail::ALL, |stack| {
        line.clear();
        line.push_str(stack.text);
        line.push(' ');
        line.push_str(&stack.samples.to_string());
        take(&line);
        Ok(())
    });
}

pub(super) fn write_trees(trees: &CallTrees<'_>, out: &mut impl Write) -> io::Result<()> {
    trees.for_each_stack(Detail::ALL, |stack| {
        writeln!(out, "{} {}", stack.text, stack.samples)
    })
}
