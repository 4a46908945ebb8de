//! Processes and threads as the records tell their story.
//!
//! Pids and tids are reused, so a row of the trace is one life: a process from its fork or exec on. Rows are made
//! at the first sample, or where its events are kept; another process costs nothing but its entry here, and only until shortly
//! after its exit.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::file::{FileTable, VDSO, Wanted};
use super::jit_host::{JitHost, is_jit_dump};
use super::maps::{AddressSpace, Backing, Mapping, Maps};
use super::proc_fs;
use super::recorded::Recorded;
use crate::perf::{CodeMapping, Record};
use crate::trace::{ModuleId, Nanos, Pid, ProcessId, ThreadId, Tid};

/// How long the entry of an exited task is kept: its last samples may come after its exit record.
const LINGER_NS: u64 = 1_000_000_000;

/// What has become of the rows since they were asked for last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The next process has a row.
    Process(ProcessId),
    /// The next thread has a row.
    Thread(ThreadId),
    /// A process has another name.
    ProcessName(ProcessId),
    /// A thread has another name.
    ThreadName(ThreadId),
    /// A process is found to run code made at run time.
    JitHost(ProcessId),
}

/// A process that was sampled.
#[derive(Debug)]
pub struct ProcessRow {
    /// Its id.
    pub pid: Pid,
    /// Name of its main thread.
    pub name: Box<[u8]>,
    /// Arguments joined by spaces; empty if they could not be read.
    pub command_line: Box<[u8]>,
    /// Set once a sample was in code made at run time; held from then on, so that it outlives the process.
    pub jit_host: Option<io::Result<JitHost>>,
}

/// A thread that was sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    /// Its process.
    pub process: ProcessId,
    /// Its id.
    pub tid: Tid,
    /// Its name.
    pub name: Box<[u8]>,
}

#[derive(Clone, Debug, Default)]
struct Process {
    name: Box<[u8]>,
    maps: Arc<Maps>,
    row: Option<ProcessId>,
    /// When it was forked, or began its program, if that was seen.
    born: Option<Nanos>,
    /// Threads that are known.
    threads: u32,
    /// In a recording: that of the program before an exec, in which the callers of its last samples lie.
    before_exec: Option<Arc<Maps>>,
}

#[derive(Clone, Debug)]
struct Thread {
    pid: Pid,
    name: Box<[u8]>,
    row: Option<ThreadId>,
    ended: Option<Nanos>,
}

/// All processes of the machine.
#[derive(Debug, Default)]
pub struct Machine {
    processes: FxHashMap<Pid, Process>,
    threads: FxHashMap<Tid, Thread>,
    exited: VecDeque<(Nanos, Pid, Tid)>,
    process_rows: Vec<ProcessRow>,
    thread_rows: Vec<ThreadRow>,
    changes: Vec<Change>,
    files: FileTable,
}

impl Machine {
    /// The machine of a recording, whose processes do not run here, or are over.
    #[must_use]
    pub fn recorded(recorded: Recorded) -> Self {
        Self {
            files: FileTable::of_recording(recorded),
            ..Self::default()
        }
    }

    /// What finds the files of a recording.
    pub fn recording_mut(&mut self) -> Option<&mut Recorded> {
        self.files.recording_mut()
    }

