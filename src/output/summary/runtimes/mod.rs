//! What the events of .NET runtimes report about their processes.

mod allocations;
mod awaits;
mod events;
mod exceptions;
mod gc;
mod jit;
mod network;
mod requests;
mod thread_pool;
mod waits;

pub use allocations::{AllocationRow, AllocationSummary};
pub use awaits::{AwaitRow, AwaitSummary};
pub use events::EventCount;
pub use exceptions::{ExceptionRow, ExceptionSummary};
pub use gc::{GcSummary, HeapGrowth};
pub use jit::{JitRow, JitSummary, JitTier};
pub use network::{NetworkStep, StepKind};
pub use requests::{RequestCounts, RequestDirection, RequestRoute, RequestSummary, SlowRequest};
pub use thread_pool::ThreadPoolSummary;
pub use waits::{WaitRow, WaitSummary};

use std::collections::HashMap;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use super::{kept, ms, program_of};
use crate::history::{EventMethods, RuntimeHistory, TypeId, histories};
use crate::output::label;
use crate::output::own_code::OwnCode;
use crate::trace::{FunctionId, Nanos, Pid, Trace};

/// Maximum number of rows of a list.
const MAX_ROWS: usize = 20;

/// What the events of one .NET process report. A part is missing if there were no such events: the
/// process did nothing of the kind, or the capture did not request them.
///
/// Rates are per second of the capture. Lists but `events` and those of `requests` have at most 20 rows, totals include the
/// others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuntimeSummary {
    /// Process id.
    pub pid: i32,
    /// Name of its program; empty if it has no samples.
    pub program: String,
    /// Events by kind, most frequent first: at most 50.
    pub events: Vec<EventCount>,
    /// Number of events of other kinds.
    pub other_events: u64,
    /// Garbage collections.
    pub gc: Option<GcSummary>,
    /// Compilations of methods.
    pub jit: Option<JitSummary>,
    /// Exceptions.
    pub exceptions: Option<ExceptionSummary>,
    /// Waits for locks.
    pub contention: Option<WaitSummary>,
    /// Waits for handles, monitors and tasks, which runtimes report since .NET 9 if requested.
    pub waits: Option<WaitSummary>,
    /// Waits of asynchronous methods for tasks, which a capture must request.
    pub awaits: Option<AwaitSummary>,
    /// Allocations, by the reports that a capture must request.
    pub allocations: Option<AllocationSummary>,
    /// The thread pool.
    pub thread_pool: Option<ThreadPoolSummary>,
    /// Requests of ASP.NET Core and HttpClient, which a capture must request.
    pub requests: Option<RequestSummary>,
    /// Steps of connections, which a capture must request (`System.Net.*`): a row per kind that occurred.
    pub network: Vec<NetworkStep>,
}

impl RuntimeSummary {
    /// Drops the rows of lists beyond what perfcollect writes.
    pub(super) fn truncate(&mut self) {
        self.events.truncate(events::MAX_KINDS);
        if let Some(jit) = &mut self.jit {
            jit.tiers.truncate(MAX_ROWS);
            jit.again.truncate(MAX_ROWS);
        }
        if let Some(exceptions) = &mut self.exceptions {
            exceptions.rows.truncate(MAX_ROWS);
        }
        self.awaits.iter_mut().for_each(AwaitSummary::truncate);
        let waits = [&mut self.contention, &mut self.waits];
        for waits in waits.into_iter().flatten() {
            waits.rows.truncate(MAX_ROWS);
        }
        if let Some(allocations) = &mut self.allocations {
            allocations.rows.truncate(MAX_ROWS);
        }
        self.requests.iter_mut().for_each(RequestSummary::truncate);
        self.network.truncate(network::MAX_KINDS);
        for step in &mut self.network {
            step.slowest = kept(&step.slowest);
            step.oldest = kept(&step.oldest);
        }
    }
}

/// A method.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct MethodName {
    /// Name with its type and parameters.
    pub name: String,
    /// Module, or the kind of code if it has no module.
    pub module: String,
}

/// The methods that identify what a thread did.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct MethodPair {
    /// The innermost method that is not one of the runtime's helpers.
    pub leaf: Option<MethodName>,
    /// The innermost method of the user's own code.
    pub own: Option<MethodName>,
}

