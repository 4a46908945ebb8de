//! The samples as one tree of names per process: what folded stacks and the flame graph show.
//!
//! [`crate::trace::StackTable`] is a tree of addresses that all processes share; here two addresses of one function
//! are one node, below the process they were sampled in.

use std::collections::hash_map::Entry;
use std::io;

use rustc_hash::FxHashMap;

use super::label::{self, Interner};
use super::sanitize;
use super::short_name::MethodNames;
use crate::trace::{FrameId, FunctionId, FunctionKind, ProcessId, StackId, Trace};

/// What a label stands for, as the flame graph colours it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shade {
    Process,
    Kernel,
    Native,
    Jit,
    ReadyToRun,
    Inlined,
    Unnamed,
    Truncated,
}

struct Node {
    parent: Option<usize>,
    label: usize,
    own: u64,
    total: u64,
    children: Vec<usize>,
}

/// A tree of labels with samples. A node follows its parent.
pub(super) struct CallTree {
    labels: Vec<String>,
    shades: Vec<Shade>,
    roots: Vec<usize>,
    nodes: Vec<Node>,
}

impl CallTree {
    pub(super) fn new(trace: &Trace, names: MethodNames) -> Self {
        let mut builder = Builder::new(trace, names);
        for sample in trace.samples.iter() {
            let process = trace.threads[sample.thread.index()].process;
            let node = builder.node_of(process, sample.stack);
            builder.nodes[node].own += 1;
        }
        let mut tree = builder.finish();
        tree.sum_up();
        tree.sort();
        tree
    }

