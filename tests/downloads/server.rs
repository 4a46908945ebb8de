//! An HTTP server on loopback with a response function, which records its requests.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A request that the server received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// `GET`, or `CONNECT` for a proxy.
    pub(crate) method: String,
    /// Path; host and port for `CONNECT`.
    pub(crate) target: String,
    /// First byte of `Range: bytes=FIRST-`.
    pub(crate) from: Option<usize>,
    /// User of the client process.
    pub(crate) uid: u32,
}

/// A server that listens until the test process ends.
pub(crate) struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts a server. `answer` writes a complete response; then the server closes the connection.
    pub(crate) fn start(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen) = (Arc::new(answer), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                thread::spawn(move || serve(stream, &*answer, &seen));
            }
        });
        Self { address, requests }
    }

    /// Starts a server with these files, which supports range requests.
    pub(crate) fn of_files(files: Vec<(String, Vec<u8>)>) -> Self {
        Self::start(move |request, stream| {
            match files.iter().find(|(path, _)| *path == request.target) {
                Some((_, body)) => send_from(request, body, stream),
                None => status(stream, "404 Not Found", ""),
            }
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

fn serve(
    mut stream: TcpStream,
    answer: &(impl Fn(&Request, &mut TcpStream) + ?Sized),
    seen: &Mutex<Vec<Request>>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = read(&mut reader, &stream) {
        seen.lock().unwrap().push(request.clone());
        if request.method == "CONNECT" {
            status(&mut stream, "200 Connection Established", "");
        } else {
            return answer(&request, &mut stream);
        }
    }
}

fn read(reader: &mut impl BufRead, stream: &TcpStream) -> Option<Request> {
    let mut lines = reader.lines().map_while(Result::ok);
    let first = lines.next()?;
    let mut words = first.split(' ');
    let mut request = Request {
        method: words.next()?.to_owned(),
        target: words.next()?.to_owned(),
        from: None,
        uid: owner(stream.peer_addr().unwrap().port()).unwrap_or(u32::MAX),
    };
    for line in lines.take_while(|line| !line.is_empty()) {
        let line = line.to_ascii_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            request.from = range.trim_end_matches('-').parse().ok();
        }
    }
    Some(request)
}

/// Returns the user of the socket with a local port, from `/proc/net/tcp`.
fn owner(port: u16) -> Option<u32> {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!("0100007F:{port:04X}");
    let mut rows = sockets
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row[1] == local)?;
    row[7].parse().ok()
}

/// Writes a response with a status and headers (each with a line end), without body.
pub(crate) fn status(stream: &mut TcpStream, status: &str, headers: &str) {
    let length = if status.contains("Established") {
        ""
    } else {
        "Content-Length: 0\r\n"
    };
    let _ = write!(stream, "HTTP/1.1 {status}\r\n{length}{headers}\r\n");
}

/// Writes a response with a declared length and a body.
pub(crate) fn send(stream: &mut TcpStream, length: usize, body: &[u8]) {
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
    );
    let _ = stream.write_all(body);
}

/// Writes the requested range of a body.
pub(crate) fn send_from(request: &Request, body: &[u8], stream: &mut TcpStream) {
    let Some(from) = request.from else {
        return send(stream, body.len(), body);
    };
    let (rest, total) = (&body[from..], body.len());
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{}/{total}\r\nContent-Length: {}\r\n\r\n",
        total - 1,
        rest.len()
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(rest);
}
