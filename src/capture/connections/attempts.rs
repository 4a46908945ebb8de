//! Attempts to connect, and which process a connection belongs to, from the changes of its state.

use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::capture::tracepoint::{TracepointError, TracepointFormat};
use crate::machine::{self, TcpSocket, TcpState, Tracefs};
use crate::perf::SampleRecord;
use crate::perf_data::TracepointField;
use crate::trace::{Nanos, Pid};

const CHANGE: &str = "sock/inet_sock_set_state";
/// The changes that are of use: [`Attempts::change`].
pub(super) const CONDITION: &CStr =
    c"newstate == 2 || oldstate == 2 || newstate == 4 || newstate == 9 || newstate == 10 || \
    (newstate == 7 && (oldstate == 1 || oldstate == 4 || oldstate == 8))";
/// Flags of a record in an interrupt, also a soft one (`TRACE_FLAG_HARDIRQ`, `TRACE_FLAG_SOFTIRQ` of
/// linux/trace_events.h).
const INTERRUPT: u64 = 0x08 | 0x10;
const IPPROTO_TCP: u64 = 6;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
/// Maximum number of attempts at a time, of connections whose process is known, and of processes whose network
/// namespace is known.
const MAX_ATTEMPTS: usize = 1 << 16;

/// Tracepoint of the changes of TCP sockets.
pub(super) struct StateChanges {
    pub(super) id: u64,
    flags: TracepointField,
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
    /// Whether an interrupt changes it, such as for a packet or a timer, and not its process.
    is_by_interrupt: bool,
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
            flags: format.field("common_flags")?,
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
            is_by_interrupt: self.flags.unsigned(raw)? & INTERRUPT != 0,
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

/// Network namespace and addresses of both ends of a connection.
type Ends = (u64, SocketAddr, SocketAddr);

/// Attempts of the target.
#[derive(Default)]
pub(super) struct Attempts {
    open: FxHashMap<u64, Attempt>,
    /// The processes of connections, and whether they connected them.
    origins: FxHashMap<Ends, (Pid, bool)>,
    /// Ports on which processes began to listen.
    listening: FxHashSet<(u64, u16)>,
    /// Connections that were reset, or timed out. Their namespace is not known.
    aborted: FxHashSet<(SocketAddr, SocketAddr)>,
    namespaces: FxHashMap<Pid, u64>,
    /// Number of attempts that were too many.
    omitted: u64,
}

impl Attempts {
    /// Processes a record. Passes how an attempt ended to `each`: its process, its peer, and its duration in
    /// nanoseconds. Returns `None` if the record is malformed.
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
        match (change.old, change.new) {
            (_, TcpState::LISTEN) => {
                let has_room = self.listening.len() < MAX_ATTEMPTS;
                if has_room && is_of_target(pid) {
                    let port = (self.namespace(pid), change.local.port());
                    self.listening.insert(port);
                }
            }
            (_, TcpState::SYN_SENT) => {
                let has_room = self.open.len() < MAX_ATTEMPTS;
                let is_of_target = is_of_target(pid);
                self.omitted += u64::from(is_of_target && !has_room);
                if is_of_target && has_room {
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
                    let ends = self.ends(attempt.pid, change);
                    self.put_origin(ends, attempt.pid, true);
                }
            }
            // These two happen in the process that closes it.
            (_, TcpState::FIN_WAIT1 | TcpState::LAST_ACK) if is_of_target(pid) => {
                let ends = self.ends(pid, change);
                if !self.origins.contains_key(&ends) {
                    self.put_origin(ends, pid, false);
                }
            }
            // A process that closes a socket with data that it has not read resets the connection itself.
            (_, TcpState::CLOSE) if change.is_by_interrupt => {
                // Those of other processes are there, too, and stay.
                if self.aborted.len() >= MAX_ATTEMPTS {
                    self.aborted.clear();
                }
                self.aborted.insert((change.local, change.remote));
            }
            _ => {}
        }
    }

    fn ends(&mut self, pid: Pid, change: &Change) -> Ends {
        (self.namespace(pid), change.local, change.remote)
    }

    /// Returns the network namespace of a process, or 0.
    fn namespace(&mut self, pid: Pid) -> u64 {
        if self.namespaces.len() >= MAX_ATTEMPTS {
            self.namespaces.clear();
        }
        let known = self.namespaces.entry(pid);
        *known.or_insert_with(|| machine::network_namespace(pid).unwrap_or(0))
    }

    /// Forgets which processes have which namespace: they may change it, and ids are used again.
    pub(super) fn forget_namespaces(&mut self) {
        self.namespaces.clear();
    }

    fn put_origin(&mut self, ends: Ends, pid: Pid, is_outbound: bool) {
        if self.origins.len() >= MAX_ATTEMPTS {
            self.origins.clear();
        }
        self.origins.insert(ends, (pid, is_outbound));
    }

