//! Files that are mapped as code, opened at first sight and held, so that they outlive their process and container.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::containers::Containers;
use super::content::{Content, build_id, identity};
use super::mapping_info::{Wanted, open};
use super::proc_maps::without_mark;
use super::recording_files::RecordingFiles;
use super::root::Root;
use crate::trace::spool::FileRow;
use crate::trace::{DescribeFile, ModuleId, Pid};

/// A file is known by device, inode and path: the device number of a mapping need not be the one `stat` tells
/// (overlayfs, btrfs), and inode numbers are reused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    path: Box<[u8]>,
}

/// A file (or the vDSO) that some process has mapped as code.
#[derive(Debug)]
pub struct CodeFile {
    /// Path in the mount namespace of the process that mapped it first; may end in ` (deleted)`.
    pub path: Box<[u8]>,
    /// What can be read of it.
    pub content: Content,
    /// The root directory that its debug file is below, if the file is a recording's.
    pub root: Option<Arc<Root>>,
    /// A process that had it mapped, whose root directory may hold its debug file.
    pub pid: Pid,
    /// That root directory if it is another than ours: the process may end.
    pub container: Option<Arc<Root>>,
}

impl CodeFile {
    /// Path without the mark of a deleted file.
    #[must_use]
    pub fn clean_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(without_mark(&self.path)))
    }

    /// Root directories in which its debug file may be, in the order to look.
    pub(crate) fn debug_roots(&self) -> impl Iterator<Item = io::Result<Root>> {
        let roots = match &self.root {
            Some(root) => [Some(root.again()), None],
            None => {
                let container = self.container.as_ref();
                let theirs = container.map_or_else(|| Root::of(self.pid), |root| root.again());
                [Some(theirs), Some(Root::host())]
            }
        };
        roots.into_iter().flatten()
    }

    /// What finds the file again, and tells it from another in its place.
    fn describe(&self) -> FileRow<'_> {
        let file = match &self.content {
            Content::File(file) => Some(file),
            Content::Vdso(_) | Content::Unavailable(_) => None,
        };
        FileRow {
            path: self.path.as_ref().into(),
            pid: self.pid,
            identity: file.and_then(|file| identity(file).ok()),
            build_id: file
                .and_then(build_id)
                .map_or_else(Cow::default, |id| id.as_bytes().to_vec().into()),
        }
    }
}

/// All code files of the capture; [`ModuleId`] is the position.
#[derive(Debug, Default)]
pub struct FileTable {
    files: Vec<Arc<CodeFile>>,
    known: FxHashMap<Identity, ModuleId>,
    containers: Containers,
    /// `None`: everything runs here and now.
    recorded: Option<Box<RecordingFiles>>,
}

impl FileTable {
    /// The file of a mapping, opened now if it was not seen before. One that could not be opened is tried again for the
    /// next process: the fault may have been the first one's.
    pub(super) fn get(&mut self, wanted: &Wanted<'_>) -> ModuleId {
        let identity = Identity {
            device: wanted.device,
            inode: wanted.inode,
            path: wanted.path.into(),
        };
        let known = self.known.get(&identity).copied();
        let is_open =
            |id: &ModuleId| !matches!(self.files[id.index()].content, Content::Unavailable(_));
        if let Some(id) = known.filter(is_open) {
            return id;
        }
        let opened = match &self.recorded {
            Some(recorded) => recorded.open(wanted),
            None => open(wanted),
        };
        let content = match (opened, known) {
            (Ok(content), _) => content,
            (Err(_), Some(id)) => return id,
            (Err(error), None) => Content::Unavailable(error),
        };
        let id = ModuleId(self.files.len() as u32);
        self.files.push(Arc::new(CodeFile {
            path: wanted.path.into(),
            content,
            root: self.recorded.as_ref().map(|recorded| recorded.root()),
            pid: wanted.pid,
            container: match self.recorded {
                Some(_) => None,
                None => self.containers.of(wanted.pid),
            },
        }));
        self.known.insert(identity, id);
        id
    }

    /// What stands for memory of this name, if the files are those of a recording: only there names are asked for.
    pub(super) fn memory(&mut self, name: &[u8]) -> Option<ModuleId> {
        self.recorded.as_ref()?;
        let identity = Identity {
            device: (0, 0),
            inode: 0,
            path: name.into(),
        };
        let Self { files, known, .. } = self;
        Some(*known.entry(identity).or_insert_with(|| {
            files.push(Arc::new(CodeFile {
                path: name.into(),
                content: Content::Unavailable(io::Error::other("it is memory, and no file")),
                root: None,
                pid: Pid(0),
                container: None,
            }));
            ModuleId(files.len() as u32 - 1)
        }))
    }

    /// What finds the files, if they are those of a recording.
    #[must_use]
    pub fn recorded(&self) -> Option<&RecordingFiles> {
        self.recorded.as_deref()
    }

    /// The files of a recording.
    pub(super) fn of_recording(recorded: RecordingFiles) -> Self {
        Self {
            recorded: Some(Box::new(recorded)),
            ..Self::default()
        }
    }

    pub(super) fn recording_mut(&mut self) -> Option<&mut RecordingFiles> {
        self.recorded.as_deref_mut()
    }

    /// A file by its handle.
    #[must_use]
    pub fn file(&self, id: ModuleId) -> &CodeFile {
        &self.files[id.index()]
    }

    /// The same for another thread.
    #[must_use]
    pub fn shared(&self, id: ModuleId) -> Arc<CodeFile> {
        Arc::clone(&self.files[id.index()])
    }

    /// These files only, in this order.
    #[must_use]
    pub fn select(self, order: &[ModuleId]) -> Self {
        let mut files: Vec<_> = self.files.into_iter().map(Some).collect();
        let chosen = order.iter().filter_map(|id| files[id.index()].take());
        Self {
            files: chosen.collect(),
            recorded: self.recorded,
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

impl DescribeFile for FileTable {
    fn describe(&self, id: ModuleId) -> FileRow<'_> {
        self.file(id).describe()
    }
}
