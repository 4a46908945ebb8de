//! Servers that misbehave: perfcollect reports each of them, within the limits.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::LIMIT;
use crate::program::Program;
use crate::server::{Request, Server, send, send_from, status};
use crate::support::run;

/// A misbehaving server, and the expected message.
struct Misbehaviour {
    name: &'static str,
    answer: fn(&Program, &Request, &mut TcpStream),
    message: &'static str,
}

fn trickle(stream: &mut TcpStream, head: &str) {
    let _ = stream.write_all(head.as_bytes());
    for _ in 0..600 {
        thread::sleep(Duration::from_millis(50));
        if stream.write_all(b"x").is_err() {
            return;
        }
    }
}

const MISBEHAVIOURS: [Misbehaviour; 18] = [
    Misbehaviour {
        name: "another build",
        answer: |program, _, stream| {
            let other = fs::read(program.path.with_file_name("libwork.so")).unwrap();
            send(stream, other.len(), &other);
        },
        message: "deleted the downloaded file: its build id is ",
    },
    Misbehaviour {
        name: "an error page",
        answer: |_, _, stream| send(stream, 15, b"<html>no</html>"),
        message: "deleted the downloaded file: not a debug file",
    },
    Misbehaviour {
        name: "nothing",
        answer: |_, _, stream| send(stream, 0, b""),
        message: "deleted the downloaded file: not a debug file",
    },
    Misbehaviour {
        name: "the stripped file itself",
        answer: |program, _, stream| {
            let stripped = fs::read(&program.path).unwrap();
            send(stream, stripped.len(), &stripped);
        },
        message: "deleted the downloaded file: it has no symbols",
    },
    Misbehaviour {
        name: "a truncated file",
        answer: |program, _, stream| {
            let part = &program.debug[..program.debug.len() / 2];
            send(stream, part.len(), part);
        },
        message: "deleted the downloaded file: ",
    },
    Misbehaviour {
        name: "a declared terabyte",
        answer: |_, _, stream| send(stream, 1 << 40, b"\x7fELF"),
        message: "larger than the limit of 1 MiB (-maxsize)",
    },
    Misbehaviour {
        name: "an endless body",
        answer: |_, _, stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(&[0; 4096]).is_ok() {}
        },
        message: "larger than the limit of 1 MiB (-maxsize)",
    },
    Misbehaviour {
        name: "a redirect to itself",
        answer: |_, request, stream| {
            status(
                stream,
                "302 Found",
                &format!("Location: {}\r\n", request.target),
            );
        },
        message: "more than 5 redirects",
    },
    Misbehaviour {
        name: "a redirect to a file",
        answer: |_, _, stream| {
            status(stream, "302 Found", "Location: file:///etc/passwd\r\n");
        },
        message: "redirected to \"file:///etc/passwd\", which is not an http or https URL",
    },
    Misbehaviour {
        name: "a range that was not requested",
        answer: |program, request, stream| {
            let from = Some(1000);
            let request = Request {
                from,
                ..request.clone()
            };
            send_from(&request, &program.debug, stream);
        },
        message: "the server sent a range that was not requested",
    },
    Misbehaviour {
        name: "no response",
        answer: |_, _, _| thread::sleep(Duration::from_secs(30)),
        message: "no response within 1 s (-timeout)",
    },
    Misbehaviour {
        name: "an endless header",
        answer: |_, _, stream| trickle(stream, "HTTP/1.1 200 OK\r\nX: "),
        message: "no response within 1 s (-timeout)",
    },
    Misbehaviour {
        name: "too many headers",
        answer: |_, _, stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            while stream.write_all(b"X: 0123456789\r\n").is_ok() {}
        },
        message: "cannot parse the response: http parse resulted in too many headers",
    },
    Misbehaviour {
        name: "a large header",
        answer: |_, _, stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: ");
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        },
        message: "the response headers exceed ",
    },
    Misbehaviour {
        name: "a byte now and then",
        answer: |_, _, stream| trickle(stream, "HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n"),
        message: "less than 64 KiB in 1 s (-timeout)",
    },
    Misbehaviour {
        name: "silence in the middle",
        answer: |program, _, stream| {
            send(stream, program.debug.len(), &program.debug[..1000]);
            thread::sleep(Duration::from_secs(30));
        },
        message: "less than 64 KiB in 1 s (-timeout); run the command again to resume at byte 1000",
    },
    Misbehaviour {
        name: "an error",
        answer: |_, _, stream| status(stream, "503 Busy", ""),
        message: "the server returned status 503",
    },
    Misbehaviour {
        name: "another protocol",
        answer: |_, _, stream| drop(stream.write_all(b"220 ftp ready\r\n")),
        message: "cannot parse the response: ",
    },
];

#[test]
fn reports_misbehaving_servers_within_limits() {
    let program = need_program!();
    for Misbehaviour {
        name,
        answer,
        message,
    } in MISBEHAVIOURS
    {
        let same = need_program!();
        let server = Server::start(move |request, stream| answer(&same, request, stream));
        let start = Instant::now();
        let id = &program.build_id;
        let arguments = [
            "symbols",
            id,
            "-server",
            &server.url(),
            "-maxsize",
            "1M",
            "-timeout",
            "1",
        ];
        let output = run(&mut program.command(arguments), LIMIT);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", output.stderr);
        let reasons = output
            .stderr
            .lines()
            .filter(|line| line.starts_with("  http"));
        let reasons: Vec<_> = reasons.collect();
        assert_eq!(reasons.len(), 1, "{name}: {}", output.stderr);
        assert!(reasons[0].contains(message), "{name}: {}", reasons[0]);
        assert!(
            start.elapsed() < Duration::from_secs(8),
            "{name}: {:?}",
            start.elapsed()
        );
        assert!(!program.cached().exists(), "{name}");
        // perfcollect keeps only the bytes of a slow server, to resume later.
        let kept = program.files_in_cache();
        assert_eq!(
            kept.len(),
            usize::from(message.contains("64 KiB")),
            "{name}: {kept:?}"
        );
        kept.iter().for_each(|file| fs::remove_file(file).unwrap());
        let requests = server.take_requests().len();
        assert!(requests <= 6, "{name}: {requests} requests");
    }
}

/// A capture has dozens of modules, and each would wait for a server that does not respond.
#[test]
fn queries_unresponsive_server_once() {
    let program = need_program!();
    let server = Server::start(|_, _| thread::sleep(Duration::from_secs(30)));
    let output = program.get(&server.url(), &["-timeout", "1"]);
    assert_eq!(server.take_requests().len(), 1);
    let skipped = "skipped: the server cannot be reached";
    assert!(output.stderr.contains(skipped), "{}", output.stderr);
    let cache = program.cache().join("perfcollect/symbols");
    assert_eq!(fs::read_dir(cache).unwrap().count(), 0);

    assert!(
        !output.stderr.contains("DEBUGINFOD_URLS"),
        "{}",
        output.stderr
    );
    let mut command = program.command(["symbols", &program.build_id, "-timeout", "1"]);
    let unreachable = "srv*http://127.0.0.1:1";
    let alone = run(command.env("_NT_SYMBOL_PATH", unreachable), LIMIT);
    assert!(
        alone.stderr.contains("set DEBUGINFOD_URLS"),
        "{}",
        alone.stderr
    );

    let output = program.get("http://127.0.0.1:1", &[]);
    let refused = "_.debug: the server cannot be reached: Connection refused";
    assert!(output.stderr.contains(refused), "{}", output.stderr);
    assert!(output.stderr.contains(skipped), "{}", output.stderr);
}
