//! The thread that looks at the sockets of the target.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::lacks::Lacks;
use crate::capture::usage;
use crate::machine::{self, Reading, TcpSocket, TcpSockets, TcpState};
use crate::perf;
use crate::trace::{Nanos, Pid};

/// Minimum time between two looks, and between two searches for network namespaces of new processes.
const INTERVAL: Duration = Duration::from_secs(1);
const SEARCH_INTERVAL: Duration = Duration::from_millis(250);
/// CPU time that a look may take, as a part of the time between two, and the longest time between two.
const MAX_SHARE: u32 = 100;
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// Longest time after which sockets that ended are read, and the end of the capture is noticed.
const TICK: Duration = Duration::from_millis(50);
/// Minimum time between two readings of them.
const PAUSE: Duration = Duration::from_millis(10);
/// The kernel reports the end of a socket from a work queue: time without such a report after which there are no more
/// at the end of the capture, and longest time for them.
const QUIET: Duration = Duration::from_millis(20);
const MAX_LATE: Duration = Duration::from_millis(200);
/// Longest time of a search for the processes of sockets.
const MAX_SEARCH: Duration = Duration::from_millis(500);
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
    /// The capture is over: there is a last look.
    pub(super) is_over: AtomicBool,
    /// Nobody waits for more.
    pub(super) is_aborted: AtomicBool,
    lacks: Mutex<Lacks>,
}

impl Orders {
    fn pids(&self) -> Vec<Pid> {
        let pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        match &*pids {
            Some(pids) => pids.clone(),
            None => machine::pids().unwrap_or_default(),
        }
    }

    fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Acquire)
    }

    /// Changes what is known to be missing.
    pub(super) fn lack(&self, change: impl FnOnce(&mut Lacks)) {
        change(&mut self.lacks.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns what is missing.
    pub(super) fn lacks(&self) -> Lacks {
        let lacks = self.lacks.lock();
        lacks.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) struct Looker {
    orders: Arc<Orders>,
    looks: Sender<Look>,
    namespaces: FxHashMap<u64, TcpSockets>,
    /// The processes of sockets, by the inode of these.
    owners: FxHashMap<u64, Pid>,
    next_search: Instant,
    /// Process at which the last search ended because it took too long.
    searched: Pid,
    /// Whether the capture has not started.
    is_first: bool,
}

impl Looker {
    pub(super) fn new(orders: Arc<Orders>, looks: Sender<Look>) -> Self {
        Self {
            orders,
            looks,
            namespaces: FxHashMap::default(),
            owners: FxHashMap::default(),
            next_search: Instant::now(),
            searched: Pid(0),
            is_first: true,
        }
    }

    /// Counts what was before the capture. Returns whether there is a network namespace that can be read.
    pub(super) fn start(&mut self) -> bool {
        self.find_namespaces(&self.orders.pids());
        self.list();
        self.is_first = false;
        !self.namespaces.is_empty()
    }

    /// Looks until the capture is over, and then a last time.
    pub(super) fn run(mut self) {
        // Messages about sockets that ended are dropped if they are not read in time.
        machine::raise_thread_priority();
        // The processes of sockets that were open before.
        let mut next = Instant::now();
        let mut next_namespaces = Instant::now();
        while !self.orders.is_aborted() {
            let is_over = self.orders.is_over.load(Ordering::Acquire);
            self.read_ended();
            if is_over {
                self.next_search = Instant::now();
            }
            if is_over || Instant::now() >= next_namespaces {
                let started = usage::thread_cpu_time();
                self.find_namespaces(&self.orders.pids());
                next_namespaces = after(started, SEARCH_INTERVAL);
            }
            if is_over || Instant::now() >= next {
                let started = usage::thread_cpu_time();
                self.list();
                next = after(started, INTERVAL);
            }
            if is_over {
                self.read_late();
                return;
            }
            self.wait();
        }
    }

    /// Lists the sockets of all namespaces.
    fn list(&mut self) {
        let is_first = self.is_first;
        let Self {
            orders, namespaces, ..
        } = self;
        let mut open = Vec::new();
        namespaces.retain(|namespace, sockets| {
            let mut list = Vec::new();
            let reading = sockets.list(|socket| {
                list.push((socket, None));
                match orders.is_aborted() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            let reading = reading.map_err(|error| orders.lack(|lacks| lacks.fail(&error)));
            if let Ok(reading) = reading {
                let is_partial = reading == Reading::Incomplete;
                orders.lack(|lacks| lacks.has_partial |= is_partial);
                open.push((*namespace, list, is_partial));
            }
            reading.is_ok()
        });
        let sockets = open.iter().flat_map(|(_, sockets, _)| sockets);
        let mut inodes = sockets.map(|(socket, _)| socket.inode);
        let has_unknown = inodes.any(|inode| inode != 0 && !self.owners.contains_key(&inode));
        // It may take long, and the capture waits for the first look.
        if has_unknown && !is_first && Instant::now() >= self.next_search {
            let pids = self.orders.pids();
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

    /// Opens the network namespaces of processes, and closes those that have none: an open one keeps its interfaces.
    fn find_namespaces(&mut self, pids: &[Pid]) {
        let mut used = FxHashSet::default();
        // A command starts in that of perfcollect, which may be the only one that can be read.
        let own = Pid(std::process::id() as i32);
        for &pid in pids.iter().chain([&own]) {
            let namespace = match machine::network_namespace(pid) {
                Ok(namespace) => namespace,
                Err(error) => {
                    let has_ended = machine::has_ended(&error);
                    self.orders.lack(|lacks| lacks.unreadable |= !has_ended);
                    continue;
                }
            };
            if !used.insert(namespace) || self.namespaces.contains_key(&namespace) {
                continue;
            }
            if self.namespaces.len() >= MAX_NAMESPACES {
                self.orders.lack(|lacks| lacks.has_more_namespaces = true);
                continue;
            }
            match TcpSockets::of(pid, self.namespaces.len()) {
                Ok(sockets) => {
                    self.namespaces.insert(namespace, sockets);
                }
                Err(error) => self.orders.lack(|lacks| lacks.fail(&error)),
            }
        }
        let unused = self.namespaces.keys();
        let unused: Vec<u64> = unused
            .filter(|namespace| !used.contains(namespace))
            .copied()
            .collect();
        if !unused.is_empty() {
            self.read_ended();
            self.namespaces
                .retain(|namespace, _| used.contains(namespace));
        }
    }

    /// Searches the processes of all sockets.
    fn find_owners(&mut self, pids: &[Pid]) {
        let started = (Instant::now(), usage::thread_cpu_time());
        let mut owners = FxHashMap::default();
        let mut is_complete = true;
        // The last search may have ended before it came to all processes.
        let (searched, others) = pids.split_at(pids.partition_point(|pid| *pid <= self.searched));
        let pids = others.iter().chain(searched);
        let descriptors =
            pids.flat_map(|&pid| machine::socket_inodes(pid).map(move |inode| (pid, inode)));
        for (pid, inode) in descriptors {
            if let Some(inode) = inode {
                owners.entry(inode).or_insert(pid);
            }
            if started.0.elapsed() > MAX_SEARCH || self.orders.is_aborted() {
                is_complete = false;
                self.searched = pid;
                break;
            }
        }
        match is_complete {
            true => self.owners = owners,
            false => {
                self.orders.lack(|lacks| lacks.has_many_descriptors = true);
                self.owners.extend(owners);
            }
        }
        self.next_search = after(started.1, Duration::ZERO);
    }

    /// Reads the sockets that have ended. Returns whether there are any.
    fn read_ended(&mut self) -> bool {
        let mut ended = Vec::new();
        for (namespace, sockets) in &mut self.namespaces {
            let mut list = Vec::new();
            let reading = sockets.ended(|socket| list.push(socket));
            let is_lost = !matches!(reading, Ok(Reading::Complete));
            self.orders.lack(|lacks| lacks.has_lost_ends |= is_lost);
            ended.push((*namespace, list));
        }
        let mut has_some = false;
        for (namespace, mut list) in ended {
            list.retain(|socket| socket.state != TcpState::LISTEN && socket.remote.port() != 0);
            if !list.is_empty() {
                has_some = true;
                self.send(namespace, Found::Ended(list));
            }
        }
        has_some
    }

    /// Reads those that ended before the capture did, and are reported later.
    fn read_late(&mut self) {
        let end = Instant::now() + MAX_LATE;
        while Instant::now() < end && !self.orders.is_aborted() {
            std::thread::sleep(QUIET);
            if !self.read_ended() {
                return;
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

/// Returns when to do again what began at a CPU time of this thread and is done now.
fn after(started: Duration, interval: Duration) -> Instant {
    let took = usage::thread_cpu_time().saturating_sub(started);
    Instant::now() + (took * MAX_SHARE).clamp(interval, MAX_INTERVAL)
}

/// Returns why the sockets of a process cannot be listed.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("a process is in another network namespace, which may not be entered ({error})")
        }
        _ => error.to_string(),
    }
}
