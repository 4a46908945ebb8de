//! Steps of a process's connections.

use serde::{Deserialize, Serialize};

use super::{kept, ms};
use crate::history::network::{self, Network};

/// Maximum number of kinds.
pub(super) const MAX_KINDS: usize = network::StepKind::ALL.len();

/// A kind of step that a request to others takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// A request of HttpClient waits for a connection of the pool.
    #[default]
    Queue,
    /// A host name becomes addresses.
    Resolution,
    /// A socket connects.
    Connect,
    /// TLS is negotiated.
    Handshake,
}

/// The steps of a kind. Times are of those that ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkStep {
    /// Kind.
    pub kind: StepKind,
    /// Number of steps that ended.
    pub count: u64,
    /// Number of these that failed.
    pub failed: u64,
    /// Number of steps that had not ended when the events ended, or whose end is lost.
    pub unended: u64,
    /// Age of the oldest one that had not ended then.
    pub unended_ms: Option<f64>,
    /// Host or address of that one; empty if it is unknown. Untrusted.
    pub oldest: String,
    /// Mean duration.
    pub mean_ms: f64,
    /// Longest duration.
    pub max_ms: f64,
    /// Host or address of that one; empty if it is unknown. Untrusted.
    pub slowest: String,
}

pub(super) fn rows(network: &Network) -> Vec<NetworkStep> {
    let rows = network::StepKind::ALL.into_iter().map(|kind| {
        let steps = network.steps(kind);
        let oldest = steps.oldest.as_ref();
        NetworkStep {
            kind: match kind {
                network::StepKind::Queue => StepKind::Queue,
                network::StepKind::Resolution => StepKind::Resolution,
                network::StepKind::Connect => StepKind::Connect,
                network::StepKind::Handshake => StepKind::Handshake,
            },
            count: steps.ended,
            failed: steps.failed,
            unended: steps.unended,
            unended_ms: oldest.map(|(age, _)| ms(*age)),
            oldest: oldest.map_or_else(String::new, |(_, name)| kept(name)),
            mean_ms: ms(steps.ns) / steps.ended.max(1) as f64,
            max_ms: ms(steps.longest_ns),
            slowest: kept(&steps.longest),
        }
    });
    let is_there = |row: &NetworkStep| row.count > 0 || row.failed > 0 || row.unended > 0;
    rows.filter(is_there).collect()
}
