//! Finds and opens the file of a mapping.

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
/// Name of the vDSO in /proc/PID/maps and in records.
pub(super) const VDSO: &[u8] = b"[vdso]";

/// Mapping from a record or from /proc/PID/maps.
pub(super) struct MappingInfo<'a> {
    pub(super) pid: Pid,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) device: (u32, u32),
    pub(super) inode: u64,
    pub(super) path: &'a [u8],
    /// Build id from the record; empty if it has none.
    pub(super) build_id: &'a [u8],
}

impl<'a> MappingInfo<'a> {
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

/// Opens the content of a mapping: its file or the vDSO.
pub(super) fn open(info: &MappingInfo<'_>) -> io::Result<Content> {
    if info.path == VDSO {
        vdso_image().map(Content::Vdso)
    } else {
        open_file(info).map(Content::File)
    }
}

/// Reads the vDSO of the current process. The kernel maps the same 64-bit vDSO into every process.
pub(super) fn vdso_image() -> io::Result<Vec<u8>> {
    let maps = std::fs::read("/proc/self/maps")?;
    let line = proc_maps::parse_maps(&maps)
        .find(|line| line.path == VDSO)
        .ok_or_else(|| io::Error::other("no [vdso] in /proc/self/maps"))?;
    let mut image = vec![0; (line.end - line.start) as usize];
    File::open("/proc/self/mem")?.read_exact_at(&mut image, line.start)?;
    Ok(image)
}

/// Returns whether a file without a path is a program or library.
pub(super) fn is_elf(info: &MappingInfo<'_>) -> bool {
    let mut magic = [0; ELF_MAGIC.len()];
    let read = open_file(info).and_then(|file| file.read_exact_at(&mut magic, 0));
    let read = read.or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => read_mapped(info, &mut magic),
        // The file is gone. Reading memory would fail too, and a process could trigger that
        // repeatedly.
        _ => Err(error),
    });
    read.is_ok() && magic == ELF_MAGIC
}

/// Reads the start of a mapped file from the memory of the process.
///
/// Only root may open some mapped files, but the owner of the process may read its memory.
fn read_mapped(info: &MappingInfo<'_>, buffer: &mut [u8]) -> io::Result<()> {
    let maps = proc_maps::maps(info.pid).map_err(io::Error::other)?;
    let is_start = |line: &MapsLine<'_>| {
        line.file_offset == 0 && line.inode == info.inode && line.path == info.path
    };
    let mapped = proc_maps::parse_all_maps(&maps).find(is_start);
    let mapped = mapped.ok_or(io::ErrorKind::NotFound)?;
    File::open(format!("/proc/{}/mem", info.pid))?.read_exact_at(buffer, mapped.start)
}

/// Opens the mapped file.
///
/// Tries /proc/PID/map_files, which works even if the path was replaced. Then tries the path below
/// the root directory of the process, and the executable of the process. Each may be another file
/// by now, so the inode must match.
pub(super) fn open_file(info: &MappingInfo<'_>) -> io::Result<File> {
    let MappingInfo {
        pid, start, end, ..
    } = info;
    let is_denied = match open_link(&format!("/proc/{pid}/map_files/{start:x}-{end:x}")) {
        Ok(fd) if is_mapped_file(&fd, info)? => return reopen_regular(&fd),
        Ok(_) => false,
        Err(errno) => matches!(errno, Errno::PERM | Errno::ACCESS),
    };
    let by_path = open_by_path(info);
    let file = by_path.or_else(|error| open_program(info).map_err(|_| error));
    file.map_err(|error| {
        if !is_denied {
            return error;
        }
        let why = match without_mark(info.path) == info.path {
            true => error.to_string(),
            false => "the file was replaced or deleted".to_owned(),
        };
        let why = format!("{why}, and only root can open the mapped file");
        io::Error::new(io::ErrorKind::PermissionDenied, why)
    })
}

