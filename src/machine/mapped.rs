//! Finds the mapped file at any address of a process, code or data.

use std::fs::File;

use perfcollect_symbols::process::{MapsLine, open_mapped_file, parse_all_maps, read_maps};

use super::content::identity;
use crate::trace::Pid;
use crate::trace::spool::FileIdentity;

/// Maximum number of unsuccessful reads of the mappings of a process. Each takes milliseconds.
const MAX_MISSES: u32 = 8;

/// Mappings of a process, read on demand and again when an address is not mapped.
#[derive(Debug)]
pub struct MappedFiles {
    pid: Pid,
    maps: Vec<u8>,
    misses: u32,
}

/// Location in a mapped file.
#[derive(Debug)]
pub struct MappedPlace {
    /// Newly opened file.
    pub file: File,
    /// Identity of the file.
    pub identity: FileIdentity,
    /// Offset in the file.
    pub offset: u64,
}

impl MappedFiles {
    /// Creates an empty cache for a process.
    #[must_use]
    pub fn of(pid: Pid) -> Self {
        Self {
            pid,
            maps: Vec::new(),
            misses: 0,
        }
    }

    /// Opens the file that is mapped at an address. Returns `None` without a readable file there.
    pub fn at(&mut self, address: u64) -> Option<MappedPlace> {
        let pid = self.pid;
        self.line(address)
            .and_then(|line| locate(pid, &line, address))
    }

    /// Returns the line of the mapping that contains an address.
    fn line(&mut self, address: u64) -> Option<MapsLine<'_>> {
        let covers = |line: &MapsLine<'_>| (line.start..line.end).contains(&address);
        let is_mapped = |maps: &[u8]| parse_all_maps(maps).any(|line| covers(&line));
        if !is_mapped(&self.maps) && self.misses < MAX_MISSES {
            self.maps = read_maps(self.pid.0).unwrap_or_default();
            self.misses += u32::from(!is_mapped(&self.maps));
        }
        parse_all_maps(&self.maps).find(covers)
    }
}

fn locate(pid: Pid, line: &MapsLine<'_>, address: u64) -> Option<MappedPlace> {
    if line.inode == 0 {
        return None;
    }
    let file = open_mapped_file(pid.0, line).ok()?;
    Some(MappedPlace {
        identity: identity(&file).ok()?,
        offset: line.file_offset.checked_add(address - line.start)?,
        file,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_mapped_file_by_address() {
        let mut mapped = MappedFiles::of(Pid(std::process::id() as i32));
        let code = finds_mapped_file_by_address as fn() as usize as u64;
        let location = mapped.at(code).unwrap();
        let own = File::open("/proc/self/exe").unwrap();
        assert_eq!(location.identity, identity(&own).unwrap());
        let on_stack = 0_u8;
        assert!(mapped.at(&raw const on_stack as u64).is_none());
        assert!(mapped.at(8).is_none());
    }
}
