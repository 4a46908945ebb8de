//! TCP connections: as many bytes, attempts and failures as the program knows.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use perfcollect::trace::{ConnectionRow, Connections, Notice};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use support::{
    AS_NOBODY, Missing, PublicDirectory, Saved, captured_during, end_capture, perfcollect, run,
    run_perfcollect, start_capture,
};

const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of a request and of its answer.
const REQUEST: usize = 10_000;
const ANSWER: usize = 3_000;
const SHORT: u64 = 40;
const REFUSED: u64 = 7;
const RESET: u64 = 9;

/// Answers each request of each connection.
fn serve(listener: &TcpListener) {
    for connection in listener.incoming() {
        let mut connection = connection.unwrap();
        thread::spawn(move || {
            let mut request = [0; REQUEST];
            while connection.read_exact(&mut request).is_ok() {
                connection.write_all(&[7; ANSWER]).unwrap();
            }
        });
    }
}

fn ask(connection: &mut TcpStream) {
    connection.write_all(&[7; REQUEST]).unwrap();
    connection.read_exact(&mut [0; ANSWER]).unwrap();
}

fn rows(connections: &Connections, address: SocketAddr, is_inbound: bool) -> Vec<&ConnectionRow> {
    let address = address.to_string();
    let rows = connections.rows.iter();
    rows.filter(|row| row.address == address && row.is_inbound == is_inbound)
        .collect()
}

#[track_caller]
fn row(connections: &Connections, address: SocketAddr, is_inbound: bool) -> &ConnectionRow {
    let rows = rows(connections, address, is_inbound);
    assert_eq!(rows.len(), 1, "{address}: {connections:#?}");
    rows[0]
}

fn notices(saved: &Saved) -> Vec<&Notice> {
    let notices = saved.summary.quality.notices.iter();
    notices
        .filter(|notice| notice.subject == "connections")
        .collect()
}

/// The connections of a capture, if it has followed attempts to connect.
fn followed(saved: &Saved) -> Result<Connections, Missing> {
    let connections = saved.summary.info.connections.clone().unwrap();
    match connections.has_attempts {
        true => Ok(connections),
        false => Err(Missing::Tracepoints),
    }
}

/// A listener that closes connections without reading what they sent: this resets them.
fn resetting_listener() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut first = [0];
            connection.unwrap().read_exact(&mut first).unwrap();
        }
    });
    address
}

/// A listener that accepts nothing, whose queue is full, with those that connect to it.
fn full_listener() -> (SocketAddr, Vec<OwnedFd>) {
    let open = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
    };
    let listener = open();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    rustix::net::bind(&listener, &any).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = rustix::net::getsockname(&listener).unwrap();
    let address = SocketAddr::try_from(address).unwrap();
    let mut sockets = vec![listener];
    for _ in 0..4 {
        let socket = open();
        let _ = rustix::net::connect(&socket, &address);
        sockets.push(socket);
    }
    (address, sockets)
}

