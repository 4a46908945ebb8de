//! Contents of a mapped file, and what identifies it.

use std::fs::File;
use std::io;

use perfcollect_symbols::build_id::BuildId;
use perfcollect_symbols::elf::ElfFile;

use crate::trace::spool::FileIdentity;

/// What can be read of a mapped file.
#[derive(Debug)]
pub enum Content {
    /// The file.
    File(File),
    /// The vDSO: an ELF image that is in memory only.
    Vdso(Vec<u8>),
    /// Nothing, with the reason.
    Unavailable(io::Error),
}

/// Which file an open one is.
pub(super) fn identity(file: &File) -> io::Result<FileIdentity> {
    let stat = rustix::fs::fstat(file)?;
    Ok(FileIdentity {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: stat.st_size as u64,
        modified: stat.st_mtime as u64,
    })
}

/// The build id of an open ELF file.
pub(super) fn build_id(file: &File) -> Option<BuildId> {
    ElfFile::open_mapped(file).ok()?.build_id()
}
