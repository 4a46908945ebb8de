//! The TCP sockets of a network namespace, with what the kernel counts for each: sock_diag(7).
//!
//! Reading them needs no rights, but for a namespace that is not ours (`CAP_SYS_ADMIN`), and changes nothing for
//! who uses them.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::bytes::Bytes;
use crate::trace::Pid;

/// Maximum number of sockets that are read at once: some 100 ms of CPU time.
const MAX_SOCKETS: usize = 100_000;
/// Size of the buffer for messages; the kernel sends at most 32 KiB at once.
const BUFFER_BYTES: usize = 64 << 10;
/// Room for messages about sockets that ended: those of some 4 000 until they are read, and the same if many
/// namespaces are open. The kernel's memory is taken while they wait.
const ENDED_BYTES: usize = 8 << 20;
const FEW_ENDED_BYTES: usize = 512 << 10;
/// Number of namespaces that are not many.
const FEW: usize = 8;
/// Maximum number of messages that are read at once.
const MAX_MESSAGES: usize = 1 << 16;
/// Longest time that the kernel may take for the next part of an answer.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Messages, flags and groups (linux/netlink.h, linux/sock_diag.h).
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x1 | 0x300;
const HEADER_BYTES: usize = 16;
/// The groups of TCP sockets that end: `SKNLGRP_INET_TCP_DESTROY` and that of IPv6.
const ENDED_GROUPS: u32 = 1 | 1 << 2;
/// Attributes of a socket (linux/inet_diag.h).
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_SKMEMINFO: u16 = 7;
/// Bits of attributes in a request.
const EXTENSIONS: u8 = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_SKMEMINFO - 1);
/// Place of the number of dropped packets, or connections, in the memory of a socket (`SK_MEMINFO_DROPS`).
const DROPS_AT: usize = 8 * 4;
const IPPROTO_TCP: u8 = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// State of a TCP socket, with the kernel's numbers (linux/tcp_states.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpState(pub u8);

impl TcpState {
    /// Connected.
    pub const ESTABLISHED: Self = Self(1);
    /// It waits for the answer to its request for a connection.
    pub const SYN_SENT: Self = Self(2);
    /// It has answered a request for a connection.
    pub const SYN_RECV: Self = Self(3);
    /// Its process has closed it.
    pub const FIN_WAIT1: Self = Self(4);
    /// Closed by both sides; nothing of its process is left.
    pub const TIME_WAIT: Self = Self(6);
    /// Not connected, or no longer.
    pub const CLOSE: Self = Self(7);
    /// Its process has closed it, after the peer.
    pub const LAST_ACK: Self = Self(9);
    /// It waits for connections.
    pub const LISTEN: Self = Self(10);
    /// A request for a connection that is not answered (`TCP_NEW_SYN_RECV`).
    const REQUEST: Self = Self(12);
}

/// What the kernel counts for a connection, from its start (`tcp_info` of linux/tcp.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounts {
    /// Round-trip time, smoothed, in microseconds.
    pub round_trip_us: u32,
    /// Whether the peer has acknowledged anything.
    pub is_answered: bool,
    /// Time since the last acknowledgement, in milliseconds, while data that was sent again waits for one.
    pub silent_ms: Option<u32>,
    /// Segments with data that were sent.
    pub segments: u32,
    /// How many of these were sent again.
    pub resent: u32,
    /// Bytes that were sent, each once.
    pub sent: u64,
    /// Bytes that were received. The end of the peer's data counts as one.
    pub received: u64,
    /// Time for which data could not be sent, because the peer had no room for it, in microseconds.
    pub peer_full_us: u64,
}

/// A TCP socket.
#[derive(Clone, Copy, Debug)]
pub struct TcpSocket {
    /// Number of the socket in its namespace, never used again.
    pub cookie: u64,
    /// Its address.
    pub local: SocketAddr,
    /// The address of its peer.
    pub remote: SocketAddr,
    /// Its state.
    pub state: TcpState,
    /// Inode by which descriptors refer to it; 0 if none does.
    pub inode: u64,
    /// Bytes that its process has not read; connections that it has not accepted, if it listens.
    pub unread: u32,
    /// Connections that were dropped because it had not accepted others, if it listens.
    pub dropped: u32,
    /// What the kernel counts for it.
    pub counts: TcpCounts,
    /// Whether it does: not for the rest of a connection that is closed.
    pub has_counts: bool,
}

/// Reads the TCP sockets of a network namespace.
#[derive(Debug)]
pub struct TcpSockets {
    requests: OwnedFd,
    /// Messages about sockets that ended.
    ended: OwnedFd,
    buffer: Vec<u8>,
}

