//! What the machine looks like at the time of a record: processes, threads, what they have mapped as code.

use std::io;
use std::sync::Arc;

use jit_process::is_jit_dump;
use mapping_info::{VDSO, Wanted, is_elf};
use rows::Rows;
use tasks::Tasks;

use crate::perf::{MmapRecord, Record};
use crate::trace::{ModuleId, Nanos, Pid, ProcessId, ThreadId, Tid};

mod containers;
mod content;
mod file;
mod free_memory;
mod jit_process;
mod mapped;
mod mapping_info;
mod maps;
mod proc_fs;
mod proc_maps;
mod recording_files;
mod recovered;
mod root;
mod rows;
mod tasks;

pub use content::Content;
pub use file::{CodeFile, FileTable};
pub use free_memory::free_memory;
pub use jit_process::JitProcess;
pub use mapped::{MappedFiles, MappedPlace};
pub use maps::{AddressSpace, Backing, Mapping, Maps};
pub use proc_fs::{
    ProcError, boot_id, command_line, container, effective_uid, environment, exists, is_running,
    is_stopped, namespace_pid, new_namespace_threads, pids, start_ticks, thread_group,
    thread_names, threads, with_descendants,
};
pub(crate) use proc_maps::without_mark;
pub use proc_maps::{MappedCode, mapped_files};
pub use recording_files::RecordingFiles;
pub use root::{Root, executable};
pub use rows::{ProcessRow, RowUpdate, ThreadRow};

/// All processes of the machine.
///
/// Pids and tids are reused, so a row of the trace is one life: a process from its fork or exec on. Rows are made
/// at the first sample, or where its events are kept; another process costs nothing but its entry here, and only until shortly
/// after its exit.
#[derive(Debug, Default)]
pub struct Machine {
    tasks: Tasks,
    rows: Rows,
    files: FileTable,
}

impl Machine {
    /// The machine of a recording, whose processes do not run here, or are over.
    #[must_use]
    pub fn recorded(recorded: RecordingFiles) -> Self {
        Self {
            files: FileTable::of_recording(recorded),
            ..Self::default()
        }
    }

