//! `perfcollect view NAME.trace.zip`.

use std::io;

use super::arguments::ViewOptions;
use crate::view::{self, ViewError};

pub(super) fn run(options: &ViewOptions) -> Result<(), ViewError> {
    view::view(&options.trace, options.top, &mut io::stdout().lock())
}
