//! The call tree: callers with their callees, in one pass over folded stacks.

use crate::output::sanitize::truncate;

/// Maximum length of a name in a table, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 160;
/// Maximum number of frames in the tree; further ones are left out.
const MAX_FRAMES: usize = 100_000;
/// Maximum depth of the tree; deeper frames count to the last one.
const MAX_DEPTH: usize = 4096;

/// A frame with its callers and samples.
#[derive(Debug, Default)]
struct Node {
    frame: String,
    samples: u64,
    own: u64,
    callees: Vec<Node>,
}

/// A frame of the tree, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeRow<'a> {
    /// Number of callers.
    pub(super) depth: usize,
    /// Number of callers that have more than one callee in the tree.
    pub(super) level: usize,
    /// Name of the frame.
    pub(super) frame: &'a str,
    /// Samples in it and what it calls.
    pub(super) samples: u64,
    /// Samples in itself, or in callees that are not in the tree.
    pub(super) own: u64,
}

/// A call tree of the frames with a minimum of samples.
#[derive(Debug)]
pub(super) struct CallTree {
    roots: Vec<Node>,
}

impl CallTree {
    /// Returns the frames down the callees with most samples.
    pub(super) fn hottest_path(&self) -> Vec<(&str, u64)> {
        let mut path = Vec::new();
        let mut callees = &self.roots;
        while let Some(node) = callees.first() {
            path.push((&*node.frame, node.samples));
            callees = &node.callees;
        }
        path
    }

    /// Returns the frames with most samples, at most `max`, each below its caller.
    pub(super) fn rows(&self, max: usize) -> Vec<TreeRow<'_>> {
        let least = self.least_samples(max);
        let mut rows = Vec::new();
        // Not recursive, because the target controls the depth.
        let roots = self.roots.iter().rev();
        let mut open: Vec<(&Node, usize, usize)> = roots.map(|root| (root, 0, 0)).collect();
        while let Some((node, depth, level)) = open.pop() {
            if node.samples < least || rows.len() == max {
                continue;
            }
            rows.push(TreeRow {
                depth,
                level,
                frame: &node.frame,
                samples: node.samples,
                own: node.own,
            });
            let shown = node.callees.iter().filter(|callee| callee.samples >= least);
            let below = level + usize::from(shown.clone().count() > 1);
            open.extend(shown.rev().map(|callee| (callee, depth + 1, below)));
        }
        rows
    }

    /// Returns the number of frames.
    pub(super) fn len(&self) -> usize {
        let mut count = 0;
        let mut open: Vec<&Node> = self.roots.iter().collect();
        while let Some(node) = open.pop() {
            count += 1;
            open.extend(&node.callees);
        }
        count
    }

    /// Returns the samples of the frame with which the tree has at least `max` frames.
    fn least_samples(&self, max: usize) -> u64 {
        let mut samples = Vec::new();
        let mut open: Vec<&Node> = self.roots.iter().collect();
        while let Some(node) = open.pop() {
            samples.push(node.samples);
            open.extend(&node.callees);
        }
        samples.sort_unstable_by(|a, b| b.cmp(a));
        samples.get(max.saturating_sub(1)).copied().unwrap_or(0)
    }
}

/// Builds a call tree from folded stacks that are sorted frame by frame.
///
/// Memory holds the current stack and the frames with the minimum of samples.
pub(super) struct CallTreeBuilder {
    /// The current stack, below a node for all of it.
    open: Vec<Node>,
    min_samples: u64,
    frames: usize,
}

impl CallTreeBuilder {
    /// Starts a tree of the frames with at least `min_samples`.
    pub(super) fn new(min_samples: u64) -> Self {
        Self {
            open: vec![Node::default()],
            min_samples,
            frames: 0,
        }
    }

    /// Adds a line `process;root;...;leaf COUNT`. Returns the samples of all lines until now, or
    /// `None` if the line is malformed.
    pub(super) fn push_line(&mut self, line: &str) -> Option<u64> {
        let (stack, count) = line.rsplit_once(' ')?;
        let count: u64 = count.parse().ok().filter(|count| *count > 0)?;
        let all = self.open.first()?.samples.checked_add(count)?;
        let frames = || stack.split(';').take(MAX_DEPTH);
        let current = self.open[1..].iter().map(|open| open.frame.as_str());
        let shared = current.zip(frames()).take_while(|(a, b)| a == b).count();
        self.close_below(shared);
        self.open.extend(frames().skip(shared).map(|frame| Node {
            frame: frame.to_owned(),
            ..Node::default()
        }));
        for open in &mut self.open {
            open.samples += count;
        }
        Some(all)
    }

    /// Returns the tree.
    pub(super) fn finish(mut self) -> CallTree {
        self.close_below(0);
        let roots = self.open.pop().map(sorted);
        CallTree {
            roots: roots.map(|all| all.callees).unwrap_or_default(),
        }
    }

    fn close_below(&mut self, depth: usize) {
        while self.open.len() > depth + 1
            && let Some(node) = self.open.pop()
        {
            let is_kept = node.samples >= self.min_samples && self.frames < MAX_FRAMES;
            if let Some(caller) = self.open.last_mut().filter(|_| is_kept) {
                self.frames += 1;
                caller.callees.push(sorted(node));
            }
        }
    }
}

/// Completes a node whose callees are known.
fn sorted(mut node: Node) -> Node {
    node.frame
        .truncate(truncate(&node.frame, MAX_NAME_BYTES + 1).len());
    let callees = &mut node.callees;
    let in_callees = callees.iter().map(|callee| callee.samples).sum();
    node.own = node.samples.saturating_sub(in_callees);
    callees.sort_by(|a, b| (b.samples, &a.frame).cmp(&(a.samples, &b.frame)));
    node
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tree(lines: &[&str], min_samples: u64) -> CallTree {
        let mut tree = CallTreeBuilder::new(min_samples);
        for line in lines {
            tree.push_line(line).unwrap();
        }
        tree.finish()
    }

    const LINES: [&str; 5] = [
        "p (1);a;b 3",
        "p (1);a;c;d 4",
        "p (1);a;c;e 2",
        "p (1);z 5",
        "q (2);x 9",
    ];

    #[test]
    fn follows_the_most_sampled_callees() {
        let tree = tree(&LINES, 1);
        let hottest = [("p (1)", 14), ("a", 9), ("c", 6), ("d", 4)];
        assert_eq!(tree.hottest_path(), hottest);
        assert_eq!(tree.len(), 9);
    }

    #[test]
    fn shows_the_frames_with_most_samples_below_their_callers() {
        let tree = tree(&LINES, 3);
        let rows = tree.rows(6);
        let shown = rows
            .iter()
            .map(|row| (row.level, row.frame, row.samples, row.own));
        let expected = [
            (0, "p (1)", 14, 0),
            (1, "a", 9, 0),
            (1, "c", 6, 2),
            (1, "z", 5, 5),
            (0, "q (2)", 9, 0),
            (0, "x", 9, 9),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn rejects_malformed_lines() {
        let mut tree = CallTreeBuilder::new(1);
        assert_eq!(tree.push_line("no count"), None);
        assert_eq!(tree.push_line(""), None);
        assert_eq!(
            tree.push_line("a 18446744073709551615")
                .and_then(|_| tree.push_line("a 1")),
            None
        );
    }
}
