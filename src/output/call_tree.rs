//! Call trees of function names, one per process label, for folded stacks and the flame graph.
//!
//! [`crate::trace::StackTable`] is a tree of addresses that all processes share. In these trees,
//! two addresses of one function share a node. Only one tree is in memory at a time: a system has
//! thousands of processes, and a folded stack for nearly every sample.

use std::hash::BuildHasher;
use std::io;

use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::label::{self, Interner};
use super::process_labels::ProcessLabels;
use super::sanitize;
use super::short_name::NameStyle;
use super::thread_labels::ThreadLabels;
use crate::trace::{
    FrameId, FunctionId, FunctionKind, ProcessId, Sample, StackId, ThreadId, Trace,
};

/// Category of a label, which determines its colour in the flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameCategory {
    /// A process, or one of its threads.
    Process,
    Kernel,
    Native,
    Jit,
    ReadyToRun,
    Inlined,
    Unresolved,
    Truncated,
    /// Where a thread waited.
    Blocked,
}

/// A distinct stack of labels, from its process to its leaf.
pub(super) struct FoldedStack<'a> {
    /// The labels, separated by `;`.
    pub(super) text: &'a str,
    pub(super) labels: &'a [(&'a str, FrameCategory)],
    /// Number of frames that no earlier stack has: the last ones.
    pub(super) new_frames: usize,
    pub(super) samples: u64,
}

/// Which frames are shown; others are folded into their caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detail {
    /// Minimum number of samples.
    pub(super) min_total: u64,
    /// Maximum number of labels of a stack, with that of its process.
    pub(super) max_depth: usize,
}

impl Detail {
    pub(super) const ALL: Self = Self {
        min_total: 0,
        max_depth: usize::MAX,
    };
}

/// The samples of each process label and stack.
pub(super) struct CallTrees<'a> {
    trace: &'a Trace,
    names: NameStyle,
    /// Labels of processes, sorted.
    processes: Vec<String>,
    /// `None` if stacks do not tell threads apart.
    threads: Option<ThreadLabels>,
    /// Sorted by process, thread and stack.
    samples: Vec<StackSamples>,
    measure: Measure,
}

#[derive(Clone, Copy)]
struct StackSamples {
    /// Row of [`CallTrees::processes`].
    process: u32,
    /// Row of [`CallTrees::threads`], or 0.
    thread: u32,
    stack: StackId,
    samples: u64,
}

/// What call trees count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Samples.
    #[default]
    Samples,
    /// Microseconds without a CPU.
    BlockedTime,
    /// The same without those of threads that wait for work, which would be mostly most of a flame graph.
    WaitingTime,
    /// Page faults.
    Faults,
    /// Wake-ups: below the process of the thread that was woken is who woke it.
    Wakeups,
}

impl Measure {
    /// Returns the samples of a trace that count.
    pub(super) fn samples(self, trace: &Trace) -> impl Iterator<Item = Sample> {
        let samples = match self {
            Self::Samples => &trace.samples,
            Self::BlockedTime | Self::WaitingTime => &trace.blocked,
            Self::Faults => &trace.faults,
            Self::Wakeups => &trace.wakeups,
        };
        let counts = move |it: &Sample| self != Self::WaitingTime || !trace.is_idle(it.stack);
        samples.iter().filter(counts)
    }

    /// Returns whether a trace has none of it.
    pub(crate) fn is_empty(self, trace: &Trace) -> bool {
        self.samples(trace).next().is_none()
    }

    /// Returns whether it is time without a CPU.
    pub(super) fn is_blocked(self) -> bool {
        matches!(self, Self::BlockedTime | Self::WaitingTime)
    }

    /// Returns the total of a trace.
    pub(super) fn total(self, trace: &Trace) -> u64 {
        match self {
            Self::Samples => trace.samples.len() as u64,
            Self::BlockedTime | Self::WaitingTime | Self::Faults | Self::Wakeups => {
                let counts = self.samples(trace).map(|sample| self.of(&sample));
                counts.fold(0, u64::saturating_add)
            }
        }
    }

    fn of(self, sample: &Sample) -> u64 {
        match self {
            Self::Samples => 1,
            Self::BlockedTime | Self::WaitingTime => sample.weight.0 / 1000,
            Self::Faults | Self::Wakeups => sample.weight.0,
        }
    }
}

impl<'a> CallTrees<'a> {
    /// Counts the samples of each stack. `by_thread`: below each process are its threads.
    pub(super) fn new(trace: &'a Trace, names: NameStyle, by_thread: bool) -> Self {
        Self::measured(trace, names, by_thread, Measure::Samples)
    }

