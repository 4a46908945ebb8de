//! Call tree of function names per process, for folded stacks and the flame graph.
//!
//! [`crate::trace::StackTable`] is a tree of addresses that all processes share. In this tree, two
//! addresses of one function share a node below their process.

use std::hash::BuildHasher;
use std::io;

use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::label::{self, Interner};
use super::process_labels::ProcessLabels;
use super::sanitize;
use super::short_name::NameStyle;
use crate::trace::{FrameId, FunctionId, FunctionKind, ProcessId, StackId, Trace};

/// Category of a label, which determines its colour in the flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameCategory {
    Process,
    Kernel,
    Native,
    Jit,
    ReadyToRun,
    Inlined,
    Unresolved,
    Truncated,
}

/// Parent of the process nodes.
const NO_PARENT: u32 = u32::MAX;

struct Node {
    parent: u32,
    label: u32,
    own: u64,
    total: u64,
}

/// A tree of labels with sample counts. Each node follows its parent.
pub(super) struct CallTree {
    labels: Vec<String>,
    /// Category of each label.
    categories: Vec<FrameCategory>,
    nodes: Vec<Node>,
    /// Nodes sorted by parent, then by label. The processes are last.
    siblings: Vec<u32>,
    /// Index in `siblings` of each node's first child; the last item is that of the processes.
    first_child: Vec<u32>,
}

impl CallTree {
    pub(super) fn new(trace: &Trace, names: NameStyle) -> Self {
        let mut builder = Builder::new(trace, names);
        for sample in trace.samples.iter() {
            let process = trace.threads[sample.thread.index()].process;
            let node = builder.node_of(process, sample.stack);
            builder.nodes[node as usize].own += 1;
        }
        builder.finish()
    }

    /// Returns all labels with their categories.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, FrameCategory)> {
        self.labels
            .iter()
            .map(String::as_str)
            .zip(self.categories.iter().copied())
    }

    /// Returns the number of samples of all processes.
    pub(super) fn total(&self) -> u64 {
        let processes = self.processes().iter();
        processes
            .map(|&process| self.nodes[process as usize].total)
            .sum()
    }

    /// Calls `each` with every distinct stack, root first and separated by `;`, and its self
    /// samples.
    ///
    /// Callees with fewer than `min_total` samples are folded into the caller. Stacks are sorted
    /// frame by frame, so that stacks with equal callers are adjacent.
    pub(super) fn for_each_stack(
        &self,
        min_total: u64,
        mut each: impl FnMut(&str, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut path = String::new();
        // (node, length of its caller's path). Not recursive, because the target controls the
        // depth.
        let processes = self.processes().iter().rev();
        let mut open: Vec<(u32, usize)> = processes.map(|&process| (process, 0)).collect();
        while let Some((row, caller_len)) = open.pop() {
            let node = &self.nodes[row as usize];
            path.truncate(caller_len);
            if caller_len > 0 {
                path.push(';');
            }
            path.push_str(&self.labels[node.label as usize]);
            let mut own = node.own;
            for &child in self.children(row).iter().rev() {
                let total = self.nodes[child as usize].total;
                if total < min_total {
                    own += total;
                } else {
                    open.push((child, path.len()));
                }
            }
            if own > 0 {
                each(&path, own)?;
            }
        }
        Ok(())
    }

    fn processes(&self) -> &[u32] {
        let first = self.first_child.last().copied().unwrap_or(0);
        &self.siblings[first as usize..]
    }

    fn children(&self, node: u32) -> &[u32] {
        let [first, end] = [node, node + 1].map(|row| self.first_child[row as usize] as usize);
        &self.siblings[first..end]
    }
}

struct Builder<'a> {
    trace: &'a Trace,
    names: NameStyle,
    labels: Interner<String>,
    categories: Vec<FrameCategory>,
    nodes: Vec<Node>,
    /// Rows of `nodes`, by parent and label.
    rows: HashTable<u32>,
    process_labels: ProcessLabels<'a>,
    processes: FxHashMap<ProcessId, u32>,
    /// The node of each stack in the last process that had it. Shared callers are visited once.
    last_nodes: Vec<(ProcessId, u32)>,
}

fn hash(parent: u32, label: u32) -> u64 {
    FxBuildHasher.hash_one((parent, label))
}

impl<'a> Builder<'a> {
    fn new(trace: &'a Trace, names: NameStyle) -> Self {
        Self {
            trace,
            names,
            labels: Interner::new(trace),
            categories: Vec::new(),
            nodes: Vec::new(),
            rows: HashTable::new(),
            process_labels: ProcessLabels::new(trace),
            processes: FxHashMap::default(),
            last_nodes: vec![(ProcessId(NO_PARENT), NO_PARENT); trace.stacks.len()],
        }
    }

