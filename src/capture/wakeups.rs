//! Who wakes the threads of the target, from samples of the kernel's tracepoint `sched:sched_waking`.
//!
//! It is in the thread that wakes another one, or in an interrupt. `sched:sched_wakeup` may be on the CPU of
//! the thread that is woken.

use std::io::Write;

use rustc_hash::FxHashMap;

use super::tracepoint::{TracepointError, TracepointFormat};
use crate::machine::{self, Tracefs};
use crate::perf::{Record, SampleRecord};
use crate::perf_data::TracepointField;
use crate::trace::spool::SpoolRow;
use crate::trace::{Notice, NoticeKind, Pid, Recorder, Tid};

const TRACEPOINT: &str = "sched/sched_waking";
/// Bit of the common flags of a tracepoint: in an interrupt of a device or a timer (TRACE_FLAG_HARDIRQ).
const IN_INTERRUPT: u8 = 8;
/// Maximum number of threads whose processes are kept.
const MAX_THREADS: usize = 1 << 16;
/// Maximum number of processes that are not of the target and have a row.
const MAX_OUTSIDERS: u32 = 4096;

/// The threads that are woken.
pub(super) struct Wakeups {
    tracepoint: u64,
    woken: TracepointField,
    flags: Option<TracepointField>,
    /// Processes of threads, and how many programs these had executed then.
    processes: FxHashMap<Tid, (Pid, u32)>,
    /// How many programs processes have executed.
    executed: FxHashMap<Pid, u32>,
    /// Names of the processes that have got one meanwhile: those that live shortly cannot be asked. Untrusted.
    names: FxHashMap<Pid, Box<[u8]>>,
    /// Number of wake-ups of threads that had ended when their samples were read.
    missed: u64,
    /// Processes that are not of the target, with their rows.
    outsiders: FxHashMap<Pid, u32>,
    rows: u32,
}

impl Wakeups {
    /// Finds the tracepoint.
    ///
    /// # Errors
    /// It may not be used, or shows other ids than those of this pid namespace.
    pub(super) fn find() -> Result<Self, Notice> {
        let notice = |why: String, remedy: &str| {
            let what = format!("wake-ups were not sampled: {why}");
            Notice::new(NoticeKind::CountersMissing, what, remedy).about("wake-ups")
        };
        if !machine::is_initial_pid_namespace() {
            return Err(notice(
                "the kernel shows other thread ids than this container".into(),
                "use the host's process ids in the container (hostPID), or capture on the host",
            ));
        }
        Self::read().map_err(|error| notice(format!("no tracepoint ({error})"), error.remedy()))
    }

    fn read() -> Result<Self, TracepointError> {
        let mut format = TracepointFormat::read(&Tracefs::open()?, TRACEPOINT)?;
        Ok(Self {
            tracepoint: format.id,
            woken: format.field("pid")?,
            flags: format.field("common_flags").ok(),
            processes: FxHashMap::default(),
            executed: FxHashMap::default(),
            names: FxHashMap::default(),
            missed: 0,
            outsiders: FxHashMap::default(),
            rows: 0,
        })
    }

    /// Returns the id of the tracepoint.
    pub(super) fn tracepoint(&self) -> u64 {
        self.tracepoint
    }

    /// Returns the thread that a sample wakes, and its process.
    pub(super) fn woken(&mut self, sample: &SampleRecord<'_>) -> Option<(Pid, Tid)> {
        let bytes = self.woken.bytes(sample.raw)?;
        let tid = Tid(i32::from_le_bytes(bytes.try_into().ok()?));
        if tid.0 <= 0 {
            return None;
        }
        // An exec ends all threads, and the one that executes gets another id.
        let known = self.processes.get(&tid);
        if let Some((pid, _)) = known.filter(|(pid, executed)| self.executed(*pid) == *executed) {
            return Some((*pid, tid));
        }
        let Some(pid) = machine::thread_group(Pid(tid.0)) else {
            self.missed = self.missed.saturating_add(sample.period);
            return None;
        };
        self.add_thread(pid, tid);
        Some((pid, tid))
    }

    fn executed(&self, pid: Pid) -> u32 {
        self.executed.get(&pid).copied().unwrap_or_default()
    }

    fn add_thread(&mut self, pid: Pid, tid: Tid) {
        if self.processes.len().max(self.executed.len()) >= MAX_THREADS {
            self.processes.clear();
            self.executed.clear();
        }
        self.processes.insert(tid, (pid, self.executed(pid)));
    }

    fn add_name(&mut self, pid: Pid, name: Box<[u8]>) {
        if self.names.len() >= MAX_THREADS {
            self.names.clear();
        }
        self.names.insert(pid, name);
    }

    /// Returns the notice about wake-ups that are missing.
    pub(super) fn notice(&self) -> Option<Notice> {
        (self.missed > 0).then(|| {
            let what = format!(
                "wake-ups of threads that had ended when they were read are not counted: {}, of any process",
                self.missed
            );
            let notice = Notice::new(NoticeKind::CountersMissing, what, "");
            notice.about("wake-ups").counting(self.missed as usize)
        })
    }

    /// Returns the row of a process that is not of the target. Beyond the limit, all have the last row.
    pub(super) fn outsider<W: Write>(&mut self, pid: Pid, recorder: &mut Recorder<W>) -> u32 {
        if let Some(row) = self.outsiders.get(&pid) {
            return *row;
        }
        if self.rows > MAX_OUTSIDERS {
            return MAX_OUTSIDERS;
        }
        let (pid, name) = match (self.rows < MAX_OUTSIDERS, self.names.get(&pid)) {
            (true, Some(name)) => (pid, name.clone()),
            (true, None) => {
                let name = machine::process_name(pid).unwrap_or_default();
                (pid, name.into_bytes().into())
            }
            (false, _) => (Pid(0), (*b"others").into()),
        };
        recorder.put(&SpoolRow::Outsider { pid, name: &name });
        self.outsiders.insert(pid, self.rows);
        self.rows += 1;
        self.rows - 1
    }

    /// Follows the threads and the names of processes.
    pub(super) fn follow(&mut self, record: &Record<'_>) {
        match *record {
            Record::Fork {
                pid,
                tid,
                parent_pid,
                ..
            } => {
                self.add_thread(pid, tid);
                let name = self.names.get(&parent_pid).filter(|_| pid != parent_pid);
                if let Some(name) = name.cloned() {
                    self.add_name(pid, name);
                }
            }
            Record::Exit { pid, tid } => {
                // Another thread may get its id.
                self.processes.remove(&tid);
                if pid.0 == tid.0 {
                    self.outsiders.remove(&pid);
                    self.names.remove(&pid);
                }
            }
            Record::Comm {
                pid,
                tid,
                exec,
                name,
            } if exec || pid.0 == tid.0 => {
                self.outsiders.remove(&pid);
                self.add_name(pid, name.into());
                if exec {
                    *self.executed.entry(pid).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    /// Returns whether a sample is of an interrupt, and its thread just happened to run.
    pub(super) fn is_interrupt(&self, sample: &SampleRecord<'_>) -> bool {
        let flags = self
            .flags
            .as_ref()
            .and_then(|flags| flags.bytes(sample.raw));
        let is_in = flags.is_some_and(|flags| flags.first().is_some_and(|f| f & IN_INTERRUPT != 0));
        // Thread 0 is the idle one.
        is_in || sample.pid.0 == 0
    }
}
