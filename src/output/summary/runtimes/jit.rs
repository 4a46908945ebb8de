//! Compilations of a process.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::{MAX_ROWS, kept, ms};
use crate::history::jit::{JitCounts, JitTotal};

/// Methods that the JIT compiler compiled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JitSummary {
    /// Number of compilations.
    pub count: u64,
    /// Their time, of all threads together.
    pub ms: f64,
    /// Number of compilations that a thread of the program waited for.
    pub foreground_count: u64,
    /// Their time.
    pub foreground_ms: f64,
    /// Bytes of IL.
    pub il_bytes: u64,
    /// Bytes of machine code.
    pub native_bytes: u64,
    /// Compilations by tier.
    pub tiers: Vec<JitTier>,
    /// Number of compilations of methods that had the same tier before.
    pub again_count: u64,
    /// Their time.
    pub again_ms: f64,
    /// The methods with most time of these.
    pub again: Vec<JitRow>,
}

/// Compilations for one tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JitTier {
    /// Tier, as the runtime spells it (`OptimizedTier1`).
    pub tier: String,
    /// Number of compilations.
    pub count: u64,
    /// Their time.
    pub ms: f64,
}

/// A method that was compiled again, or a method that the program created again as it ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JitRow {
    /// Name with its type and parameters.
    pub name: String,
    /// Module; empty if it is unknown.
    pub module: String,
    /// Number of compilations after the first one for a tier.
    pub count: u64,
    /// Their time.
    pub ms: f64,
}

pub(super) fn summary(jit: &JitCounts) -> Option<JitSummary> {
    let tier = |(tier, total): (&&str, &JitTotal)| JitTier {
        tier: (*tier).to_owned(),
        count: total.count,
        ms: ms(total.ns),
    };
    let mut again: Vec<_> = jit.recompiled().collect();
    again.sort_by_key(|row| (Reverse(row.again.ns), &row.name, &row.module));
    let rows = again.into_iter().take(MAX_ROWS).map(|row| JitRow {
        name: kept(&row.name),
        module: kept(&row.module),
        count: row.again.count,
        ms: ms(row.again.ns),
    });
    (jit.all.count > 0).then(|| JitSummary {
        count: jit.all.count,
        ms: ms(jit.all.ns),
        foreground_count: jit.foreground.count,
        foreground_ms: ms(jit.foreground.ns),
        il_bytes: jit.il_bytes,
        native_bytes: jit.native_bytes,
        tiers: jit.tiers.iter().map(tier).collect(),
        again_count: jit.again.count,
        again_ms: ms(jit.again.ns),
        again: rows.collect(),
    })
}
