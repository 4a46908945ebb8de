//! What the file descriptors of a process refer to. Paths and addresses are untrusted.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;

use procfs_core::net::{TcpNetEntries, TcpState, UdpNetEntries, UnixNetEntries};
use procfs_core::{ExplicitSystemInfo, FromBufRead, FromBufReadSI};
use rustc_hash::FxHashMap;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, getxattr, statx};

use super::proc_fs::read;
use crate::trace::{BlockedOn, Pid};

/// Maximum size of a table of sockets, in bytes: about 200 000 connections.
const MAX_TABLE_BYTES: u64 = 32 << 20;
/// Maximum size of what is read about a descriptor, in bytes: some 20 000 files of an epoll descriptor.
const MAX_INFO_BYTES: u64 = 1 << 20;
/// Extended attribute with the name of a socket's protocol (`sockfs_xattr_get` of the kernel), and the size of the
/// longest name with its NUL (`struct proto`).
const PROTOCOL: &str = "system.sockprotoname";
const MAX_PROTOCOL_BYTES: usize = 32;
/// Major numbers of terminals: consoles and serial ports, `/dev/tty`, and both ends of pseudo-terminals, of which
/// only some have an old number (Documentation/admin-guide/devices.txt of Linux).
const TERMINALS: [u32; 18] = [
    2, 3, 4, 5, 128, 129, 130, 131, 136, 137, 138, 139, 140, 141, 142, 143, 188, 204,
];
/// Number of files of an epoll descriptor that are described.
const MAX_WATCHED: usize = 2;

/// The file descriptors of a process.
pub struct Descriptors {
    pid: Pid,
    /// Descriptions of the sockets in the network namespace of the process, by inode: those with an address of the
    /// Internet, and Unix sockets, whose table anyone can add lines to.
    connections: OnceCell<FxHashMap<u64, String>>,
    unix: OnceCell<FxHashMap<u64, String>>,
}

impl Descriptors {
    /// Describes descriptors of a process. Reads nothing yet.
    #[must_use]
    pub fn of(pid: Pid) -> Self {
        Self {
            pid,
            connections: OnceCell::new(),
            unix: OnceCell::new(),
        }
    }

    /// Returns what a descriptor refers to, such as `TCP 10.0.0.5:4242 -> 10.0.0.9:5432` or the path
    /// of a file. Returns `None` if it is not open, or may not be read.
    #[must_use]
    pub fn describe(&self, descriptor: i32) -> Option<String> {
        let link = std::fs::read_link(format!("/proc/{}/fd/{descriptor}", self.pid)).ok()?;
        let link = link.to_string_lossy().into_owned();
        if let Some(inode) = socket_inode(&link) {
            let sockets = match self.is_unix(descriptor) {
                true => self.unix.get_or_init(|| unix_sockets(self.pid)),
                false => self.connections.get_or_init(|| connections(self.pid)),
            };
            let socket = sockets.get(&inode).cloned();
            return Some(socket.unwrap_or_else(|| "a socket".into()));
        }
        if link.starts_with("pipe:[") {
            return Some("a pipe".into());
        }
        Some(match link.strip_prefix("anon_inode:") {
            Some("[eventpoll]") => self.describe_epoll(descriptor),
            Some(kind) => kind.trim_matches(['[', ']']).to_owned(),
            None => link,
        })
    }

    /// Returns whether the protocol of a socket is that of Unix sockets, which the kernel knows without a table.
    fn is_unix(&self, descriptor: i32) -> bool {
        let mut name = [0; MAX_PROTOCOL_BYTES];
        let path = format!("/proc/{}/fd/{descriptor}", self.pid);
        let length = getxattr(path, PROTOCOL, &mut name);
        // `UNIX`, or `UNIX-STREAM` since Linux 5.15.
        length.is_ok() && name.starts_with(b"UNIX")
    }

    /// Returns what a descriptor refers to.
    #[must_use]
    pub fn kind(&self, descriptor: i32) -> BlockedOn {
        let path = format!("/proc/{}/fd/{descriptor}", self.pid);
        let Ok(link) = std::fs::read_link(&path) else {
            return BlockedOn::Nothing;
        };
        match link.as_os_str().as_bytes() {
            link if link.starts_with(b"socket:") => BlockedOn::Socket,
            link if link.starts_with(b"pipe:") => BlockedOn::Pipe,
            link if link.starts_with(b"/") => kind_of_file(&path),
            _ => BlockedOn::Anonymous,
        }
    }

