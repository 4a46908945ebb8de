//! Adds up connections by process and address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustc_hash::FxHashMap;

use super::attempts::{Origin, Outcome};
use super::looker::OpenSockets;
use super::row::{Row, RowKey};
use crate::machine::{TcpCounts, TcpSocket, TcpState};
use crate::trace::{Connections, MAX_CONNECTION_ROWS, Nanos, Pid};

/// Maximum number of connections at a time.
const MAX_OPEN: usize = 1 << 17;
/// Maximum number of rows with an address while capturing, and of those of one process. Beyond it, the addresses of a
/// process have a row together.
const MAX_ROWS: usize = 4096;
const MAX_ROWS_OF_PROCESS: usize = 256;
/// Maximum number of all rows.
const MAX_ALL_ROWS: usize = 8192;
/// Number of rows of a process in the trace that precede those of others.
const MAX_FIRST_ROWS: usize = 40;
/// Looks without a connection after which it has ended.
const MAX_MISSED: u8 = 2;

/// A socket: its network namespace and its cookie.
type SocketKey = (u64, u64);

/// A connection that has not ended.
struct Connection {
    owner: Option<Pid>,
    is_inbound: bool,
    /// Address of the row.
    address: SocketAddr,
    /// What it had counted before the capture; `None` if it was opened later.
    before: Option<TcpCounts>,
    /// When it was first seen.
    since: Nanos,
    /// Whether its process had closed it before the capture.
    is_over: bool,
    last: TcpSocket,
    missed: u8,
}

/// A socket that accepts connections.
struct Listener {
    owner: Option<Pid>,
    dropped_before: u32,
    last: TcpSocket,
}

/// The connections of a capture.
#[derive(Default)]
pub(super) struct ConnectionTable {
    open: FxHashMap<SocketKey, Connection>,
    listeners: FxHashMap<SocketKey, Listener>,
    /// The listener of each address of a namespace.
    addresses: FxHashMap<(u64, SocketAddr), SocketKey>,
    rows: FxHashMap<RowKey, Row>,
    /// Number of rows of each process.
    row_counts: FxHashMap<Pid, usize>,
    /// What had no room for a row.
    others: Row,
    unowned: u64,
    incomplete: u64,
    unlisted: u64,
}

impl ConnectionTable {
    /// Takes the open sockets of a namespace. `origin` returns what is known of one that was opened during the capture.
    pub(super) fn opened(
        &mut self,
        (time, namespace): (Nanos, u64),
        open: &OpenSockets,
        origin: impl Fn(&TcpSocket) -> Origin,
    ) {
        let is_first = open.is_first;
        if !open.is_partial {
            // Those that are no longer there are not put again.
            self.addresses.retain(|(of, _), _| *of != namespace);
        }
        let is_listening = |socket: &TcpSocket| socket.state == TcpState::LISTEN;
        for (socket, owner) in &open.sockets {
            if is_listening(socket) {
                self.listener(namespace, socket, *owner, is_first);
            }
        }
        if !open.is_partial {
            for ((of, _), connection) in &mut self.open {
                connection.missed += u8::from(*of == namespace);
            }
        }
        for (socket, owner) in &open.sockets {
            let is_unconnected = socket.remote.port() == 0;
            if !is_listening(socket) && !is_unconnected {
                let known = match is_first {
                    true => Origin::default(),
                    false => origin(socket),
                };
                let pid = owner.or(known.pid);
                let connection = Origin { pid, ..known };
                self.connection((time, namespace), socket, connection, is_first);
            }
        }
        let missed = self
            .open
            .extract_if(|_, connection| connection.missed >= MAX_MISSED);
        let missed: Vec<Connection> = missed.map(|(_, connection)| connection).collect();
        for connection in missed {
            let is_failed = connection.last.state == TcpState::SYN_SENT;
            match connection.owner.filter(|_| is_failed) {
                Some(pid) => self.fail(pid, &connection, time),
                None => {
                    self.incomplete += u64::from(connection.owner.is_some());
                    self.add(&connection, connection.owner);
                }
            }
        }
    }