fn open_link(path: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Opens the executable of the process if it is the mapped file.
///
/// The owner of the process may follow this link, unlike those in map_files. File systems of the
/// same type have the same inode numbers, so the path must match too.
fn open_program(info: &MappingInfo<'_>) -> io::Result<File> {
    let link = format!("/proc/{}/exe", info.pid);
    let fd = open_link(&link)?;
    let is_same = rustix::fs::fstat(&fd)?.st_ino == info.inode
        && without_mark(std::fs::read_link(&link)?.as_os_str().as_bytes())
            == without_mark(info.path);
    match is_same {
        true => reopen_regular(&fd),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Returns whether a file from map_files is the mapped file.
///
/// On overlayfs, `stat` may report another inode than the mapping. The mappings, which are then
/// re-read, must be unchanged.
fn is_mapped_file(fd: &OwnedFd, info: &MappingInfo<'_>) -> io::Result<bool> {
    if rustix::fs::fstat(fd)?.st_ino == info.inode {
        return Ok(true);
    }
    if rustix::fs::fstatfs(fd)?.f_type != OVERLAY_MAGIC {
        return Ok(false);
    }
    let maps = proc_maps::maps(info.pid).map_err(io::Error::other)?;
    Ok(proc_maps::parse_maps(&maps).any(|line| {
        (line.start, line.end, line.device, line.inode, line.path)
            == (info.start, info.end, info.device, info.inode, info.path)
    }))
}

fn open_by_path(info: &MappingInfo<'_>) -> io::Result<File> {
    let path = Path::new(OsStr::from_bytes(info.path));
    let find = |root: Root, is_same: &dyn Fn(&Stat) -> bool| {
        root.open_if(path, |stat| match is_same(stat) {
            true => Ok(()),
            false => Err(io::Error::other("another file is now at its path")),
        })
    };
    let same_inode = |stat: &Stat| stat.st_ino == info.inode;
    let Ok(root) = Root::of(info.pid) else {
        return find(Root::host()?, &same_inode);
    };
    // A file that was mapped before the process changed its root is below the host's root. There
    // the path may legitimately belong to another file, so the device must match too.
    let same_device = |stat: &Stat| {
        info.device
            == (
                rustix::fs::major(stat.st_dev),
                rustix::fs::minor(stat.st_dev),
            )
    };
    find(root, &same_inode).or_else(|error| {
        let same_file = |stat: &Stat| same_inode(stat) && same_device(stat);
        find(Root::host()?, &same_file).map_err(|_| error)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn opens_replaced_program_but_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sleep");
        std::fs::copy("/bin/sleep", &path).unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        let mut child = std::process::Command::new(&path).arg("60").spawn().unwrap();
        std::fs::remove_file(&path).unwrap();
        let deleted = [path.as_os_str().as_bytes(), b" (deleted)"].concat();
        let mapping = |inode, path| MappingInfo {
            pid: Pid(child.id() as i32),
            start: 0,
            end: 0,
            device: (0, 0),
            inode,
            path,
            build_id: &[],
        };
        let found = open_file(&mapping(inode, &deleted)).map(|file| file.metadata().unwrap().ino());
        let others = [
            open_file(&mapping(inode + 1, &deleted)),
            open_file(&mapping(inode, b"/library.so (deleted)")),
        ];
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.unwrap(), inode);
        assert!(others.iter().all(Result::is_err));
    }

    /// A mapping may have been replaced when its record is read.
    #[test]
    fn rejects_other_file_at_address() {
        let maps = std::fs::read("/proc/self/maps").unwrap();
        let line = proc_maps::parse_maps(&maps)
            .find(|line| line.path.starts_with(b"/"))
            .unwrap();
        let info = MappingInfo::of(Pid(std::process::id() as i32), &line);
        assert!(open_file(&info).is_ok());
        let other = MappingInfo {
            inode: line.inode + 1,
            path: b"/nowhere",
            ..info
        };
        assert!(open_file(&other).is_err());
    }

    #[test]
    fn rejects_other_file_at_path() {
        let me = Pid(std::process::id() as i32);
        let path = std::env::current_exe().unwrap();
        let info = MappingInfo {
            pid: me,
            start: 0,
            end: 0,
            device: (0, 0),
            inode: 1,
            path: path.as_os_str().as_bytes(),
            build_id: &[],
        };
        let error = open_file(&info).unwrap_err();
        assert!(error.to_string().contains("another file"), "{error}");
        let inode = rustix::fs::stat(&path).unwrap().st_ino;
        assert!(open_file(&MappingInfo { inode, ..info }).is_ok());
    }
}
