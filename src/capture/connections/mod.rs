//! TCP connections of the target: with whom, how much, how long they take to open, what is sent again.
//!
//! The kernel counts for each socket (`machine::TcpSockets`), so that this costs the target nothing: a thread
//! (`looker`) reads the counts once a second, and those of a socket that ends. A tracepoint shows how long attempts to
//! connect take and which fail, and to which process a connection belongs that ends before the next look.

mod attempts;
mod lacks;
mod looker;
mod row;
mod table;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::tracepoint::TracepointError;
use crate::machine;
use crate::perf::{Record, Tracepoints};
use crate::trace::{Connections, Nanos, Notice, NoticeKind, Pid};
use attempts::{Attempts, StateChanges};
use looker::{Found, Look, Looker, Orders};
use table::ConnectionTable;

/// Longest time that the last look may take.
const MAX_END: Duration = Duration::from_secs(3);
/// Time between two lists of the processes of the target.
const INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of processes with a name.
const MAX_NAMES: usize = 1 << 14;

/// The connections of a capture.
pub(super) struct ConnectionCapture {
    orders: Arc<Orders>,
    looks: Receiver<Look>,
    thread: Option<JoinHandle<()>>,
    /// Looks until a time that the records have not reached.
    waiting: VecDeque<Look>,
    tracepoint: Option<(StateChanges, Tracepoints)>,
    attempts: Attempts,
    table: ConnectionTable,
    /// Names of the processes of the target. Untrusted.
    names: FxHashMap<Pid, String>,
    is_whole: bool,
    notices: Vec<Notice>,
    lost: u64,
    next_pids: Instant,
}

fn notice(what: String, remedy: &str) -> Notice {
    Notice::new(NoticeKind::CountersMissing, what, remedy).about("connections")
}

impl ConnectionCapture {
    /// Starts to follow the connections of processes, or of all if these are the target, and attempts to connect on
    /// CPUs.
    ///
    /// # Errors
    /// The kernel does not list sockets, or has no thread left.
    pub(super) fn start(pids: Vec<Pid>, is_whole: bool, cpus: &[u32]) -> Result<Self, Notice> {
        // What connects meanwhile must not be missed.
        let (tracepoint, unfollowed) = match follow_attempts(cpus) {
            Ok(tracepoint) => (Some(tracepoint), None),
            Err(why) => (None, Some(why)),
        };
        let orders = Arc::new(Orders::default());
        let (sender, looks) = channel();
        let mut looker = Looker::new(Arc::clone(&orders), sender);
        if !is_whole {
            put_pids(&orders, pids);
        }
        let not_followed =
            |why: &str, remedy| notice(format!("TCP connections were not followed: {why}"), remedy);
        if !looker.start() {
            let error = orders.lacks().error.unwrap_or_default();
            return Err(not_followed(&error, lacks::RIGHTS));
        }
        let thread = std::thread::Builder::new().name("connections".into());
        let thread = thread.spawn(move || looker.run());
        let thread =
            thread.map_err(|error| not_followed(&format!("no thread can start ({error})"), ""))?;
        Ok(Self {
            orders,
            looks,
            thread: Some(thread),
            waiting: VecDeque::new(),
            tracepoint,
            attempts: Attempts::default(),
            table: ConnectionTable::default(),
            names: FxHashMap::default(),
            is_whole,
            notices: unfollowed.into_iter().collect(),
            lost: 0,
            next_pids: Instant::now(),
        })
    }