    /// Describes the files that an epoll descriptor watches: lines `tfd: N ...` of its fdinfo.
    fn describe_epoll(&self, descriptor: i32) -> String {
        let path = format!("/proc/{}/fdinfo/{descriptor}", self.pid);
        let info = read(path, MAX_INFO_BYTES).unwrap_or_default();
        let least = if info.len() as u64 == MAX_INFO_BYTES {
            "at least "
        } else {
            ""
        };
        let info = String::from_utf8_lossy(&info);
        let watched = info.lines().filter_map(|line| {
            let number = line.strip_prefix("tfd:")?.split_ascii_whitespace().next()?;
            number.parse().ok()
        });
        let mut watched: Vec<i32> = watched.collect();
        watched.sort_unstable();
        let described = watched.iter().take(MAX_WATCHED).map(|watched| {
            let link = std::fs::read_link(format!("/proc/{}/fd/{watched}", self.pid));
            // One epoll descriptor may watch another one.
            match link.is_ok_and(|link| link.as_os_str() != "anon_inode:[eventpoll]") {
                true => self.describe(*watched).unwrap_or_else(|| "a file".into()),
                false => "an epoll descriptor".into(),
            }
        });
        let described: Vec<String> = described.collect();
        let more = watched.len().saturating_sub(described.len());
        match (described.is_empty(), more) {
            (true, _) => "epoll of no files".into(),
            (false, 0) => format!("epoll of {}", described.join(", ")),
            (false, more) => format!("epoll of {} and {least}{more} more", described.join(", ")),
        }
    }
}

/// Returns the inode of each socket that a process has open, and `None` for each other descriptor. Nothing if it may not
/// be read.
pub fn socket_inodes(pid: Pid) -> impl Iterator<Item = Option<u64>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let links = entries.into_iter().flatten().flatten();
    links.map(|entry| {
        let link = std::fs::read_link(entry.path()).ok()?;
        socket_inode(link.to_str()?)
    })
}

/// Returns the inode of the socket that a link of /proc stands for.
fn socket_inode(link: &str) -> Option<u64> {
    let number = link.strip_prefix("socket:[")?.strip_suffix(']')?;
    number.parse().ok()
}

/// Returns the kind of an open file by its link in /proc. Its server is not asked: it may not answer.
fn kind_of_file(link: &str) -> BlockedOn {
    let flags = AtFlags::STATX_DONT_SYNC;
    let Ok(status) = statx(CWD, link, flags, StatxFlags::TYPE) else {
        return BlockedOn::File;
    };
    match FileType::from_raw_mode(status.stx_mode.into()) {
        FileType::Fifo => BlockedOn::Pipe,
        FileType::Socket => BlockedOn::Socket,
        FileType::CharacterDevice if TERMINALS.contains(&status.stx_rdev_major) => {
            BlockedOn::Terminal
        }
        FileType::CharacterDevice => BlockedOn::Device,
        _ => BlockedOn::File,
    }
}

/// Opens a table of sockets of the network namespace of a process.
fn table(pid: Pid, name: &str) -> Option<impl BufRead> {
    let file = File::open(format!("/proc/{pid}/net/{name}")).ok()?;
    Some(BufReader::new(file.take(MAX_TABLE_BYTES)))
}

/// Opens a table of addresses, and parses it.
fn addresses<T: FromBufReadSI>(pid: Pid, name: &str) -> Option<T> {
    // Only the order of bytes in addresses matters.
    let system = ExplicitSystemInfo {
        boot_time_secs: 0,
        ticks_per_second: 100,
        page_size: 4096,
        is_little_endian: cfg!(target_endian = "little"),
    };
    T::from_buf_read(table(pid, name)?, &system).ok()
}

fn connection(protocol: &str, local: SocketAddr, remote: SocketAddr, listens: bool) -> String {
    match (listens, remote.port()) {
        (true, _) => format!("listening {protocol} {local}"),
        (false, 0) => format!("{protocol} {local}"),
        (false, _) => format!("{protocol} {local} -> {remote}"),
    }
}

/// Returns the sockets of TCP and UDP in the network namespace of a process.
fn connections(pid: Pid) -> FxHashMap<u64, String> {
    let mut sockets = FxHashMap::default();
    for name in ["tcp", "tcp6"] {
        let entries = addresses::<TcpNetEntries>(pid, name).map(|table| table.0);
        sockets.extend(entries.into_iter().flatten().map(|entry| {
            let listens = entry.state == TcpState::Listen;
            let text = connection("TCP", entry.local_address, entry.remote_address, listens);
            (entry.inode, text)
        }));
    }
    for name in ["udp", "udp6"] {
        let entries = addresses::<UdpNetEntries>(pid, name).map(|table| table.0);
        sockets.extend(entries.into_iter().flatten().map(|entry| {
            let text = connection("UDP", entry.local_address, entry.remote_address, false);
            (entry.inode, text)
        }));
    }
    sockets
}

