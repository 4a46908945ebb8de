//! Files that are mapped as code.
//!
//! perfcollect opens them when they are first mapped and keeps them open, so that they outlive
//! their process and container.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perfcollect_symbols::process::{Root, VDSO, vdso_image, without_deleted_suffix};
use rustc_hash::FxHashMap;
use rustix::process::geteuid;

use super::containers::{Containers, Home};
use super::content::{Content, build_id, identity};
use super::executable_mappings::{Backing, Maps};
use super::jit_process::is_jit_dump;
use super::mapping_info::MappingInfo;
use super::open_files::{OpenFiles, User};
use super::proc_fs::file_owner;
use super::recording_files::RecordingFiles;
use crate::trace::spool::FileRow;
use crate::trace::{ModuleId, Pid};

/// Identity of a mapped file.
///
/// The path is included because inode numbers are reused. The device number of a mapping may differ
/// from that of `stat` (overlayfs, btrfs). A file that the host does not have at its path is
/// another one in each container, since its debug files are those of the container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    path: Box<[u8]>,
    home: Home,
}

impl Identity {
    fn new(info: &MappingInfo<'_>, home: Home) -> Self {
        Self {
            device: info.line.device,
            inode: info.line.inode,
            path: info.line.path.into(),
            home,
        }
    }
}

/// A file, or the vDSO, that a process mapped as code.
#[derive(Debug)]
pub struct CodeFile {
    /// Path in the mount namespace of the first process that mapped it; may end in ` (deleted)`.
    pub path: Box<[u8]>,
    /// Readable content.
    pub content: Content,
    /// Root directory of its debug file, if the file belongs to a recording.
    pub root: Option<Arc<Root>>,
    /// Process that mapped it.
    pub pid: Pid,
    /// Root directory of that process, unless the file is the host's. The process may end.
    pub container: Option<Arc<Root>>,
}

impl CodeFile {
    /// Returns the path without the suffix of deleted files.
    #[must_use]
    pub fn clean_path(&self) -> &Path {
        clean_path(&self.path)
    }

    /// Returns the root directories to search for its debug file, in order.
    pub(crate) fn debug_roots(&self) -> Vec<Arc<Root>> {
        if let Some(root) = &self.root {
            return vec![root.clone()];
        }
        let host = Root::host().ok().map(Arc::new);
        self.container.iter().cloned().chain(host).collect()
    }

    /// Returns the row that identifies the file for recovery.
    pub fn describe(&self) -> FileRow<'_> {
        let file = match &self.content {
            Content::File(file) => Some(file),
            Content::Vdso(_) | Content::Unavailable(_) => None,
        };
        FileRow {
            path: self.path.as_ref().into(),
            pid: self.pid,
            identity: file.and_then(|file| identity(file).ok()),
            build_id: file
                .and_then(|file| build_id(file.clone()))
                .map_or_else(Cow::default, |id| id.as_bytes().to_vec().into()),
        }
    }
}

fn clean_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(without_deleted_suffix(path)))
}

/// Returns whether the host has a file at its path.
fn is_of_host(path: &[u8], file: &File) -> bool {
    let found = Root::host().and_then(|host| host.open_cached(clean_path(path)));
    let same = found.and_then(|found| Ok(identity(&found)? == identity(file)?));
    same.is_ok_and(|same| same)
}

/// All code files of the capture, indexed by [`ModuleId`].
#[derive(Debug, Default)]
pub struct FileTable {
    files: Vec<Arc<CodeFile>>,
    ids: FxHashMap<Identity, ModuleId>,
    containers: Containers,
    open_files: OpenFiles,
    /// File finder of a recording, or `None` for the live system.
    recording: Option<Box<RecordingFiles>>,
}

impl FileTable {
    /// Returns the file of a mapping, and opens it if it is new.
    ///
    /// A file that could not be opened is retried for the next process, as the cause may be
    /// specific to the first process.
    pub(super) fn get(&mut self, info: &MappingInfo<'_>) -> ModuleId {
        // The file of the host is the same for all processes that map it. Any of them may be in a
        // mount namespace with debug files that are not the host's.
        if let Some(id) = self.open_row(info, Home::Host) {
            return id;
        }
        let is_of_process = self.recording.is_none() && info.line.path != VDSO;
        let (home, root) = match is_of_process.then(|| self.containers.of(info.pid)) {
            Some(Ok((home, root))) => (home, Some(root)),
            Some(Err(_)) => (Home::Unknown, None),
            None => (Home::Host, None),
        };
        if let Some(id) = self.open_row(info, home) {
            return id;
        }
        let (content, home, container) = match self.open(info, home, root) {
            Ok(opened) => opened,
            Err(error) => match self.ids.get(&Identity::new(info, home)) {
                Some(&id) => return id,
                None => (Content::Unavailable(error), home, None),
            },
        };
        let id = ModuleId(self.files.len() as u32);
        self.files.push(Arc::new(CodeFile {
            path: info.line.path.into(),
            content,
            root: self.recording.as_ref().map(|recording| recording.root()),
            pid: info.pid,
            container,
        }));
        self.ids.insert(Identity::new(info, home), id);
        id
    }

    /// Returns the row of a mapping if its content is available.
    fn open_row(&self, info: &MappingInfo<'_>, home: Home) -> Option<ModuleId> {
        let id = *self.ids.get(&Identity::new(info, home))?;
        let is_open = !matches!(self.file(id).content, Content::Unavailable(_));
        is_open.then_some(id)
    }

