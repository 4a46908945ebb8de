//! Input of the ELF reader: a file that is read in pieces, or bytes in memory.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

use super::ElfError;
use crate::large_file_permit;

/// A file or bytes in memory, with random access.
///
/// Files are read, never memory-mapped: the owner of a file may truncate it meanwhile, which
/// raises SIGBUS in the reader of a mapping.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source<'a> {
    File { file: &'a File, size_bytes: u64 },
    Bytes(&'a [u8]),
}

impl<'a> Source<'a> {
    pub(super) fn from_file(file: &'a File) -> Result<Self, ElfError> {
        let metadata = file.metadata().map_err(ElfError::Read)?;
        match metadata.is_file() {
            true => Ok(Self::File {
                file,
                size_bytes: metadata.len(),
            }),
            false => Err(ElfError::NotRegular),
        }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        match self {
            Source::File { size_bytes, .. } => *size_bytes,
            Source::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Reads up to `buffer.len()` bytes from `offset`. Returns 0 at the end.
    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Source::File { file, .. } => file.read_at(buffer, offset),
            Source::Bytes(bytes) => {
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
        large_file_permit::charge(size);
        // A page that is not written to uses no memory, so a sparse or shrinking file that
        // declares a large size costs nothing.
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let position = offset + bytes.len() as u64;
            let read = match self {
                Source::File { file, .. } => pread(file, spare_capacity(&mut bytes), position),
                Source::Bytes(all) => {
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
    source: Source<'a>,
    position: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(source: Source<'a>) -> Self {
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
