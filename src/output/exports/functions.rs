//! CSV: a row for each function, with its samples.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

use super::calls::{Calls, count};
use super::weights::Weights;
use crate::output::sanitize::csv_text;
use crate::output::short_name::NameStyle;
use crate::trace::{FunctionKind, Trace};

/// A line: its fields are the columns.
#[derive(Serialize)]
struct Line<'a> {
    function: Cow<'a, str>,
    module: Cow<'a, str>,
    kind: FunctionKind,
    self_samples: u64,
    total_samples: u64,
    self_percent: String,
    total_percent: String,
}

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
    for (code, row) in rows {
        csv.serialize(Line {
            function: csv_text(&code.name),
            module: csv_text(&code.module),
            kind: code.kind,
            self_samples: row.own,
            total_samples: row.total,
            self_percent: percent(row.own),
            total_percent: percent(row.total),
        })?;
    }
    csv.flush()
}