    fn listener(&mut self, namespace: u64, socket: &TcpSocket, owner: Option<Pid>, is_first: bool) {
        let key = (namespace, socket.cookie);
        if self.listeners.len() >= MAX_OPEN && !self.listeners.contains_key(&key) {
            return;
        }
        let known = self.listeners.entry(key).or_insert(Listener {
            owner,
            dropped_before: if is_first { socket.dropped } else { 0 },
            last: *socket,
        });
        known.owner = known.owner.or(owner);
        known.last = *socket;
        self.addresses
            .entry((namespace, socket.local))
            .or_insert(key);
    }

    /// Returns the listener that accepts the connections of an address: the same one, or all of the machine.
    fn listener_of(&self, namespace: u64, local: SocketAddr) -> Option<&Listener> {
        let all: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let mut addresses = [local.ip(), all[0], all[1]].into_iter();
        let key = addresses.find_map(|ip| {
            let address = SocketAddr::new(ip, local.port());
            self.addresses.get(&(namespace, address))
        });
        self.listeners.get(key?)
    }

    fn connection(
        &mut self,
        (time, namespace): (Nanos, u64),
        socket: &TcpSocket,
        origin: Origin,
        is_first: bool,
    ) {
        let key = (namespace, socket.cookie);
        if let Some(known) = self.open.get_mut(&key) {
            known.owner = known.owner.or(origin.pid);
            known.last = *socket;
            known.missed = 0;
        } else if self.open.len() < MAX_OPEN {
            let mut connection = self.new_connection((time, namespace), socket, origin);
            if is_first {
                connection.before = Some(socket.counts);
                connection.is_over = socket.inode == 0;
            }
            self.open.insert(key, connection);
        } else {
            self.unlisted += u64::from(origin.pid.is_some());
        }
    }

    fn new_connection(
        &self,
        (since, namespace): (Nanos, u64),
        socket: &TcpSocket,
        origin: Origin,
    ) -> Connection {
        let listener = self.listener_of(namespace, socket.local);
        let is_outbound = origin.is_outbound.unwrap_or(listener.is_none());
        let is_inbound = !is_outbound && socket.state != TcpState::SYN_SENT;
        let listens = listener.map_or(socket.local, |listener| listener.last.local);
        Connection {
            owner: origin.pid,
            is_inbound,
            address: if is_inbound { listens } else { socket.remote },
            before: None,
            since,
            is_over: false,
            last: *socket,
            missed: 0,
        }
    }

    /// Takes a socket that has ended. `is_followed` says that failed attempts to connect that began during the capture have
    /// been counted, `is_aborted` that it was reset, or timed out.
    pub(super) fn ended(
        &mut self,
        (time, namespace): (Nanos, u64),
        socket: &TcpSocket,
        origin: Origin,
        [is_followed, is_aborted]: [bool; 2],
    ) {
        let known = self.open.remove(&(namespace, socket.cookie));
        let known = known.map(|known| Connection {
            last: *socket,
            ..known
        });
        let mut connection =
            known.unwrap_or_else(|| self.new_connection((time, namespace), socket, origin));
        // Nobody will read it.
        connection.last.unread = 0;
        connection.last.counts.silent_ms = None;
        let of_listener = || match connection.is_inbound {
            true => self.listener_of(namespace, socket.local)?.owner,
            false => None,
        };
        let owner = connection.owner.or(origin.pid).or_else(of_listener);
        if !connection.is_inbound && !socket.counts.is_answered {
            let is_counted = is_followed && connection.before.is_none();
            if let Some(pid) = owner.filter(|_| !is_counted) {
                self.fail(pid, &connection, time);
            }
            return;
        }
        self.add(&connection, owner);
        if let Some(pid) = owner.filter(|_| is_aborted) {
            self.row(pid, connection.is_inbound, connection.address)
                .aborted += 1;
        }
    }

    /// Counts an attempt that was seen to have no answer, and is gone.
    fn fail(&mut self, pid: Pid, connection: &Connection, time: Nanos) {
        let ns = time.0.saturating_sub(connection.since.0);
        self.attempted(pid, connection.address, Outcome::Failed, ns);
    }

    /// An attempt to connect has ended.
    pub(super) fn attempted(&mut self, pid: Pid, remote: SocketAddr, outcome: Outcome, ns: u64) {
        let row = self.row(pid, false, remote);
        match outcome {
            Outcome::Connected => row.connects.get_or_insert_default().push(ns),
            Outcome::Failed => {
                row.failed += 1;
                row.failed_ns = row.failed_ns.saturating_add(ns);
            }
        }
    }

