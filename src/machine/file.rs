//! Files that are mapped as code, opened at first sight and held, so that they outlive their process and container.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use perfcollect_symbols::elf::ElfFile;
use rustc_hash::FxHashMap;
use rustix::fs::{Mode, OFlags, Stat};

use super::containers::Containers;
use super::proc_maps::{self, MapsLine};
use super::recorded::Recorded;
use super::root::{Root, reopen_regular};
use crate::trace::spool::{FileIdentity, FileRow};
use crate::trace::{DescribeFile, ModuleId, Pid};

/// OVERLAYFS_SUPER_MAGIC of `linux/magic.h`.
const OVERLAY_MAGIC: rustix::fs::FsWord = 0x794c_7630;
/// What the kernel calls the vDSO.
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";
pub(super) const VDSO: &[u8] = b"[vdso]";

/// A file is known by device, inode and path: the device number of a mapping need not be the one `stat` tells
/// (overlayfs, btrfs), and inode numbers are reused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    path: Box<[u8]>,
}

/// What can be read of a mapped file.
#[derive(Debug)]
pub enum Content {
    /// The file.
    File(File),
    /// The vDSO: an ELF image that is in memory only.
    Vdso(Vec<u8>),
    /// Nothing, with the reason.
    Unavailable(io::Error),
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
        let path = self.path.strip_suffix(b" (deleted)").unwrap_or(&self.path);
        Path::new(OsStr::from_bytes(path))
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
            build_id: file.and_then(build_id).unwrap_or_default().into(),
        }
    }
}

/// Which file an open one is.
pub(super) fn identity(file: &File) -> io::Result<FileIdentity> {
    let stat = rustix::fs::fstat(file)?;
    Ok(FileIdentity {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: stat.st_size as u64,
        modified: stat.st_mtime as u64,
    })
}

/// The build id of an open ELF file.
pub(super) fn build_id(file: &File) -> Option<Vec<u8>> {
    ElfFile::open_mapped(file).ok()?.build_id()
}

/// All code files of the capture; [`ModuleId`] is the position.
#[derive(Debug, Default)]
pub struct FileTable {
    files: Vec<Arc<CodeFile>>,
    known: FxHashMap<Identity, ModuleId>,
    containers: Containers,
    /// `None`: everything runs here and now.
    recorded: Option<Box<Recorded>>,
}

/// A mapping whose file is wanted.
pub(super) struct Wanted<'a> {
    pub(super) pid: Pid,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) device: (u32, u32),
    pub(super) inode: u64,
    pub(super) path: &'a [u8],
    /// Its build id, if the mapping itself told one.
    pub(super) build_id: &'a [u8],
}

impl<'a> Wanted<'a> {
    pub(super) fn of(pid: Pid, line: &MapsLine<'a>) -> Self {
        Self {
            pid,
            start: line.start,
            end: line.end,
            device: line.device,
            inode: line.inode,
            path: line.path,
            build_id: &[],
        }
    }
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
    pub fn recorded(&self) -> Option<&Recorded> {
        self.recorded.as_deref()
    }

    /// The files of a recording.
    pub(super) fn of_recording(recorded: Recorded) -> Self {
        Self {
            recorded: Some(Box::new(recorded)),
            ..Self::default()
        }
    }