    /// All labels with what they stand for.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, Shade)> {
        self.labels
            .iter()
            .map(String::as_str)
            .zip(self.shades.iter().copied())
    }

    /// Samples of all processes.
    pub(super) fn total(&self) -> u64 {
        self.roots.iter().map(|&root| self.nodes[root].total).sum()
    }

    /// Calls `each` with every distinct stack, root first with `;` between, and the samples that end in it. Callees
    /// with less than `min_total` samples are counted to their caller.
    ///
    /// Stacks come sorted frame by frame, so stacks with equal callers are neighbours.
    pub(super) fn for_each_stack(
        &self,
        min_total: u64,
        mut each: impl FnMut(&str, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut path = String::new();
        // (node, length of its caller's path); a stack of our own, as the target decides on the depth.
        let mut open: Vec<(usize, usize)> =
            self.roots.iter().rev().map(|&root| (root, 0)).collect();
        while let Some((node, caller_len)) = open.pop() {
            let node = &self.nodes[node];
            path.truncate(caller_len);
            if caller_len > 0 {
                path.push(';');
            }
            path.push_str(&self.labels[node.label]);
            let mut own = node.own;
            for &child in node.children.iter().rev() {
                if self.nodes[child].total < min_total {
                    own += self.nodes[child].total;
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

    fn sum_up(&mut self) {
        for row in (0..self.nodes.len()).rev() {
            let Node {
                own, total, parent, ..
            } = &mut self.nodes[row];
            *total += *own;
            let (total, parent) = (*total, *parent);
            if let Some(parent) = parent {
                self.nodes[parent].total += total;
                self.nodes[parent].children.push(row);
            }
        }
    }

    fn sort(&mut self) {
        let order: Vec<usize> = self.nodes.iter().map(|node| node.label).collect();
        let by_label = |&node: &usize| &self.labels[order[node]];
        for node in &mut self.nodes {
            node.children.sort_unstable_by_key(by_label);
        }
        self.roots.sort_unstable_by_key(by_label);
    }
}

/// A node's place: below a node, or a process at the top.
type Place = (Option<usize>, usize);

struct Builder<'a> {
    trace: &'a Trace,
    names: MethodNames,
    labels: Interner<String>,
    shades: Vec<Shade>,
    nodes: Vec<Node>,
    places: FxHashMap<Place, usize>,
    /// Node of each stack in each process, so that a shared caller is walked once.
    known: FxHashMap<(ProcessId, StackId), usize>,
}

impl<'a> Builder<'a> {
    fn new(trace: &'a Trace, names: MethodNames) -> Self {
        Self {
            trace,
            names,
            labels: Interner::new(trace),
            shades: Vec::new(),
            nodes: Vec::new(),
            places: FxHashMap::default(),
            known: FxHashMap::default(),
        }
    }

    fn finish(self) -> CallTree {
        let is_root = |&row: &usize| self.nodes[row].parent.is_none();
        CallTree {
            roots: (0..self.nodes.len()).filter(is_root).collect(),
            labels: self.labels.rows,
            shades: self.shades,
            nodes: self.nodes,
        }
    }

    fn node_of(&mut self, process: ProcessId, stack: StackId) -> usize {
        // Up to the nearest caller that is known, then down again.
        let mut above = stack;
        let mut missing = Vec::new();
        let mut node = loop {
            if let Some(&node) = self.known.get(&(process, above)) {
                break node;
            }
            let Some((parent, frame)) = self.trace.stacks.node(above) else {
                break self.root_of(process);
            };
            missing.push((above, frame));
            above = parent;
        };
        for (stack, frame) in missing.into_iter().rev() {
            let functions = self.trace.functions_leaf_first(frame);
            for function in functions.collect::<Vec<_>>().into_iter().rev() {
                let label = self.label(frame, function);
                node = self.push(Some(node), label);
            }
            self.known.insert((process, stack), node);
        }
        node
    }

    fn root_of(&mut self, process: ProcessId) -> usize {
        let row = &self.trace.processes[process.index()];
        let text = sanitize::folded(&format!("{} ({})", row.name, row.pid));
        let label = self.labels.intern(text);
        self.shade(label, Shade::Process);
        let root = self.push(None, label);
        self.known.insert((process, StackId::EMPTY), root);
        root
    }

    fn push(&mut self, parent: Option<usize>, label: usize) -> usize {
        match self.places.entry((parent, label)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                self.nodes.push(Node {
                    parent,
                    label,
                    own: 0,
                    total: 0,
                    children: Vec::new(),
                });
                *place.insert(self.nodes.len() - 1)
            }
        }
    }

    fn label(&mut self, frame: FrameId, function: FunctionId) -> usize {
        let (trace, names) = (self.trace, self.names);
        let label = self.labels.row(trace, function, || {
            label_text(trace, names, frame, function)
        });
        self.shade(label, shade_of(trace, function));
        label
    }

    /// The first to use a text decides on its colour.
    fn shade(&mut self, label: usize, shade: Shade) {
        if label == self.shades.len() {
            self.shades.push(shade);
        }
    }
}

/// The name with the suffix that `stackcollapse-perf --all` gives to its kind. Precompiled .NET code has none there;
/// it is as much of a file as native code is.
fn label_text(trace: &Trace, names: MethodNames, frame: FrameId, function: FunctionId) -> String {
    let row = &trace.functions[function.index()];
    let name = match label::known_name(row) {
        Some(name) => sanitize::folded(&names.of(row, name)),
        None => {
            let (module, offset) = (label::module(row), label::name(trace, frame, function));
            sanitize::folded(&format!("{module}+{offset}"))
        }
    };
    let suffix = match row.kind {
        _ if row.inlined => "_[i]",
        FunctionKind::Kernel => "_[k]",
        FunctionKind::Jit => "_[j]",
        _ => "",
    };
    name + suffix
}

fn shade_of(trace: &Trace, function: FunctionId) -> Shade {
    let row = &trace.functions[function.index()];
    match row.kind {
        FunctionKind::Marker => Shade::Truncated,
        _ if label::known_name(row).is_none() => Shade::Unnamed,
        _ if row.inlined => Shade::Inlined,
        FunctionKind::Kernel => Shade::Kernel,
        FunctionKind::Native => Shade::Native,
        FunctionKind::Jit => Shade::Jit,
        FunctionKind::ReadyToRun => Shade::ReadyToRun,
        FunctionKind::Unmapped => Shade::Unnamed,
    }
}
