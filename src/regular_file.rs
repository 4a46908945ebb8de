//! Opens a regular file that the user names.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Opens a regular file for reading.
///
/// What it is counts once it is open: the path may lead to a FIFO a moment after it led to a file, and
/// opening that would wait for a writer.
///
/// # Errors
/// The file cannot be opened, is not regular, or another process holds a lease on it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file: File = rustix::fs::open(path, flags, Mode::empty())?.into();
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn waits_for_no_writer_of_a_fifo() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        for path in [&*fifo, directory.path(), Path::new("/dev/null")] {
            let error = open(path).unwrap_err();
            assert_eq!(error.to_string(), "not a regular file", "{path:?}");
        }
        let file = directory.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(open(&file).unwrap().metadata().unwrap().len(), 1);
    }
}
