//! The methods of a trace, by self and total samples.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{TOP, kept};
use crate::output::label::{self, Interner};
use crate::trace::{FunctionKind, StackId, Trace};

/// One method with all its tiers, one function without a name, or one address outside functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodSummary {
    /// Name. Without one, the offset of the function in its module, or the offset of the address if
    /// the start of the function is unknown.
    pub name: String,
    /// Whether `name` is an offset.
    #[serde(default)]
    pub is_offset: bool,
    /// Module, or the kind of code if it has no module.
    pub module: String,
    /// Kind of code.
    pub kind: FunctionKind,
    /// Whether the method was inlined in all its frames.
    #[serde(default)]
    pub inlined: bool,
    /// Samples with the method as leaf.
    pub self_samples: u64,
    /// Samples with the method in the stack, each counted once.
    pub total_samples: u64,
}

/// Identity of a method. All its tiers and inlined copies share it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Method<'a> {
    name: Cow<'a, str>,
    module: &'a str,
}

#[derive(Clone, Copy)]
struct Counts {
    kind: FunctionKind,
    is_offset: bool,
    inlined: bool,
    own: u64,
    total: u64,
    /// The last stack that was counted. A recursive method counts once per stack.
    last_stack: usize,
}

pub(super) fn count<'a>(trace: &'a Trace, samples_of: &[u64]) -> Vec<(Method<'a>, Counts)> {
    let with_samples = samples_of
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0);
    let mut names = Interner::new(trace);
    let mut counts: Vec<Counts> = Vec::new();
    for (stack, &samples) in with_samples {
        let mut is_leaf = true;
        for frame in trace.stacks.leaf_first(StackId(stack as u32)) {
            let places = trace.frames[frame.index()].functions.clone();
            let outermost = places.start;
            for place in places.rev() {
                let code = || &trace.functions[trace.frame_functions[place as usize].index()];
                let row = names.row(trace, place, |function| Method {
                    name: label::name(trace, frame, function),
                    module: label::module(code()),
                });
                if row as usize == counts.len() {
                    counts.push(Counts {
                        kind: code().kind,
                        is_offset: label::known_name(code()).is_none(),
                        inlined: true,
                        own: 0,
                        total: 0,
                        last_stack: usize::MAX,
                    });
                }
                let count = &mut counts[row as usize];
                count.inlined &= place != outermost;
                if std::mem::take(&mut is_leaf) {
                    count.own += samples;
                }
                if count.last_stack != stack {
                    count.last_stack = stack;
                    count.total += samples;
                }
            }
        }
    }
    let methods = names.into_rows().into_iter().zip(counts);
    methods
        .filter(|(_, counts)| counts.kind != FunctionKind::Marker)
        .collect()
}

/// Returns the first methods by total and by self samples, sorted by self samples.
pub(super) fn top(mut methods: Vec<(Method<'_>, Counts)>) -> Vec<MethodSummary> {
    let (by_total, by_own) = (|c: &Counts| (c.total, c.own), |c: &Counts| (c.own, c.total));
    sort_busiest_first(&mut methods, by_total);
    let mut rest = methods.split_off(methods.len().min(TOP));
    sort_busiest_first(&mut rest, by_own);
    rest.truncate(TOP);
    methods.append(&mut rest);
    sort_busiest_first(&mut methods, by_own);
    let summary = |(method, counts): (Method<'_>, Counts)| MethodSummary {
        name: kept(&method.name),
        is_offset: counts.is_offset,
        module: kept(method.module),
        kind: counts.kind,
        inlined: counts.inlined,
        self_samples: counts.own,
        total_samples: counts.total,
    };
    methods.into_iter().map(summary).collect()
}

fn sort_busiest_first(methods: &mut [(Method<'_>, Counts)], key: fn(&Counts) -> (u64, u64)) {
    methods.sort_by(|(a, counts_a), (b, counts_b)| {
        let busiest_first = key(counts_b).cmp(&key(counts_a));
        busiest_first.then_with(|| (a.module, &a.name).cmp(&(b.module, &b.name)))
    });
}
