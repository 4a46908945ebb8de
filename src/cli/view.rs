//! `perfcollect view NAME.trace.zip`: prints a trace.

use std::io::{self, BufWriter, Write};

use super::arguments::ViewOptions;
use super::sandbox;
use super::screen;
use crate::view::events::{self, Viewer};
use crate::view::{self, Rows, ViewError};

/// Rows of each table by default.
const TOP: usize = 20;

pub(super) fn run(options: &ViewOptions) -> Result<(), ViewError> {
    // Events of an archive are unpacked there.
    sandbox::enter(&[], &[&std::env::temp_dir()]);
    if options.viewer == Viewer::Report {
        let mut text = Vec::new();
        let (trace, top) = (&options.trace, options.top.unwrap_or(TOP));
        let is_whole = options.full || options.top.is_some();
        match (&options.method, screen::of(io::stdout())) {
            (Some(pattern), _) => view::view_method(trace, pattern, top, &mut text)?,
            (None, Some(screen)) if !is_whole => view::view_screen(trace, screen, &mut text)?,
            _ => {
                let full = options.full;
                view::view(trace, Rows { top, full }, &mut text)?;
            }
        }
        return super::print(&text).map_err(ViewError::Print);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let process = options.processfilter.as_deref();
    let printed = events::view(&options.trace, options.viewer, process, &mut out)
        .and_then(|()| out.flush().map_err(ViewError::Print));
    match printed {
        // The reader closed early, as `head` does.
        Err(ViewError::Print(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}
