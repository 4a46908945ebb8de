//! Waits of a process's asynchronous methods.

use serde::{Deserialize, Serialize};

use super::{Context, MAX_ROWS, MethodName, kept, largest, ms};
use crate::history::{AwaitCount, RuntimeHistory};
use crate::trace::Pid;

/// Waits of asynchronous methods for tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AwaitSummary {
    /// Number of awaits that ended.
    pub count: u64,
    /// Number of awaits that had not ended when the process or the capture ended.
    pub unended: u64,
    /// Number of awaits that are not followed, because there were too many.
    pub omitted: u64,
    /// Whether events are lost, so that it is not known which awaits had not ended.
    pub is_lossy: bool,
    /// Rows of the user's methods first, then those of others, each with most waiting time first: at most 20.
    pub rows: Vec<AwaitRow>,
}

/// Awaits of one method. Of the user's methods, an await for one that awaits does not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AwaitRow {
    /// The state machine that awaits.
    pub method: MethodName,
    /// Whether it is the user's.
    pub is_own: bool,
    /// Name of the incoming requests for which it awaits; empty if it is for none. Untrusted.
    pub request: String,
    /// Number of awaits that ended.
    pub count: u64,
    /// Their time, until the method went on.
    pub ms: f64,
    /// Time of the longest one, ended or not.
    pub max_ms: f64,
    /// Number of awaits that had not ended when the process or the capture ended.
    pub unended: u64,
    /// Time of these until then.
    pub unended_ms: f64,
}

impl AwaitSummary {
    /// Drops the rows beyond what perfcollect writes.
    pub(super) fn truncate(&mut self) {
        self.rows.truncate(MAX_ROWS);
        for row in &mut self.rows {
            row.request = kept(&row.request);
        }
    }
}

pub(super) fn summary(
    context: &Context<'_>,
    pid: Pid,
    history: &RuntimeHistory,
) -> Option<AwaitSummary> {
    let awaits = &history.awaits;
    let mut all = AwaitCount::default();
    awaits.rows.rows().for_each(|(_, row)| all.add(row));
    all.add(awaits.rows.others());
    let processes = context.trace.quality.events.iter();
    let mut of_process = processes.filter(|events| events.pid == pid.0);
    let is_lossy = of_process.any(|events| events.dropped > 0);
    let rows = awaits.rows.rows().map(|(awaiter, count)| {
        let methods = awaiter.methods;
        let method = methods.leaf.map(|method| context.method(method));
        let route = awaiter
            .route
            .and_then(|row| history.requests.routes.get(row as usize));
        let request = route.map(|route| kept(&route.name));
        let key = (method, methods.own.is_some(), request.unwrap_or_default());
        (key, count.clone())
    });
    let rows = rows.filter(|((method, ..), _)| method.is_some());
    let (own, others): (Vec<_>, Vec<_>) = rows.partition(|((_, is_own, _), _)| *is_own);
    let [own, others] = [own, others].map(|rows| {
        let time = |row: &AwaitCount| row.ns.saturating_add(row.unended_ns);
        largest(rows.into_iter(), AwaitCount::add, time)
    });
    let rows = own.into_iter().chain(others).take(MAX_ROWS);
    let row =
        |((method, is_own, request), row): ((Option<MethodName>, bool, String), AwaitCount)| {
            let (unended, unended_ns) = match is_lossy {
                // Their ends may be what is lost.
                true => (0, 0),
                false => (row.unended, row.unended_ns),
            };
            AwaitRow {
                method: method.unwrap_or_default(),
                is_own,
                request,
                count: row.ended,
                ms: ms(row.ns),
                max_ms: ms(row.max_ns),
                unended,
                unended_ms: ms(unended_ns),
            }
        };
    (all.ended > 0 || all.unended > 0).then(|| AwaitSummary {
        count: all.ended,
        unended: if is_lossy { 0 } else { all.unended },
        omitted: awaits.omitted,
        is_lossy,
        rows: rows.map(row).collect(),
    })
}
