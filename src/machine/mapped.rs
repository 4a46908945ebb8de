//! The file behind any address of a process, code or not.

use std::fs::File;

use super::content::identity;
use super::mapping_info::{Wanted, open_file};
use super::proc_maps::{self, MapsLine};
use crate::trace::Pid;
use crate::trace::spool::FileIdentity;

/// Reads of the mappings of a process that may be in vain: what is not there must not be looked for again and again, as
/// that takes milliseconds.
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
        let pid = self.pid;
        self.line(address)
            .and_then(|line| place(pid, &line, address))
    }

    /// The mapping of an address.
    fn line(&mut self, address: u64) -> Option<MapsLine<'_>> {
        let covers = |line: &MapsLine<'_>| (line.start..line.end).contains(&address);
        let is_known = |text: &[u8]| proc_maps::parse_all_maps(text).any(|line| covers(&line));
        if !is_known(&self.text) && self.misses < MAX_MISSES {
            self.text = proc_maps::maps(self.pid).unwrap_or_default();
            self.misses += u32::from(!is_known(&self.text));
        }
        proc_maps::parse_all_maps(&self.text).find(covers)
    }
}

fn place(pid: Pid, line: &MapsLine<'_>, address: u64) -> Option<MappedPlace> {
    if line.inode == 0 {
        return None;
    }
    let file = open_file(&Wanted::of(pid, line)).ok()?;
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
    fn any_mapped_file_is_found_by_address() {
        let mut mapped = MappedFiles::of(Pid(std::process::id() as i32));
        let code = any_mapped_file_is_found_by_address as fn() as usize as u64;
        let place = mapped.at(code).unwrap();
        let own = File::open("/proc/self/exe").unwrap();
        assert_eq!(place.identity, identity(&own).unwrap());
        let on_stack = 0_u8;
        assert!(mapped.at(&raw const on_stack as u64).is_none());
        assert!(mapped.at(8).is_none());
    }
}
