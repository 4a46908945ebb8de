//! Wake-ups: who ends the waits of threads.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::code_place::CodePlace;
use super::{TOP, kept};
use crate::output::own_code::OwnCode;
use crate::trace::{ProcessId, StackId, Trace, waker_of_label};

/// Wake-ups, if the capture sampled them (`-wakeups`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeupSummary {
    /// Number of wake-ups: the sum of what the samples stand for.
    pub wakeups: u64,
    /// Number of samples.
    pub samples: u64,
    /// Who woke whom most often: at most 50.
    pub rows: Vec<WakeupRow>,
    /// Number of all rows.
    pub row_count: u64,
}

/// Wake-ups of the threads with one name of a process, by the threads with one name, in one function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeupRow {
    /// Process id of the threads that were woken.
    pub pid: i32,
    /// Their name. Untrusted.
    pub woken: String,
    /// Name of the threads that woke them, with the process if it is another one, or what interrupted: a timer,
    /// the network, a disk. Untrusted.
    pub waker: String,
    /// Module of the function. Untrusted; empty with the name.
    pub module: String,
    /// Innermost function of the user on the stack that woke, or else of managed code, of another library, of the
    /// C library. Untrusted; empty if there is none: an interrupt, or a process outside of the target.
    pub method: String,
    /// Whether it is the user's.
    pub own: bool,
    /// Number of wake-ups.
    pub wakeups: u64,
}

impl WakeupSummary {
    /// Returns that of a trace, or `None` if it has no wake-ups.
    pub(super) fn of(
        trace: &Trace,
        own_code: &OwnCode,
        last_programs: &[ProcessId],
    ) -> Option<Self> {
        if trace.wakeups.is_empty() {
            return None;
        }
        let mut stacks: FxHashMap<(&str, StackId), (&str, CodePlace)> = FxHashMap::default();
        let mut counts: FxHashMap<_, u64> = FxHashMap::default();
        let mut all: u64 = 0;
        for sample in trace.wakeups.iter() {
            let thread = &trace.threads[sample.thread.index()];
            let waker = stacks.entry((&thread.name, sample.stack));
            let (waker, place) = *waker.or_insert_with(|| {
                let place = CodePlace::of_program(trace, own_code, sample.stack);
                (waker_of(trace, sample.stack, &thread.name), place)
            });
            let process = last_programs[thread.process.index()];
            let key = (process, &*thread.name, waker, place);
            let count = counts.entry(key).or_default();
            *count = count.saturating_add(sample.weight.0);
            all = all.saturating_add(sample.weight.0);
        }
        // A method has a function for each tier.
        let mut rows: FxHashMap<_, u64> = FxHashMap::default();
        for ((process, woken, waker, place), wakeups) in counts {
            let key = (process, woken, waker, place.own, place.names(trace));
            let count = rows.entry(key).or_default();
            *count = count.saturating_add(wakeups);
        }
        let row_count = rows.len() as u64;
        let rows = rows.into_iter();
        let rows = rows.map(
            |((process, woken, waker, own, [module, method]), wakeups)| WakeupRow {
                pid: trace.processes[process.index()].pid.0,
                woken: kept(woken),
                waker: kept(waker),
                module,
                method,
                own,
                wakeups,
            },
        );
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|a, b| {
            let names = |row: &WakeupRow| {
                let texts = [&row.woken, &row.waker, &row.module, &row.method];
                texts.map(String::clone)
            };
            let by_count = Reverse(a.wakeups).cmp(&Reverse(b.wakeups));
            by_count.then_with(|| (a.pid, names(a)).cmp(&(b.pid, names(b))))
        });
        rows.truncate(TOP);
        Some(Self {
            wakeups: all,
            samples: trace.wakeups.len() as u64,
            rows,
            row_count,
        })
    }

    /// Drops what is beyond the limits: a file may have any number of rows.
    pub(super) fn truncate(&mut self) {
        self.rows.truncate(TOP);
        for row in &mut self.rows {
            for text in [
                &mut row.woken,
                &mut row.waker,
                &mut row.module,
                &mut row.method,
            ] {
                *text = kept(text);
            }
        }
    }
}

/// Returns who woke a thread called `woken`, from the root of the stack. Empty if that has no name.
fn waker_of<'a>(trace: &'a Trace, stack: StackId, woken: &str) -> &'a str {
    let root = trace.stacks.leaf_first(stack).last();
    let function = root.and_then(|root| trace.functions_leaf_first(root).next());
    let name = function.and_then(|function| trace.functions[function.index()].name.as_deref());
    name.map_or("", |name| waker_of_label(name, woken))
}