    pub(super) fn recording_mut(&mut self) -> Option<&mut Recorded> {
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

fn open(wanted: &Wanted<'_>) -> io::Result<Content> {
    if wanted.path == VDSO {
        vdso_image().map(Content::Vdso)
    } else {
        open_file(wanted).map(Content::File)
    }
}

/// The kernel maps the same 64-bit vDSO into every process, so ours can be read instead of theirs.
pub(super) fn vdso_image() -> io::Result<Vec<u8>> {
    let maps = std::fs::read("/proc/self/maps")?;
    let line = proc_maps::parse_maps(&maps)
        .find(|line| line.path == VDSO)
        .ok_or_else(|| io::Error::other("no [vdso] in /proc/self/maps"))?;
    let mut image = vec![0; (line.end - line.start) as usize];
    File::open("/proc/self/mem")?.read_exact_at(&mut image, line.start)?;
    Ok(image)
}

/// Whether a file that has no path is a program or library all the same.
pub(super) fn is_elf(wanted: &Wanted<'_>) -> bool {
    let mut magic = [0; ELF_MAGIC.len()];
    let read = open_file(wanted).and_then(|file| file.read_exact_at(&mut magic, 0));
    read.is_ok() && magic == ELF_MAGIC
}

/// The mapped file itself through /proc/PID/map_files, whatever its path is by now; else by its path below the
/// root directory of the process. In both places something else may be by now, so the inode decides.
pub(super) fn open_file(wanted: &Wanted<'_>) -> io::Result<File> {
    let Wanted {
        pid, start, end, ..
    } = wanted;
    let mapped = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
    match rustix::fs::open(mapped, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(found) if is_mapped_there(&found, wanted)? => reopen_regular(&found),
        _ => open_by_path(wanted),
    }
}

/// Whether a file found through map_files is the one that was mapped. An overlay may tell another inode of a file than
/// its mappings do; then the mappings, read once more, must be as they were.
fn is_mapped_there(found: &OwnedFd, wanted: &Wanted<'_>) -> io::Result<bool> {
    if rustix::fs::fstat(found)?.st_ino == wanted.inode {
        return Ok(true);
    }
    if rustix::fs::fstatfs(found)?.f_type != OVERLAY_MAGIC {
        return Ok(false);
    }
    let maps = proc_maps::maps(wanted.pid).map_err(io::Error::other)?;
    Ok(proc_maps::parse_maps(&maps).any(|line| {
        (line.start, line.end, line.device, line.inode, line.path)
            == (
                wanted.start,
                wanted.end,
                wanted.device,
                wanted.inode,
                wanted.path,
            )
    }))
}

fn open_by_path(wanted: &Wanted<'_>) -> io::Result<File> {
    let path = Path::new(OsStr::from_bytes(wanted.path));
    let find = |root: Root, is_it: &dyn Fn(&Stat) -> bool| {
        root.open_if(path, |found| match is_it(found) {
            true => Ok(()),
            false => Err(io::Error::other(
                "another file has taken its path since it was mapped",
            )),
        })
    };
    let same_inode = |found: &Stat| found.st_ino == wanted.inode;
    let Ok(root) = Root::of(wanted.pid) else {
        return find(Root::host()?, &same_inode);
    };
    // Mapped before the process got its root directory, it is in ours; there the same path may be another file's by right.
    let same_device = |found: &Stat| {
        wanted.device
            == (
                rustix::fs::major(found.st_dev),
                rustix::fs::minor(found.st_dev),
            )
    };
    find(root, &same_inode).or_else(|error| {
        let before = |found: &Stat| same_inode(found) && same_device(found);
        find(Root::host()?, &before).map_err(|_| error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two files take turns at one address: what is there when the record is read need not be what it tells of.
    #[test]
    fn a_mapping_cannot_lead_to_another_file() {
        let maps = std::fs::read("/proc/self/maps").unwrap();
        let line = proc_maps::parse_maps(&maps)
            .find(|line| line.path.starts_with(b"/"))
            .unwrap();
        let wanted = Wanted::of(Pid(std::process::id() as i32), &line);
        assert!(open_file(&wanted).is_ok());
        let other = Wanted {
            inode: line.inode + 1,
            path: b"/nowhere",
            ..wanted
        };
        assert!(open_file(&other).is_err());
    }

    #[test]
    fn a_path_cannot_lead_to_another_file() {
        let me = Pid(std::process::id() as i32);
        let path = std::env::current_exe().unwrap();
        let wanted = Wanted {
            pid: me,
            start: 0,
            end: 0,
            device: (0, 0),
            inode: 1,
            path: path.as_os_str().as_bytes(),
            build_id: &[],
        };
        let error = open_file(&wanted).unwrap_err();
        assert!(error.to_string().contains("another file"), "{error}");
        let inode = rustix::fs::stat(&path).unwrap().st_ino;
        assert!(open_file(&Wanted { inode, ..wanted }).is_ok());
    }
}
