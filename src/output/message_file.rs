//! What a capture in the background has to say: a hidden file beside the trace, until somebody reads it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::file::{self, FileOwner, OutputError, PathAt};

const SUFFIX: &str = ".trace.messages";
/// More is not read: a capture says some hundred lines.
const MAX_BYTES: u64 = 16 << 20;

/// The open file. Dropping it leaves it alone.
#[derive(Debug)]
pub struct MessageFile {
    place: PathAt,
    file: File,
}

fn path_of(name: &Path) -> PathBuf {
    let trace = file::trace_path(name);
    let mut path = OsString::from(".");
    path.push(file::capture_name(&trace));
    path.push(SUFFIX);
    trace.with_file_name(path)
}

impl MessageFile {
    /// Makes the file of a capture name, in place of one that nobody has read.
    ///
    /// # Errors
    /// It cannot be made, or something of somebody else is there.
    pub fn create(name: &Path) -> Result<Self, OutputError> {
        let path = path_of(name);
        let failed = |error: io::Error| file::write_error(&path, error);
        if let Some(left) = Self::open(name)? {
            left.remove().map_err(failed)?;
        }
        let place = PathAt::of(&path)?;
        let file = place
            .create(OFlags::RDWR | OFlags::APPEND)
            .map_err(|errno| file::create_error(&path, errno))?;
        if let Some(owner) = FileOwner::invoking_user() {
            owner.take(&file).map_err(|errno| failed(errno.into()))?;
        }
        Ok(Self {
            place,
            file: file.into(),
        })
    }

    /// The file of a capture name, if there is one.
    ///
    /// # Errors
    /// It is somebody else's, or cannot be opened.
    pub fn open(name: &Path) -> Result<Option<Self>, OutputError> {
        let path = path_of(name);
        let place = PathAt::of(&path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(&place.dir, &place.name, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(file::write_error(&path, errno.into())),
            Ok(file) => {
                file::check_own(&place, FileOwner::invoking_user(), &path)?;
                let file = file.into();
                Ok(Some(Self { place, file }))
            }
        }
    }

    /// The file, for whoever writes it.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn writer(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// What was said so far.
    ///
    /// # Errors
    /// It cannot be read.
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

    /// Removes it: it was read.
    ///
    /// # Errors
    /// If it stays there.
    pub fn remove(&self) -> io::Result<()> {
        Ok(self.place.remove(&self.file)?)
    }
}
