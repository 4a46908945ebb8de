//! `perfcollect view NAME.trace.zip`: prints a trace.

use std::io::{self, BufWriter, Write};

use super::arguments::ViewOptions;
use super::sandbox;
use crate::view::events::{self, Viewer};
use crate::view::{self, ViewError};

/// Methods printed by default.
const TOP: usize = 20;

pub(super) fn run(options: &ViewOptions) -> Result<(), ViewError> {
    // Events of an archive are unpacked there.
    sandbox::enter(&[], &[&std::env::temp_dir()]);
    if options.viewer == Viewer::Report {
        let mut text = Vec::new();
        view::view(&options.trace, options.top.unwrap_or(TOP), &mut text)?;
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
