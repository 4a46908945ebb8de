//! What the machine looks like at the time of a record: processes, threads, what they have mapped as code.

mod file;
mod free_memory;
mod jit_host;
mod mapped;
mod maps;
mod proc_fs;
mod process;
mod recorded;
mod recovered;
mod root;

pub use file::{CodeFile, Content, FileTable};
pub use free_memory::free_memory;
pub use jit_host::JitHost;
pub use mapped::{MappedFiles, MappedPlace};
pub use maps::{AddressSpace, Backing, Mapping, Maps};
pub use proc_fs::{
    MappedCode, ProcError, boot_id, command_line, container, effective_uid, environment, exists,
    is_running, is_stopped, mapped_files, namespace_pid, new_namespace_threads, pids, start_ticks,
    thread_group, thread_names, threads, with_descendants,
};
pub use process::{Change, Machine, ProcessRow, ThreadRow};
pub use recorded::Recorded;
pub use root::{Root, executable};
