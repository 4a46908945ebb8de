//! The file behind any address of a process, code or not.

use std::fs::File;

use super::file::{Wanted, identity, open_file};
use super::proc_fs::{self, MapsLine};
use crate::trace::Pid;
use crate::trace::spool::FileIdentity;

/// Reads of the mappings of a process that are allowed ahead of the successful ones: what is not there must not be looked
/// for again and again, as that takes milliseconds.
const MAX_MISSES: u32 = 8;

/// The mappings of a process, read when they are needed and again when something is not in them.
#[derive(Debug)]
pub struct MappedFiles {
    pid: Pid,
    text: Vec<u8>,
    misses: u32,
}

/// A place in a mapped file.
#[derive(Debug)]
pub struct MappedPlace {
    /// The file, opened anew.
    pub file: File,
    /// Which file it is.
    pub identity: FileIdentity,
    /// The offset in the file.
    pub offset: u64,
}

impl MappedFiles {
    /// Those of a process.
    #[must_use]
    pub fn of(pid: Pid) -> Self {
        Self {
            pid,
            text: Vec::new(),
            misses: 0,
        }
    }

    /// The file that is mapped at an address. `None`: none, or none that can be opened.
    pub fn at(&mut self, address: u64) -> Option<MappedPlace> {
        if let Some(place) = self.known(address) {
            return Some(place);
        }
        if self.misses >= MAX_MISSES {
            return None;
        }
        self.misses += 1;
        self.text = proc_fs::maps(self.pid).ok()?;
        let place = self.known(address)?;
        self.misses -= 1;
        Some(place)
    }

    fn known(&self, address: u64) -> Option<MappedPlace> {
        let covers = |line: &MapsLine<'_>| (line.start..line.end).contains(&address);
        let line = proc_fs::parse_all_maps(&self.text).find(covers)?;
        if line.inode == 0 {
            return None;
        }
        let file = open_file(&Wanted {
            pid: self.pid,
            start: line.start,
            end: line.end,
            device: line.device,
            inode: line.inode,
            path: line.path,
        });
        let file = file.ok()?;
        Some(MappedPlace {
            identity: identity(&file).ok()?,
            offset: line.file_offset.checked_add(address - line.start)?,
            file,
        })
    }
}
