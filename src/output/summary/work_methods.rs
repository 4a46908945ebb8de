//! The methods of the user's code behind kinds of work.

use std::cmp::Reverse;
use std::collections::HashSet;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::TOP;
use super::methods::Methods;
use super::work::WorkKind;
use crate::trace::Trace;

/// The method of the user's code with most samples of a kind of work of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkMethod {
    /// Process id.
    pub pid: i32,
    /// The kind of work.
    pub work: WorkKind,
    /// Name of the method.
    pub name: String,
    /// Its module.
    pub module: String,
    /// Samples of this kind in it and in what it calls.
    pub samples: u64,
}

/// Counts samples by process, kind of work and row of the method.
#[derive(Default)]
pub(super) struct WorkMethods(FxHashMap<(u32, WorkKind, u32), u64>);

impl WorkMethods {
    pub(super) fn add(&mut self, process: u32, kinds: impl Iterator<Item = WorkKind>, row: u32) {
        for kind in kinds {
            *self.0.entry((process, kind, row)).or_default() += 1;
        }
    }

    /// Returns the method with most samples of each process and kind, at most 50.
    pub(super) fn rows(self, trace: &Trace, methods: &Methods<'_>) -> Vec<WorkMethod> {
        let mut counts: Vec<_> = self.0.into_iter().collect();
        counts.sort_unstable_by_key(|&(key, samples)| (Reverse(samples), key));
        let mut seen = HashSet::new();
        counts.retain(|&((process, kind, _), _)| seen.insert((process, kind)));
        counts.truncate(TOP);
        let row = |((process, work, row), samples): ((u32, WorkKind, u32), u64)| {
            let method = methods.summary(row)?;
            Some(WorkMethod {
                pid: trace.processes[process as usize].pid.0,
                work,
                name: method.name,
                module: method.module,
                samples,
            })
        };
        counts.into_iter().filter_map(row).collect()
    }
}