    /// An attempt has no answer at the end of the capture.
    pub(super) fn unanswered(&mut self, pid: Pid, remote: SocketAddr, age_ns: u64) {
        let row = self.row(pid, false, remote);
        row.oldest_ns = row.oldest_ns.max(age_ns);
    }

    fn row(&mut self, pid: Pid, is_inbound: bool, address: SocketAddr) -> &mut Row {
        let mut key = RowKey {
            pid,
            is_inbound,
            address: Some(address),
        };
        let count = self.row_counts.entry(pid).or_default();
        let is_full = self.rows.len() >= MAX_ROWS || *count >= MAX_ROWS_OF_PROCESS;
        if is_full && !self.rows.contains_key(&key) {
            key.address = None;
        }
        if self.rows.len() >= MAX_ALL_ROWS && !self.rows.contains_key(&key) {
            return &mut self.others;
        }
        self.rows.entry(key).or_insert_with(|| {
            *count += 1;
            Row::default()
        })
    }

    /// Adds the connections that processes accepted before their listeners were seen to those of the listeners.
    fn merge(&mut self, listeners: &FxHashMap<(Pid, u16), SocketAddr>) {
        let listener = |key: &RowKey| {
            let address = key.address.filter(|_| key.is_inbound)?;
            let listens = listeners.get(&(key.pid, address.port()))?;
            (*listens != address && listens.ip().is_unspecified()).then_some(*listens)
        };
        let rows = self.rows.extract_if(|key, _| listener(key).is_some());
        let rows: Vec<(RowKey, Row)> = rows.collect();
        for (key, row) in rows {
            if let Some(listens) = listener(&key) {
                self.row(key.pid, true, listens).merge(&row);
            }
        }
    }

    fn add(&mut self, connection: &Connection, owner: Option<Pid>) {
        let Some(pid) = owner else {
            self.unowned += u64::from(!connection.is_over);
            return;
        };
        let row = self.row(pid, connection.is_inbound, connection.address);
        if connection.last.state == TcpState::SYN_SENT {
            row.connecting += 1;
            return;
        }
        let before = connection.before.unwrap_or_default();
        let last = &connection.last.counts;
        row.merge(&Row {
            connections: 1,
            opened: connection.before.is_none().into(),
            unread: connection.last.unread.into(),
            sent: last.sent.saturating_sub(before.sent),
            received: last.received.saturating_sub(before.received),
            segments: last.segments.saturating_sub(before.segments).into(),
            resent: last.resent.saturating_sub(before.resent).into(),
            peer_full_us: last.peer_full_us.saturating_sub(before.peer_full_us),
            silent: last.silent_ms.is_some().into(),
            silent_ms: last.silent_ms.unwrap_or_default().into(),
            round_trips: u64::from(last.round_trip_us > 0),
            round_trips_us: last.round_trip_us.into(),
            ..Row::default()
        });
    }

