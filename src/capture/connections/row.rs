//! A row of connections: those of a process with an address.

use std::net::SocketAddr;

use crate::capture::latencies::Latencies;
use crate::trace::{ConnectionRow, Pid};

/// Process, whether it accepted the connections, and the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RowKey {
    pub(super) pid: Pid,
    pub(super) is_inbound: bool,
    pub(super) address: Option<SocketAddr>,
}

#[derive(Default)]
pub(super) struct Row {
    pub(super) connections: u64,
    /// How many of these were opened during the capture.
    pub(super) opened: u64,
    pub(super) failed: u64,
    pub(super) failed_ns: u64,
    pub(super) aborted: u64,
    pub(super) silent: u64,
    pub(super) silent_ms: u64,
    pub(super) connecting: u64,
    pub(super) oldest_ns: u64,
    pub(super) dropped: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) segments: u64,
    pub(super) resent: u64,
    pub(super) round_trips: u64,
    pub(super) round_trips_us: u64,
    pub(super) peer_full_us: u64,
    pub(super) unread: u64,
    pub(super) unaccepted: u64,
    pub(super) connects: Option<Latencies>,
}

impl Row {
    /// Returns the number of connections and attempts.
    pub(super) fn all(&self) -> u64 {
        self.connections + self.failed + self.connecting
    }

    pub(super) fn has_trouble(&self) -> bool {
        self.failed + self.connecting + self.aborted + self.silent + self.dropped + self.unaccepted
            > 0
    }

    /// Adds the connections of another row, but no attempts.
    pub(super) fn merge(&mut self, other: &Self) {
        self.connections += other.connections;
        self.opened += other.opened;
        self.sent += other.sent;
        self.received += other.received;
        self.segments += other.segments;
        self.resent += other.resent;
        self.round_trips += other.round_trips;
        self.round_trips_us += other.round_trips_us;
        self.peer_full_us += other.peer_full_us;
        self.unread += other.unread;
        self.aborted += other.aborted;
        self.silent += other.silent;
        self.silent_ms = self.silent_ms.max(other.silent_ms);
    }

    pub(super) fn described(self, key: RowKey, name: impl Fn(Pid) -> String) -> ConnectionRow {
        let ms = |ns: u64| ns as f64 / 1e6;
        let quantile = |part| {
            let connects = self.connects.as_ref();
            ms(connects.map_or(0, |connects| connects.quantile(part)))
        };
        let trips = self.round_trips.max(1) as f64;
        ConnectionRow {
            pid: key.pid.0,
            process: name(key.pid),
            is_inbound: key.is_inbound,
            address: key
                .address
                .map_or_else(String::new, |address| address.to_string()),
            connections: self.connections,
            failed: self.failed,
            failed_after_ms: ms(self.failed_ns) / self.failed.max(1) as f64,
            connecting: self.connecting,
            aborted: self.aborted,
            silent: self.silent,
            silent_ms: self.silent_ms as f64,
            oldest_ms: ms(self.oldest_ns),
            dropped: self.dropped,
            sent_bytes: self.sent,
            received_bytes: self.received,
            segments: self.segments,
            resent: self.resent,
            round_trip_ms: self.round_trips_us as f64 / trips / 1e3,
            peer_full_ms: self.peer_full_us as f64 / 1e3,
            unread_bytes: self.unread,
            unaccepted: self.unaccepted,
            connect_p50_ms: quantile(0.5),
            connect_p99_ms: quantile(0.99),
            connect_max_ms: quantile(1.0),
            connects: self.connects.as_ref().map_or(0, |connects| connects.count),
        }
    }
}
