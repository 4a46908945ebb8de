//! Steps of connections by the events of System.Net: resolving a name, connecting, TLS, and waiting for a
//! connection of the pool.
//!
//! The start and the stop of a step have the same activity id.

use std::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;

use super::fields::prefix;
use crate::nettrace::{EventMetadata, Value};
use crate::trace::{Nanos, RuntimeEvent};

/// Maximum number of steps that are open at once, of each kind.
const MAX_OPEN: usize = 1 << 12;
/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// Providers.
const NAME_RESOLUTION: &str = "System.Net.NameResolution";
const SOCKETS: &str = "System.Net.Sockets";
const SECURITY: &str = "System.Net.Security";
const HTTP: &str = crate::dotnet::HTTP_CLIENT;

/// A kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// A host name becomes addresses.
    Resolution,
    /// A socket connects.
    Connect,
    /// TLS is negotiated.
    Handshake,
    /// A request of HttpClient waits for a connection.
    Queue,
}

impl StepKind {
    /// All kinds, in the order in which a request takes them.
    pub(crate) const ALL: [Self; 4] = [
        Self::Queue,
        Self::Resolution,
        Self::Connect,
        Self::Handshake,
    ];
}

/// What an event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Start,
    Stop,
    Failed,
}

/// The steps of a kind.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// Number of those that ended.
    pub(crate) ended: u64,
    /// Number of those that failed. They end, too.
    pub(crate) failed: u64,
    /// Time of those that ended.
    pub(crate) ns: u64,
    /// The longest, and its host or address. Untrusted.
    pub(crate) longest_ns: u64,
    pub(crate) longest: String,
    /// Number of those that had not ended with the events, or that are beyond the limit.
    pub(crate) unended: u64,
    /// Age of the oldest one of those that are open, and its host or address, if there is any. Untrusted.
    pub(crate) oldest: Option<(u64, String)>,
    open: HashMap<[u8; 16], (Nanos, String)>,
}

/// The steps of a process.
#[derive(Debug, Default)]
pub(crate) struct Network {
    steps: [Steps; StepKind::ALL.len()],
}

/// Returns whether events of a kind are about steps.
pub(super) fn is_about_network(kind: &EventMetadata) -> bool {
    phase(kind).is_some()
}

/// Returns what an event of a kind reports. An event without a start has its duration.
fn phase(kind: &EventMetadata) -> Option<(StepKind, Phase)> {
    let (step, phase) = match (kind.provider.as_str(), kind.name.as_str()) {
        (NAME_RESOLUTION, "ResolutionStart") => (StepKind::Resolution, Phase::Start),
        (NAME_RESOLUTION, "ResolutionStop") => (StepKind::Resolution, Phase::Stop),
        (NAME_RESOLUTION, "ResolutionFailed") => (StepKind::Resolution, Phase::Failed),
        (SOCKETS, "ConnectStart") => (StepKind::Connect, Phase::Start),
        (SOCKETS, "ConnectStop") => (StepKind::Connect, Phase::Stop),
        (SOCKETS, "ConnectFailed") => (StepKind::Connect, Phase::Failed),
        (SECURITY, "HandshakeStart") => (StepKind::Handshake, Phase::Start),
        (SECURITY, "HandshakeStop") => (StepKind::Handshake, Phase::Stop),
        (SECURITY, "HandshakeFailed") => (StepKind::Handshake, Phase::Failed),
        (HTTP, "RequestLeftQueue") => (StepKind::Queue, Phase::Stop),
        _ => return None,
    };
    Some((step, phase))
}

/// Parses an address as `System.Net.SocketAddress` prints it: `FAMILY:SIZE:{BYTES}`, with the bytes of a
/// `sockaddr` after its family.
fn socket_address(text: &str) -> Option<SocketAddr> {
    let (family, rest) = text.split_once(':')?;
    let bytes = rest.split_once(":{")?.1.strip_suffix('}')?;
    let bytes: Option<Vec<u8>> = bytes.split(',').map(|byte| byte.parse().ok()).collect();
    let bytes = bytes?;
    let (port, rest) = bytes.split_first_chunk::<2>()?;
    let address = match family {
        "InterNetwork" => IpAddr::from(*rest.first_chunk::<4>()?),
        "InterNetworkV6" => {
            let (_flow_information, rest) = rest.split_first_chunk::<4>()?;
            IpAddr::from(*rest.first_chunk::<16>()?).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_be_bytes(*port)))
}

impl Network {
    /// Returns the steps of a kind.
    pub(crate) fn steps(&self, kind: StepKind) -> &Steps {
        &self.steps[kind as usize]
    }

