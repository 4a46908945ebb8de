//! Allocations of a process.

use serde::{Deserialize, Serialize};

use super::{Context, MethodPair, largest, type_name};
use crate::history::allocations::{AllocationCount, Allocations};

/// Allocations of a process, by the runtime's reports of about one in 100 KB.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocationSummary {
    /// Number of reports.
    pub reports: u64,
    /// Estimate of the allocated bytes.
    pub bytes: u64,
    /// Megabytes per second.
    pub mb_per_second: f64,
    /// Bytes of these in the heaps of large and of pinned objects.
    pub large_bytes: u64,
    /// The types and methods with most bytes.
    pub rows: Vec<AllocationRow>,
}

/// Allocations of one type in one method.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocationRow {
    /// Type; empty if it is unknown.
    pub type_name: String,
    /// The methods that allocate.
    pub methods: MethodPair,
    /// Number of reports.
    pub reports: u64,
    /// Estimate of the allocated bytes.
    pub bytes: u64,
    /// Bytes of these in the heaps of large and of pinned objects.
    pub large_bytes: u64,
}

pub(super) fn summary(
    context: &Context<'_>,
    allocations: &Allocations,
    types: &[String],
) -> Option<AllocationSummary> {
    let table = allocations.rows();
    let mut all = AllocationCount::default();
    table.rows().for_each(|(_, count)| all.merge(count));
    all.merge(table.others());
    let rows = table.rows().map(|(&(kind, methods), &count)| {
        let key = (type_name(types, kind), context.methods(methods));
        (key, count)
    });
    let rows = largest(rows, AllocationCount::merge, |count| count.bytes);
    let row = |((type_name, methods), count): (_, AllocationCount)| AllocationRow {
        type_name,
        methods,
        reports: count.events,
        bytes: count.bytes,
        large_bytes: count.large_bytes,
    };
    (all.events > 0).then(|| AllocationSummary {
        reports: all.events,
        bytes: all.bytes,
        mb_per_second: context.per_second(all.bytes) / 1e6,
        large_bytes: all.large_bytes,
        rows: rows.into_iter().map(row).collect(),
    })
}
