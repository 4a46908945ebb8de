//! `perfcollect view NAME.trace.zip`.

use super::arguments::ViewOptions;
use crate::view::{self, ViewError};

pub(super) fn run(options: &ViewOptions) -> Result<(), ViewError> {
    let mut text = Vec::new();
    view::view(&options.trace, options.top, &mut text)?;
    super::print(&text).map_err(ViewError::Print)
}
