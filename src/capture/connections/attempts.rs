//! Attempts to connect, and which process a connection belongs to, from the changes of its state.

use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};

use rustc_hash::FxHashMap;

use crate::capture::tracepoint::{TracepointError, TracepointFormat};
use crate::machine::{TcpState, Tracefs};
use crate::perf::SampleRecord;
use crate::perf_data::TracepointField;
use crate::trace::{Nanos, Pid};

const CHANGE: &str = "sock/inet_sock_set_state";
/// The changes that are of use: [`Attempts::change`].
pub(super) const CONDITION: &CStr =
    c"newstate == 2 || oldstate == 2 || newstate == 4 || newstate == 9";
const IPPROTO_TCP: u64 = 6;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
/// Maximum number of attempts at a time, and of connections whose process is known.
const MAX_ATTEMPTS: usize = 1 << 16;

/// Tracepoint of the changes of TCP sockets.
pub(super) struct StateChanges {
    pub(super) id: u64,
    socket: TracepointField,
    old: TracepointField,
    new: TracepointField,
    family: TracepointField,
    protocol: TracepointField,
    ports: [TracepointField; 2],
    addresses: [TracepointField; 2],
    addresses_v6: [TracepointField; 2],
}

/// A change of the state of a TCP socket.
struct Change {
    /// Address of the socket in the kernel.
    socket: u64,
    old: TcpState,
    new: TcpState,
    local: SocketAddr,
    remote: SocketAddr,
}

impl StateChanges {
    pub(super) fn read() -> Result<Self, TracepointError> {
        let mut format = TracepointFormat::read(&Tracefs::open()?, CHANGE)?;
        Ok(Self {
            id: format.id,
            socket: format.field("skaddr")?,
            old: format.field("oldstate")?,
            new: format.field("newstate")?,
            family: format.field("family")?,
            protocol: format.field("protocol")?,
            ports: [format.field("sport")?, format.field("dport")?],
            addresses: [format.field("saddr")?, format.field("daddr")?],
            addresses_v6: [format.field("saddr_v6")?, format.field("daddr_v6")?],
        })
    }

    /// Returns the change of a record; `Some(None)` if it is not about TCP, and `None` if it is malformed.
    fn change(&self, raw: &[u8]) -> Option<Option<Change>> {
        if self.protocol.unsigned(raw)? != IPPROTO_TCP {
            return Some(None);
        }
        let family = self.family.unsigned(raw)?;
        let end = |at: usize| {
            let ip = match family {
                AF_INET => IpAddr::from(*self.addresses[at].bytes(raw)?.first_chunk::<4>()?),
                AF_INET6 => {
                    let bytes = self.addresses_v6[at].bytes(raw)?;
                    IpAddr::from(*bytes.first_chunk::<16>()?).to_canonical()
                }
                _ => return None,
            };
            let port = u16::try_from(self.ports[at].unsigned(raw)?).ok()?;
            Some(SocketAddr::new(ip, port))
        };
        let state = |field: &TracepointField| Some(TcpState(field.unsigned(raw)? as u8));
        Some(Some(Change {
            socket: self.socket.unsigned(raw)?,
            old: state(&self.old)?,
            new: state(&self.new)?,
            local: end(0)?,
            remote: end(1)?,
        }))
    }
}

/// An attempt that has no answer yet.
struct Attempt {
    time: Nanos,
    pid: Pid,
    remote: SocketAddr,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Connected,
    /// It failed, or was given up.
    Failed,
}

/// What is known of a connection that was opened during the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) pid: Option<Pid>,
    /// Whether the process has connected it, and not accepted it.
    pub(super) is_outbound: Option<bool>,
}

/// Attempts of the target.
#[derive(Default)]
pub(super) struct Attempts {
    open: FxHashMap<u64, Attempt>,
    /// The processes of connections, by the addresses of both ends.
    origins: FxHashMap<(SocketAddr, SocketAddr), (Pid, bool)>,
}

impl Attempts {
    /// Processes a record. Passes how an attempt ended to `each`: its process, its peer, and its duration in
    /// nanoseconds. Returns `None` if the
    /// record is malformed.
    pub(super) fn record(
        &mut self,
        changes: &StateChanges,
        time: Nanos,
        sample: &SampleRecord<'_>,
        is_of_target: impl FnMut(Pid) -> bool,
        each: impl FnMut(Pid, SocketAddr, Outcome, u64),
    ) -> Option<()> {
        if let Some(change) = changes.change(sample.raw)? {
            self.change(&change, time, sample.pid, is_of_target, each);
        }
        Some(())
    }

