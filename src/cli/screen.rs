//! The terminal that a stream is connected to.

use std::os::fd::AsFd;

use crate::view::screen::{Screen, Size};

/// Lines of a screen for other than the rows of a table: heading, rows that are left out, prompt.
const MARGIN: usize = 4;
/// Rows of a table on a small screen.
const MIN_ROWS: usize = 20;

/// Returns how many rows of a table fit on a screen.
pub(super) fn rows(screen: Screen) -> usize {
    screen.size.height.saturating_sub(MARGIN).max(MIN_ROWS)
}

/// Returns the terminal that a stream is connected to, if it is one that can show a report.
pub(super) fn of(stream: impl AsFd) -> Option<Screen> {
    if !rustix::termios::isatty(&stream) {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stream).ok()?;
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    // Serial lines, and terminals that a program made, may not know their size.
    let known = |cells: u16, default| if cells == 0 { default } else { cells.into() };
    Some(Screen {
        size: Size {
            width: known(size.ws_col, 80),
            height: known(size.ws_row, 24),
        },
        bold: !is_set("NO_COLOR") && !is_dumb,
    })
}
