//! Requests to a service, and how long each took.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::Workload;

const TIMEOUT: Duration = Duration::from_secs(300);

/// A client of the service of ASP.NET Core (`tests/workloads/aspnet`).
pub struct ServiceClient(String);

impl ServiceClient {
    /// A client of a running service.
    pub fn new(service: &Workload) -> Self {
        let url = service.ready["url"].as_str().unwrap();
        Self(url.strip_prefix("http://").unwrap().to_owned())
    }

    /// Sends a request.
    pub fn send(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.0).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Sends requests one after another. Returns the time that each took, in milliseconds.
    pub fn get(&self, paths: impl Iterator<Item = String>) -> Vec<f64> {
        paths
            .map(|path| {
                let start = Instant::now();
                let mut answer = Vec::new();
                self.send(&path).read_to_end(&mut answer).unwrap();
                assert!(answer.starts_with(b"HTTP/1.1 "), "{path}");
                start.elapsed().as_secs_f64() * 1e3
            })
            .collect()
    }
}
