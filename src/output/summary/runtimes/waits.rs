//! Waits of a process's threads.

use serde::{Deserialize, Serialize};

use super::{Context, MethodPair, largest, ms};
use crate::history::waits::{WaitCount, Waits};
use crate::trace::Pid;

/// Waits of the threads of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitSummary {
    /// Number of waits that ended.
    pub count: u64,
    /// Number per second.
    pub per_second: f64,
    /// Their time, of all threads together.
    pub ms: f64,
    /// Time of the longest one, ended or not.
    pub max_ms: f64,
    /// Number of waits that had not ended when the process or the capture ended.
    pub unended: u64,
    /// Time of these until then.
    pub unended_ms: f64,
    /// The methods with most waiting time.
    pub rows: Vec<WaitRow>,
}

/// Waits in one method.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitRow {
    /// The methods that wait.
    pub methods: MethodPair,
    /// Whether they wait for a task to end.
    pub for_task: bool,
    /// Number of waits that ended.
    pub count: u64,
    /// Their time, of all threads together.
    pub ms: f64,
    /// Time of the longest one, ended or not.
    pub max_ms: f64,
    /// Number of waits that had not ended when the process or the capture ended.
    pub unended: u64,
    /// Time of these until then.
    pub unended_ms: f64,
    /// Number of threads that waited, at most 64.
    pub threads: u64,
    /// Thread that owned the lock for most of the time, if the runtime reported it.
    pub owner_tid: Option<i32>,
}

pub(super) fn summary(context: &Context<'_>, pid: Pid, waits: &Waits) -> Option<WaitSummary> {
    let mut all = WaitCount::default();
    waits.rows.rows().for_each(|(_, row)| all.add(row));
    all.add(waits.rows.others());
    let rows = waits.rows.rows().map(|(&methods, count)| {
        let key = (context.methods(methods), methods.waits_for_task);
        (key, count.clone())
    });
    let rows = largest(rows, WaitCount::add, |row| {
        row.ns.saturating_add(row.unended_ns)
    });
    let row = |((methods, for_task), row): (_, WaitCount)| WaitRow {
        methods,
        for_task,
        count: row.ended,
        ms: ms(row.ns),
        max_ms: ms(row.max_ns),
        unended: row.unended,
        unended_ms: ms(row.unended_ns),
        threads: row.threads.len() as u64,
        owner_tid: owner(context, pid, &row),
    };
    (all.ended > 0 || all.unended > 0).then(|| WaitSummary {
        count: all.ended,
        per_second: context.per_second(all.ended),
        ms: ms(all.ns),
        max_ms: ms(all.max_ns),
        unended: all.unended,
        unended_ms: ms(all.unended_ns),
        rows: rows.into_iter().map(row).collect(),
    })
}

/// Returns the thread that owned the lock for most of the time, in perfcollect's pid namespace.
fn owner(context: &Context<'_>, pid: Pid, row: &WaitCount) -> Option<i32> {
    let (owner, _) = row.owners.iter().max_by_key(|(_, ns)| *ns)?;
    let owner = i32::try_from(*owner).ok()?;
    let processes = context.trace.quality.events.iter();
    let mut threads = processes
        .filter(|events| events.pid == pid.0)
        .flat_map(|events| &events.threads);
    let outside = threads.find(|(inside, _)| *inside == owner);
    Some(outside.map_or(owner, |(_, outside)| *outside))
}