    /// Opens the content of a mapping. Returns whose it is, and the root directory if it is that of
    /// a container.
    fn open(
        &mut self,
        info: &MappingInfo<'_>,
        home: Home,
        root: Option<Arc<Root>>,
    ) -> io::Result<(Content, Home, Option<Arc<Root>>)> {
        if let Some(recording) = &self.recording {
            return Ok((recording.open(info)?, home, None));
        }
        if info.line.path == VDSO {
            return Ok((Content::Vdso(vdso_image()?), home, None));
        }
        let user = || user(info.pid, home);
        let file = self.open_files.open(info.pid.0, &info.line, user)?;
        if home == Home::Host || is_of_host(info.line.path, &file) {
            return Ok((Content::File(file), Home::Host, None));
        }
        if let Some(root) = &root {
            self.keep(root, user())?;
        }
        Ok((Content::File(file), home, root))
    }

    /// Returns the row of memory with this name, or `None` for the live system.
    ///
    /// Only importing a recording needs names of memory.
    pub(super) fn memory(&mut self, name: &[u8]) -> Option<ModuleId> {
        self.recording.as_ref()?;
        let identity = Identity {
            device: (0, 0),
            inode: 0,
            path: name.into(),
            home: Home::Host,
        };
        let Self { files, ids, .. } = self;
        Some(*ids.entry(identity).or_insert_with(|| {
            files.push(Arc::new(CodeFile {
                path: name.into(),
                content: Content::Unavailable(io::Error::other("it is memory, not a file")),
                root: None,
                pid: Pid(0),
                container: None,
            }));
            ModuleId(files.len() as u32 - 1)
        }))
    }

    /// Returns the root directory of a running process.
    pub(super) fn root(&mut self, pid: Pid) -> io::Result<Arc<Root>> {
        let (home, root) = self.containers.of(pid)?;
        self.keep(&root, user(pid, home))?;
        Ok(root)
    }

    /// Counts the descriptor of a root directory that will be kept.
    fn keep(&mut self, root: &Arc<Root>, user: User) -> io::Result<()> {
        match Arc::strong_count(root) {
            1 => self.open_files.take(user, root),
            _ => Ok(()),
        }
    }

    /// Returns the file finder of a recording, or `None` for the live system.
    #[must_use]
    pub fn recorded(&self) -> Option<&RecordingFiles> {
        self.recording.as_deref()
    }

    /// Creates an empty table for the files of a recording.
    pub(super) fn of_recording(recording: RecordingFiles) -> Self {
        Self {
            recording: Some(Box::new(recording)),
            ..Self::default()
        }
    }

    pub(super) fn recording_mut(&mut self) -> Option<&mut RecordingFiles> {
        self.recording.as_deref_mut()
    }

    /// Returns a file by its id.
    #[must_use]
    pub fn file(&self, id: ModuleId) -> &CodeFile {
        &self.files[id.index()]
    }

    /// Returns the path of the jitdump that a process has mapped.
    #[must_use]
    pub fn jit_dump(&self, maps: &Maps) -> Option<PathBuf> {
        maps.iter().find_map(|mapping| match mapping.backing {
            Backing::File(id) => {
                let path = &self.file(id).path;
                is_jit_dump(path).then(|| PathBuf::from(OsStr::from_bytes(path)))
            }
            Backing::Jit | Backing::DoubleMapped => None,
        })
    }

    /// Returns a shared reference to a file, for use in another thread.
    #[must_use]
    pub fn shared(&self, id: ModuleId) -> Arc<CodeFile> {
        Arc::clone(&self.files[id.index()])
    }

    /// Keeps only these files, in this order.
    #[must_use]
    pub fn select(self, order: &[ModuleId]) -> Self {
        let mut files: Vec<_> = self.files.into_iter().map(Some).collect();
        let chosen = order.iter().filter_map(|id| files[id.index()].take());
        Self {
            files: chosen.collect(),
            recording: self.recording,
            ..Self::default()
        }
    }
}

/// Returns the user of a process whose file system is known.
fn user(pid: Pid, home: Home) -> User {
    match file_owner(pid) {
        None => User::Unknown,
        Some(uid) if home == Home::Host && [0, geteuid().as_raw()].contains(&uid) => User::Trusted,
        Some(uid) => User::Other(uid),
    }
}

impl FromIterator<CodeFile> for FileTable {
    fn from_iter<I: IntoIterator<Item = CodeFile>>(files: I) -> Self {
        Self {
            files: files.into_iter().map(Arc::new).collect(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfcollect_symbols::process::{MapsLine, parse_maps, read_maps};

    #[test]
    fn rows_of_one_file_share_a_descriptor() {
        let me = Pid(std::process::id() as i32);
        let maps = read_maps(me.0).unwrap();
        let is_file = |line: &MapsLine<'_>| line.path.starts_with(b"/");
        let line = parse_maps(&maps).find(is_file).unwrap();
        let mut files = FileTable::default();
        let mut row = |pid, line| files.get(&MappingInfo::of(pid, line));
        let first = row(me, line);
        assert_eq!(row(me, line), first);
        let open = std::fs::metadata(clean_path(line.path)).unwrap();
        let device = std::os::unix::fs::MetadataExt::dev(&open);
        let elsewhere = MapsLine {
            device: (rustix::fs::major(device), rustix::fs::minor(device)),
            path: b"/elsewhere",
            ..line
        };
        // A process that has ended, and in another container.
        let other = row(Pid(i32::MAX), elsewhere);
        assert_ne!(other, first);
        let content = |id| match &files.file(id).content {
            Content::File(file) => Arc::as_ptr(file),
            other => panic!("{other:?}"),
        };
        assert_eq!(content(first), content(other));
    }
}
