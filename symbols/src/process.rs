//! Live processes: their mappings, the mapped files, and their root directories.
//!
//! A process chooses its paths, files and names. So a mapped file is opened through its mapping or
//! verified by device and inode, and paths are resolved inside the root directory of the process.

mod mapped_file;
mod maps;
mod memory;
mod reader;
mod root;
mod status;

pub use mapped_file::{VDSO, is_elf, open_mapped_file, vdso_image};
pub use maps::{
    MapsLine, is_memory, parse_all_maps, parse_maps, read_maps, without_deleted_suffix,
};
pub use memory::ProcessMemory;
pub use reader::Reader;
pub use root::{Root, executable};
pub use status::{
    cpu_ticks, environment_addresses, file_owner, has_other_clock, mount_namespace, namespace_pid,
    real_user, start_ticks, thread_start_ticks,
};
