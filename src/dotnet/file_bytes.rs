//! The bytes of a file by their offset.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::memory::Memory;

/// An open file, read where and when its bytes are wanted: never mapped, since whoever owns it may cut it short.
#[derive(Clone, Copy, Debug)]
pub struct FileBytes<'a>(pub &'a File);

impl Memory for FileBytes<'_> {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        // A read ends at the first page that is not there, at times after a part.
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let Some(from) = offset.checked_add(filled as u64) else {
                break;
            };
            match self.0.read_at(rest, from) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        filled
    }
}
