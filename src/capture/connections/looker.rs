//! The thread that looks at the sockets of the target.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::machine::{self, Reading, TcpSocket, TcpSockets, TcpState};
use crate::perf;
use crate::trace::{Nanos, Pid};

/// Minimum time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time between two searches for network namespaces of new processes.
const SEARCH_INTERVAL: Duration = Duration::from_millis(250);
/// What a look may take, as a part of the time between two.
const MAX_SHARE: u32 = 100;
/// Longest time after which sockets that ended are read, and the end of the capture is noticed.
const TICK: Duration = Duration::from_millis(50);
/// Minimum time between two readings of them.
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of network namespaces.
const MAX_NAMESPACES: usize = 64;

/// What the thread has read of a network namespace.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) time: Nanos,
    pub(super) namespace: u64,
    pub(super) found: Found,
}

#[derive(Debug)]
pub(super) enum Found {
    /// Sockets that have ended.
    Ended(Vec<TcpSocket>),
    Open(OpenSockets),
}

/// All sockets that have not ended.
#[derive(Debug)]
pub(super) struct OpenSockets {
    /// Each with its process, if that is one of the target.
    pub(super) sockets: Vec<(TcpSocket, Option<Pid>)>,
    /// Whether these were open before the capture.
    pub(super) is_first: bool,
    /// Whether there may be more.
    pub(super) is_partial: bool,
}

/// What the capture and the thread share.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// The processes of the target; `None` if these are all processes.
    pub(super) pids: Mutex<Option<Vec<Pid>>>,
    pub(super) is_over: AtomicBool,
}

impl Orders {
    fn pids(&self) -> Vec<Pid> {
        let pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        match &*pids {
            Some(pids) => pids.clone(),
            None => machine::pids().unwrap_or_default(),
        }
    }
}

pub(super) struct Looker {
    orders: Arc<Orders>,
    looks: Sender<Look>,
    namespaces: FxHashMap<u64, TcpSockets>,
    /// The processes of sockets, by the inode of these.
    owners: FxHashMap<u64, Pid>,
    next_search: Instant,
    is_first: bool,
    /// Error of a namespace that could not be read.
    pub(super) error: Option<std::io::Error>,
}

impl Looker {
    pub(super) fn new(orders: Arc<Orders>, looks: Sender<Look>) -> Self {
        Self {
            orders,
            looks,
            namespaces: FxHashMap::default(),
            owners: FxHashMap::default(),
            next_search: Instant::now(),
            is_first: true,
            error: None,
        }
    }

    /// Looks until the capture is over, and then a last time.
    pub(super) fn run(mut self) {
        let mut next = Instant::now() + INTERVAL;
        let mut next_namespaces = Instant::now();
        loop {
            let is_over = self.orders.is_over.load(Ordering::Acquire);
            self.read_ended();
            if is_over {
                self.next_search = Instant::now();
            }
            if is_over || Instant::now() >= next {
                let started = Instant::now();
                self.look();
                next = Instant::now() + INTERVAL.max(started.elapsed() * MAX_SHARE);
            }
            if is_over {
                return;
            }
            if Instant::now() >= next_namespaces {
                let started = Instant::now();
                let pids = self.orders.pids();
                self.open_namespaces(&pids);
                let took = started.elapsed();
                next_namespaces = Instant::now() + SEARCH_INTERVAL.max(took * MAX_SHARE);
            }
            self.wait();
        }
    }

    /// Looks at all sockets of the namespaces of the target. Returns whether there are any namespaces.
    pub(super) fn look(&mut self) -> bool {
        let pids = self.orders.pids();
        match &pids[..] {
            // A command will start in that of perfcollect.
            [] => self.open_namespaces(&[Pid(std::process::id() as i32)]),
            pids => self.open_namespaces(pids),
        }
        let is_first = std::mem::take(&mut self.is_first);
        let mut open = Vec::new();
        self.namespaces.retain(|namespace, sockets| {
            let mut list = Vec::new();
            let reading = sockets.list(|socket| list.push((socket, None)));
            let reading = reading.map_err(|error| self.error = Some(error));
            if let Ok(reading) = reading {
                open.push((*namespace, list, reading == Reading::Incomplete));
            }
            reading.is_ok()
        });
        let has_unknown = open.iter().flat_map(|(_, sockets, _)| sockets);
        let has_unknown = has_unknown
            .filter(|(socket, _)| socket.inode != 0)
            .any(|(socket, _)| !self.owners.contains_key(&socket.inode));
        if has_unknown && Instant::now() >= self.next_search {
            self.find_owners(&pids);
        }
        for (namespace, mut sockets, is_partial) in open {
            for (socket, owner) in &mut sockets {
                *owner = self.owners.get(&socket.inode).copied();
            }
            let open = OpenSockets {
                sockets,
                is_first,
                is_partial,
            };
            self.send(namespace, Found::Open(open));
        }
        !self.namespaces.is_empty()
    }

    fn send(&self, namespace: u64, found: Found) {
        let time = perf::now();
        // It fails after the end of the capture only.
        let _ = self.looks.send(Look {
            time,
            namespace,
            found,
        });
    }

    fn open_namespaces(&mut self, pids: &[Pid]) {
        for &pid in pids {
            let Ok(namespace) = machine::network_namespace(pid) else {
                continue;
            };
            if self.namespaces.len() >= MAX_NAMESPACES || self.namespaces.contains_key(&namespace) {
                continue;
            }
            match TcpSockets::of(pid) {
                Ok(sockets) => {
                    self.namespaces.insert(namespace, sockets);
                }
                Err(error) => self.error = Some(error),
            }
        }
    }

    /// Searches the processes of all sockets.
    fn find_owners(&mut self, pids: &[Pid]) {
        let started = Instant::now();
        self.owners.clear();
        for &pid in pids {
            for inode in machine::socket_inodes(pid) {
                self.owners.entry(inode).or_insert(pid);
            }
        }
        self.next_search = Instant::now() + started.elapsed() * MAX_SHARE;
    }

    fn read_ended(&mut self) {
        let mut ended = Vec::new();
        for (namespace, sockets) in &mut self.namespaces {
            let mut list = Vec::new();
            // Those whose end is not read are found to be absent by the next looks.
            let _ = sockets.ended(|socket| list.push(socket));
            ended.push((*namespace, list));
        }
        for (namespace, list) in ended {
            let is_connection =
                |socket: &TcpSocket| socket.state != TcpState::LISTEN && socket.remote.port() != 0;
            let list: Vec<TcpSocket> = list.into_iter().filter(is_connection).collect();
            if !list.is_empty() {
                self.send(namespace, Found::Ended(list));
            }
        }
    }

    fn wait(&self) {
        // A socket that ends is rarely alone.
        std::thread::sleep(PAUSE);
        let sockets = self.namespaces.values();
        let fds: Vec<_> = sockets.map(TcpSockets::ended_fd).collect();
        let mut polls: Vec<_> = fds
            .iter()
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: TICK.subsec_nanos().into(),
        };
        let _ = rustix::event::poll(&mut polls, Some(&timeout));
    }
}
