//! State of the system at the time of a record: processes, threads and executable mappings.

use std::io;
use std::sync::Arc;

use mapping_info::MappingInfo;
use perfcollect_symbols::process::{MapsLine, VDSO, is_elf, parse_maps, read_maps};
use rows::{ProcessRow, Rows, ThreadRow};
use rustc_hash::FxHashSet;
use tasks::Tasks;

use crate::perf::{MmapRecord, Record};
use crate::trace::spool::SpoolRow;
use crate::trace::{ModuleId, Nanos, Pid, ProcessId, ThreadId, Tid, lacks_descriptors};

mod capabilities;
mod containers;
mod content;
mod control_groups;
mod descriptors;
mod executable_mappings;
mod file;
mod free_memory;
mod jit_process;
mod mapped;
mod mapped_code;
mod mapping_info;
mod open_files;
mod owner;
mod priority;
mod proc_fs;
mod recording_files;
mod recovered;
mod rows;
mod sched_stat;
mod scheduler_clock;
mod system_call;
mod tasks;
mod tcp_sockets;
mod thread_state;
mod throttling;
mod tracefs;

pub use capabilities::drop_capabilities;
pub use content::Content;
pub use control_groups::{ControlGroup, is_frozen};
pub use descriptors::{Descriptors, socket_inodes};
pub use executable_mappings::{AddressSpace, Backing, Mapping, Maps};
pub use file::{CodeFile, FileTable};
pub use free_memory::free_memory;
pub use jit_process::JitProcess;
pub use mapped::{MappedFiles, MappedPlace};
pub use mapped_code::{MappedCode, mapped_code};
pub use open_files::ENOUGH_OPEN_FILES;
pub use owner::Owner;
pub use priority::{raise_thread_priority, reset_thread_priority};
pub use proc_fs::{
    ProcError, age, arguments, boot_id, command_line, container, control_group, cpu_ticks,
    environment, exists, file_owner, has_ended, has_foreign_proc, has_other_clock, is_hidden,
    is_initial_pid_namespace, is_running, is_stopped, last_pid, namespace_pid,
    new_namespace_threads, pids, process_name, real_user, resident_kib, start_ticks, thread_group,
    thread_name, thread_names, thread_start_ticks, threads, tids, why_unreadable, with_descendants,
};
pub use recording_files::RecordingFiles;
pub use rows::JitProcesses;
pub use sched_stat::{ThreadCounters, ThreadTimes};
pub use scheduler_clock::SchedulerClock;
pub use system_call::{Resource, SystemCall};
pub use tcp_sockets::{
    Reading, TcpCounts, TcpSocket, TcpSockets, TcpState, for_each_tcp_socket, network_namespace,
};
pub use thread_state::{
    Blocked, NotBlocked, SchedulerState, Switches, is_of_kernel, kernel_function, last_cpu,
    time_slices,
};
pub use throttling::{CpuLimit, CpuStatistics, Throttled, group_name, limits_of, throttling_of};
pub use tracefs::{Tracefs, TracefsError};

/// Limit on the processes that are counted as unreadable.
const MAX_WITHOUT_DESCRIPTORS: usize = 1 << 16;

/// All processes and threads of the system.
///
/// Pids and tids are reused, so a row of the trace is one process instance, from its fork or exec
/// on. A process gets a row at its first sample, or when its events are kept. The entry of a process
/// is removed shortly after its exit.
#[derive(Debug, Default)]
pub struct Machine {
    tasks: Tasks,
    rows: Rows,
    files: FileTable,
    /// Processes that could not be read because too many files were open.
    without_descriptors: FxHashSet<Pid>,
}

impl Machine {
    /// Creates the machine of a recording, whose processes have ended or run on another host.
    #[must_use]
    pub fn recorded(files: RecordingFiles) -> Self {
        Self {
            files: FileTable::of_recording(files),
            ..Self::default()
        }
    }

    /// Returns the file finder of a recording, or `None` for the live system.
    pub fn recording_mut(&mut self) -> Option<&mut RecordingFiles> {
        self.files.recording_mut()
    }