    fn finish(self) -> CallTree {
        let mut nodes = self.nodes;
        for row in (0..nodes.len()).rev() {
            let Node {
                own, total, parent, ..
            } = &mut nodes[row];
            *total += *own;
            let (total, parent) = (*total, *parent);
            if let Some(parent) = nodes.get_mut(parent as usize) {
                parent.total += total;
            }
        }
        let labels = self.labels.rows;
        let mut by_text: Vec<usize> = (0..labels.len()).collect();
        by_text.sort_unstable_by_key(|&label| &labels[label]);
        let mut ranks = vec![0; labels.len()];
        for (rank, label) in by_text.into_iter().enumerate() {
            ranks[label] = rank;
        }
        let mut siblings: Vec<u32> = (0..nodes.len() as u32).collect();
        siblings.sort_unstable_by_key(|&row| {
            let node = &nodes[row as usize];
            (node.parent, ranks[node.label as usize])
        });
        let mut first_child = Vec::with_capacity(nodes.len() + 1);
        let mut next = 0;
        for row in 0..=nodes.len() as u32 {
            first_child.push(next);
            let rest = siblings[next as usize..].iter();
            next += rest
                .take_while(|&&child| nodes[child as usize].parent == row)
                .count() as u32;
        }
        CallTree {
            labels,
            categories: self.categories,
            nodes,
            siblings,
            first_child,
        }
    }

    fn node_of(&mut self, process: ProcessId, stack: StackId) -> u32 {
        // Go up to the nearest caller with a node, then down again.
        let mut above = stack;
        let mut missing = Vec::new();
        let mut node = loop {
            let Some((parent, frame)) = self.trace.stacks.node(above) else {
                break self.process(process);
            };
            let (owner, node) = self.last_nodes[above.index()];
            if owner == process {
                break node;
            }
            missing.push((above, frame));
            above = parent;
        };
        for (stack, frame) in missing.into_iter().rev() {
            for entry in self.trace.frames[frame.index()].functions.clone() {
                let label = self.label(frame, entry);
                node = self.push(node, label);
            }
            self.last_nodes[stack.index()] = (process, node);
        }
        node
    }

    fn process(&mut self, process: ProcessId) -> u32 {
        if let Some(&node) = self.processes.get(&process) {
            return node;
        }
        let label = self.labels.intern(self.process_labels.label(process));
        self.set_category(label, || FrameCategory::Process);
        let node = self.push(NO_PARENT, label);
        self.processes.insert(process, node);
        node
    }

    fn push(&mut self, parent: u32, label: u32) -> u32 {
        let Self { nodes, rows, .. } = self;
        let is_it = |&row: &u32| {
            let node = &nodes[row as usize];
            (node.parent, node.label) == (parent, label)
        };
        if let Some(&row) = rows.find(hash(parent, label), is_it) {
            return row;
        }
        let row = nodes.len() as u32;
        nodes.push(Node {
            parent,
            label,
            own: 0,
            total: 0,
        });
        rows.insert_unique(hash(parent, label), row, |&row| {
            let node = &nodes[row as usize];
            hash(node.parent, node.label)
        });
        row
    }

    fn label(&mut self, frame: FrameId, entry: u32) -> u32 {
        let (trace, names) = (self.trace, self.names);
        let label = self.labels.row(trace, entry, |function| {
            label_text(trace, names, frame, function)
        });
        self.set_category(label, || {
            category(trace, trace.frame_functions[entry as usize])
        });
        label
    }

    /// Sets the category of a new label. The first use of a label determines its category.
    fn set_category(&mut self, label: u32, category: impl FnOnce() -> FrameCategory) {
        if label as usize == self.categories.len() {
            self.categories.push(category());
        }
    }
}

/// Returns the name with the suffix that `stackcollapse-perf --all` uses for its kind of code.
///
/// ReadyToRun code has no suffix: it comes from a file, as native code does.
fn label_text(trace: &Trace, names: NameStyle, frame: FrameId, function: FunctionId) -> String {
    let row = &trace.functions[function.index()];
    let name = match label::known_name(row) {
        Some(name) => sanitize::folded(&names.format(row, name)),
        None => {
            let (module, offset) = (label::module(row), label::name(trace, frame, function));
            sanitize::folded(&format!("{module}+{offset}"))
        }
    };
    let suffix = match row.kind {
        _ if row.inlined => label::INLINED,
        FunctionKind::Kernel => "_[k]",
        FunctionKind::Jit => "_[j]",
        _ => "",
    };
    name + suffix
}

fn category(trace: &Trace, function: FunctionId) -> FrameCategory {
    let row = &trace.functions[function.index()];
    match row.kind {
        FunctionKind::Marker => FrameCategory::Truncated,
        _ if label::known_name(row).is_none() => FrameCategory::Unresolved,
        _ if row.inlined => FrameCategory::Inlined,
        FunctionKind::Kernel => FrameCategory::Kernel,
        FunctionKind::Native => FrameCategory::Native,
        FunctionKind::Jit => FrameCategory::Jit,
        FunctionKind::ReadyToRun => FrameCategory::ReadyToRun,
        FunctionKind::Unmapped => FrameCategory::Unresolved,
    }
}