/// Returns the Unix sockets of the network namespace of a process.
///
/// Their names may contain newlines, so that anyone may add lines: a socket with two lines has no name.
fn unix_sockets(pid: Pid) -> FxHashMap<u64, String> {
    let lines = table(pid, "unix")
        .into_iter()
        .flat_map(|table| table.split(b'\n'));
    let mut sockets: FxHashMap<u64, Option<String>> = FxHashMap::default();
    for line in lines.map_while(Result::ok).skip(1) {
        let row = [b"\n", &*line].concat();
        let Some(entry) = UnixNetEntries::from_buf_read(&row[..])
            .ok()
            .and_then(|row| row.0.into_iter().next())
        else {
            continue;
        };
        let path = entry.path.map(|path| path.to_string_lossy().into_owned());
        let path = path.filter(|path| !path.is_empty());
        let known = sockets.entry(entry.inode);
        known.and_modify(|known| *known = None).or_insert(path);
    }
    let described = sockets.into_iter().map(|(inode, path)| {
        let text = path.map_or("a Unix socket".into(), |path| format!("Unix socket {path}"));
        (inode, text)
    });
    described.collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    use rustix::event::epoll;
    use rustix::net::{AddressFamily, SocketType};

    use super::*;

    #[test]
    fn describes_files_and_sockets() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let own = client.local_addr().unwrap();
        let udp = UdpSocket::bind("[::1]:0").ok();
        let unix_path = directory.path().join("socket");
        let unix = UnixListener::bind(&unix_path).unwrap();
        let (pair, _other) = UnixStream::pair().unwrap();
        let netlink = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None).unwrap();
        // Their names add lines, also about sockets that are no Unix sockets.
        let forged: [&dyn AsFd; 3] = [&client, &netlink, &pair];
        let _forging = forged.map(|socket| {
            let inode = rustix::fs::fstat(socket).unwrap().st_ino;
            let name = format!("x\n0: 00000002 0 0 1 1 {inode} /forged\nz");
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
        });
        let (reader, _writer) = std::io::pipe().unwrap();
        let polls = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let add = |file: &dyn AsFd| {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&polls, file.as_fd(), data, epoll::EventFlags::IN).unwrap();
        };
        add(&listener);
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let fifo = File::options().read(true).write(true).open(fifo).unwrap();
        let null = File::open("/dev/null").unwrap();
        let terminal = File::open("/dev/ptmx").ok();
        let descriptors = Descriptors::of(Pid(std::process::id() as i32));
        let kind = |file: &dyn AsRawFd| descriptors.kind(file.as_raw_fd());
        assert_eq!(kind(&file), BlockedOn::File);
        assert_eq!(kind(&client), BlockedOn::Socket);
        assert_eq!([kind(&reader), kind(&fifo)], [BlockedOn::Pipe; 2]);
        assert_eq!(kind(&polls), BlockedOn::Anonymous);
        assert_eq!(kind(&null), BlockedOn::Device);
        if let Some(terminal) = terminal {
            assert_eq!(kind(&terminal), BlockedOn::Terminal);
        }
        let describe = |file: &dyn AsRawFd| descriptors.describe(file.as_raw_fd()).unwrap();
        assert_eq!(describe(&file), path.to_str().unwrap());
        assert_eq!(describe(&listener), format!("listening TCP {address}"));
        assert_eq!(describe(&client), format!("TCP {own} -> {address}"));
        if let Some(udp) = udp {
            let address = udp.local_addr().unwrap();
            assert_eq!(describe(&udp), format!("UDP {address}"));
        }
        let unix_path = unix_path.to_str().unwrap();
        assert_eq!(describe(&unix), format!("Unix socket {unix_path}"));
        assert_eq!(describe(&pair), "a Unix socket");
        assert_eq!(describe(&netlink), "a socket");
        assert_eq!(describe(&reader), "a pipe");
        let one = format!("epoll of listening TCP {address}");
        assert_eq!(describe(&polls), one);
        add(&client);
        add(&pair);
        let more = format!("{one}, TCP {own} -> {address} and 1 more");
        assert_eq!(describe(&polls), more);
        assert_eq!(descriptors.describe(-1), None);
        assert_eq!(Descriptors::of(Pid(i32::MAX)).describe(0), None);
    }
}