    /// Returns whether this is the live system.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.files.recorded().is_none()
    }

    /// Adds the running processes. Call after tracking has started, so that none is missed.
    pub fn read_running(&mut self, pids: impl IntoIterator<Item = Pid>) {
        for pid in pids {
            self.read_process(pid);
        }
    }

    /// Returns the number of processes that could not be read because too many files were open.
    #[must_use]
    pub fn without_descriptors(&self) -> usize {
        self.without_descriptors.len()
    }

    /// Reads a process from /proc. Returns `None` if it has ended.
    fn read_process(&mut self, pid: Pid) -> Option<()> {
        let read = self.try_read_process(pid);
        if let Err(error) = &read
            && lacks_descriptors(error)
            && self.without_descriptors.len() < MAX_WITHOUT_DESCRIPTORS
        {
            self.without_descriptors.insert(pid);
        }
        read.ok()
    }

    fn try_read_process(&mut self, pid: Pid) -> io::Result<()> {
        let tids = proc_fs::tids(pid).map_err(|ProcError::Read { source, .. }| source)?;
        for tid in tids {
            if let Ok(name) = proc_fs::comm(pid, tid) {
                self.name_thread(pid, tid, &name);
            }
        }
        let content = read_maps(pid.0)?;
        let mut maps = Maps::default();
        for line in parse_maps(&content) {
            if let Some(mapping) = self.new_mapping(&MappingInfo::of(pid, line)) {
                maps.insert(mapping);
            }
        }
        self.tasks.process_mut(pid).maps = Arc::new(maps);
        Ok(())
    }

    /// Applies a record.
    ///
    /// Samples and losses change nothing. Processes without an id in the pid namespace of
    /// perfcollect are ignored.
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
                    let is_live = self.is_live();
                    self.tasks.exec(time, pid, tid, is_live);
                }
                self.name_thread(pid, tid, name);
            }
            Record::Fork {
                pid,
                tid,
                parent_pid,
                parent_tid,
            } => self.tasks.fork(time, (pid, tid), (parent_pid, parent_tid)),
            Record::Exit { pid, tid } => {
                let process = self.tasks.process(pid).filter(|_| pid.0 == tid.0);
                if let Some(row) = process.and_then(|process| process.row) {
                    self.rows.end_process(row, time);
                }
                let is_live = self.is_live();
                self.tasks.exit(time, pid, tid, is_live);
            }
            _ => {}
        }
    }

    /// Adds a mapping of JIT memory before its record is in order.
    ///
    /// Does nothing if other code is still mapped there, since older samples may be in that code.
    pub fn apply_mapping_early(&mut self, record: &MmapRecord<'_>) {
        let end = record.start.saturating_add(record.len);
        if let Some(backing) = Backing::of_memory(record.path)
            && let Some(maps) = self.maps(record.pid)
            && maps.has_only(backing, record.start, end)
        {
            self.map(record);
        }
    }

    fn map(&mut self, record: &MmapRecord<'_>) {
        let info = MappingInfo {
            pid: record.pid,
            line: MapsLine {
                start: record.start,
                end: record.start.saturating_add(record.len),
                file_offset: record.file_offset,
                device: record.device,
                inode: record.inode,
                path: record.path,
                executable: true,
            },
            build_id: record.build_id,
        };
        if let Some(mapping) = self.new_mapping(&info) {
            let process = self.tasks.process_mut(record.pid);
            Arc::make_mut(&mut process.maps).insert(mapping);
        }
    }

    fn new_mapping(&mut self, info: &MappingInfo<'_>) -> Option<Mapping> {
        let MappingInfo { pid, line, .. } = info;
        let memory_backing = match line.path {
            // The kernel emulates this page, so it is not memory of the process.
            b"[vsyscall]" => return None,
            VDSO => None,
            path => match Backing::of_memory(path) {
                // A library loaded from memory.
                Some(Backing::Jit)
                    if path.starts_with(b"/memfd:") && self.is_live() && is_elf(pid.0, line) =>
                {
                    None
                }
                backing => backing,
            },
        };
        let backing = memory_backing.unwrap_or_else(|| Backing::File(self.files.get(info)));
        let object = match backing {
            Backing::File(id) => Some(id),
            Backing::Jit | Backing::DoubleMapped => self.files.memory(line.path),
        };
        Some(Mapping {
            start: line.start,
            end: line.end,
            file_offset: if line.path == VDSO {
                0
            } else {
                line.file_offset
            },
            backing,
            object,
        })
    }

    fn name_thread(&mut self, pid: Pid, tid: Tid, name: &[u8]) {
        if let Some(row) = self.tasks.name_thread(pid, tid, name) {
            self.rows.name_thread(row, name);
        }
        if pid.0 == tid.0 {
            let process = self.tasks.process_mut(pid);
            process.name = name.into();
            if let Some(row) = process.row {
                self.rows.name_process(row, name);
            }
        }
    }

    /// Returns the rows of a sampled thread and its process, and adds them at the first sample.
    pub fn sampled(&mut self, pid: Pid, tid: Tid) -> (ThreadId, ProcessId) {
        if let Some(thread) = self.tasks.thread(tid)
            && let Some(rows) = thread.rows
            && thread.pid == pid
        {
            return rows;
        }
        self.add_row(pid, tid)
    }

    /// Returns the same for a sample that is ahead of the other records, if its thread is known.
    pub fn sampled_early(&mut self, pid: Pid, tid: Tid) -> Option<(ThreadId, ProcessId)> {
        let is_known = self
            .tasks
            .thread(tid)
            .is_some_and(|thread| thread.pid == pid);
        is_known.then(|| self.sampled(pid, tid))
    }

    /// Returns the row of a process, which may have no samples, such as one whose events are kept.
    pub fn ensure_process_row(&mut self, pid: Pid) -> ProcessId {
        let is_live = self.is_live();
        if is_live && self.tasks.process(pid).is_none() {
            self.read_process(pid);
        }
        let process = self.tasks.process_mut(pid);
        *process.row.get_or_insert_with(|| {
            self.rows.add_process(ProcessRow {
                pid,
                name: process.name.clone(),
                command_line: match is_live {
                    true => proc_fs::command_line(pid).into(),
                    false => Box::default(),
                },
            })
        })
    }

    #[cold]
    fn add_row(&mut self, pid: Pid, tid: Tid) -> (ThreadId, ProcessId) {
        let is_live = self.is_live();
        let process_row = self.ensure_process_row(pid);
        let process_name = || self.tasks.process(pid).map(|process| process.name.clone());
        let name = match self.tasks.thread(tid) {
            Some(thread) if thread.pid == pid => Some(thread.name.clone()),
            _ if is_live => {
                let comm = proc_fs::comm(pid, tid).ok();
                comm.map(Into::into).or_else(process_name)
            }
            _ => process_name(),
        };
        let name: Box<[u8]> = name.unwrap_or_default();
        let row = self.rows.add_thread(ThreadRow {
            process: process_row,
            tid,
            name: name.clone(),
        });
        let rows = (row, process_row);
        self.tasks.put_thread(tid, pid, name, Some(rows));
        rows
    }

    /// Records that a process has JIT code, and finds its perf map or jitdump while it still runs.
    ///
    /// Returns whether this was not recorded before.
    pub fn mark_jit_process(&mut self, id: ProcessId, pid: Pid) -> bool {
        if self.rows.jit_processes().contains_key(&id) {
            return false;
        }
        let jit_process = self.jit_process(pid).and_then(|process| {
            Ok(match self.is_live() {
                // One descriptor for all processes with the same root directory.
                true => process.with_root(self.files.root(pid)?),
                false => process,
            })
        });
        self.rows.set_jit_process(id, jit_process);
        true
    }

    /// Finds the perf map or jitdump that contains the symbols of a process's JIT code.
    ///
    /// # Errors
    /// The process has ended, or the recording has neither file.
    pub fn jit_process(&self, pid: Pid) -> io::Result<JitProcess> {
        let process = self.tasks.process(pid);
        let dump = process.and_then(|process| self.files.jit_dump(&process.maps));
        match self.files.recorded() {
            Some(files) => files.jit_process(pid, dump),
            None => JitProcess::of(pid, dump),
        }
    }

    /// Passes on the rows that are new or changed since the last call, in order.
    pub fn take_new_rows(&mut self, put: impl FnMut(&SpoolRow<'_>)) {
        self.rows.take_new(put);
    }

    /// Creates a machine with symbol sources only: files that name JIT code, and those of sampled
    /// code.
    #[must_use]
    pub fn of_symbol_sources(jit_processes: JitProcesses, files: FileTable) -> Self {
        Self {
            rows: Rows::of_jit_processes(jit_processes),
            files,
            ..Self::default()
        }
    }

    /// Keeps only the symbol sources: those of JIT code, and `files` in this order.
    #[must_use]
    pub fn into_symbol_sources(self, files: &[ModuleId]) -> Self {
        Self::of_symbol_sources(self.rows.into_jit_processes(), self.files.select(files))
    }

    /// Returns the current name of a thread.
    #[must_use]
    pub fn thread_name(&self, tid: Tid) -> Option<&[u8]> {
        self.tasks.thread(tid).map(|thread| &*thread.name)
    }

    /// Returns the executable mappings of a process.
    #[must_use]
    pub fn maps(&self, pid: Pid) -> Option<&Maps> {
        self.tasks.process(pid).map(|process| &*process.maps)
    }

    /// Returns the processes that are known, in no order.
    pub fn known_pids(&self) -> impl Iterator<Item = Pid> {
        self.tasks.pids()
    }

    /// Returns when a process was forked or executed its program, or `None` before the capture.
    #[must_use]
    pub fn started_at(&self, pid: Pid) -> Option<Nanos> {
        self.tasks.process(pid)?.started_at
    }

    /// Returns the row of a process, or `None` if it has no row yet.
    #[must_use]
    pub fn row_of(&self, pid: Pid) -> Option<ProcessId> {
        self.tasks.process(pid)?.row
    }

    /// Returns the mapping that contains an address of a process.
    ///
    /// In a recording, this includes mappings from before the last exec.
    #[must_use]
    pub fn mapping(&self, pid: Pid, address: u64) -> Option<&Mapping> {
        self.address_space(pid).find(address)
    }

    /// Returns a view of a process's mappings for many lookups.
    #[must_use]
    pub fn address_space(&self, pid: Pid) -> AddressSpace<'_> {
        let process = self.tasks.process(pid);
        let before = process.and_then(|process| process.before_exec.as_deref());
        let maps = process.map(|process| &*process.maps);
        AddressSpace::new(maps, before)
    }

    /// Returns the files with symbols of JIT code, by process.
    #[must_use]
    pub fn jit_processes(&self) -> &JitProcesses {
        self.rows.jit_processes()
    }

    /// Returns the rows of the processes that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<ProcessId> {
        self.tasks.take_ended()
    }

    /// Returns the files that are mapped as code.
    #[must_use]
    pub fn files(&self) -> &FileTable {
        &self.files
    }
}