/// Returns the rows of the processes, in order of their ids.
pub(super) fn rows(trace: &Trace, own_code: &OwnCode) -> Vec<RuntimeSummary> {
    let is_own = |function| own_code.is_own(function);
    let histories = histories(trace, &is_own);
    let context = Context { trace };
    let rows = histories.into_iter();
    rows.map(|(pid, history)| context.row(pid, &history))
        .collect()
}

/// What the rows of all processes share.
struct Context<'a> {
    trace: &'a Trace,
}

impl Context<'_> {
    fn row(&self, pid: Pid, history: &RuntimeHistory) -> RuntimeSummary {
        let types: Vec<String> = history.types.names();
        let (events, other_events) =
            events::counts(self.trace, pid, |count| self.per_second(count));
        let process = self.trace.last_process(pid);
        let program = process.map(|row| program_of(&row.name, &row.command_line));
        RuntimeSummary {
            pid: pid.0,
            program: kept(program.unwrap_or_default()),
            events,
            other_events,
            gc: gc::summary(self, history),
            jit: jit::summary(&history.jit),
            exceptions: exceptions::summary(self, &history.exceptions, &types),
            contention: waits::summary(self, pid, &history.contention),
            waits: waits::summary(self, pid, &history.waits),
            awaits: awaits::summary(self, pid, history),
            allocations: allocations::summary(self, &history.allocations, &types),
            thread_pool: thread_pool::summary(self, &history.pool),
            requests: requests::summary(self, pid, &history.requests),
            network: network::rows(&history.network),
        }
    }

    /// Returns a number per second of the capture; 0 if it has no length.
    fn per_second(&self, number: u64) -> f64 {
        match self.seconds() {
            seconds if seconds > 0.0 => number as f64 / seconds,
            _ => 0.0,
        }
    }

    fn seconds(&self) -> f64 {
        self.trace.info.seconds()
    }

    /// Returns the milliseconds from the start of the capture to a time.
    fn ms_at(&self, time: Nanos) -> f64 {
        (i128::from(time.0) - i128::from(self.trace.info.start_ns)) as f64 / 1e6
    }

    fn methods(&self, methods: EventMethods) -> MethodPair {
        MethodPair {
            leaf: methods.leaf.map(|function| self.method(function)),
            own: methods.own.map(|function| self.method(function)),
        }
    }

    fn method(&self, function: FunctionId) -> MethodName {
        let function = &self.trace.functions[function.index()];
        MethodName {
            name: kept(label::known_name(function).unwrap_or_default()),
            module: kept(label::module(function)),
        }
    }
}

/// Returns the name of a type; empty if it is unknown.
fn type_name(types: &[String], kind: Option<TypeId>) -> String {
    let name = kind.and_then(|kind| types.get(kind.index()));
    name.map_or_else(String::new, |name| kept(name))
}

/// Adds up rows with equal keys, as a method has several functions: one per tier.
///
/// Returns the first [`MAX_ROWS`] by `size`.
fn largest<K: Eq + Hash + Ord, V: Default>(
    rows: impl Iterator<Item = (K, V)>,
    add: impl Fn(&mut V, &V),
    size: impl Fn(&V) -> u64,
) -> Vec<(K, V)> {
    largest_of(rows, add, size, MAX_ROWS)
}

/// Adds up rows with equal keys. Returns the first `max_rows` by `size`.
fn largest_of<K: Eq + Hash + Ord, V: Default>(
    rows: impl Iterator<Item = (K, V)>,
    add: impl Fn(&mut V, &V),
    size: impl Fn(&V) -> u64,
    max_rows: usize,
) -> Vec<(K, V)> {
    let mut sums: HashMap<K, V> = HashMap::new();
    for (key, value) in rows {
        add(sums.entry(key).or_default(), &value);
    }
    let mut rows: Vec<(K, V)> = sums.into_iter().collect();
    rows.sort_by(|(a, size_a), (b, size_b)| {
        let largest_first = size(size_b).cmp(&size(size_a));
        largest_first.then_with(|| a.cmp(b))
    });
    rows.truncate(max_rows);
    rows
}
