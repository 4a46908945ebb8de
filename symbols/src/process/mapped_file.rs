//! Finds and opens the file of a mapping.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::maps::{MapsLine, parse_all_maps, parse_maps, read_maps, without_deleted_suffix};
use super::memory::ProcessMemory;
use super::reader::Reader;
use super::root::{OVERLAY_MAGIC, Root, reopen_regular};
use crate::memory::Memory;

const ELF_MAGIC: [u8; 4] = *b"\x7fELF";
/// Name of the vDSO in /proc/PID/maps and in records.
pub const VDSO: &[u8] = b"[vdso]";

/// Reads the vDSO of the current process. The kernel maps the same 64-bit vDSO into every process.
///
/// # Errors
/// The process has no vDSO, or cannot read its memory.
pub fn vdso_image() -> io::Result<Vec<u8>> {
    let maps = std::fs::read("/proc/self/maps")?;
    let line = parse_maps(&maps)
        .find(|line| line.path == VDSO)
        .ok_or_else(|| io::Error::other("no [vdso] in /proc/self/maps"))?;
    let mut image = vec![0; (line.end - line.start) as usize];
    File::open("/proc/self/mem")?.read_exact_at(&mut image, line.start)?;
    Ok(image)
}

/// Returns whether a file without a path is a program or library.
#[must_use]
pub fn is_elf(pid: i32, mapping: &MapsLine<'_>) -> bool {
    let mut magic = [0; ELF_MAGIC.len()];
    let read = open_mapped_file(pid, mapping).and_then(|file| file.read_exact_at(&mut magic, 0));
    let read = read.or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => read_mapped(pid, mapping, &mut magic),
        // The file is gone. Reading memory would fail too, and a process could trigger that
        // repeatedly.
        _ => Err(error),
    });
    read.is_ok() && magic == ELF_MAGIC
}

/// Reads the start of a mapped file from the memory of the process.
///
/// Only root may open some mapped files, but the owner of the process may read its memory.
fn read_mapped(pid: i32, mapping: &MapsLine<'_>, buffer: &mut [u8]) -> io::Result<()> {
    let maps = read_maps(pid)?;
    let is_start = |line: &MapsLine<'_>| {
        line.file_offset == 0 && line.inode == mapping.inode && line.path == mapping.path
    };
    let mapped = parse_all_maps(&maps).find(is_start);
    let mapped = mapped.ok_or(io::ErrorKind::NotFound)?;
    let memory = ProcessMemory::open(pid)?;
    let read = memory.read_exact(mapped.start, buffer);
    read.map_err(io::Error::other)
}

