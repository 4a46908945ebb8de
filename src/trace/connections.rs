//! TCP connections, by process and address.

use serde::{Deserialize, Serialize};

/// Maximum number of rows.
pub(crate) const MAX_CONNECTION_ROWS: usize = 200;

/// TCP connections of the target during a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connections {
    /// The rows, those with failures first, then those with most bytes: at most 200.
    pub rows: Vec<ConnectionRow>,
    /// Connections in no row, because there were too many.
    pub unlisted: u64,
    /// Connections whose process is not known: they opened and ended between two looks at the processes.
    pub unowned: u64,
    /// Connections that their process has reset, or whose end was not seen: their rows lack what they sent and received
    /// after the last look.
    pub incomplete: u64,
    /// Records of connecting sockets that the kernel dropped because a ring buffer was full.
    pub lost_records: u64,
    /// Whether attempts to connect were followed: how long they took, and which failed.
    pub has_attempts: bool,
}

/// Connections of a process to an address, or those that it accepted at one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionRow {
    /// The process.
    pub pid: i32,
    /// Its name. Untrusted.
    pub process: String,
    /// Whether it accepted them.
    pub is_inbound: bool,
    /// Address and port: of the peer, or where it listens. Empty if there were too many of them.
    pub address: String,
    /// Number of connections that were open at some time.
    pub connections: u64,
    /// Number of attempts to connect that failed, or were given up.
    pub failed: u64,
    /// Mean time that these took, in milliseconds: next to nothing if the peer refuses.
    pub failed_after_ms: f64,
    /// Number of attempts that had no answer when the capture ended.
    pub connecting: u64,
    /// Age of the oldest of these, in milliseconds; more if it is older than the capture.
    pub oldest_ms: f64,
    /// Number of connections that were reset by the peer, or timed out.
    pub aborted: u64,
    /// Number of connections at the end of the capture with data that was sent again and again and not acknowledged.
    pub silent: u64,
    /// Longest time since the last acknowledgement of these, in milliseconds.
    pub silent_ms: f64,
    /// Number of connections that were dropped because the process had not accepted others.
    pub dropped: u64,
    /// Bytes that were sent, each once.
    pub sent_bytes: u64,
    /// Bytes that were received.
    pub received_bytes: u64,
    /// Segments with data that were sent.
    pub segments: u64,
    /// How many of these were sent again.
    pub resent: u64,
    /// Mean of the last round-trip times of the connections, in milliseconds.
    pub round_trip_ms: f64,
    /// Time for which data could not be sent because the peer had no room for it, of all connections, in
    /// milliseconds.
    pub peer_full_ms: f64,
    /// Bytes that had been received and not read when the capture ended.
    pub unread_bytes: u64,
    /// Connections that had not been accepted when the capture ended.
    pub unaccepted: u64,
    /// Number of connections whose opening was followed.
    pub connects: u64,
    /// Time that half of these took to open at most, to 12.5 %.
    pub connect_p50_ms: f64,
    /// Time that 99 % of them took at most, to 12.5 %.
    pub connect_p99_ms: f64,
    /// Time that the longest took.
    pub connect_max_ms: f64,
}

impl Connections {
    /// Drops what is beyond the limits: a file may have any number of rows.
    pub(crate) fn truncate(&mut self) {
        self.rows.truncate(MAX_CONNECTION_ROWS);
    }

    /// Keeps the rows of these processes only, by id and name.
    pub(crate) fn keep(&mut self, is_kept: impl Fn(i32, &str) -> bool) {
        self.rows.retain(|row| is_kept(row.pid, &row.process));
    }
}
