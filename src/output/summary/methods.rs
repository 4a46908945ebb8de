//! The methods of a trace, by self and total samples.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::unnamed::{UnnamedModules, UnnamedSummary};
use super::{TOP, kept};
use crate::output::label::{self, Interner};
use crate::output::own_code::OwnCode;
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

/// No row.
const NONE: u32 = u32::MAX;

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

/// The methods in the stacks of a trace, with the samples of each.
pub(super) struct Methods<'a> {
    rows: Vec<(Method<'a>, Counts)>,
    unnamed: UnnamedModules<'a>,
    /// The innermost method of the user's code in each stack.
    own: Vec<u32>,
}

impl<'a> Methods<'a> {
    /// Counts the methods. `samples_of` are the samples of each stack.
    pub(super) fn count(trace: &'a Trace, samples_of: &[u64], own_code: &OwnCode) -> Self {
        let mut names = Interner::new(trace);
        let mut counts: Vec<Counts> = Vec::new();
        let mut unnamed = UnnamedModules::default();
        let mut own = vec![NONE; samples_of.len()];
        let with_samples = samples_of.iter().enumerate();
        for (stack, &samples) in with_samples.filter(|(_, samples)| **samples > 0) {
            let mut is_leaf = true;
            for frame in trace.stacks.leaf_first(StackId(stack as u32)) {
                let places = trace.frames[frame.index()].functions.clone();
                let outermost = places.start;
                for place in places.rev() {
                    let function = trace.frame_functions[place as usize];
                    let code = &trace.functions[function.index()];
                    let row = names.row(trace, place, |function| Method {
                        name: label::name(trace, frame, function),
                        module: label::module(code),
                    });
                    let is_new = row as usize == counts.len();
                    if is_new {
                        counts.push(Counts {
                            kind: code.kind,
                            is_offset: label::known_name(code).is_none(),
                            inlined: true,
                            own: 0,
                            total: 0,
                            last_stack: usize::MAX,
                        });
                    }
                    let count = &mut counts[row as usize];
                    count.inlined &= place != outermost;
                    let is_leaf = std::mem::take(&mut is_leaf);
                    if count.is_offset {
                        unnamed.count(code, is_new, is_leaf, stack, samples);
                    }
                    if is_leaf {
                        count.own += samples;
                    }
                    if count.last_stack != stack {
                        count.last_stack = stack;
                        count.total += samples;
                    }
                    if own[stack] == NONE && own_code.is_own(function) {
                        own[stack] = row;
                    }
                }
            }
        }
        Self {
            rows: names.into_rows().into_iter().zip(counts).collect(),
            unnamed,
            own,
        }
    }

    /// Returns the number of methods.
    pub(super) fn len(&self) -> u64 {
        let rows = self.rows.iter();
        rows.filter(|(_, counts)| is_code(counts)).count() as u64
    }

    /// Returns the row of the innermost method of the user's code in a stack.
    pub(super) fn own_row(&self, stack: StackId) -> Option<u32> {
        let row = self.own.get(stack.index()).copied();
        row.filter(|row| *row != NONE)
    }

    /// Returns the summary of a row.
    pub(super) fn summary(&self, row: u32) -> Option<MethodSummary> {
        let (method, counts) = self.rows.get(row as usize)?;
        Some(summary(method, counts))
    }

    /// Returns the modules with functions without a name, most samples first.
    pub(super) fn unnamed(&self) -> Vec<UnnamedSummary> {
        self.unnamed.rows()
    }

    /// Returns the first methods by total and by self samples, sorted by self samples.
    pub(super) fn top(&self) -> Vec<MethodSummary> {
        let (by_total, by_own) = (|c: &Counts| (c.total, c.own), |c: &Counts| (c.own, c.total));
        let rows = self.rows.iter().filter(|(_, counts)| is_code(counts));
        let mut methods: Vec<&(Method<'_>, Counts)> = rows.collect();
        sort_busiest_first(&mut methods, by_total);
        let mut rest = methods.split_off(methods.len().min(TOP));
        sort_busiest_first(&mut rest, by_own);
        rest.truncate(TOP);
        methods.append(&mut rest);
        sort_busiest_first(&mut methods, by_own);
        let rows = methods.into_iter();
        rows.map(|(method, counts)| summary(method, counts))
            .collect()
    }
}

fn is_code(counts: &Counts) -> bool {
    counts.kind != FunctionKind::Marker
}

fn summary(method: &Method<'_>, counts: &Counts) -> MethodSummary {
    MethodSummary {
        name: kept(&method.name),
        is_offset: counts.is_offset,
        module: kept(method.module),
        kind: counts.kind,
        inlined: counts.inlined,
        self_samples: counts.own,
        total_samples: counts.total,
    }
}

fn sort_busiest_first(methods: &mut [&(Method<'_>, Counts)], key: fn(&Counts) -> (u64, u64)) {
    methods.sort_by(|(a, counts_a), (b, counts_b)| {
        let busiest_first = key(counts_b).cmp(&key(counts_a));
        busiest_first.then_with(|| (a.module, &a.name).cmp(&(b.module, &b.name)))
    });
}
