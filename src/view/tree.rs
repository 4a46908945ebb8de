//! The call tree as text.

use std::io::{self, Write};

use super::call_tree::{CallTree, TreeRow};
use super::report::{percent, short};
use super::{OpenTrace, Rows, ViewError, count};

/// Part of the samples of a thread (95 %) that all frames of its root chain have.
const CHAIN_PERCENT: u64 = 95;
/// Number of frames at the end of a root chain that are shown.
const CHAIN_END: usize = 3;

/// Prints the frames with most samples, at most as many as `rows` says, each below its caller: those
/// with at least this part of the samples, from 0 to 1.
///
/// The callers at the root of a thread share a line, and so does a method that calls itself, unless all
/// rows are shown in full.
///
/// # Errors
/// Returns an error if the trace cannot be read, or `out` cannot be written to.
pub fn view_tree(
    trace: &OpenTrace,
    min_part: f64,
    rows: Rows,
    out: &mut impl Write,
) -> Result<(), ViewError> {
    let tree = trace.call_tree(min_part)?;
    print(&tree, trace.summary.samples, rows, out).map_err(ViewError::Print)
}

fn print(tree: &CallTree, samples: u64, rows: Rows, out: &mut impl Write) -> io::Result<()> {
    let all = tree.rows(rows.top);
    writeln!(out, "  total %   self %  call tree")?;
    let mut rest = &all[..];
    while let Some((row, below)) = rest.split_first() {
        let indent = "| ".repeat(row.level);
        let callers = match rows.full {
            true => 0,
            false => root_chain(rest).saturating_sub(CHAIN_END),
        };
        if callers > 1 {
            let callers_text = count(callers as u64, "caller", "callers");
            writeln!(out, "{:>18}  {indent}[{callers_text}]", "")?;
            rest = &rest[callers..];
            continue;
        }
        let same = |callee: &&TreeRow<'_>| {
            (callee.frame, callee.samples, callee.own) == (row.frame, row.samples, row.own)
        };
        let repeated = match rows.full {
            true => 0,
            false => below.iter().take_while(same).count(),
        };
        let times = match repeated {
            0 => String::new(),
            repeated => format!(
                " (calls itself {})",
                count(repeated as u64, "time", "times")
            ),
        };
        writeln!(
            out,
            "{:>9}{:>9}  {indent}{}{times}",
            percent(row.samples, samples),
            percent(row.own, samples),
            short(row.frame)
        )?;
        rest = &below[repeated..];
    }
    match tree.len().saturating_sub(all.len()) {
        0 => Ok(()),
        hidden => writeln!(out, "{:>20}... and {hidden} more: -top {}", "", tree.len()),
    }
}

/// Returns the number of rows from the first one that are the root chain of a thread: each calls only
/// the next one, and costs nearly nothing itself.
fn root_chain(rows: &[TreeRow<'_>]) -> usize {
    // The process has depth 0.
    let Some(root) = rows.first().filter(|root| root.depth == 1) else {
        return 0;
    };
    let of_all = |part: u64| part.saturating_mul(100);
    let is_chain = |(at, row): &(usize, &TreeRow<'_>)| {
        (row.level, row.depth) == (root.level, root.depth + at)
            && of_all(row.samples) >= root.samples.saturating_mul(CHAIN_PERCENT)
            && of_all(row.own) < root.samples.saturating_mul(100 - CHAIN_PERCENT)
    };
    let chain = rows.iter().enumerate().take_while(is_chain);
    chain.count()
}
