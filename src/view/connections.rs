//! TCP connections.

use super::count;
use super::table::{Cell, Table};
use crate::output::sanitize::terminal;
use crate::output::summary::Summary;
use crate::trace::ConnectionRow;

/// Columns that a terminal may have no room for, in the order in which they go.
pub(super) const OPTIONAL_COLUMNS: [&str; 9] = [
    "connect_p50_ms",
    "connect_max_ms",
    "pid",
    "failed_after_ms",
    "connect_p99_ms",
    "rtt_ms",
    "unread_bytes",
    "peer_full_ms",
    "unaccepted",
];
/// Number of rows in the line about connections.
const MAX_SHORT: usize = 2;

/// Returns the connections by process and address.
pub(super) fn table(summary: &Summary) -> Table {
    let connections = summary.info.connections.as_ref();
    let rows = connections
        .into_iter()
        .flat_map(|connections| &connections.rows);
    let followed = connections_followed(summary);
    let rows = rows.map(|row| {
        // Without the tracepoint, nothing is known of attempts that fail at once.
        let attempt = |count: u64| match followed {
            true => count.into(),
            false => Cell::None,
        };
        let connect = |ms: f64| match row.connects {
            0 => Cell::None,
            _ => Cell::Number(ms),
        };
        [
            row.pid.into(),
            program(summary, row).into(),
            role(row).into(),
            address(row).into(),
            row.connections.into(),
            attempt(row.failed),
            match row.failed {
                0 => Cell::None,
                _ => Cell::Number(row.failed_after_ms),
            },
            row.connecting.into(),
            row.aborted.into(),
            row.silent.into(),
            row.dropped.into(),
            row.unaccepted.into(),
            Cell::Number(row.sent_bytes as f64 / 1e6),
            Cell::Number(row.received_bytes as f64 / 1e6),
            row.resent.into(),
            (row.peer_full_ms.round() as u64).into(),
            row.unread_bytes.into(),
            Cell::Number(row.round_trip_ms),
            connect(row.connect_p50_ms),
            connect(row.connect_p99_ms),
            connect(row.connect_max_ms),
        ]
    });
    let columns = [
        "pid",
        "process",
        "role",
        "address",
        "count",
        "failed",
        "failed_after_ms",
        "connecting",
        "aborted",
        "silent",
        "dropped",
        "unaccepted",
        "sent_mb",
        "received_mb",
        "resent",
        "peer_full_ms",
        "unread_bytes",
        "rtt_ms",
        "connect_p50_ms",
        "connect_p99_ms",
        "connect_max_ms",
    ];
    Table::new("connections", columns, rows)
}

fn connections_followed(summary: &Summary) -> bool {
    let connections = summary.info.connections.as_ref();
    connections.is_some_and(|connections| connections.has_attempts)
}

fn program<'a>(summary: &'a Summary, row: &'a ConnectionRow) -> &'a str {
    summary.program_named(row.pid, &row.process)
}

fn role(row: &ConnectionRow) -> &'static str {
    match row.is_inbound {
        true => "server",
        false => "client",
    }
}

fn address(row: &ConnectionRow) -> &str {
    match &*row.address {
        "" => "(other addresses)",
        address => address,
    }
}

/// Returns what the table lacks, or why there is none.
pub(super) fn omitted(summary: &Summary) -> Option<String> {
    let Some(connections) = &summary.info.connections else {
        return Some(
            "the trace has no TCP connections: a capture with -net follows them (one whose perfcollect was killed \
             has none)"
                .to_owned(),
        );
    };
    let mut lacks = Vec::new();
    let mut lack = |number: u64, what: &str| {
        if number > 0 {
            lacks.push(format!(
                "{} {what}",
                count(number, "connection", "connections")
            ));
        }
    };
    lack(connections.unlisted, "in no row: there are too many");
    lack(connections.unowned, "of unknown processes");
    lack(
        connections.incomplete,
        "whose last bytes are not counted: they were reset, or the end was not seen",
    );
    if connections.lost_records > 0 {
        let records = count(connections.lost_records, "record", "records");
        lacks.push(format!(
            "the kernel dropped {records} of attempts to connect: more may have failed"
        ));
    }
    if lacks.is_empty() && connections.rows.is_empty() {
        lacks.push("no process of the target had a TCP connection".to_owned());
    }
    if !connections.has_attempts {
        lacks.push(
            "attempts to connect were not followed: failed ones and short connections are missing"
                .to_owned(),
        );
    }
    (!lacks.is_empty()).then(|| lacks.join("; "))
}

/// Returns the connections in a line, with the addresses that have most; `None` if there are none.
pub(super) fn in_short(summary: &Summary) -> Option<String> {
    let connections = summary.info.connections.as_ref()?;
    let rows = connections.rows.iter();
    let has_some = |row: &&ConnectionRow| {
        let counts = [row.connections, row.failed, row.connecting];
        counts != [0; 3] || [row.dropped, row.unaccepted] != [0; 2]
    };
    let rows = rows.filter(has_some);
    let texts: Vec<String> = rows
        .take(MAX_SHORT)
        .map(|row| described(summary, row))
        .collect();
    (!texts.is_empty()).then(|| format!("connections: {}", texts.join("; ")))
}

fn described(summary: &Summary, row: &ConnectionRow) -> String {
    let mut text = format!(
        "{} {} {} {}",
        terminal(program(summary, row)),
        row.connections,
        if row.is_inbound { "at" } else { "to" },
        terminal(address(row)),
    );
    for (bytes, what) in [(row.sent_bytes, "sent"), (row.received_bytes, "received")] {
        if row.connections > 0 {
            text += &format!(", {} {what}", size(bytes));
        }
    }
    for (number, what) in [
        (row.failed, "failed"),
        (row.connecting, "without an answer"),
        (row.aborted, "reset or timed out"),
        (row.silent, "without an acknowledgement"),
        (row.dropped, "dropped"),
        (row.unaccepted, "not accepted"),
    ] {
        if number > 0 {
            text += &format!(", {number} {what}");
        }
    }
    text
}

fn size(bytes: u64) -> String {
    match bytes {
        0..100_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{CaptureInfo, Connections, Trace};

    fn summary(connections: Connections) -> Summary {
        Summary::new(&Trace {
            info: CaptureInfo {
                connections: Some(connections),
                ..CaptureInfo::default()
            },
            ..Trace::default()
        })
    }

    #[test]
    fn the_line_has_the_addresses_with_most_and_what_fails() {
        let row = ConnectionRow {
            process: "we\u{1b}b".into(),
            address: "10.0.0.9:5432".into(),
            connections: 3,
            failed: 2,
            sent_bytes: 1_500_000,
            ..ConnectionRow::default()
        };
        let connections = Connections {
            rows: vec![row.clone(), ConnectionRow::default(), row],
            ..Connections::default()
        };
        let line = in_short(&summary(connections)).unwrap();
        let one = "we\\u{1b}b 3 to 10.0.0.9:5432, 1.5 MB sent, 0.0 kB received, 2 failed";
        assert_eq!(line, format!("connections: {one}; {one}"));
        assert_eq!(in_short(&summary(Connections::default())), None);
    }

    #[test]
    fn the_last_line_says_what_is_missing() {
        let connections = Connections {
            unlisted: 1,
            unowned: 2,
            lost_records: 3,
            has_attempts: true,
            ..Connections::default()
        };
        let text = omitted(&summary(connections)).unwrap();
        assert_eq!(
            text,
            "1 connection in no row: there are too many; 2 connections of unknown processes; the kernel dropped 3 \
             records of attempts to connect: more may have failed"
        );
    }
}