    /// Takes an event that [is about steps](is_about_network).
    pub(super) fn take(&mut self, event: &RuntimeEvent) {
        let Some((kind, phase)) = phase(&event.metadata) else {
            return;
        };
        let fields = event.metadata.fields.as_deref().unwrap_or_default();
        let fields = Value::parse_partial(fields, &event.payload);
        let steps = &mut self.steps[kind as usize];
        match (kind, phase) {
            (StepKind::Queue, _) => {
                let waited = fields.iter().find_map(|(_, value)| match value {
                    Value::Float(ms) if ms.is_finite() => Some(*ms),
                    _ => None,
                });
                // A conversion of floats saturates.
                steps.end((waited.unwrap_or_default() * 1e6) as u64, String::new());
            }
            (_, Phase::Start) => {
                let name = fields.iter().find_map(|(_, value)| match value {
                    Value::Text(text) => Some(text.as_str()),
                    _ => None,
                });
                let name = name.unwrap_or_default();
                let address = socket_address(name).map(|address| address.to_string());
                let name = address.unwrap_or_else(|| prefix(name, MAX_NAME_BYTES).to_owned());
                steps.start(event, name);
            }
            (_, Phase::Stop) => {
                if let Some((start, name)) = steps.open.remove(&event.activity.id) {
                    steps.end(event.time.0.saturating_sub(start.0), name);
                }
            }
            (_, Phase::Failed) => steps.failed = steps.failed.saturating_add(1),
        }
    }

    /// Counts what is open at the end of the events.
    pub(super) fn finish(&mut self, end: Nanos) {
        for steps in &mut self.steps {
            let open = std::mem::take(&mut steps.open);
            steps.unended = steps.unended.saturating_add(open.len() as u64);
            let oldest = open.into_values().min();
            steps.oldest = oldest.map(|(start, name)| (end.0.saturating_sub(start.0), name));
        }
    }
}

impl Steps {
    fn start(&mut self, event: &RuntimeEvent, name: String) {
        let is_lost = self.open.len() >= MAX_OPEN
            || self
                .open
                .insert(event.activity.id, (event.time, name))
                .is_some();
        self.unended = self.unended.saturating_add(is_lost.into());
    }

    fn end(&mut self, ns: u64, name: String) {
        self.ended = self.ended.saturating_add(1);
        self.ns = self.ns.saturating_add(ns);
        if ns >= self.longest_ns {
            (self.longest_ns, self.longest) = (ns, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::history::test_events::event;

    /// An event about a step: provider, name, time in microseconds, activity.
    fn step(provider: &str, name: &str, time: u64, activity: u8) -> RuntimeEvent {
        let mut event = event(1, time, 1, Vec::new());
        event.activity.id = [activity; 16];
        event.metadata = Arc::new(EventMetadata {
            provider: provider.to_owned(),
            name: name.to_owned(),
            ..EventMetadata::default()
        });
        event
    }

    #[test]
    fn steps_end_by_their_activity() {
        let mut network = Network::default();
        for (name, time, activity) in [
            ("ConnectStart", 10, 1),
            ("ConnectStart", 20, 2),
            ("ConnectFailed", 25, 1),
            ("ConnectStop", 30, 1),
            // Its start is not in the events.
            ("ConnectStop", 40, 3),
            ("ConnectStop", 50, 2),
            ("ConnectStart", 60, 4),
            ("ConnectStart", 70, 4),
        ] {
            network.take(&step(SOCKETS, name, time, activity));
        }
        network.take(&step(NAME_RESOLUTION, "ConnectStart", 80, 5));
        network.finish(Nanos(90_000));
        let steps = network.steps(StepKind::Connect);
        assert_eq!((steps.ended, steps.failed, steps.unended), (2, 1, 2));
        assert_eq!((steps.ns, steps.longest_ns), (50_000, 30_000));
        assert_eq!(steps.oldest, Some((20_000, String::new())));
        let names = network.steps(StepKind::Resolution);
        assert_eq!((names.unended, &names.oldest), (0, &None));
    }

    #[test]
    fn open_steps_are_bounded() {
        let mut network = Network::default();
        for at in 0..2 * MAX_OPEN as u64 {
            let mut start = step(SECURITY, "HandshakeStart", at, 0);
            start.activity.id[..8].copy_from_slice(&at.to_le_bytes());
            network.take(&start);
        }
        assert_eq!(network.steps(StepKind::Handshake).open.len(), MAX_OPEN);
        network.finish(Nanos(0));
        let unended = network.steps(StepKind::Handshake).unended;
        assert_eq!(unended, 2 * MAX_OPEN as u64);
    }

    #[test]
    fn addresses_of_sockets_are_read() {
        let address = |text| socket_address(text).map(|address| address.to_string());
        let v4 = "InterNetwork:16:{0,80,10,0,0,7,0,0,0,0,0,0,0,0}";
        assert_eq!(address(v4).as_deref(), Some("10.0.0.7:80"));
        let mapped =
            "InterNetworkV6:28:{164,43,0,0,0,0,0,0,0,0,0,0,0,0,0,0,255,255,127,0,0,1,0,0,0,0}";
        assert_eq!(address(mapped).as_deref(), Some("127.0.0.1:42027"));
        for other in [
            "",
            "db.example.com",
            "Unix:9:{47,116}",
            "InterNetwork:16:{0,80,10}",
            "InterNetwork:16:{0,80,999,0,0,0}",
            "InterNetwork:16:{",
        ] {
            assert_eq!(address(other), None, "{other}");
        }
    }
}
