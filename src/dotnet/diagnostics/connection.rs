//! A connection to a diagnostic port. Each connection accepts one command.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use super::error::DiagnosticsError;
use super::limits::{Limits, timespec};
use super::message::{Command, HEADER_BYTES, ReplyHeader};
use super::port::DiagnosticPort;
use crate::machine;
use crate::trace::Pid;

/// Interval of connection attempts while the target's queue is full.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Time between `bind` and `listen` of the target, on a busy machine.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Connection(OwnedFd);

impl Connection {
    /// Connects if the listener has the pid and the user of the target.
    fn open(port: &DiagnosticPort, limits: &Limits) -> Result<Self, DiagnosticsError> {
        let failed = |error: rustix::io::Errno| DiagnosticsError::Connect(error.into());
        // A path through the descriptor is short and refers to exactly the socket that was found.
        let path = format!("/proc/self/fd/{}", port.socket().as_raw_fd());
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(failed)?;
        let start = Instant::now();
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                // The backlog is full. The backlog of a hung process fills up.
                Err(rustix::io::Errno::AGAIN) => {}
                // Nobody listens yet, or any more.
                Err(rustix::io::Errno::CONNREFUSED)
                    if start.elapsed() < LISTEN_TIMEOUT && machine::is_running(port.pid()) => {}
                Err(error) => return Err(failed(error)),
            }
            let left = limits.next_step().ok_or(DiagnosticsError::Silent)?;
            sleep(left.min(RETRY_INTERVAL));
        }
        let peer = getsockopt(&socket, PeerCredentials)
            .map_err(|error| DiagnosticsError::Connect(error.into()))?;
        if (peer.pid(), peer.uid()) != (port.pid().0, port.uid()) {
            return Err(DiagnosticsError::Squatted {
                pid: Pid(peer.pid()),
                uid: peer.uid(),
            });
        }
        Ok(Self(socket))
    }

    /// Connects and sends a command.
    pub(super) fn send(
        port: &DiagnosticPort,
        command: &Command,
        limits: &Limits,
    ) -> Result<Self, DiagnosticsError> {
        let bytes = command.encode()?;
        let connection = Self::open(port, limits)?;
        connection.write(&bytes, limits)?;
        Ok(connection)
    }

    /// Reads the reply. Later bytes, such as an event stream, stay in the connection.
    pub(super) fn reply(&self, limits: &Limits) -> Result<Vec<u8>, DiagnosticsError> {
        let mut header = [0; HEADER_BYTES];
        self.read_exact(&mut header, limits)?;
        let header = ReplyHeader::parse(&header)?;
        let mut payload = vec![0; header.payload_bytes];
        self.read_exact(&mut payload, limits)?;
        header.check(payload)
    }

    fn write(&self, mut bytes: &[u8], limits: &Limits) -> Result<(), DiagnosticsError> {
        while !bytes.is_empty() {
            self.wait(PollFlags::OUT, limits)?;
            match rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(error) => ignore_temporary(error)?,
            }
        }
        Ok(())
    }

    fn read_exact(&self, mut buffer: &mut [u8], limits: &Limits) -> Result<(), DiagnosticsError> {
        while !buffer.is_empty() {
            self.wait(PollFlags::IN, limits)?;
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(0) => return Err(DiagnosticsError::Malformed("truncated reply")),
                Ok(read) => buffer = buffer.get_mut(read..).unwrap_or_default(),
                Err(error) => ignore_temporary(error)?,
            }
        }
        Ok(())
    }

    fn wait(&self, events: PollFlags, limits: &Limits) -> Result<(), DiagnosticsError> {
        let left = limits.next_step().ok_or(DiagnosticsError::Silent)?;
        let mut sockets = [PollFd::new(&self.0, events)];
        match poll(&mut sockets, Some(&timespec(left))) {
            Ok(0) => Err(DiagnosticsError::Silent),
            Ok(_) => Ok(()),
            Err(error) => ignore_temporary(error),
        }
    }

    /// Reads available bytes. Waits for them without limit.
    pub(super) fn read_blocking(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut sockets = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut sockets, None).and_then(|_| rustix::io::read(&self.0, &mut *buffer)) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Shuts down the connection, so that a pending read returns.
    pub(super) fn shut_down(&self) {
        // An error means that the peer has already closed the connection.
        let _ = rustix::net::shutdown(self.0.as_fd(), Shutdown::Both);
    }
}

fn ignore_temporary(error: rustix::io::Errno) -> Result<(), DiagnosticsError> {
    match error {
        rustix::io::Errno::AGAIN | rustix::io::Errno::INTR => Ok(()),
        error => Err(DiagnosticsError::Io(error.into())),
    }
}