    /// Returns what is known of a connection that was opened during the capture.
    pub(super) fn origin(&self, namespace: u64, socket: &TcpSocket) -> Origin {
        let ends = |namespace| (namespace, socket.local, socket.remote);
        let known = self.origins.get(&ends(namespace));
        // That of a process that had ended is not known.
        let known = known.or_else(|| self.origins.get(&ends(0)));
        let listens = || self.listening.contains(&(namespace, socket.local.port()));
        Origin {
            pid: known.map(|(pid, _)| *pid),
            is_outbound: match known {
                Some((_, true)) => Some(true),
                _ => listens().then_some(false),
            },
        }
    }

    /// Forgets a connection that has ended: the same addresses may be those of another. Returns whether it was reset, or
    /// timed out.
    pub(super) fn end(&mut self, namespace: u64, socket: &TcpSocket) -> bool {
        let (local, remote) = (socket.local, socket.remote);
        for namespace in [namespace, 0] {
            self.origins.remove(&(namespace, local, remote));
        }
        self.aborted.remove(&(local, remote))
    }

    /// Returns the number of attempts that are not followed, because there were too many.
    pub(super) fn omitted(&self) -> u64 {
        self.omitted
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
    use crate::machine::TcpCounts;

    const REMOTE: &str = "10.0.0.9:5432";

    fn change(socket: u64, old: TcpState, new: TcpState, local: &str) -> Change {
        Change {
            is_by_interrupt: true,
            socket,
            old,
            new,
            local: local.parse().unwrap(),
            remote: REMOTE.parse().unwrap(),
        }
    }

    fn socket(local: &str) -> TcpSocket {
        TcpSocket {
            cookie: 1,
            local: local.parse().unwrap(),
            remote: REMOTE.parse().unwrap(),
            state: TcpState::CLOSE,
            inode: 0,
            unread: 0,
            dropped: 0,
            counts: TcpCounts::default(),
            has_counts: true,
        }
    }

    #[test]
    fn an_attempt_ends_with_its_socket_and_names_the_process() {
        let mut attempts = Attempts::default();
        // The process 5 has a network namespace, 6 has none any more.
        attempts.namespaces.extend([(Pid(5), 50), (Pid(6), 0)]);
        let mut ended = Vec::new();
        let (closed, sent) = (TcpState::CLOSE, TcpState::SYN_SENT);
        let (connected, closing) = (TcpState::ESTABLISHED, TcpState::FIN_WAIT1);
        let any = "10.0.0.1:0";
        for (time, pid, change) in [
            (10, 5, change(1, closed, sent, any)),
            (20, 6, change(2, closed, sent, any)),
            // Another process is not of the target.
            (25, 7, change(3, closed, sent, any)),
            // The answer comes while another process runs.
            (30, 0, change(1, sent, connected, "10.0.0.1:99")),
            (60, 7, change(2, sent, closed, any)),
            (70, 7, change(3, sent, closed, any)),
            // Simultaneous, and without an end.
            (80, 5, change(4, closed, sent, any)),
            (90, 0, change(4, sent, TcpState::SYN_RECV, any)),
            // Accepted ones, of which only one has a listener that is known.
            (92, 5, change(9, closed, TcpState::LISTEN, "0.0.0.0:80")),
            (95, 5, change(8, connected, closing, "10.0.0.1:80")),
            (96, 6, change(8, connected, closing, "10.0.0.1:81")),
            (97, 7, change(9, connected, closed, "10.0.0.1:99")),
        ] {
            let is_of_target = |pid: Pid| pid.0 < 7;
            attempts.change(
                &change,
                Nanos(time),
                Pid(pid),
                is_of_target,
                |pid, _, outcome, ns| {
                    ended.push((pid.0, outcome, ns));
                },
            );
        }
        assert_eq!(
            ended,
            [(5, Outcome::Connected, 20), (6, Outcome::Failed, 40)]
        );
        let origin = |namespace, local| {
            let origin = attempts.origin(namespace, &socket(local));
            (origin.pid.map(|pid| pid.0), origin.is_outbound)
        };
        assert_eq!(origin(50, "10.0.0.1:99"), (Some(5), Some(true)));
        assert_eq!(origin(51, "10.0.0.1:99"), (None, None));
        assert_eq!(origin(50, "10.0.0.1:80"), (Some(5), Some(false)));
        assert_eq!(origin(50, "10.0.0.1:81"), (Some(6), None));
        assert_eq!(origin(50, "10.0.0.1:82"), (None, None));
        assert_eq!(attempts.unanswered().count(), 1);
        assert!(attempts.end(50, &socket("10.0.0.1:99")));
        assert!(!attempts.end(50, &socket("10.0.0.1:99")));
        assert_eq!(attempts.origin(50, &socket("10.0.0.1:99")).pid, None);
    }
}