    /// Returns descriptors that become readable when a ring buffer fills up.
    pub(super) fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let tracepoints = self.tracepoint.iter();
        tracepoints.flat_map(|(_, tracepoints)| tracepoints.wake_fds())
    }

    /// Processes what happened before a time, up to which the processes of the target are known. `is_of_target`
    /// returns whether a process is one of them, `pids` lists those that run.
    pub(super) fn follow(
        &mut self,
        until: Nanos,
        is_of_target: impl Fn(Pid) -> bool,
        pids: impl FnOnce() -> Vec<Pid>,
    ) {
        let now = Instant::now();
        if now >= self.next_pids {
            self.attempts.forget_namespaces();
            if !self.is_whole {
                put_pids(&self.orders, pids());
            }
            self.next_pids = now + INTERVAL;
        }
        self.records(until, is_of_target);
        self.waiting.extend(self.looks.try_iter());
        self.take_looks(until);
    }

    fn records(&mut self, until: Nanos, is_of_target: impl Fn(Pid) -> bool) {
        let Self {
            tracepoint,
            attempts,
            table,
            names,
            lost,
            ..
        } = self;
        let Some((changes, tracepoints)) = tracepoint else {
            return;
        };
        tracepoints.drain_until(until, |time, record| match record {
            Record::Sample(sample) => {
                let is_known = attempts.record(
                    changes,
                    time,
                    &sample,
                    |pid| {
                        let is_of_target = is_of_target(pid);
                        if is_of_target {
                            keep_name(names, pid);
                        }
                        is_of_target
                    },
                    |pid, remote, outcome, ns| table.attempted(pid, remote, outcome, ns),
                );
                *lost += u64::from(is_known.is_none());
            }
            Record::Lost { records: count, .. } | Record::LostSamples { samples: count, .. } => {
                *lost = lost.saturating_add(count);
                attempts.forget_open();
            }
            _ => {}
        });
    }

    fn take_looks(&mut self, until: Nanos) {
        let ready = self.waiting.partition_point(|look| look.time <= until);
        let looks: Vec<Look> = self.waiting.drain(..ready).collect();
        for look in looks {
            self.take(&look);
        }
    }

    fn take(&mut self, look: &Look) {
        let place = (look.time, look.namespace);
        let is_followed = self.tracepoint.is_some();
        let Self {
            attempts,
            table,
            names,
            ..
        } = self;
        match &look.found {
            Found::Ended(sockets) => {
                for socket in sockets {
                    let origin = attempts.origin(look.namespace, socket);
                    let is_aborted = attempts.end(look.namespace, socket);
                    table.ended(place, socket, origin, [is_followed, is_aborted]);
                }
            }
            Found::Open(open) => {
                for pid in open.sockets.iter().filter_map(|(_, owner)| *owner) {
                    keep_name(names, pid);
                }
                table.opened(place, open, |socket| {
                    attempts.origin(look.namespace, socket)
                });
            }
        }
    }

    /// Follows no more attempts, and looks a last time.
    pub(super) fn stop(&self) {
        if let Some((_, tracepoints)) = &self.tracepoint {
            tracepoints.stop();
        }
        self.orders.is_over.store(true, Ordering::Release);
    }

    /// Processes the last records. Returns the connections at the end of the capture.
    pub(super) fn finish(
        mut self,
        end: Nanos,
        is_of_target: impl Fn(Pid) -> bool,
    ) -> (Connections, Vec<Notice>) {
        self.records(Nanos(u64::MAX), is_of_target);
        let deadline = Instant::now() + MAX_END;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.looks.recv_timeout(left) {
                Ok(look) => self.waiting.push_back(look),
                // The sender is dropped after the last look.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.orders.is_aborted.store(true, Ordering::Release);
                    self.orders.lack(|lacks| lacks.is_unfinished = true);
                    break;
                }
            }
        }
        // What follows must not run beside a thread that has more rights.
        let _ = self.thread.take().map(JoinHandle::join);
        self.take_looks(Nanos(u64::MAX));
        for (pid, remote, start) in self.attempts.unanswered() {
            self.table
                .unanswered(pid, remote, end.0.saturating_sub(start.0));
        }
        let lacks = self.orders.lacks().described();
        let lacks = lacks.into_iter();
        self.notices
            .extend(lacks.map(|(what, remedy)| notice(what, remedy)));
        let counted = self.tracepoint.as_ref();
        let counted = counted.and_then(|(_, tracepoints)| tracepoints.lost());
        let name = |pid: Pid| self.names.get(&pid).cloned().unwrap_or_default();
        let connections = Connections {
            // The kernel reports a loss with the next record only, but it also counts them.
            lost_records: self.lost.max(counted.unwrap_or_default()) + self.attempts.omitted(),
            has_attempts: self.tracepoint.is_some(),
            ..self.table.finish(end, self.is_whole, name)
        };
        (connections, self.notices)
    }
}

/// Starts to follow attempts to connect.
///
/// # Errors
/// The tracepoint may not be used.
fn follow_attempts(cpus: &[u32]) -> Result<(StateChanges, Tracepoints), Notice> {
    let started = StateChanges::read().and_then(|changes| {
        let tracepoints = Tracepoints::start(&[changes.id], cpus)?;
        // Others would cost the target time, and nothing else.
        let _ = tracepoints.filter(attempts::CONDITION);
        Ok((changes, tracepoints))
    });
    started.map_err(|error: TracepointError| {
        let what = format!(
            "attempts to connect were not followed: no tracepoints ({error}); those that failed are missing, how long \
             others took, and most connections of less than a second"
        );
        notice(what, error.remedy())
    })
}

fn put_pids(orders: &Orders, pids: Vec<Pid>) {
    let known = orders.pids.lock();
    *known.unwrap_or_else(PoisonError::into_inner) = Some(pids);
}

/// Keeps the name that a process has now, for when it has ended.
fn keep_name(names: &mut FxHashMap<Pid, String>, pid: Pid) {
    if names.len() < MAX_NAMES && !names.contains_key(&pid) {
        names.extend(machine::process_name(pid).map(|name| (pid, name)));
    }
}