#[test]
fn counts_are_those_of_the_program() {
    need_capture!();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || serve(&listener));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = closed.local_addr().unwrap();
    drop(closed);
    let mut long = TcpStream::connect(address).unwrap();
    (0..100).for_each(|_| ask(&mut long));
    let resetting = resetting_listener();
    let mut full = None;
    let pid = std::process::id().to_string();
    let saved = captured_during(&["-net", "-nolttng", "-p", &pid], || {
        for _ in 0..SHORT {
            ask(&mut TcpStream::connect(address).unwrap());
            ask(&mut long);
        }
        for _ in 0..REFUSED {
            TcpStream::connect(refusing).unwrap_err();
        }
        for _ in 0..RESET {
            let mut connection = TcpStream::connect(resetting).unwrap();
            connection.write_all(&[7; 100]).unwrap();
            connection.read_exact(&mut [0]).unwrap_err();
        }
        full = Some(full_listener());
        // The kernel asks the full listener again after a second.
        thread::sleep(Duration::from_millis(1500));
    });
    let connections = need!(followed(&saved));
    assert_eq!((connections.lost_records, connections.unlisted), (0, 0));
    let client = row(&connections, address, false);
    assert_eq!(
        (client.connections, client.failed),
        (SHORT + 1, 0),
        "{client:?}"
    );
    assert_eq!(client.connects, SHORT);
    assert_eq!(client.sent_bytes, 2 * SHORT * REQUEST as u64);
    // The end of a connection counts as a byte.
    let answers = 2 * SHORT * ANSWER as u64;
    assert!((answers..=answers + SHORT).contains(&client.received_bytes));
    assert!(client.connect_p50_ms > 0.0 && client.connect_p50_ms <= client.connect_max_ms);
    let server = row(&connections, address, true);
    assert_eq!((server.connections, server.connects), (SHORT + 1, 0));
    assert_eq!(server.sent_bytes, answers);
    let received = 2 * SHORT * REQUEST as u64;
    assert!((received..=received + SHORT).contains(&server.received_bytes));
    let refused = row(&connections, refusing, false);
    assert_eq!((refused.connections, refused.failed), (0, REFUSED));
    let reset = row(&connections, resetting, false);
    assert_eq!(
        (reset.connections, reset.aborted),
        (RESET, RESET),
        "{reset:?}"
    );
    // It has reset them itself.
    assert_eq!(row(&connections, resetting, true).aborted, 0);
    assert_eq!((client.aborted, client.silent), (0, 0), "{client:?}");
    let (full, _sockets) = full.unwrap();
    let waiting = row(&connections, full, false);
    let listening = row(&connections, full, true);
    // Its queue has room for one.
    assert_eq!(
        (waiting.connections, waiting.connecting),
        (1, 3),
        "{waiting:?}"
    );
    assert!(waiting.oldest_ms >= 1400.0, "{waiting:?}");
    assert_eq!(listening.unaccepted, 1);
    assert!(listening.dropped >= 3, "{listening:?}");
    expect_findings(&saved, [refusing, resetting, full]);
    expect_table(&saved, address);
}

#[track_caller]
fn expect_findings(saved: &Saved, [refusing, resetting, full]: [SocketAddr; 3]) {
    let findings = saved.summary.findings.iter();
    let texts: Vec<&str> = findings
        .filter(|finding| finding.rule == "connections")
        .map(|finding| &*finding.text)
        .collect();
    let refused = format!("to {refusing}: {REFUSED} of {REFUSED} attempts to connect failed");
    let silent = format!("to {full}: 3 attempts have no answer, the oldest for at least ");
    let dropped = format!("at {full}: ");
    let reset = format!("to {resetting}: {RESET} of {RESET} connections were reset by the peer");
    for expected in [&refused, &silent, &dropped, &reset] {
        assert!(
            texts.iter().any(|text| text.contains(expected)),
            "{expected}: {texts:#?}"
        );
    }
    assert!(
        texts.iter().all(|text| !text.contains("0.0.0.0")),
        "{texts:#?}"
    );
}

#[track_caller]
fn expect_table(saved: &Saved, address: SocketAddr) {
    let path = saved.path.to_str().unwrap();
    let words = ["report", path, "-kind", "connections", "-format", "csv"];
    let table = run_perfcollect(words, saved.directory(), LIMIT).expect_success();
    assert!(
        table
            .stdout
            .contains(&format!(",client,{address},{}", SHORT + 1)),
        "{}",
        table.stdout
    );
    // They have no times.
    let words = ["report", path, "-kind", "connections", "-to", "100"];
    let part = run_perfcollect(words, saved.directory(), LIMIT);
    assert!(!part.status.success());
    assert!(
        part.stderr.contains("select it by process only"),
        "{}",
        part.stderr
    );
}

/// A server in a separate network that answers nothing, and its clients, which reset their connections.
const RESETTING: &str = "import socket, struct, sys
server = socket.socket(); server.bind(('127.0.0.1', 7001)); server.listen(10)
print('ready', flush=True); input()
for _ in range(30):
    client = socket.create_connection(('127.0.0.1', 7001)); accepted, _ = server.accept()
    client.sendall(b'x' * 1000)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); client.close(); accepted.close()
sys.stdin.read()
";

