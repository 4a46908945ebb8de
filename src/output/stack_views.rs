//! The stacks drawn: one tree for the folded stacks and the flame graph, one flame graph for the archive and the file.

use std::io;
use std::sync::OnceLock;

use super::call_tree::CallTree;
use super::flame_graph;
use super::short_name::NameStyle;
use crate::trace::Trace;

/// Drawn when they are asked for first; who comes second waits for who came first.
pub struct StackViews<'a> {
    trace: &'a Trace,
    names: NameStyle,
    title: &'a str,
    tree: OnceLock<CallTree>,
    flame_graph: OnceLock<io::Result<Vec<u8>>>,
}

impl<'a> StackViews<'a> {
    /// Draws nothing yet.
    #[must_use]
    pub fn new(trace: &'a Trace, names: NameStyle, title: &'a str) -> Self {
        Self {
            trace,
            names,
            title,
            tree: OnceLock::new(),
            flame_graph: OnceLock::new(),
        }
    }

    /// Makes what all of them are drawn from.
    pub fn prepare(&self) {
        self.tree();
    }

    pub(super) fn tree(&self) -> &CallTree {
        self.tree
            .get_or_init(|| CallTree::new(self.trace, self.names))
    }

    /// The flame graph: an SVG file.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn flame_graph(&self) -> io::Result<&[u8]> {
        let drawn = self.flame_graph.get_or_init(|| {
            let mut svg = Vec::new();
            flame_graph::write_tree(self.tree(), self.trace, self.title, &mut svg)?;
            Ok(svg)
        });
        match drawn {
            Ok(svg) => Ok(svg),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }
}