/// What a reading has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// All of them.
    Complete,
    /// There were too many, or the kernel has dropped messages.
    Incomplete,
}

impl TcpSockets {
    /// Opens those of the network namespace of a process. `others` is the number of those that are open.
    ///
    /// # Errors
    /// The namespace may not be entered, or the kernel does not list sockets.
    pub fn of(pid: Pid, others: usize) -> io::Result<Self> {
        let room = match others {
            0..FEW => ENDED_BYTES,
            _ => FEW_ENDED_BYTES,
        };
        if namespace(pid)? == namespace_of("self")? {
            return Self::of_thread(room);
        }
        let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
        // Only that thread enters it.
        let opened = std::thread::Builder::new().spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Self::of_thread(room)
        })?;
        let opened = opened.join();
        opened.unwrap_or_else(|_| Err(io::Error::other("the thread that opens it failed")))
    }

    /// Opens those of the network namespace of this thread.
    fn of_thread(room: usize) -> io::Result<Self> {
        let open = |groups| -> io::Result<OwnedFd> {
            let (netlink, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
            let socket =
                rustix::net::socket_with(netlink, SocketType::RAW, flags, Some(SOCK_DIAG))?;
            rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
            Ok(socket)
        };
        let requests = open(0)?;
        sockopt::set_socket_timeout(&requests, Timeout::Recv, Some(MAX_WAIT))?;
        let ended = open(ENDED_GROUPS)?;
        // Without the right to, it has as much as the system permits.
        let forced = sockopt::set_socket_recv_buffer_size_force(&ended, room);
        forced.or_else(|_| sockopt::set_socket_recv_buffer_size(&ended, room))?;
        Ok(Self {
            requests,
            ended,
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// Returns the descriptor that is readable when a socket has ended.
    #[must_use]
    pub fn ended_fd(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Passes all sockets that are connected, connecting, or listening to `each`, until it breaks.
    ///
    /// # Errors
    /// The kernel does not list sockets.
    pub fn list(
        &mut self,
        mut each: impl FnMut(TcpSocket) -> ControlFlow<()>,
    ) -> io::Result<Reading> {
        let mut count = 0;
        let mut is_enough = false;
        for family in [AF_INET, AF_INET6] {
            rustix::net::send(&self.requests, &request(family), SendFlags::empty())?;
            loop {
                let message = receive(&self.requests, &mut self.buffer, RecvFlags::empty())?;
                let is_last = for_each_tcp_socket(message, |socket| {
                    count += 1;
                    // Nothing is known of one whose process has closed it.
                    if count <= MAX_SOCKETS && !is_enough && socket.has_counts {
                        is_enough = each(socket).is_break();
                    }
                })?;
                if is_last {
                    break;
                }
                if is_enough {
                    return Ok(Reading::Incomplete);
                }
                if count > MAX_SOCKETS {
                    self.forget_answer();
                    return Ok(Reading::Incomplete);
                }
            }
        }
        Ok(Reading::Complete)
    }

    /// Drops the rest of an answer, which the kernel writes as it is read.
    fn forget_answer(&mut self) {
        let is_more = |message: io::Result<&[u8]>| {
            message.is_ok_and(|message| matches!(for_each_tcp_socket(message, |_| {}), Ok(false)))
        };
        while is_more(receive(
            &self.requests,
            &mut self.buffer,
            RecvFlags::empty(),
        )) {}
    }

    /// Passes the sockets that have ended since the last call to `each`.
    ///
    /// # Errors
    /// The messages cannot be read.
    pub fn ended(&mut self, mut each: impl FnMut(TcpSocket)) -> io::Result<Reading> {
        let mut reading = Reading::Complete;
        for _ in 0..MAX_MESSAGES {
            match receive(&self.ended, &mut self.buffer, RecvFlags::DONTWAIT) {
                Ok(message) => {
                    for_each_tcp_socket(message, &mut each)?;
                }
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::AGAIN) => return Ok(reading),
                    Some(Errno::NOBUFS) => reading = Reading::Incomplete,
                    _ => return Err(error),
                },
            }
        }
        Ok(reading)
    }
}

/// Returns the network namespace of a process, as a number.
///
/// # Errors
/// The process has ended, or may not be read.
pub fn network_namespace(pid: Pid) -> io::Result<u64> {
    namespace(pid)
}

fn namespace(pid: Pid) -> io::Result<u64> {
    namespace_of(&pid.to_string())
}

fn namespace_of(process: &str) -> io::Result<u64> {
    let status = rustix::fs::stat(format!("/proc/{process}/ns/net"))?;
    Ok(status.st_ino)
}

/// Receives a message of the kernel.
fn receive<'a>(socket: &OwnedFd, buffer: &'a mut [u8], flags: RecvFlags) -> io::Result<&'a [u8]> {
    for _ in 0..MAX_MESSAGES {
        let (_, length, sender) = rustix::net::recvfrom(socket, &mut buffer[..], flags)?;
        let sender = sender.map(SocketAddrNetlink::try_from);
        // Another process may have sent it.
        if matches!(sender, Some(Ok(sender)) if sender.pid() == 0) {
            return Ok(&buffer[..length.min(buffer.len())]);
        }
    }
    Err(io::Error::other("another process sends messages"))
}