    /// What finds the files of a recording.
    pub fn recording_mut(&mut self) -> Option<&mut RecordingFiles> {
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
        let text = proc_maps::maps(pid).ok()?;
        let mut maps = Maps::default();
        for line in proc_maps::parse_maps(&text) {
            if let Some(mapping) = self.new_mapping(&Wanted::of(pid, &line), line.file_offset) {
                maps.insert(mapping);
            }
        }
        self.tasks.process_mut(pid).maps = Arc::new(maps);
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
                let is_live = self.is_live();
                self.tasks.exit(time, pid, tid, is_live);
            }
            _ => {}
        }
    }

    /// Takes in memory for code made at run time before its record's turn comes. Where something else is mapped still,
    /// older samples may be in that.
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
            let process = self.tasks.process_mut(record.pid);
            Arc::make_mut(&mut process.maps).insert(mapping);
        }
    }

    fn new_mapping(&mut self, wanted: &Wanted<'_>, file_offset: u64) -> Option<Mapping> {
        let of_memory = match wanted.path {
            // Not memory of the process: the page is emulated by the kernel.
            b"[vsyscall]" => return None,
            VDSO => None,
            path => match Backing::of_memory(path) {
                // A library that was loaded from memory.
                Some(Backing::Jit)
                    if path.starts_with(b"/memfd:") && self.is_live() && is_elf(wanted) =>
                {
                    None
                }
                of_memory => of_memory,
            },
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

    /// Rows of a sampled thread and its process, made at the first sample.
    pub fn sampled(&mut self, pid: Pid, tid: Tid) -> (ThreadId, ProcessId) {
        if let Some(thread) = self.tasks.thread(tid)
            && let Some(row) = thread.row
            && thread.pid == pid
        {
            return (row, self.rows.threads()[row.index()].process);
        }
        self.add_row(pid, tid)
    }

    /// The row of a process that need not be sampled, such as one whose events are kept.
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
                jit_host: None,
            })
        })
    }

    #[cold]
    fn add_row(&mut self, pid: Pid, tid: Tid) -> (ThreadId, ProcessId) {
        let is_live = self.is_live();
        let process_row = self.ensure_process_row(pid);
        let of_process = || self.tasks.process(pid).map(|process| process.name.clone());
        let name = match self.tasks.thread(tid) {
            Some(thread) if thread.pid == pid => Some(thread.name.clone()),
            _ if is_live => {
                let comm = proc_fs::comm(pid, tid).ok();
                comm.map(Into::into).or_else(of_process)
            }
            _ => of_process(),
        };
        let name: Box<[u8]> = name.unwrap_or_default();
        let row = self.rows.add_thread(ThreadRow {
            process: process_row,
            tid,
            name: name.clone(),
        });
        self.tasks.put_thread(tid, pid, name, Some(row));
        (row, process_row)
    }

    /// Notes that a process runs code made at run time, while it still is there to be looked at.
    pub fn mark_jit_process(&mut self, id: ProcessId) {
        let row = &self.rows.processes()[id.index()];
        if row.jit_host.is_some() {
            return;
        }
        let jit_host = self.jit_host(row.pid);
        self.rows.set_jit_host(id, jit_host);
    }

    /// Where the names of code are that a process made at run time.
    ///
    /// # Errors
    /// It is gone, or nothing of it is there.
    pub fn jit_host(&self, pid: Pid) -> io::Result<JitProcess> {
        let process = self.tasks.process(pid);
        let mut mapped = process.iter().flat_map(|process| process.maps.iter());
        let dump = mapped.find_map(|mapping| match mapping.backing {
            Backing::File(id) => {
                let path = &self.files.file(id).path;
                is_jit_dump(path).then(|| path.clone())
            }
            Backing::Jit | Backing::DoubleMapped => None,
        });
        match self.files.recorded() {
            Some(recorded) => recorded.jit_host(pid, dump),
            None => JitProcess::of(pid, dump),
        }
    }

    /// What has become of the rows since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<RowUpdate> {
        self.rows.take_changes()
    }

    /// A machine that is only good for names: sampled processes, and the files behind the code that was sampled.
    #[must_use]
    pub fn of_rows(process_rows: Vec<ProcessRow>, files: FileTable) -> Self {
        Self {
            rows: Rows::of_processes(process_rows),
            files,
            ..Self::default()
        }
    }

    /// Keeps what names come from: the sampled processes and these files, in this order.
    #[must_use]
    pub fn into_symbol_sources(self, files: &[ModuleId]) -> Self {
        Self::of_rows(self.rows.into_processes(), self.files.select(files))
    }

    /// The name a thread has now.
    #[must_use]
    pub fn thread_name(&self, tid: Tid) -> Option<&[u8]> {
        self.tasks.thread(tid).map(|thread| &*thread.name)
    }

    /// Executable memory of a process.
    #[must_use]
    pub fn maps(&self, pid: Pid) -> Option<&Maps> {
        self.tasks.process(pid).map(|process| &*process.maps)
    }

    /// When a process was forked, or began its program. `None`: before the capture.
    #[must_use]
    pub fn started_at(&self, pid: Pid) -> Option<Nanos> {
        self.tasks.process(pid)?.started_at
    }

    /// The row of a process. `None`: it was not sampled yet.
    #[must_use]
    pub fn row_of(&self, pid: Pid) -> Option<ProcessId> {
        self.tasks.process(pid)?.row
    }

    /// Where an address of a process lies, or in a recording lay before its last exec.
    #[must_use]
    pub fn mapping(&self, pid: Pid, address: u64) -> Option<&Mapping> {
        self.address_space(pid).find(address)
    }

    /// The same for many addresses.
    #[must_use]
    pub fn address_space(&self, pid: Pid) -> AddressSpace<'_> {
        let process = self.tasks.process(pid);
        let before = process.and_then(|process| process.before_exec.as_deref());
        let maps = process.map(|process| &*process.maps);
        AddressSpace::new(maps, before)
    }

    /// Sampled processes; [`ProcessId`] is the position.
    #[must_use]
    pub fn process_rows(&self) -> &[ProcessRow] {
        self.rows.processes()
    }

    /// Sampled threads; [`ThreadId`] is the position.
    #[must_use]
    pub fn thread_rows(&self) -> &[ThreadRow] {
        self.rows.threads()
    }

    /// Files that are mapped as code.
    #[must_use]
    pub fn files(&self) -> &FileTable {
        &self.files
    }
}