/// Opens the mapped file.
///
/// Tries /proc/PID/map_files, which works even if the path was replaced. Then tries the path below
/// the root directory of the process ([`Root::open_mapped`]), and the executable of the process.
/// Each may be another file by now, and is verified.
///
/// # Errors
/// The file is gone or cannot be read.
pub fn open_mapped_file(pid: i32, mapping: &MapsLine<'_>) -> io::Result<File> {
    let MapsLine { start, end, .. } = mapping;
    let is_denied = match open_link(&format!("/proc/{pid}/map_files/{start:x}-{end:x}")) {
        Ok(fd) if is_mapped_file(&fd, pid, mapping)? => return reopen_regular(&fd),
        Ok(_) => false,
        Err(errno) => matches!(errno, Errno::PERM | Errno::ACCESS),
    };
    let by_path = open_by_path(pid, mapping);
    let file = by_path.or_else(|error| open_program(pid, mapping).map_err(|_| error));
    file.map_err(|error| {
        if !is_denied {
            return error;
        }
        let why = match without_deleted_suffix(mapping.path) == mapping.path {
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
fn open_program(pid: i32, mapping: &MapsLine<'_>) -> io::Result<File> {
    let link = format!("/proc/{pid}/exe");
    let fd = open_link(&link)?;
    let is_same = rustix::fs::fstat(&fd)?.st_ino == mapping.inode
        && without_deleted_suffix(std::fs::read_link(&link)?.as_os_str().as_bytes())
            == without_deleted_suffix(mapping.path);
    match is_same {
        true => reopen_regular(&fd),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Returns whether a file from map_files is the mapped file.
///
/// On overlayfs, `stat` may report another inode than the mapping. The mappings, which are then
/// re-read, must be unchanged.
fn is_mapped_file(fd: &OwnedFd, pid: i32, mapping: &MapsLine<'_>) -> io::Result<bool> {
    if rustix::fs::fstat(fd)?.st_ino == mapping.inode {
        return Ok(true);
    }
    if rustix::fs::fstatfs(fd)?.f_type != OVERLAY_MAGIC {
        return Ok(false);
    }
    let maps = read_maps(pid)?;
    Ok(parse_maps(&maps).any(|line| {
        (line.start, line.end, line.device, line.inode, line.path)
            == (
                mapping.start,
                mapping.end,
                mapping.device,
                mapping.inode,
                mapping.path,
            )
    }))
}

fn open_by_path(pid: i32, mapping: &MapsLine<'_>) -> io::Result<File> {
    let Ok(root) = Root::of(pid) else {
        return Root::host()?.open_mapped(mapping, Some(&Reader::unknown()));
    };
    let reader = Reader::of(pid).unwrap_or_else(Reader::unknown);
    // A file that was mapped before the process changed its root is below the host's root. There
    // the path may legitimately belong to another file.
    root.open_mapped(mapping, Some(&reader)).or_else(|error| {
        let of_host = Root::host()?.open_mapped(mapping, None);
        of_host.map_err(|_| error)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::Path;

    use super::*;

    /// The mapping of a file on the device of another one.
    fn mapping<'a>(other: &Path, inode: u64, path: &'a [u8]) -> MapsLine<'a> {
        let device = rustix::fs::stat(other).unwrap().st_dev;
        MapsLine {
            start: 0,
            end: 0,
            file_offset: 0,
            device: (rustix::fs::major(device), rustix::fs::minor(device)),
            inode,
            path,
            executable: true,
        }
    }

    #[test]
    fn opens_replaced_program_but_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sleep");
        std::fs::copy("/bin/sleep", &path).unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        let mut child = std::process::Command::new(&path).arg("60").spawn().unwrap();
        std::fs::remove_file(&path).unwrap();
        let deleted = [path.as_os_str().as_bytes(), b" (deleted)"].concat();
        let open = |inode, path| {
            open_mapped_file(child.id() as i32, &mapping(directory.path(), inode, path))
        };
        let found = open(inode, &deleted).map(|file| file.metadata().unwrap().ino());
        let others = [
            open(inode + 1, &deleted),
            open(inode, b"/library.so (deleted)"),
        ];
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.unwrap(), inode);
        assert!(others.iter().all(Result::is_err));
    }

    /// A mapping may have been replaced since it was listed.
    #[test]
    fn rejects_other_file_at_address() {
        let me = std::process::id() as i32;
        let maps = std::fs::read("/proc/self/maps").unwrap();
        let line = parse_maps(&maps)
            .find(|line| line.path.starts_with(b"/"))
            .unwrap();
        assert!(open_mapped_file(me, &line).is_ok());
        let other = MapsLine {
            inode: line.inode + 1,
            path: b"/nowhere",
            ..line
        };
        assert!(open_mapped_file(me, &other).is_err());
    }

    #[test]
    fn rejects_other_file_at_path() {
        let me = std::process::id() as i32;
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().canonicalize().unwrap();
        let bytes = path.as_os_str().as_bytes();
        let error = open_mapped_file(me, &mapping(&path, 1, bytes)).unwrap_err();
        assert!(error.to_string().contains("another file"), "{error}");
        let inode = rustix::fs::stat(&path).unwrap().st_ino;
        let own = mapping(&path, inode, bytes);
        assert!(open_mapped_file(me, &own).is_ok());
        // A user may mount a file system and count up its inodes.
        let elsewhere = MapsLine {
            device: (0, 1),
            ..own
        };
        let error = open_mapped_file(me, &elsewhere).unwrap_err();
        assert!(error.to_string().contains("another file"), "{error}");
    }

    #[test]
    fn follows_no_link_at_path() {
        let me = std::process::id() as i32;
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        std::fs::create_dir(directory.join("real")).unwrap();
        let file = directory.join("real/file");
        std::fs::write(&file, "").unwrap();
        symlink("real", directory.join("linked")).unwrap();
        symlink("real/file", directory.join("link")).unwrap();
        let inode = rustix::fs::stat(&file).unwrap().st_ino;
        let open = |name: &str| {
            let path = directory.join(name);
            open_mapped_file(me, &mapping(&file, inode, path.as_os_str().as_bytes()))
        };
        assert!(open("real/file").is_ok());
        assert!(open("linked/file").is_err() && open("link").is_err());
    }
}
