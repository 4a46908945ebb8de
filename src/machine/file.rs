//! Files that are mapped as code.
//!
//! perfcollect opens them when they are first mapped and keeps them open, so that they outlive
//! their process and container.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use perfcollect_symbols::process::{Root, without_deleted_suffix};
use rustc_hash::FxHashMap;

use super::containers::Containers;
use super::content::{Content, build_id, identity};
use super::mapping_info::{MappingInfo, open};
use super::recording_files::RecordingFiles;
use crate::trace::spool::FileRow;
use crate::trace::{ModuleId, Pid};

/// Identity of a mapped file.
///
/// The path is included because inode numbers are reused. The device number of a mapping may differ
/// from that of `stat` (overlayfs, btrfs).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    path: Box<[u8]>,
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
    /// Process that mapped it, whose root directory may contain its debug file.
    pub pid: Pid,
    /// Root directory of that process if it is not the host's. The process may end.
    pub container: Option<Arc<Root>>,
}

impl CodeFile {
    /// Returns the path without the suffix of deleted files.
    #[must_use]
    pub fn clean_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(without_deleted_suffix(&self.path)))
    }

    /// Returns the root directories to search for its debug file, in order.
    pub(crate) fn debug_roots(&self) -> Vec<Arc<Root>> {
        if let Some(root) = &self.root {
            return vec![root.clone()];
        }
        let host = Root::host().ok().map(Arc::new);
        // A file of the host is the same for all processes that map it. Any of them may be in a mount
        // namespace with debug files that are not the host's.
        if host.as_ref().is_some_and(|host| self.is_below(host)) {
            return host.into_iter().collect();
        }
        let process_root = match &self.container {
            Some(root) => Some(root.clone()),
            None => Root::of(self.pid.0).ok().map(Arc::new),
        };
        process_root.into_iter().chain(host).collect()
    }

    /// Returns whether a root directory has the file at its path.
    fn is_below(&self, root: &Root) -> bool {
        let Content::File(file) = &self.content else {
            return false;
        };
        let found = root.open(self.clean_path());
        let same = found.and_then(|found| Ok(identity(&found)? == identity(file)?));
        same.is_ok_and(|same| same)
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

/// All code files of the capture, indexed by [`ModuleId`].
#[derive(Debug, Default)]
pub struct FileTable {
    files: Vec<Arc<CodeFile>>,
    ids: FxHashMap<Identity, ModuleId>,
    containers: Containers,
    /// File finder of a recording, or `None` for the live system.
    recording: Option<Box<RecordingFiles>>,
}

impl FileTable {
    /// Returns the file of a mapping, and opens it if it is new.
    ///
    /// A file that could not be opened is retried for the next process, as the cause may be
    /// specific to the first process.
    pub(super) fn get(&mut self, info: &MappingInfo<'_>) -> ModuleId {
        let identity = Identity {
            device: info.line.device,
            inode: info.line.inode,
            path: info.line.path.into(),
        };
        let existing = self.ids.get(&identity).copied();
        let is_open =
            |id: &ModuleId| !matches!(self.files[id.index()].content, Content::Unavailable(_));
        if let Some(id) = existing.filter(is_open) {
            return id;
        }
        let opened = match &self.recording {
            Some(recording) => recording.open(info),
            None => open(info),
        };
        let content = match (opened, existing) {
            (Ok(content), _) => content,
            (Err(_), Some(id)) => return id,
            (Err(error), None) => Content::Unavailable(error),
        };
        let id = ModuleId(self.files.len() as u32);
        self.files.push(Arc::new(CodeFile {
            path: info.line.path.into(),
            content,
            root: self.recording.as_ref().map(|recording| recording.root()),
            pid: info.pid,
            container: match self.recording {
                Some(_) => None,
                None => self.containers.of(info.pid),
            },
        }));
        self.ids.insert(identity, id);
        id
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
        self.containers.root(pid)
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

impl FromIterator<CodeFile> for FileTable {
    fn from_iter<I: IntoIterator<Item = CodeFile>>(files: I) -> Self {
        Self {
            files: files.into_iter().map(Arc::new).collect(),
            ..Self::default()
        }
    }
}
