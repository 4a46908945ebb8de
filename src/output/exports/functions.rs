//! CSV: a row for each function, with its samples.

use std::io::{self, Write};

use super::calls::{Calls, count};
use super::weights::Weights;
use crate::output::sanitize::csv_text;
use crate::output::short_name::NameStyle;
use crate::trace::{FunctionKind, Trace};

const COLUMNS: [&str; 7] = [
    "function",
    "module",
    "kind",
    "self_samples",
    "total_samples",
    "self_percent",
    "total_percent",
];

#[derive(Clone, Copy, Default)]
struct Row {
    own: u64,
    total: u64,
    /// The last node that was counted: a recursive function counts once.
    last: Option<u32>,
}

pub(super) fn write(trace: &Trace, names: NameStyle, out: &mut impl Write) -> io::Result<()> {
    let calls = Calls::new(trace, names);
    let mut rows = vec![Row::default(); calls.codes.len()];
    for (node, counts) in count(&calls, Weights::new(trace), trace.samples.iter(), &[]) {
        for (at, code) in calls.codes_leaf_first(node).enumerate() {
            let row = &mut rows[code as usize];
            if at == 0 {
                row.own += counts.samples;
            }
            if row.last != Some(node) {
                row.last = Some(node);
                row.total += counts.samples;
            }
        }
    }
    let mut rows: Vec<_> = calls.codes.iter().zip(rows).collect();
    rows.retain(|(_, row)| row.total > 0);
    rows.sort_by(|(a, row), (b, other)| {
        let busiest_first = (other.own, other.total).cmp(&(row.own, row.total));
        busiest_first.then_with(|| (&a.name, &a.module).cmp(&(&b.name, &b.module)))
    });
    let all = trace.samples.len().max(1) as f64;
    let percent = |samples: u64| format!("{:.3}", samples as f64 / all * 100.0);
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(COLUMNS)?;
    for (code, row) in rows {
        csv.write_record([
            &*csv_text(&code.name),
            &*csv_text(&code.module),
            kind(code.kind),
            &row.own.to_string(),
            &row.total.to_string(),
            &percent(row.own),
            &percent(row.total),
        ])?;
    }
    csv.flush()
}

/// Returns the name of a kind as in `summary.json`.
fn kind(kind: FunctionKind) -> &'static str {
    match kind {
        FunctionKind::Kernel => "kernel",
        FunctionKind::Native => "native",
        FunctionKind::Jit => "jit",
        FunctionKind::ReadyToRun => "ready-to-run",
        FunctionKind::Unmapped => "unmapped",
        FunctionKind::Marker => "marker",
        FunctionKind::Group => "group",
    }
}
