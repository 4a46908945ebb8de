//! Content and identity of a mapped file.

use std::fs::File;
use std::io;
use std::sync::Arc;

use perfcollect_symbols::build_id::BuildId;
use perfcollect_symbols::elf::ElfFile;

use crate::trace::spool::FileIdentity;

/// Readable content of a mapped file.
#[derive(Debug)]
pub enum Content {
    /// The file.
    File(Arc<File>),
    /// The vDSO: an ELF image that exists only in memory.
    Vdso(Vec<u8>),
    /// No content, with the reason.
    Unavailable(io::Error),
}

/// Returns the identity of an open file.
pub(super) fn identity(file: &File) -> io::Result<FileIdentity> {
    let stat = rustix::fs::fstat(file)?;
    Ok(FileIdentity {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: stat.st_size as u64,
        modified: stat.st_mtime as u64,
    })
}

/// Returns the build id of an open ELF file.
pub(super) fn build_id(file: Arc<File>) -> Option<BuildId> {
    ElfFile::open_mapped(file).ok()?.build_id()
}