    /// Returns the rows at the end of the capture. `is_whole` says that all processes of the machine are the target.
    pub(super) fn finish(
        mut self,
        end: Nanos,
        is_whole: bool,
        name: impl Fn(Pid) -> String,
    ) -> Connections {
        for (_, connection) in std::mem::take(&mut self.open) {
            self.add(&connection, connection.owner);
            let is_connecting = connection.last.state == TcpState::SYN_SENT;
            if let Some(pid) = connection.owner.filter(|_| is_connecting) {
                let age_ns = end.0.saturating_sub(connection.since.0);
                self.unanswered(pid, connection.address, age_ns);
            }
        }
        let listeners = std::mem::take(&mut self.listeners);
        let mut ports = FxHashMap::default();
        for listener in listeners.values() {
            let address = listener.last.local;
            if let Some(pid) = listener.owner {
                ports.entry((pid, address.port())).or_insert(address);
            }
        }
        self.merge(&ports);
        for listener in listeners.into_values() {
            let Some(pid) = listener.owner else {
                continue;
            };
            let last = listener.last;
            let dropped = last.dropped.saturating_sub(listener.dropped_before);
            if dropped > 0 || last.unread > 0 {
                let row = self.row(pid, true, last.local);
                row.dropped += u64::from(dropped);
                row.unaccepted += u64::from(last.unread);
            }
        }
        for row in self.rows.values_mut() {
            // The kernel forgets who the peer of a socket was, and its counts, if its process resets it.
            let connects = row.connects.as_ref().map_or(0, |connects| connects.count);
            let reset = connects.saturating_sub(row.opened);
            row.connections += reset;
            self.incomplete += reset;
        }
        let mut rows: Vec<(RowKey, Row)> = self.rows.into_iter().collect();
        rows.sort_by_key(|(key, row)| {
            let bytes = row.sent.saturating_add(row.received);
            let order = (row.has_trouble(), bytes, row.all());
            (std::cmp::Reverse(order), *key)
        });
        // One process must not hide the others.
        let mut counts: FxHashMap<Pid, usize> = FxHashMap::default();
        rows.sort_by_cached_key(|(key, _)| {
            let count = counts.entry(key.pid).or_default();
            *count += 1;
            *count > MAX_FIRST_ROWS
        });
        let beyond = rows.drain(MAX_CONNECTION_ROWS.min(rows.len())..);
        let beyond = beyond.map(|(_, row)| row.all()).sum::<u64>();
        let unlisted = self.unlisted + self.others.all() + beyond;
        let rows = rows.into_iter().map(|(key, row)| row.described(key, &name));
        Connections {
            rows: rows.collect(),
            unlisted,
            // Those of other processes are none of the target.
            unowned: if is_whole { self.unowned } else { 0 },
            incomplete: self.incomplete,
            ..Connections::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMESPACE: u64 = 7;
    const PLACE: (Nanos, u64) = (Nanos(0), NAMESPACE);

    fn socket(cookie: u64, local: &str, remote: &str, sent: u64) -> TcpSocket {
        TcpSocket {
            cookie,
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            state: TcpState::ESTABLISHED,
            inode: cookie,
            unread: 0,
            dropped: 0,
            has_counts: true,
            counts: TcpCounts {
                sent,
                round_trip_us: 1000,
                is_answered: true,
                silent_ms: Some(1200).filter(|_| cookie == 2),
                ..TcpCounts::default()
            },
        }
    }

    fn listening(cookie: u64, local: &str, dropped: u32) -> TcpSocket {
        TcpSocket {
            state: TcpState::LISTEN,
            dropped,
            ..socket(cookie, local, "0.0.0.0:0", 0)
        }
    }

    fn look(table: &mut ConnectionTable, sockets: &[(TcpSocket, i32)], is_first: bool) {
        let sockets = sockets.iter();
        let sockets = sockets.map(|(socket, pid)| (*socket, Some(Pid(*pid)).filter(|_| *pid > 0)));
        let open = OpenSockets {
            sockets: sockets.collect(),
            is_first,
            is_partial: false,
        };
        table.opened(PLACE, &open, |_| Origin::default());
    }

    fn origin(pid: i32, is_outbound: bool) -> Origin {
        Origin {
            pid: Some(Pid(pid)),
            is_outbound: Some(is_outbound),
        }
    }

    fn finish(table: ConnectionTable) -> Connections {
        table.finish(Nanos(9), true, |pid| pid.to_string())
    }

    /// Rows: process, whether accepted, address, number of connections, bytes sent.
    fn rows(connections: &Connections) -> Vec<(i32, bool, &str, u64, u64)> {
        let rows = connections.rows.iter();
        let rows = rows.map(|row| {
            let address = &*row.address;
            (
                row.pid,
                row.is_inbound,
                address,
                row.connections,
                row.sent_bytes,
            )
        });
        rows.collect()
    }

    #[test]
    fn bytes_before_the_capture_do_not_count() {
        let mut table = ConnectionTable::default();
        let open = |sent| socket(1, "10.0.0.1:99", "10.0.0.9:80", sent);
        look(&mut table, &[(open(1000), 5)], true);
        let other = socket(2, "10.0.0.1:98", "10.0.0.9:80", 30);
        look(&mut table, &[(open(1100), 5), (other, 5)], false);
        // The process of the third is not known.
        let unknown = socket(3, "10.0.0.1:97", "10.0.0.9:80", 1 << 40);
        look(
            &mut table,
            &[(open(1200), 5), (other, 5), (unknown, 0)],
            false,
        );
        table.ended(PLACE, &open(1500), Origin::default(), [true, true]);
        let connections = finish(table);
        assert_eq!(rows(&connections), [(5, false, "10.0.0.9:80", 2, 530)]);
        assert_eq!(connections.unowned, 1);
    }

    #[test]
    fn a_connection_between_two_looks_has_the_process_that_opened_or_closed_it() {
        let mut table = ConnectionTable::default();
        let mut end =
            |socket: &TcpSocket, origin| table.ended(PLACE, socket, origin, [true, false]);
        let out = socket(1, "10.0.0.1:99", "10.0.0.9:80", 10);
        end(&out, origin(5, true));
        // Accepted before the listener was seen.
        end(
            &socket(2, "10.0.0.1:80", "10.0.0.9:97", 15),
            origin(6, false),
        );
        look(&mut table, &[(listening(9, "0.0.0.0:80", 0), 6)], false);
        let mut end =
            |socket: &TcpSocket, origin| table.ended(PLACE, socket, origin, [true, false]);
        // By the process that closed it, else by the one that listens.
        end(
            &socket(3, "10.0.0.1:80", "10.0.0.9:99", 20),
            origin(7, false),
        );
        end(
            &socket(4, "10.0.0.1:80", "10.0.0.9:98", 30),
            Origin::default(),
        );
        end(
            &socket(5, "10.0.0.1:5", "10.0.0.9:98", 40),
            Origin::default(),
        );
        let mut refused = socket(6, "10.0.0.1:6", "10.0.0.9:80", 0);
        refused.counts.is_answered = false;
        end(&refused, origin(5, true));
        look(&mut table, &[(listening(9, "0.0.0.0:80", 3), 6)], false);
        let connections = finish(table);
        assert_eq!(
            rows(&connections),
            [
                (6, true, "0.0.0.0:80", 2, 45),
                (7, true, "0.0.0.0:80", 1, 20),
                (5, false, "10.0.0.9:80", 1, 10),
            ]
        );
        assert_eq!((connections.unowned, connections.rows[0].dropped), (1, 3));
    }

    #[test]
    fn a_connection_that_is_no_longer_there_has_ended() {
        let mut table = ConnectionTable::default();
        let open = socket(1, "10.0.0.1:99", "10.0.0.9:80", 10);
        look(&mut table, &[(open, 5)], false);
        // Neither a look at another namespace is a reason, nor one that has not seen all.
        for (namespace, is_partial) in
            [(8, false), (8, false), (NAMESPACE, true), (NAMESPACE, true)]
        {
            let none = OpenSockets {
                sockets: Vec::new(),
                is_first: false,
                is_partial,
            };
            table.opened((Nanos(0), namespace), &none, |_| Origin::default());
        }
        assert_eq!(table.open.len(), 1);
        (0..2).for_each(|_| look(&mut table, &[], false));
        assert_eq!(table.open.len(), 0);
        let connections = finish(table);
        assert_eq!(rows(&connections), [(5, false, "10.0.0.9:80", 1, 10)]);
        assert_eq!(connections.incomplete, 1);
    }

    #[test]
    fn too_many_addresses_have_a_row_together() {
        let mut table = ConnectionTable::default();
        for at in 0..2 * MAX_ROWS_OF_PROCESS as u32 {
            let remote = SocketAddr::new(std::net::Ipv4Addr::from_bits(at).into(), 80);
            table.attempted(Pid(5), remote, Outcome::Failed, 1);
        }
        let other = SocketAddr::from(([10, 0, 0, 9], 443));
        table.attempted(Pid(6), other, Outcome::Connected, 1);
        assert_eq!(table.rows.len(), MAX_ROWS_OF_PROCESS + 2);
        let connections = finish(table);
        assert_eq!(connections.rows.len(), MAX_CONNECTION_ROWS);
        let first = &connections.rows[0];
        assert_eq!(
            (&*first.address, first.failed),
            ("", MAX_ROWS_OF_PROCESS as u64)
        );
        let listed: u64 = connections.rows.iter().map(|row| row.failed).sum();
        assert_eq!(
            listed + connections.unlisted,
            2 * MAX_ROWS_OF_PROCESS as u64
        );
        // A process with many failures does not hide another one.
        assert_eq!(connections.rows[MAX_FIRST_ROWS].pid, 6);
    }
}