    fn change(
        &mut self,
        change: &Change,
        time: Nanos,
        pid: Pid,
        mut is_of_target: impl FnMut(Pid) -> bool,
        mut each: impl FnMut(Pid, SocketAddr, Outcome, u64),
    ) {
        let ends = (change.local, change.remote);
        match (change.old, change.new) {
            (_, TcpState::SYN_SENT) => {
                let has_room = self.open.len() < MAX_ATTEMPTS;
                if has_room && is_of_target(pid) {
                    let remote = change.remote;
                    let attempt = Attempt { time, pid, remote };
                    self.open.insert(change.socket, attempt);
                }
            }
            (TcpState::SYN_SENT, TcpState::SYN_RECV) => {}
            (TcpState::SYN_SENT, new) => {
                let Some(attempt) = self.open.remove(&change.socket) else {
                    return;
                };
                let outcome = match new {
                    TcpState::CLOSE => Outcome::Failed,
                    _ => Outcome::Connected,
                };
                let ns = time.0.saturating_sub(attempt.time.0);
                each(attempt.pid, attempt.remote, outcome, ns);
                if outcome == Outcome::Connected {
                    self.put_origin(ends, attempt.pid, true);
                }
            }
            // These two happen in the process that closes it.
            (_, TcpState::FIN_WAIT1 | TcpState::LAST_ACK) => {
                let is_known = self.origins.contains_key(&ends);
                if !is_known && is_of_target(pid) {
                    self.put_origin(ends, pid, false);
                }
            }
            _ => {}
        }
    }

    fn put_origin(&mut self, ends: (SocketAddr, SocketAddr), pid: Pid, is_outbound: bool) {
        if self.origins.len() >= MAX_ATTEMPTS {
            self.origins.clear();
        }
        self.origins.insert(ends, (pid, is_outbound));
    }

    /// Returns what is known of a connection that was opened during the capture.
    pub(super) fn origin(&self, ends: (SocketAddr, SocketAddr)) -> Origin {
        let known = self.origins.get(&ends);
        Origin {
            pid: known.map(|(pid, _)| *pid),
            // Another one would have been seen to connect.
            is_outbound: Some(known.is_some_and(|(_, is_outbound)| *is_outbound)),
        }
    }

    /// Forgets the process of a connection that has ended: the same addresses may be those of another.
    pub(super) fn forget(&mut self, ends: (SocketAddr, SocketAddr)) {
        self.origins.remove(&ends);
    }

    /// Records were lost: the ends of attempts may be among them.
    pub(super) fn forget_open(&mut self) {
        self.open.clear();
    }

    /// Returns the attempts without an answer: process, peer, start.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = (Pid, SocketAddr, Nanos)> {
        let open = self.open.values();
        open.map(|attempt| (attempt.pid, attempt.remote, attempt.time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(socket: u64, old: TcpState, new: TcpState, local: &str) -> Change {
        Change {
            socket,
            old,
            new,
            local: local.parse().unwrap(),
            remote: "10.0.0.9:5432".parse().unwrap(),
        }
    }

    #[test]
    fn an_attempt_ends_with_its_socket_and_names_the_process() {
        let mut attempts = Attempts::default();
        let mut ended = Vec::new();
        let (closed, sent) = (TcpState::CLOSE, TcpState::SYN_SENT);
        let any = "10.0.0.1:0";
        for (time, pid, change) in [
            (10, 5, change(1, closed, sent, any)),
            (20, 6, change(2, closed, sent, any)),
            // Another process is not of the target.
            (25, 7, change(3, closed, sent, any)),
            // The answer comes while another process runs.
            (30, 0, change(1, sent, TcpState::ESTABLISHED, "10.0.0.1:99")),
            (60, 7, change(2, sent, closed, any)),
            (70, 7, change(3, sent, closed, any)),
            // Simultaneous, and without an end.
            (80, 5, change(4, closed, sent, any)),
            (90, 0, change(4, sent, TcpState::SYN_RECV, any)),
            // An accepted one.
            (
                95,
                5,
                change(8, TcpState::ESTABLISHED, TcpState::FIN_WAIT1, "10.0.0.1:80"),
            ),
        ] {
            attempts.change(
                &change,
                Nanos(time),
                Pid(pid),
                |pid| pid.0 < 7,
                |pid, _, outcome, ns| {
                    ended.push((pid.0, outcome, ns));
                },
            );
        }
        assert_eq!(
            ended,
            [(5, Outcome::Connected, 20), (6, Outcome::Failed, 40)]
        );
        let ends = |local: &str| (local.parse().unwrap(), "10.0.0.9:5432".parse().unwrap());
        let origin = |local| {
            let origin = attempts.origin(ends(local));
            (origin.pid.map(|pid| pid.0), origin.is_outbound)
        };
        assert_eq!(origin("10.0.0.1:99"), (Some(5), Some(true)));
        assert_eq!(origin("10.0.0.1:80"), (Some(5), Some(false)));
        assert_eq!(origin("10.0.0.1:81"), (None, Some(false)));
        assert_eq!(attempts.unanswered().count(), 1);
    }
}
