//! Input of the ELF reader: a file that is read in pieces, or bytes in memory.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

use super::ElfError;
use crate::memory_budget::MemoryUse;

/// A file or bytes in memory, with random access.
///
/// Files are read, never memory-mapped: the owner of a file may truncate it meanwhile, which
/// raises SIGBUS in the reader of a mapping.
#[derive(Debug, Clone)]
pub(super) struct Source {
    content: Content,
    /// What is charged for bytes that are read.
    pub(super) memory: Arc<MemoryUse>,
}

#[derive(Debug, Clone)]
enum Content {
    File { file: Arc<File>, size_bytes: u64 },
    Bytes(Arc<Vec<u8>>),
}

impl Source {
    pub(super) fn from_file(file: Arc<File>, memory: Arc<MemoryUse>) -> Result<Self, ElfError> {
        let metadata = file.metadata().map_err(ElfError::Read)?;
        let size_bytes = metadata.len();
        match metadata.is_file() {
            true => Ok(Self {
                content: Content::File { file, size_bytes },
                memory,
            }),
            false => Err(ElfError::NotRegular),
        }
    }

    pub(super) fn from_bytes(bytes: Vec<u8>, memory: Arc<MemoryUse>) -> Self {
        Self {
            content: Content::Bytes(Arc::new(bytes)),
            memory,
        }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        match &self.content {
            Content::File { size_bytes, .. } => *size_bytes,
            Content::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Reads up to `buffer.len()` bytes from `offset`. Returns 0 at the end.
    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.content {
            Content::File { file, .. } => file.read_at(buffer, offset),
            Content::Bytes(bytes) => {
                let rest = usize::try_from(offset)
                    .ok()
                    .and_then(|offset| bytes.get(offset..));
                rest.unwrap_or_default().read(buffer)
            }
        }
    }

    /// Checks that a range is inside the source.
    pub(super) fn check(&self, what: &'static str, offset: u64, size: u64) -> Result<(), ElfError> {
        let end = offset.checked_add(size);
        match end.is_some_and(|end| end <= self.size_bytes()) {
            true => Ok(()),
            false => Err(ElfError::OutsideFile { what, offset, size }),
        }
    }

    /// Reads a range, which must be inside the source. The caller has bounded `size`.
    pub(super) fn read_exact(
        &self,
        what: &'static str,
        offset: u64,
        size: u64,
    ) -> Result<Vec<u8>, ElfError> {
        self.check(what, offset, size)?;
        let outside = |_| ElfError::OutsideFile { what, offset, size };
        let length = usize::try_from(size).map_err(outside)?;
        self.memory.charge(size);
        // A page that is not written to uses no memory, so a sparse or shrinking file that
        // declares a large size costs nothing.
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let position = offset + bytes.len() as u64;
            let read = match &self.content {
                Content::File { file, .. } => pread(file, spare_capacity(&mut bytes), position),
                Content::Bytes(all) => {
                    let start = usize::try_from(position).ok();
                    let rest = start.and_then(|start| all.get(start..));
                    bytes.extend(rest.unwrap_or_default().iter().take(length));
                    Ok(bytes.len())
                }
            };
            match read {
                Ok(0) => return Err(ElfError::OutsideFile { what, offset, size }),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(ElfError::Read(error.into())),
            }
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// A position in a source, through which `object::ReadCache` reads.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    source: &'a Source,
    position: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(source: &'a Source) -> Self {
        Self {
            source,
            position: 0,
        }
    }
}

impl Read for Cursor<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read_at(buffer, self.position)?;
        self.position = self.position.saturating_add(read as u64);
        Ok(read)
    }
}

impl Seek for Cursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(by) => self.source.size_bytes().checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