    /// Counts something else of each stack.
    pub(super) fn measured(
        trace: &'a Trace,
        names: NameStyle,
        by_thread: bool,
        measure: Measure,
    ) -> Self {
        let labels = ProcessLabels::new(trace);
        let of_process: Vec<String> = (0..trace.processes.len() as u32)
            .map(|process| labels.label(ProcessId(process)))
            .collect();
        let mut processes = of_process.clone();
        processes.sort_unstable();
        processes.dedup();
        let row = |label: &String| processes.binary_search(label).unwrap_or_default() as u32;
        let of_process: Vec<u32> = of_process.iter().map(row).collect();

        let threads = by_thread.then(|| ThreadLabels::new(trace, &of_process));
        let of_thread =
            |thread: ThreadId| threads.as_ref().map_or(0, |threads| threads.row(thread));

        let mut counts: FxHashMap<(u32, u32, StackId), u64> = FxHashMap::default();
        for sample in measure.samples(trace) {
            let process = trace.threads[sample.thread.index()].process;
            let process = of_process[process.index()];
            let key = (process, of_thread(sample.thread), sample.stack);
            let count = counts.entry(key).or_default();
            *count = count.saturating_add(measure.of(&sample));
        }
        let samples = counts.into_iter();
        let samples = samples.map(|((process, thread, stack), samples)| StackSamples {
            process,
            thread,
            stack,
            samples,
        });
        let mut samples: Vec<_> = samples.collect();
        samples.sort_unstable_by_key(|row| (row.process, row.thread, row.stack.0));
        Self {
            trace,
            names,
            processes,
            threads,
            samples,
            measure,
        }
    }

    /// Returns what is counted.
    pub(super) fn measure(&self) -> Measure {
        self.measure
    }

    /// Calls `each` with every distinct stack that has self samples.
    ///
    /// Stacks are sorted frame by frame, so that stacks with equal callers are adjacent.
    pub(super) fn for_each_stack(
        &self,
        detail: Detail,
        mut each: impl FnMut(FoldedStack<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut tree = CallTree::new(self.trace, self.names);
        for samples in self.samples.chunk_by(|a, b| a.process == b.process) {
            let label = samples.first().map_or(0, |first| first.process);
            let process = self.processes[label as usize].as_str();
            let total = samples.iter().map(|row| row.samples).sum();
            if total < detail.min_total {
                each(FoldedStack {
                    text: process,
                    labels: &[(process, FrameCategory::Process)],
                    new_frames: 1,
                    samples: total,
                })?;
            } else {
                tree.build(samples, self.threads.as_ref());
                tree.for_each_stack(process, detail, &mut each)?;
            }
        }
        Ok(())
    }
}

/// The node of the process.
const ROOT: u32 = 0;

struct Node {
    parent: u32,
    /// Row of a label. The root has none.
    label: u32,
    own: u64,
    total: u64,
}

/// A tree of labels with sample counts, rebuilt for each process label. Each node follows its
/// parent.
struct CallTree<'a> {
    trace: &'a Trace,
    names: NameStyle,
    /// Labels of all trees.
    labels: Interner<String>,
    /// Category of each label.
    categories: Vec<FrameCategory>,
    nodes: Vec<Node>,
    /// Rows of `nodes`, by parent and label.
    rows: HashTable<u32>,
    /// All nodes but the root, sorted by parent, then by label.
    siblings: Vec<u32>,
    /// Index in `siblings` of each node's first child, and the number of siblings.
    first_child: Vec<u32>,
    /// Number of trees and parts of trees so far, a part for each thread.
    parts: u32,
    /// The last part with each stack, and its node there. Shared callers are visited once.
    last_nodes: Vec<(u32, u32)>,
}

fn hash(parent: u32, label: u32) -> u64 {
    FxBuildHasher.hash_one((parent, label))
}

impl<'a> CallTree<'a> {
    fn new(trace: &'a Trace, names: NameStyle) -> Self {
        Self {
            trace,
            names,
            labels: Interner::new(trace),
            categories: Vec::new(),
            nodes: Vec::new(),
            rows: HashTable::new(),
            siblings: Vec::new(),
            first_child: Vec::new(),
            parts: 0,
            last_nodes: vec![(0, 0); trace.stacks.len()],
        }
    }

