//! `perfcollect view NAME.trace.zip`: prints a trace.

use std::io::{self, BufWriter, Write};

use super::arguments::ViewOptions;
use super::opened::{self, OpenError, path_of};
use super::sandbox;
use super::screen;
use crate::event_trace;
use crate::selection::Selection;
use crate::view::events::{self, EventSelection, EventView, Viewer};
use crate::view::{self, Rows, ViewError};

/// Rows of each table by default.
const TOP: usize = 20;
/// Part of the samples (1 %) that a frame of the call tree has at least.
const MIN_TREE_PART: f64 = 0.01;

pub(super) fn run(options: &ViewOptions) -> Result<(), OpenError> {
    match options.viewer {
        Viewer::Report => print_report(options),
        Viewer::CallTree => print_tree(options),
        _ => print_events(options),
    }
}

fn print_report(options: &ViewOptions) -> Result<(), OpenError> {
    let trace = opened::open(&options.trace, &options.selection.selection())?;
    let mut text = Vec::new();
    let top = options.top.unwrap_or(TOP);
    let is_whole = options.full || options.top.is_some();
    match (&options.method, screen::of(io::stdout())) {
        (Some(pattern), _) => view::view_method(&trace, pattern, top, &mut text)?,
        (None, Some(screen)) if !is_whole => view::view_screen(&trace, "", screen, &mut text)?,
        _ => {
            let full = options.full;
            let fits = false;
            view::view(&trace, Rows { top, full, fits }, &mut text)?;
        }
    }
    Ok(super::print(&text).map_err(ViewError::Print)?)
}

fn print_tree(options: &ViewOptions) -> Result<(), OpenError> {
    let trace = opened::open(&options.trace, &options.selection.selection())?;
    let rows = Rows {
        top: top(options).unwrap_or(usize::MAX),
        full: options.full,
        fits: false,
    };
    let mut text = Vec::new();
    view::view_tree(&trace, MIN_TREE_PART, rows, &mut text)?;
    Ok(super::print(&text).map_err(ViewError::Print)?)
}

/// Returns the number of rows: by default, those that fit on the screen, and to a file all.
fn top(options: &ViewOptions) -> Option<usize> {
    let screen = screen::of(io::stdout()).filter(|_| !options.full);
    options.top.or(screen.map(screen::rows))
}

fn print_events(options: &ViewOptions) -> Result<(), OpenError> {
    // Events of an archive are unpacked there.
    sandbox::enter(&[], &[&std::env::temp_dir()]);
    let mut out = BufWriter::new(io::stdout().lock());
    let Selection { times, process, .. } = options.selection.selection();
    let selection = EventSelection {
        filters: options.filter.clone(),
        times,
        top: top(options),
    };
    let wanted = EventView {
        viewer: options.viewer,
        process: process.as_deref(),
        selection: &selection,
    };
    let path = path_of(&options.trace);
    let printed = match event_trace::open(&path)? {
        Some(trace) => events::view_stream(&trace, wanted, &mut out),
        None => events::view(&path, wanted, &mut out),
    };
    let printed = printed.and_then(|()| out.flush().map_err(ViewError::Print));
    match printed {
        // The reader closed early, as `head` does.
        Err(ViewError::Print(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => Ok(printed?),
    }
}
