//! The functions of a trace, and their calls as one tree for all threads.
//!
//! [`crate::trace::StackTable`] is a tree of addresses; here two addresses of a function share a node.

use std::borrow::Cow;

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::weights::Weights;
use crate::output::label::{self, Interner};
use crate::output::sanitize::{terminal, truncate_distinct};
use crate::output::short_name::NameStyle;
use crate::trace::{Distinct, FunctionKind, Sample, StackId, Trace};

/// No node: the caller of an outermost function.
pub(super) const NONE: u32 = u32::MAX;

/// Name of the function of a sample without a stack.
const NO_STACK: &str = "[no stack]";

/// A function, as one row of all its addresses and tiers.
pub(super) struct Code {
    /// Without the module, and without characters that no viewer shows.
    pub(super) name: String,
    /// Empty for markers and groups.
    pub(super) module: String,
    pub(super) kind: FunctionKind,
    /// Whether `name` is an offset in the module.
    pub(super) is_offset: bool,
}

impl Code {
    /// Returns the name with the module.
    pub(super) fn full_name(&self) -> String {
        match &*self.module {
            "" => self.name.clone(),
            module => format!("{module}!{}", self.name),
        }
    }
}

/// The call tree.
pub(super) struct Calls {
    pub(super) codes: Vec<Code>,
    /// Caller and code of each node. A caller precedes what it calls.
    nodes: Distinct<(u32, u32), FxBuildHasher>,
    depths: Vec<u32>,
    of_stack: Vec<u32>,
    /// The node of samples without a stack.
    empty: u32,
}

impl Calls {
    pub(super) fn new(trace: &Trace, names: NameStyle) -> Self {
        let mut rows = Interner::new(trace);
        let mut codes: Vec<Code> = Vec::new();
        let mut nodes = Distinct::<_, FxBuildHasher>::default();
        let mut of_stack: Vec<u32> = Vec::with_capacity(trace.stacks.len());
        for (_, caller, frame) in trace.stacks.nodes() {
            let mut node = match caller {
                StackId::EMPTY => NONE,
                caller => of_stack[caller.index()],
            };
            for entry in trace.frames[frame.index()].functions.clone() {
                let function = trace.frame_functions[entry as usize];
                let row = &trace.functions[function.index()];
                let code = rows.row(trace, entry, |function| {
                    let name = match label::name(trace, frame, function) {
                        Cow::Borrowed(name) => names.format(row, name),
                        offset => offset,
                    };
                    (name, label::module(row))
                });
                if code as usize == codes.len() {
                    let (name, module) = &rows.rows()[code as usize];
                    codes.push(Code {
                        name: shown(name),
                        module: match row.kind {
                            FunctionKind::Marker => String::new(),
                            _ => shown(module),
                        },
                        kind: row.kind,
                        is_offset: label::known_name(row).is_none(),
                    });
                }
                node = nodes.intern((node, code));
            }
            of_stack.push(node);
        }
        codes.push(Code {
            name: NO_STACK.to_owned(),
            module: String::new(),
            kind: FunctionKind::Marker,
            is_offset: false,
        });
        let empty = nodes.intern((NONE, codes.len() as u32 - 1));
        nodes.seal();
        let mut depths: Vec<u32> = Vec::with_capacity(nodes.rows().len());
        for &(caller, _) in nodes.rows() {
            depths.push(match caller {
                NONE => 1,
                caller => depths[caller as usize] + 1,
            });
        }
        Self {
            codes,
            nodes,
            depths,
            of_stack,
            empty,
        }
    }

    /// Returns caller and code of all nodes.
    pub(super) fn nodes(&self) -> &[(u32, u32)] {
        self.nodes.rows()
    }

    /// Returns the node of the innermost function of a stack.
    pub(super) fn node(&self, stack: StackId) -> u32 {
        self.of_stack
            .get(stack.index())
            .copied()
            .unwrap_or(self.empty)
    }

    /// Returns the number of functions down to a node.
    pub(super) fn depth(&self, node: u32) -> u32 {
        self.depths.get(node as usize).copied().unwrap_or(0)
    }

    /// Returns the nodes from this one to the outermost.
    pub(super) fn leaf_first(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let is_node = |node: &u32| *node != NONE;
        std::iter::successors(Some(node).filter(is_node), move |&node| {
            Some(self.nodes()[node as usize].0).filter(is_node)
        })
    }

    /// Returns the codes from that of a node to the outermost.
    pub(super) fn codes_leaf_first(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        self.leaf_first(node)
            .map(|node| self.nodes()[node as usize].1)
    }

    /// Replaces `path` by the nodes from the outermost to this one.
    pub(super) fn path(&self, node: u32, path: &mut Vec<u32>) {
        path.clear();
        path.extend(self.leaf_first(node));
        path.reverse();
    }

    /// Returns for each node its place in an order in which callers are directly above what they call.
    pub(super) fn order(&self) -> Vec<u32> {
        let mut sizes = vec![1_u32; self.nodes().len()];
        for (node, &(caller, _)) in self.nodes().iter().enumerate().rev() {
            if caller != NONE {
                sizes[caller as usize] += sizes[node];
            }
        }
        // The place of the next callee of each node.
        let mut next: Vec<u32> = Vec::with_capacity(sizes.len());
        let mut next_root = 0;
        let mut order = Vec::with_capacity(sizes.len());
        for (&(caller, _), size) in self.nodes().iter().zip(sizes) {
            let place = match caller {
                NONE => &mut next_root,
                caller => &mut next[caller as usize],
            };
            order.push(*place);
            let first = *place + 1;
            *place += size;
            next.push(first);
        }
        order
    }
}

fn shown(name: &str) -> String {
    terminal(&truncate_distinct(name)).into_owned()
}

/// Samples of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) samples: u64,
    pub(super) weight: u64,
}

/// Counts samples by node, in the order of the call tree if it is given.
pub(super) fn count(
    calls: &Calls,
    weights: Weights,
    samples: impl Iterator<Item = Sample>,
    order: &[u32],
) -> Vec<(u32, Counts)> {
    let mut counts: FxHashMap<u32, Counts> = FxHashMap::default();
    for sample in samples {
        let counts = counts.entry(calls.node(sample.stack)).or_default();
        counts.samples += 1;
        counts.weight = counts.weight.saturating_add(weights.of(&sample));
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_unstable_by_key(|&(node, _)| order.get(node as usize).copied().unwrap_or(node));
    counts
}
