//! Views of the stacks: the same call trees for folded stacks and flame graph.
//!
//! The archive and the separate files share the flame graphs.

use std::io::{self, Write};
use std::sync::OnceLock;

use super::call_tree::{CallTrees, Measure};
use super::short_name::NameStyle;
use super::{flame_graph, folded};
use crate::trace::Trace;

/// Views of the stacks, created on first use. Concurrent callers wait for the first one.
pub struct StackViews<'a> {
    trace: &'a Trace,
    names: NameStyle,
    title: &'a str,
    by_thread: bool,
    trees: OnceLock<CallTrees<'a>>,
    flame_graph: OnceLock<io::Result<Vec<u8>>>,
    blocked_graph: OnceLock<io::Result<Vec<u8>>>,
    faults_graph: OnceLock<io::Result<Vec<u8>>>,
    wakeups_graph: OnceLock<io::Result<Vec<u8>>>,
}

impl<'a> StackViews<'a> {
    /// Creates empty views.
    #[must_use]
    pub fn new(trace: &'a Trace, names: NameStyle, title: &'a str) -> Self {
        Self {
            trace,
            names,
            title,
            by_thread: false,
            trees: OnceLock::new(),
            flame_graph: OnceLock::new(),
            blocked_graph: OnceLock::new(),
            faults_graph: OnceLock::new(),
            wakeups_graph: OnceLock::new(),
        }
    }

    /// Lets the stacks tell threads apart, by their names.
    #[must_use]
    pub fn by_thread(self, by_thread: bool) -> Self {
        Self { by_thread, ..self }
    }

    /// Counts the samples of each stack, for all views.
    pub fn prepare(&self) {
        self.trees();
    }

    fn trees(&self) -> &CallTrees<'a> {
        self.trees
            .get_or_init(|| CallTrees::new(self.trace, self.names, self.by_thread))
    }

    /// Writes the folded stacks.
    ///
    /// # Errors
    /// Returns errors of `out`.
    pub fn write_folded(&self, out: &mut impl Write) -> io::Result<()> {
        folded::write_trees(self.trees(), out)
    }

    /// Writes something else than samples as folded stacks.
    ///
    /// # Errors
    /// Returns errors of `out`.
    pub(crate) fn write_measured(&self, measure: Measure, out: &mut impl Write) -> io::Result<()> {
        folded::write_measured(self.trace, measure, out)
    }

    /// Returns the flame graph of a measure, as an SVG file. That of the time without a CPU has only the
    /// threads with work.
    ///
    /// # Errors
    /// Returns an error if the flame graph cannot be created.
    pub(crate) fn graph(&self, measure: Measure) -> io::Result<&[u8]> {
        let (drawn, measure) = match measure {
            Measure::Samples => return self.flame_graph(),
            Measure::BlockedTime | Measure::WaitingTime => {
                (&self.blocked_graph, Measure::WaitingTime)
            }
            Measure::Faults => (&self.faults_graph, measure),
            Measure::Wakeups => (&self.wakeups_graph, measure),
        };
        once(drawn, |svg| {
            flame_graph::write_measured(self.trace, self.names, measure, self.title, svg)
        })
    }

    /// Returns the flame graph as an SVG file.
    ///
    /// # Errors
    /// Returns an error if the flame graph cannot be created.
    pub fn flame_graph(&self) -> io::Result<&[u8]> {
        once(&self.flame_graph, |svg| {
            flame_graph::write_trees(self.trees(), self.trace, self.title, svg)
        })
    }
}

/// Returns what is drawn at the first call.
fn once(
    drawn: &OnceLock<io::Result<Vec<u8>>>,
    draw: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> io::Result<&[u8]> {
    let drawn = drawn.get_or_init(|| {
        let mut svg = Vec::new();
        draw(&mut svg)?;
        Ok(svg)
    });
    match drawn {
        Ok(svg) => Ok(svg),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    }
}
