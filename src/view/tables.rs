//! The tables of a summary.

use std::io::{self, Write};

use super::table::{Cell, Table, TableFormat};
use super::{
    OpenTrace, ReportKind, Rows, ViewError, block_io, connections, counters, cpu_tables, faults,
    omissions, refusals, report, runtime_tables, wait_tables, wakeups,
};
use crate::output::sanitize::json_text;
use crate::output::summary::Summary;
use crate::output::variant_name;

/// Prints a table of a trace. Text fits into `width` columns, if there is a limit. Returns what the table
/// lacks, unless it is in the text.
///
/// # Errors
/// Returns an error if the trace cannot be read, or `out` cannot be written to.
pub fn print_table(
    trace: &OpenTrace,
    kind: ReportKind,
    format: TableFormat,
    rows: Rows,
    width: Option<usize>,
    out: &mut impl Write,
) -> Result<Option<String>, ViewError> {
    let mut table = match (kind, format) {
        (ReportKind::Summary | ReportKind::Findings, TableFormat::Text)
        | (ReportKind::Summary, TableFormat::Json) => {
            let printed = print_whole(trace, kind, format, out);
            return printed.map(|()| None).map_err(ViewError::Print);
        }
        (kind, _) => table(trace, kind, rows)?,
    };
    let is_hidden = match kind {
        ReportKind::Io => trace.hides_block_io,
        ReportKind::Connections => trace.hides_connections,
        kind => report::lacks_events(&trace.summary) && kind.is_of_runtimes(),
    };
    if is_hidden {
        return Err(ViewError::NotSelected { table: table.kind });
    }
    let shown = table.rows.len();
    table.rows.truncate(rows.top);
    if let Some(width) = width.filter(|_| format == TableFormat::Text) {
        match kind {
            ReportKind::Io => table.drop_columns(width, &block_io::OPTIONAL_COLUMNS),
            ReportKind::Awaits => {
                table.drop_columns(width, &runtime_tables::OPTIONAL_AWAIT_COLUMNS);
            }
            ReportKind::Connections => table.drop_columns(width, &connections::OPTIONAL_COLUMNS),
            ReportKind::Wakeups => table.drop_columns(width, &wakeups::OPTIONAL_COLUMNS),
            _ => {}
        }
        table.fit(width);
    }
    table.write(format, out).map_err(ViewError::Print)?;
    let is_empty = table.rows.is_empty();
    let why_empty = is_empty.then(|| omissions::of_empty(&trace.summary, kind));
    let below_the_screen = match shown - table.rows.len() {
        more if more > 0 && rows.fits => Some(format!("... and {more} more: -top {shown}")),
        _ => None,
    };
    let omitted = match why_empty.flatten() {
        Some(why) => Some(why.to_owned()),
        None if below_the_screen.is_some() => below_the_screen,
        None => omissions::of(trace, kind, rows.full).filter(|_| table.rows.len() == shown),
    };
    let is_refused = is_empty && !trace.hides_threads;
    let refusal = is_refused.then(|| refusals::of(&trace.summary, kind));
    let omitted = match (omitted, refusal.flatten()) {
        (Some(omitted), Some(refusal)) => {
            Some(format!("{omitted}; a notice of the capture: {refusal}"))
        }
        (omitted, refusal) => omitted.or(refusal),
    };
    match omitted {
        Some(omitted) if format == TableFormat::Text => {
            writeln!(out, "{omitted}").map_err(ViewError::Print)?;
            Ok(None)
        }
        omitted => Ok(omitted),
    }
}

/// Prints a report that is more than a table.
fn print_whole(
    trace: &OpenTrace,
    kind: ReportKind,
    format: TableFormat,
    out: &mut impl Write,
) -> io::Result<()> {
    let summary = &trace.summary;
    match (kind, format) {
        (_, TableFormat::Json) => {
            let json = serde_json::to_string_pretty(summary)?;
            writeln!(out, "{}", json_text(&json))
        }
        (ReportKind::Summary, _) => report::summary(summary, out),
        _ => {
            report::findings(summary, Some(&trace.more), out)?;
            match summary.findings.is_empty() {
                true => writeln!(out, "{}", report::no_findings(summary)),
                false => Ok(()),
            }
        }
    }
}