#[test]
fn connections_in_another_network_namespace_that_are_reset_are_counted() {
    need_capture!();
    need_command!("python3");
    let directory = tempfile::tempdir().unwrap();
    let script = "ip link set lo up 2>&1 && exec python3 -c \"$1\"";
    let mut program = Command::new("unshare");
    program.args(["-n", "sh", "-c", script, "sh", RESETTING]);
    // It ends with its input.
    let mut program = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    let mut line = String::new();
    let output = program.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    if line != "ready\n" {
        program.wait().unwrap();
        skip!(Missing::Unshare("-n"));
    }
    let mut command = Command::new(perfcollect());
    let pid = program.id().to_string();
    command.args(["collect", "x", "-net", "-nolttng", "-p", &pid]);
    let capture = start_capture(command.current_dir(&directory));
    input.write_all(b"\n").unwrap();
    thread::sleep(Duration::from_millis(1500));
    end_capture(capture);
    drop(input);
    program.wait().unwrap();
    let saved = Saved::open(directory, "x");
    let connections = need!(followed(&saved));
    let address = "127.0.0.1:7001".parse().unwrap();
    let client = row(&connections, address, false);
    assert_eq!(
        (client.connections, client.connects),
        (30, 30),
        "{connections:#?}"
    );
    assert_eq!(client.process, "python3");
    let server = row(&connections, address, true);
    assert_eq!((server.connections, server.received_bytes), (30, 30_000));
    // What the kernel has counted for a connection that is reset by its process is not known.
    assert_eq!((connections.incomplete, connections.unowned), (30, 0));
}

/// Connections to itself, later than a search for new namespaces.
const LATER: &str = "import socket, time
time.sleep(0.8)
server = socket.socket(); server.bind(('127.0.0.1', 7002)); server.listen(10)
for _ in range(20):
    client = socket.create_connection(('127.0.0.1', 7002)); accepted, _ = server.accept()
    client.sendall(b'x' * 1000); accepted.recv(1000); accepted.close(); client.close()
sum(range(3000000))
";

#[test]
fn a_namespace_that_a_command_makes_is_entered() {
    need_capture!();
    need_command!("python3");
    let directory = tempfile::tempdir().unwrap();
    let script = "ip link set lo up 2>&1 && exec python3 -c \"$1\"";
    let mut command = Command::new(perfcollect());
    command.args(["collect", "x", "-net", "-nolttng", "--"]);
    command.args(["unshare", "-n", "sh", "-c", script, "sh", LATER]);
    let finished = run(command.current_dir(&directory), LIMIT);
    if finished.stderr.contains("unshare: ") {
        skip!(Missing::Unshare("-n"));
    }
    finished.expect_success();
    let saved = Saved::open(directory, "x");
    let connections = need!(followed(&saved));
    let address = "127.0.0.1:7002".parse().unwrap();
    let client = row(&connections, address, false);
    assert_eq!((client.connections, client.sent_bytes), (20, 20_000));
    let server = row(&connections, address, true);
    assert_eq!((server.connections, server.sent_bytes), (20, 0));
    assert_eq!((connections.incomplete, connections.unowned), (0, 0));
}

#[test]
fn without_rights_the_counts_of_the_sockets_are_there() {
    need_capture!();
    need_command!("python3");
    let public = PublicDirectory::new();
    let script = "import socket, time
server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen(10)
client = socket.create_connection(server.getsockname()); accepted, _ = server.accept()
end = time.time() + 2.5
while time.time() < end:
    client.sendall(b'x' * 1000); accepted.recv(1000); time.sleep(0.01); sum(range(20000))
";
    let options = ["-net", "--", "python3", "-c", script];
    let finished = public.collect(&AS_NOBODY, &options);
    if finished.is_not_permitted() {
        return;
    }
    finished.expect_trace();
    let saved = Saved::open(public.into_inner(), "x");
    let connections = saved.summary.info.connections.clone().unwrap();
    assert!(!connections.has_attempts);
    let what: Vec<&str> = notices(&saved).iter().map(|notice| &*notice.what).collect();
    assert_eq!(what.len(), 1, "{what:?}");
    assert!(
        what[0].starts_with("attempts to connect were not followed: "),
        "{what:?}"
    );
    let clients = connections.rows.iter().filter(|row| !row.is_inbound);
    let sent: Vec<u64> = clients.map(|row| row.sent_bytes).collect();
    assert!(
        sent.len() == 1 && sent[0] > 50_000 && sent[0].is_multiple_of(1000),
        "{connections:#?}"
    );
}
