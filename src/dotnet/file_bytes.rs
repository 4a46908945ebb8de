//! Access to the bytes of a file by offset.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::memory::Memory;

/// An open file that is read on demand. It is not memory-mapped, because its owner may truncate it,
/// which would raise SIGBUS.
#[derive(Clone, Copy, Debug)]
pub struct FileBytes<'a>(pub &'a File);

impl Memory for FileBytes<'_> {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        // A read of process memory ends at the first unmapped page and may be short before it.
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let Some(position) = offset.checked_add(filled as u64) else {
                break;
            };
            match self.0.read_at(rest, position) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        filled
    }
}
