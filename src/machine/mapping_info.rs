//! A mapping whose file is wanted, and how the file is found.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use super::content::Content;
use super::proc_maps::{self, MapsLine, without_mark};
use super::root::{Root, reopen_regular};
use crate::trace::Pid;

/// OVERLAYFS_SUPER_MAGIC of `linux/magic.h`.
const OVERLAY_MAGIC: rustix::fs::FsWord = 0x794c_7630;
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";
/// What the kernel calls the vDSO.
pub(super) const VDSO: &[u8] = b"[vdso]";

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

pub(super) fn open(wanted: &Wanted<'_>) -> io::Result<Content> {
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
    let read = read.or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => read_mapped(wanted, &mut magic),
        // It is gone; its memory would be read in vain, as often as a process likes.
        _ => Err(error),
    });
    read.is_ok() && magic == ELF_MAGIC
}

/// The beginning of a file that is root's to open, from the memory of the process, which its owner may read.
fn read_mapped(wanted: &Wanted<'_>, begin: &mut [u8]) -> io::Result<()> {
    let maps = proc_maps::maps(wanted.pid).map_err(io::Error::other)?;
    let is_begin = |line: &MapsLine<'_>| {
        line.file_offset == 0 && line.inode == wanted.inode && line.path == wanted.path
    };
    let mapped = proc_maps::parse_all_maps(&maps).find(is_begin);
    let mapped = mapped.ok_or(io::ErrorKind::NotFound)?;
    File::open(format!("/proc/{}/mem", wanted.pid))?.read_exact_at(begin, mapped.start)
}

/// The mapped file itself through /proc/PID/map_files, whatever its path is by now; else by its path below the
/// root directory of the process, else the program that the process runs. In all of these something else may be by now, so the inode decides.
pub(super) fn open_file(wanted: &Wanted<'_>) -> io::Result<File> {
    let Wanted {
        pid, start, end, ..
    } = wanted;
    let is_refused = match open_link(&format!("/proc/{pid}/map_files/{start:x}-{end:x}")) {
        Ok(found) if is_mapped_there(&found, wanted)? => return reopen_regular(&found),
        Ok(_) => false,
        Err(errno) => matches!(errno, Errno::PERM | Errno::ACCESS),
    };
    let by_path = open_by_path(wanted);
    let found = by_path.or_else(|error| open_program(wanted).map_err(|_| error));
    found.map_err(|error| {
        if !is_refused {
            return error;
        }
        let why = match without_mark(wanted.path) == wanted.path {
            true => error.to_string(),
            false => "it was replaced or deleted".to_owned(),
        };
        let why = format!("{why}, and what was mapped is root's to open");
        io::Error::new(io::ErrorKind::PermissionDenied, why)
    })
}

fn open_link(path: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Unlike those in map_files this link may be followed by the owner of the process. File systems of one kind have the same inode numbers,
/// so the path decides too.
fn open_program(wanted: &Wanted<'_>) -> io::Result<File> {
    let link = format!("/proc/{}/exe", wanted.pid);
    let found = open_link(&link)?;
    let is_it = rustix::fs::fstat(&found)?.st_ino == wanted.inode
        && without_mark(std::fs::read_link(&link)?.as_os_str().as_bytes())
            == without_mark(wanted.path);
    match is_it {
        true => reopen_regular(&found),
        false => Err(io::ErrorKind::NotFound.into()),
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
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_program_that_was_replaced_is_found_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sleep");
        std::fs::copy("/bin/sleep", &path).unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        let mut child = std::process::Command::new(&path).arg("60").spawn().unwrap();
        std::fs::remove_file(&path).unwrap();
        let deleted = [path.as_os_str().as_bytes(), b" (deleted)"].concat();
        let wanted = |inode, path| Wanted {
            pid: Pid(child.id() as i32),
            start: 0,
            end: 0,
            device: (0, 0),
            inode,
            path,
            build_id: &[],
        };
        let found = open_file(&wanted(inode, &deleted)).map(|file| file.metadata().unwrap().ino());
        let others = [
            open_file(&wanted(inode + 1, &deleted)),
            open_file(&wanted(inode, b"/library.so (deleted)")),
        ];
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.unwrap(), inode);
        assert!(others.iter().all(Result::is_err));
    }

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