/// Returns the table of a kind, with all its rows, or those of a call tree that are wanted.
fn table(
    trace: &OpenTrace,
    kind: ReportKind,
    Rows { top, full, .. }: Rows,
) -> Result<Table, ViewError> {
    let summary = &trace.summary;
    let shares = &summary.shares;
    Ok(match kind {
        ReportKind::Findings => findings(summary),
        ReportKind::CallTree => cpu_tables::call_tree(trace, top)?,
        ReportKind::Summary => totals(summary),
        ReportKind::Own => cpu_tables::own(summary),
        ReportKind::Cpu => cpu_tables::methods(summary, full),
        ReportKind::Processes => cpu_tables::processes(summary),
        ReportKind::Threads if full => cpu_tables::each_thread(summary),
        ReportKind::Threads => cpu_tables::threads(summary),
        ReportKind::Blocked => wait_tables::blocked(summary),
        ReportKind::ThreadTime if full => wait_tables::thread_times(summary),
        ReportKind::ThreadTime => wait_tables::places(summary),
        ReportKind::Faults => faults::table(summary),
        ReportKind::Wakeups => wakeups::table(summary),
        ReportKind::Io => block_io::table(summary),
        ReportKind::Connections => connections::table(summary),
        ReportKind::Modules => cpu_tables::parts("modules", summary, &shares.modules),
        ReportKind::Syscalls => cpu_tables::parts("syscalls", summary, &shares.syscalls),
        ReportKind::Gc => runtime_tables::gc(summary),
        ReportKind::Jit => runtime_tables::jit(summary),
        ReportKind::Exceptions => runtime_tables::exceptions(summary),
        ReportKind::Contention => runtime_tables::contention(summary),
        ReportKind::Awaits => runtime_tables::awaits(summary),
        ReportKind::Alloc => runtime_tables::allocations(summary),
        ReportKind::ThreadPool => runtime_tables::thread_pool(summary),
        ReportKind::Requests if full => runtime_tables::slowest_requests(summary),
        ReportKind::Requests => runtime_tables::requests(summary),
        ReportKind::Network => runtime_tables::network(summary),
        ReportKind::Events => runtime_tables::events(summary),
        ReportKind::EventLosses => runtime_tables::event_losses(summary),
        ReportKind::Counters => counters::table(summary),
        ReportKind::Quality => quality_rows(summary),
    })
}

fn findings(summary: &Summary) -> Table {
    let rows = summary.findings.iter().map(|finding| {
        let pid = finding.pid.map_or(Cell::None, Cell::from);
        let text = |text: &str| Cell::from(text);
        [
            text(&finding.rule),
            finding.cost_cpus.into(),
            pid,
            text(&finding.subject),
            text(&finding.text),
        ]
    });
    Table::new(
        "findings",
        ["rule", "cost_cpus", "pid", "subject", "text"],
        rows,
    )
}

fn totals(summary: &Summary) -> Table {
    let info = &summary.info;
    let seconds = info.seconds();
    let rows = [
        ("seconds", seconds.into()),
        ("samples", summary.samples.into()),
        ("cpu_ms", summary.cpu_ms.into()),
        ("processes", summary.process_count.into()),
        ("methods", summary.method_count.into()),
        ("target", Cell::from(&*info.target)),
        ("kernel", Cell::from(&*info.kernel)),
        ("cpus", u64::from(info.cpus).into()),
    ];
    let rows = rows.into_iter().map(|(name, value)| [name.into(), value]);
    Table::new("summary", ["name", "value"], rows)
}

fn quality_rows(summary: &Summary) -> Table {
    let rows = summary.quality.notices.iter().map(|notice| {
        let text = |text: &str| Cell::from(text);
        [
            text(&variant_name(notice.kind)),
            notice.count.into(),
            text(&notice.subject),
            text(&notice.what),
            text(&notice.remedy),
        ]
    });
    Table::new(
        "quality",
        ["kind", "count", "subject", "what", "remedy"],
        rows,
    )
}