    /// Replaces the tree by that of the samples of a process label.
    fn build(&mut self, samples: &[StackSamples], threads: Option<&ThreadLabels>) {
        self.rows.clear();
        self.nodes.clear();
        self.nodes.push(Node {
            parent: ROOT,
            label: u32::MAX,
            own: 0,
            total: 0,
        });
        for samples in samples.chunk_by(|a, b| a.thread == b.thread) {
            self.parts += 1;
            let root = match (threads, samples.first()) {
                (Some(threads), Some(first)) => self.push_thread(threads.text(first.thread)),
                _ => ROOT,
            };
            for row in samples {
                let node = self.node_of(row.stack, root);
                self.nodes[node as usize].own += row.samples;
            }
        }
        for row in (0..self.nodes.len()).rev() {
            let node = &mut self.nodes[row];
            node.total += node.own;
            let (total, parent) = (node.total, node.parent);
            if row > 0 {
                self.nodes[parent as usize].total += total;
            }
        }
        self.sort_siblings();
    }

    fn sort_siblings(&mut self) {
        let Self {
            nodes,
            siblings,
            first_child,
            labels,
            ..
        } = self;
        siblings.clear();
        siblings.extend(1..nodes.len() as u32);
        siblings.sort_unstable_by(|&a, &b| {
            let [a, b] = [a, b].map(|row| &nodes[row as usize]);
            let text = |node: &Node| &labels.rows()[node.label as usize];
            a.parent.cmp(&b.parent).then_with(|| text(a).cmp(text(b)))
        });
        first_child.clear();
        let mut next = 0;
        for row in 0..=nodes.len() as u32 {
            first_child.push(next);
            let rest = siblings[next as usize..].iter();
            next += rest
                .take_while(|&&child| nodes[child as usize].parent == row)
                .count() as u32;
        }
    }

    fn children(&self, node: u32) -> &[u32] {
        let [first, end] = [node, node + 1].map(|row| self.first_child[row as usize] as usize);
        &self.siblings[first..end]
    }

    /// Calls `each` as [`CallTrees::for_each_stack`] does, for the tree.
    fn for_each_stack(
        &self,
        process: &str,
        detail: Detail,
        mut each: impl FnMut(FoldedStack<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut text = String::new();
        let mut labels = Vec::new();
        let mut new_frames = 0;
        // (node, length of its caller's text, depth). Not recursive, because the target controls the
        // depth.
        let mut open = vec![(ROOT, 0, 0)];
        while let Some((row, caller_len, depth)) = open.pop() {
            let node = &self.nodes[row as usize];
            new_frames += 1;
            let label = match row {
                ROOT => (process, FrameCategory::Process),
                _ => {
                    let label = node.label as usize;
                    (self.labels.rows()[label].as_str(), self.categories[label])
                }
            };
            labels.truncate(depth);
            labels.push(label);
            text.truncate(caller_len);
            if depth > 0 {
                text.push(';');
            }
            text.push_str(label.0);
            let mut own = node.own;
            for &child in self.children(row).iter().rev() {
                let total = self.nodes[child as usize].total;
                if total < detail.min_total || depth + 2 > detail.max_depth {
                    own += total;
                } else {
                    open.push((child, text.len(), depth + 1));
                }
            }
            if own > 0 {
                each(FoldedStack {
                    text: &text,
                    labels: &labels,
                    new_frames,
                    samples: own,
                })?;
                new_frames = 0;
            }
        }
        Ok(())
    }

    fn push_thread(&mut self, text: &str) -> u32 {
        let label = self.labels.intern(text.to_owned());
        if label as usize == self.categories.len() {
            self.categories.push(FrameCategory::Process);
        }
        self.push(ROOT, label)
    }

    /// Returns the node of a stack below `root`.
    fn node_of(&mut self, stack: StackId, root: u32) -> u32 {
        // Go up to the nearest caller with a node, then down again.
        let mut above = stack;
        let mut missing = Vec::new();
        let mut node = loop {
            let Some((parent, frame)) = self.trace.stacks.node(above) else {
                break root;
            };
            let (part, node) = self.last_nodes[above.index()];
            if part == self.parts {
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
            self.last_nodes[stack.index()] = (self.parts, node);
        }
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
        // The first use of a label determines its category.
        if label as usize == self.categories.len() {
            let function = trace.frame_functions[entry as usize];
            self.categories.push(category(trace, function));
        }
        label
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
        FunctionKind::Blocked => FrameCategory::Blocked,
        _ if label::known_name(row).is_none() => FrameCategory::Unresolved,
        _ if row.inlined => FrameCategory::Inlined,
        FunctionKind::Kernel => FrameCategory::Kernel,
        FunctionKind::Native | FunctionKind::Group => FrameCategory::Native,
        FunctionKind::Jit => FrameCategory::Jit,
        FunctionKind::ReadyToRun => FrameCategory::ReadyToRun,
        FunctionKind::Unmapped => FrameCategory::Unresolved,
    }
}