    /// Whether its processes run here and now.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.files.recorded().is_none()
    }

    /// Takes in processes that run now. Call after recording has begun, so that nothing falls between.
    pub fn read_running(&mut self, pids: impl IntoIterator<Item = Pid>) {
        for pid in pids {
            self.read_process(pid);
        }
    }

    /// What /proc tells of a process; nothing if it is gone already.
    fn read_process(&mut self, pid: Pid) -> Option<()> {
        for tid in proc_fs::tids(pid).ok()? {
            if let Ok(name) = proc_fs::comm(pid, tid) {
                self.name_thread(pid, tid, &name);
            }
        }
        let text = proc_fs::maps(pid).ok()?;
        let mut maps = Maps::default();
        for line in proc_fs::parse_maps(&text) {
            let wanted = Wanted {
                pid,
                start: line.start,
                end: line.end,
                device: line.device,
                inode: line.inode,
                path: line.path,
                build_id: &[],
            };
            if let Some(mapping) = self.new_mapping(&wanted, line.file_offset) {
                maps.insert(mapping);
            }
        }
        self.processes.entry(pid).or_default().maps = Arc::new(maps);
        Some(())
    }

    /// Follows a record; samples and losses change nothing here, nor do processes that have no id in our namespace.
    pub fn apply(&mut self, time: Nanos, record: &Record<'_>) {
        if record.process().is_none_or(|pid| pid.0 <= 0) {
            return;
        }
        match *record {
            Record::Mapping(ref mapping) => self.map(mapping),
            Record::Comm {
                pid,
                tid,
                exec,
                name,
            } => {
                if exec {
                    self.remove_thread(tid);
                    let before = self.processes.remove(&pid).filter(|_| !self.is_live());
                    let process = Process {
                        born: Some(time),
                        before_exec: before.map(|before| before.maps),
                        ..Process::default()
                    };
                    self.processes.insert(pid, process);
                }
                self.name_thread(pid, tid, name);
            }
            Record::Fork {
                pid,
                tid,
                parent_pid,
                parent_tid,
            } => self.fork(time, (pid, tid), (parent_pid, parent_tid)),
            Record::Exit { pid, tid } => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.ended = Some(time);
                }
                self.exited.push_back((time, pid, tid));
                self.forget_exited(time);
            }
            _ => {}
        }
    }

    /// Takes in memory for code made at run time before its record's turn comes. Where something else is mapped still,
    /// older samples may be in that.
    pub fn map_ahead(&mut self, record: &CodeMapping<'_>) {
        let end = record.start.saturating_add(record.len);
        if let Some(backing) = Backing::of_memory(record.path)
            && let Some(maps) = self.maps(record.pid)
            && maps.has_only(backing, record.start, end)
        {
            self.map(record);
        }
    }

    fn map(&mut self, record: &CodeMapping<'_>) {
        let wanted = Wanted {
            pid: record.pid,
            start: record.start,
            end: record.start.saturating_add(record.len),
            device: record.device,
            inode: record.inode,
            path: record.path,
            build_id: record.build_id,
        };
        if let Some(mapping) = self.new_mapping(&wanted, record.file_offset) {
            let process = self.processes.entry(record.pid).or_default();
            Arc::make_mut(&mut process.maps).insert(mapping);
        }
    }

    fn new_mapping(&mut self, wanted: &Wanted<'_>, file_offset: u64) -> Option<Mapping> {
        let of_memory = match wanted.path {
            // Not memory of the process: the page is emulated by the kernel.
            b"[vsyscall]" => return None,
            VDSO => None,
            path => Backing::of_memory(path),
        };
        let backing = of_memory.unwrap_or_else(|| Backing::File(self.files.get(wanted)));
        let object = match backing {
            Backing::File(id) => Some(id),
            Backing::Jit | Backing::DoubleMapped => self.files.memory(wanted.path),
        };
        Some(Mapping {
            start: wanted.start,
            end: wanted.end,
            file_offset: if wanted.path == VDSO { 0 } else { file_offset },
            backing,
            object,
        })
    }

    fn fork(&mut self, time: Nanos, (pid, tid): (Pid, Tid), (parent_pid, parent_tid): (Pid, Tid)) {
        let parent = self.processes.get(&parent_pid);
        let maker = self.threads.get(&parent_tid).map(|thread| &thread.name);
        let name = maker.or(parent.map(|parent| &parent.name));
        let name: Box<[u8]> = name.cloned().unwrap_or_default();
        if pid != parent_pid {
            let child = Process {
                name: name.clone(),
                maps: parent.map(|p| p.maps.clone()).unwrap_or_default(),
                born: Some(time),
                ..Process::default()
            };
            self.processes.insert(pid, child);
        }
        self.put_thread(tid, pid, name, None);
    }

    fn put_thread(&mut self, tid: Tid, pid: Pid, name: Box<[u8]>, row: Option<ThreadId>) {
        self.remove_thread(tid);
        let thread = Thread {
            pid,
            name,
            row,
            ended: None,
        };
        self.threads.insert(tid, thread);
        self.processes.entry(pid).or_default().threads += 1;
    }

    fn remove_thread(&mut self, tid: Tid) -> Option<Pid> {
        let pid = self.threads.remove(&tid)?.pid;
        if let Some(process) = self.processes.get_mut(&pid) {
            process.threads = process.threads.saturating_sub(1);
        }
        Some(pid)
    }

    fn name_thread(&mut self, pid: Pid, tid: Tid, name: &[u8]) {
        if !self.threads.contains_key(&tid) {
            self.put_thread(tid, pid, Box::default(), None);
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        thread.name = name.into();
        if let Some(row) = thread.row {
            self.thread_rows[row.index()].name = name.into();
            self.changes.push(Change::ThreadName(row));
        }
        if pid.0 == tid.0 {
            let process = self.processes.entry(pid).or_default();
            process.name = name.into();
            if let Some(row) = process.row {
                self.process_rows[row.index()].name = name.into();
                self.changes.push(Change::ProcessName(row));
            }
        }
    }

    fn forget_exited(&mut self, now: Nanos) {
        while let Some(&(time, pid, tid)) = self.exited.front() {
            if now.0.saturating_sub(time.0) < LINGER_NS {
                break;
            }
            self.exited.pop_front();
            // The ids may be in use again.
            if !self.is_live() {
                self.forget_recorded(tid, time);
            } else if !proc_fs::exists(Pid(tid.0)) {
                self.remove_thread(tid);
                if pid.0 == tid.0 {
                    self.processes.remove(&pid);
                }
            }
        }
    }

    /// Forgets a thread that ended then, and with the last one its process; /proc knows nothing of them.
    fn forget_recorded(&mut self, tid: Tid, time: Nanos) {
        let ended = self.threads.get(&tid).and_then(|thread| thread.ended);
        if ended == Some(time)
            && let Some(pid) = self.remove_thread(tid)
            && self
                .processes
                .get(&pid)
                .is_some_and(|process| process.threads == 0)
        {
            self.processes.remove(&pid);
        }
    }

    /// Rows of a sampled thread and its process, made at the first sample.
    pub fn sampled(&mut self, pid: Pid, tid: Tid) -> (ThreadId, ProcessId) {
        if let Some(Thread {
            row: Some(row),
            pid: known,
            ..
        }) = self.threads.get(&tid)
            && *known == pid
        {
            return (*row, self.thread_rows[row.index()].process);
        }
        self.add_row(pid, tid)
    }

    /// The row of a process that need not be sampled, such as one whose events are kept.
    pub fn noted(&mut self, pid: Pid) -> ProcessId {
        let is_live = self.is_live();
        if is_live && !self.processes.contains_key(&pid) {
            self.read_process(pid);
        }
        let process = self.processes.entry(pid).or_default();
        let (process_rows, changes) = (&mut self.process_rows, &mut self.changes);
        *process.row.get_or_insert_with(|| {
            process_rows.push(ProcessRow {
                pid,
                name: process.name.clone(),
                command_line: match is_live {
                    true => proc_fs::command_line(pid).into(),
                    false => Box::default(),
                },
                jit_host: None,
            });
            let row = ProcessId(process_rows.len() as u32 - 1);
            changes.push(Change::Process(row));
            row
        })
    }

    #[cold]
    fn add_row(&mut self, pid: Pid, tid: Tid) -> (ThreadId, ProcessId) {
        let is_live = self.is_live();
        let process_row = self.noted(pid);
        let process = self.processes.entry(pid).or_default();
        let name = match self.threads.get(&tid) {
            Some(thread) if thread.pid == pid => thread.name.clone(),
            _ if is_live => {
                proc_fs::comm(pid, tid).map_or_else(|_| process.name.clone(), Into::into)
            }
            _ => process.name.clone(),
        };
        let row = ThreadId(self.thread_rows.len() as u32);
        self.thread_rows.push(ThreadRow {
            process: process_row,
            tid,
            name: name.clone(),
        });
        self.changes.push(Change::Thread(row));
        self.put_thread(tid, pid, name, Some(row));
        (row, process_row)
    }

    /// Notes that a process runs code made at run time, while it still is there to be looked at.
    pub fn runs_jit_code(&mut self, id: ProcessId) {
        let row = &mut self.process_rows[id.index()];
        if row.jit_host.is_none() {
            let process = self.processes.get(&row.pid);
            let mut mapped = process.iter().flat_map(|process| process.maps.iter());
            let dump = mapped.find_map(|mapping| match mapping.backing {
                Backing::File(id) => {
                    let path = &self.files.file(id).path;
                    is_jit_dump(path).then(|| path.clone())
                }
                Backing::Jit | Backing::DoubleMapped => None,
            });
            row.jit_host = Some(match self.files.recorded() {
                Some(recorded) => recorded.jit_host(row.pid, dump),
                None => JitHost::of(row.pid, dump),
            });
            self.changes.push(Change::JitHost(id));
        }
    }

    /// What has become of the rows since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// A machine that is only good for names: sampled processes, and the files behind the code that was sampled.
    #[must_use]
    pub fn of_rows(process_rows: Vec<ProcessRow>, files: FileTable) -> Self {
        Self {
            process_rows,
            files,
            ..Self::default()
        }
    }

    /// Keeps what names come from: the sampled processes and these files, in this order.
    #[must_use]
    pub fn into_evidence(self, files: &[ModuleId]) -> Self {
        Self::of_rows(self.process_rows, self.files.select(files))
    }

    /// The name a thread has now.
    #[must_use]
    pub fn thread_name(&self, tid: Tid) -> Option<&[u8]> {
        self.threads.get(&tid).map(|thread| &*thread.name)
    }

    /// Executable memory of a process.
    #[must_use]
    pub fn maps(&self, pid: Pid) -> Option<&Maps> {
        self.processes.get(&pid).map(|process| &*process.maps)
    }

    /// When a process was forked, or began its program. `None`: before the capture.
    #[must_use]
    pub fn born(&self, pid: Pid) -> Option<Nanos> {
        self.processes.get(&pid)?.born
    }

    /// The row of a process. `None`: it was not sampled yet.
    #[must_use]
    pub fn row_of(&self, pid: Pid) -> Option<ProcessId> {
        self.processes.get(&pid)?.row
    }

    /// Where an address of a process lies, or in a recording lay before its last exec.
    #[must_use]
    pub fn mapping(&self, pid: Pid, address: u64) -> Option<&Mapping> {
        self.address_space(pid).find(address)
    }

    /// The same for many addresses.
    #[must_use]
    pub fn address_space(&self, pid: Pid) -> AddressSpace<'_> {
        let process = self.processes.get(&pid);
        let before = process.and_then(|process| process.before_exec.as_deref());
        let maps = process.map(|process| &*process.maps);
        AddressSpace::new(maps, before)
    }

    /// Sampled processes; [`ProcessId`] is the position.
    #[must_use]
    pub fn process_rows(&self) -> &[ProcessRow] {
        &self.process_rows
    }

    /// Sampled threads; [`ThreadId`] is the position.
    #[must_use]
    pub fn thread_rows(&self) -> &[ThreadRow] {
        &self.thread_rows
    }

    /// Files that are mapped as code.
    #[must_use]
    pub fn files(&self) -> &FileTable {
        &self.files
    }
}
