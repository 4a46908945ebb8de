//! `perfcollect report NAME.trace.zip`: prints a table of a trace.

use std::io;
use std::path::PathBuf;

use clap::Args;

use super::arguments::EXAMPLES_FIRST;
use super::opened::{self, OpenError};
use super::screen;
use super::selection_options::SelectionOptions;
use super::table_options::TableOptions;
use super::{OneLine, say};
use crate::view::{self, ReportKind, Rows, StackText, TableFormat, ViewError};

/// Print a table of a trace: as text, JSON, Markdown or CSV.
///
/// The tables are those of summary.json in the trace. `view` prints several of them for people.
#[derive(Args, Debug)]
#[command(help_template = EXAMPLES_FIRST, after_help = "EXAMPLES\n  \
    perfcollect report incident.trace.zip\n  \
    perfcollect report incident.trace.zip -kind cpu -format csv -top 10\n  \
    perfcollect report incident.trace.zip -kind own -from 2 -to 2.5 -thread '.NET TP Worker'")]
pub(super) struct ReportOptions {
    /// Trace to print, perf.data, or a stream of dotnet-trace
    #[arg(value_name = "NAME.trace.zip")]
    trace: PathBuf,
    /// Table to print: cpu, own, processes, threads, gc, ... [default: findings]
    ///
    /// findings: what is remarkable, most costly first. summary: origin, quality and losses; as JSON all of summary.json.
    /// own: your code, with the libraries it calls. cpu: methods by their own CPU time. calltree: callers and callees. processes,
    /// threads, modules, syscalls: CPU time by each. blocked: the stacks of all threads when the capture ended, and what they
    /// waited for. threadtime: where threads spent the time without a CPU (needs a capture with -threadtime). faults: page faults by function (needs a
    /// capture with -faults). wakeups: who wakes whom (needs a capture with -wakeups). io: requests to disks by device and process (needs a capture with -io). connections: TCP connections by process and address (needs a capture with -net). gc, jit, exceptions, contention (waits for locks), alloc (needs a
    /// capture with -gconly), thread-pool, requests (needs a capture with -requests), awaits (where asynchronous methods wait; needs a capture with -awaits), network (names, connections, TLS; needs a capture with -for networking). events: what .NET processes sent, by kind. event-losses: how much of it was
    /// lost. counters: events that -hwevents and -system counted. quality: notices about the capture.
    #[arg(
        long,
        value_enum,
        default_value_t,
        ignore_case = true,
        hide_default_value = true,
        hide_possible_values = true
    )]
    kind: ReportKind,
    #[command(flatten)]
    table: TableOptions,
    /// Maximum number of rows [default: all that summary.json has; on a terminal, those that fit]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Kind cpu: each function without a name; threads, threadtime, requests: each one; blocked: whole stacks
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    selection: SelectionOptions,
}

pub(super) fn run(options: &ReportOptions) -> Result<(), OpenError> {
    let mut text = Vec::new();
    let trace = opened::open(&options.trace, &options.selection.selection())?;
    let screen = screen::of(io::stdout()).filter(|_| !options.full);
    let width = screen.map(|screen| screen.size.width);
    let format = options.table.format();
    let form = StackText {
        screen,
        full: options.full,
        top: options.top.unwrap_or(usize::MAX),
    };
    let fitting =
        screen.filter(|_| format == TableFormat::Text && options.kind != ReportKind::CallTree);
    let fitting = fitting.filter(|_| options.top.is_none()).map(screen::rows);
    let rows = Rows {
        top: fitting.unwrap_or(form.top),
        full: options.full,
        fits: fitting.is_some(),
    };
    let is_printed = match (options.kind, format) {
        (ReportKind::Blocked, TableFormat::Text) => view::print_blocked(&trace, form, &mut text)?,
        (ReportKind::Requests, TableFormat::Text) => {
            let printed = view::print_requests(&trace, form, &mut text);
            printed.map_err(ViewError::Print)?
        }
        _ => false,
    };
    let lacks = match is_printed {
        true => None,
        false => view::print_table(&trace, options.kind, format, rows, width, &mut text)?,
    };
    super::print(&text).map_err(ViewError::Print)?;
    if let Some(lacks) = lacks {
        say(OneLine(&lacks));
    }
    Ok(())
}
