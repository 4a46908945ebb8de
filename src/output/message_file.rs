//! Messages of a background capture: a hidden file in the directory of the trace, until it is read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::file::{self, FileOwner, OutputError, PathAt};

const SUFFIX: &str = ".trace.messages";
/// Maximum number of bytes to read. A capture prints some hundred lines.
const MAX_BYTES: u64 = 16 << 20;

/// An open message file. Dropping it keeps the file.
#[derive(Debug)]
pub struct MessageFile {
    place: PathAt,
    file: File,
}

impl MessageFile {
    /// Creates the file of a capture name. Replaces an unread one.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created, or if an existing file belongs to another
    /// user.
    pub fn create(name: &Path) -> Result<Self, OutputError> {
        let path = file::hidden_path(name, SUFFIX);
        let failed = |error: io::Error| file::write_error(&path, error);
        if let Some(stale) = Self::open(name)? {
            stale.remove().map_err(failed)?;
        }
        let place = PathAt::open(&path)?;
        let file = place
            .create(OFlags::RDWR | OFlags::APPEND)
            .map_err(|errno| file::create_error(&path, errno))?;
        if let Some(owner) = FileOwner::invoking_user() {
            owner.chown(&file).map_err(|errno| failed(errno.into()))?;
        }
        Ok(Self {
            place,
            file: file.into(),
        })
    }

    /// Opens the file of a capture name. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the file belongs to another user or cannot be opened.
    pub fn open(name: &Path) -> Result<Option<Self>, OutputError> {
        let path = file::hidden_path(name, SUFFIX);
        let place = PathAt::open(&path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(&place.dir, &place.name, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(file::write_error(&path, errno.into())),
            Ok(file) => {
                file::check_open(&file, &path)?;
                let file = file.into();
                Ok(Some(Self { place, file }))
            }
        }
    }

    /// Returns a separate handle for writing.
    ///
    /// # Errors
    /// Returns an error if too many files are open.
    pub fn writer(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Returns the messages so far.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn read(&self) -> io::Result<String> {
        let mut text = Vec::new();
        let mut chunk = [0; 4096];
        while (text.len() as u64) < MAX_BYTES {
            match self.file.read_at(&mut chunk, text.len() as u64)? {
                0 => break,
                read => text.extend(chunk.iter().take(read)),
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns the last messages: at most 4 KiB, from any character on.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn read_end(&self) -> io::Result<String> {
        let mut end = [0; 4096];
        let start = self.file.metadata()?.len().saturating_sub(end.len() as u64);
        let read = self.file.read_at(&mut end, start)?;
        Ok(String::from_utf8_lossy(&end[..read]).into_owned())
    }

    /// Removes the file, after it was read.
    ///
    /// # Errors
    /// Returns an error if the file cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        Ok(self.place.remove(&self.file)?)
    }
}