/// Returns a request for the sockets of a family: `nlmsghdr` and `inet_diag_req_v2`.
fn request(family: u8) -> Vec<u8> {
    let omitted = [TcpState::TIME_WAIT, TcpState::REQUEST];
    let states = omitted.iter().fold(u32::MAX, |states, TcpState(state)| {
        states & !(1_u32 << state)
    });
    let any_socket = [0; 48];
    let length = (HEADER_BYTES + 8 + any_socket.len()) as u32;
    let mut request = length.to_ne_bytes().to_vec();
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    // Sequence number and sender.
    request.extend([0; 8]);
    request.extend([family, IPPROTO_TCP, EXTENSIONS, 0]);
    request.extend(states.to_ne_bytes());
    request.extend(any_socket);
    request
}

/// Passes the sockets of messages of the kernel to `each`. Returns whether these are the last ones.
///
/// # Errors
/// A message is malformed, or an error of the kernel.
pub fn for_each_tcp_socket(messages: &[u8], mut each: impl FnMut(TcpSocket)) -> io::Result<bool> {
    let malformed = || io::Error::other("a malformed message of the kernel about sockets");
    let mut rest = messages;
    while !rest.is_empty() {
        let mut header = Bytes(rest);
        let length = header.u32().ok_or_else(malformed)? as usize;
        let kind = header.u16().ok_or_else(malformed)?;
        let message = rest.get(..length).ok_or_else(malformed)?;
        let body = message.get(HEADER_BYTES..).ok_or_else(malformed)?;
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let error = Bytes(body).i32().ok_or_else(malformed)?;
                return Err(io::Error::from_raw_os_error(error.saturating_neg()));
            }
            SOCK_DIAG_BY_FAMILY => each(socket(body).ok_or_else(malformed)?),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Parses `inet_diag_msg` and its attributes.
fn socket(message: &[u8]) -> Option<TcpSocket> {
    let mut fields = Bytes(message);
    let (family, state) = (fields.u8()?, fields.u8()?);
    let _timer = fields.take(2)?;
    let [local_port, remote_port] = [fields.array()?, fields.array()?].map(u16::from_be_bytes);
    let [local, remote] = [fields.array::<16>()?, fields.array::<16>()?];
    let address = |bytes: [u8; 16], port| {
        let ip = match family {
            AF_INET => IpAddr::from(*bytes.first_chunk::<4>()?),
            _ => IpAddr::from(bytes).to_canonical(),
        };
        Some(SocketAddr::new(ip, port))
    };
    let _interface = fields.u32()?;
    let cookie = fields.u64()?;
    let _expires = fields.u32()?;
    let unread = fields.u32()?;
    let _unacknowledged = fields.u32()?;
    let _user = fields.u32()?;
    let inode = fields.u32()?.into();
    let mut socket = TcpSocket {
        cookie,
        local: address(local, local_port)?,
        remote: address(remote, remote_port)?,
        state: TcpState(state),
        inode,
        unread,
        dropped: 0,
        counts: TcpCounts::default(),
        has_counts: false,
    };
    while !fields.0.is_empty() {
        let (length, kind) = (fields.u16()?, fields.u16()?);
        let value = fields.take(usize::from(length).checked_sub(4)?)?;
        let padding = usize::from(length).next_multiple_of(4) - usize::from(length);
        let _ = fields.take(padding.min(fields.0.len()))?;
        match kind {
            INET_DIAG_INFO => {
                socket.counts = counts(value);
                socket.has_counts = true;
            }
            INET_DIAG_SKMEMINFO => {
                let drops = value.get(DROPS_AT..).and_then(|rest| Bytes(rest).u32());
                socket.dropped = drops.unwrap_or_default();
            }
            _ => {}
        }
    }
    Some(socket)
}

/// Parses `tcp_info`. Older kernels have less of it.
fn counts(info: &[u8]) -> TcpCounts {
    let u32 = |at: usize| info.get(at..).and_then(|rest| Bytes(rest).u32());
    let u64 = |at: usize| info.get(at..).and_then(|rest| Bytes(rest).u64());
    let acknowledged = u64(120).unwrap_or_default();
    // Sent twice again, and in flight.
    let is_unacknowledged = info.get(4).is_some_and(|backoff| *backoff >= 2) && u32(24) > Some(0);
    // Linux 4.19.
    let sent = u64(200).map(|sent| sent.saturating_sub(u64(208).unwrap_or_default()));
    TcpCounts {
        round_trip_us: u32(68).unwrap_or_default(),
        is_answered: acknowledged > 0,
        silent_ms: u32(56).filter(|_| is_unacknowledged),
        segments: u32(156).unwrap_or_default(),
        resent: u32(100).unwrap_or_default(),
        sent: sent.unwrap_or(acknowledged),
        received: u64(128).unwrap_or_default(),
        peer_full_us: u64(176).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    const BYTES: usize = 300_000;

    fn own() -> TcpSockets {
        TcpSockets::of(Pid(std::process::id() as i32), 0).unwrap()
    }

    /// A connection whose client has sent some bytes, and the server 5.
    fn connection(address: &str) -> Option<(TcpListener, TcpStream, TcpStream)> {
        let listener = TcpListener::bind(address).ok()?;
        let mut client = TcpStream::connect(listener.local_addr().ok()?).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut received = vec![0; BYTES];
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&vec![7; BYTES]).unwrap());
            server.read_exact(&mut received).unwrap();
        });
        server.write_all(b"hello").unwrap();
        Some((listener, client, server))
    }

    #[test]
    fn counts_of_sockets_are_those_of_their_programs() {
        let mut sockets = own();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Some((listener, client, server)) = connection(address) else {
                continue;
            };
            let _other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let inode = |socket: &dyn AsFd| rustix::fs::fstat(socket).unwrap().st_ino;
            let mut all = Vec::new();
            let reading = sockets.list(|socket| {
                all.push(socket);
                ControlFlow::Continue(())
            });
            let reading = reading.unwrap();
            assert_eq!(reading, Reading::Complete);
            let find = |inode: u64| *all.iter().find(|socket| socket.inode == inode).unwrap();
            let [own, peer] = [&client, &server].map(|stream| find(inode(stream)));
            assert_eq!(own.state, TcpState::ESTABLISHED);
            assert_eq!(own.local, client.local_addr().unwrap());
            assert_eq!(own.remote, listener.local_addr().unwrap());
            assert_eq!((own.counts.sent, own.counts.received), (BYTES as u64, 5));
            assert_eq!((peer.counts.sent, peer.counts.received), (5, BYTES as u64));
            assert_eq!((own.unread, peer.unread), (5, 0));
            assert!(
                own.counts.segments > 0 && own.counts.round_trip_us > 0,
                "{own:?}"
            );
            let listening = find(inode(&listener));
            assert_eq!((listening.state, listening.unread), (TcpState::LISTEN, 1));
        }
    }

    #[test]
    fn sockets_that_end_have_their_last_counts() {
        let mut sockets = own();
        let (_listener, mut client, server) = connection("127.0.0.1:0").unwrap();
        let (local, remote) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        client.shutdown(Shutdown::Write).unwrap();
        drop(server);
        let _ = client.read_to_end(&mut Vec::new());
        drop(client);
        let mut ended = None;
        for _ in 0..500 {
            let take = |socket: TcpSocket| {
                if (socket.local, socket.remote) == (local, remote) {
                    ended = Some(socket);
                }
            };
            assert_eq!(sockets.ended(take).unwrap(), Reading::Complete);
            if ended.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let counts = ended.unwrap().counts;
        assert_eq!((counts.sent, counts.received), (BYTES as u64, 5 + 1));
    }

    #[test]
    fn hostile_messages_are_refused() {
        // The length of one is that of more than there is, or too short for a socket.
        let mut message = request(AF_INET);
        assert!(for_each_tcp_socket(&message, |_| {}).is_err());
        message[0] = 200;
        assert!(for_each_tcp_socket(&message, |_| {}).is_err());
        assert!(for_each_tcp_socket(&[1, 0, 0, 0, 20, 0], |_| {}).is_err());
        let mut body = vec![0; 72];
        assert!(socket(&body).is_some());
        // An attribute that is shorter than its header.
        body.extend([3, 0, 2, 0]);
        assert!(socket(&body).is_none());
        assert!(socket(&body[..71]).is_none());
        assert_eq!(counts(&[]), TcpCounts::default());
    }
}
