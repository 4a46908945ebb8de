//! Reads and parses /proc/PID/maps. The process may have chosen the paths.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::proc_fs::{MAX_FILE_BYTES, ProcError, read, tids};
use crate::trace::Pid;

/// Returns a path without the ` (deleted)` suffix.
pub(crate) fn without_mark(path: &[u8]) -> &[u8] {
    path.strip_suffix(b" (deleted)").unwrap_or(path)
}

/// A line of /proc/PID/maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MapsLine<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) file_offset: u64,
    pub(super) device: (u32, u32),
    pub(super) inode: u64,
    pub(super) path: &'a [u8],
    pub(super) executable: bool,
}

/// A file that a process has mapped as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedCode {
    /// Path below the root directory of the process.
    pub path: PathBuf,
    /// Inode of the file.
    pub inode: u64,
}

/// Returns the files that a process has mapped as code, each once.
///
/// # Errors
/// /proc/PID/maps cannot be read.
pub fn mapped_files(pid: Pid) -> Result<Vec<MappedCode>, ProcError> {
    let content = maps(pid)?;
    let mut files: Vec<MappedCode> = Vec::new();
    for line in parse_maps(&content) {
        let path = without_mark(line.path);
        let path = Path::new(OsStr::from_bytes(path));
        // The mappings of a file are adjacent.
        if line.inode != 0 && files.last().is_none_or(|last| last.path != path) {
            files.push(MappedCode {
                path: path.to_owned(),
                inode: line.inode,
            });
        }
    }
    Ok(files)
}

/// Reads /proc/PID/maps, with paths relative to the root directory of the process.
pub(super) fn maps(pid: Pid) -> Result<Vec<u8>, ProcError> {
    let content = raw_maps(pid)?;
    match std::fs::read_link(format!("/proc/{pid}/root")) {
        Ok(root) if root != Path::new("/") => {
            Ok(relative_to(root.as_os_str().as_bytes(), &content))
        }
        _ => Ok(content),
    }
}

/// Makes the paths below a root directory of the host relative to that root.
fn relative_to(root: &[u8], content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len());
    for line in content.split_inclusive(|&b| b == b'\n') {
        let path = parse_maps_line(line).map_or(&[][..], |parsed| parsed.path);
        let inside = path
            .strip_prefix(root)
            .filter(|rest| rest.starts_with(b"/"));
        let (head, _) = line.split_at(line.len() - path.len());
        out.extend_from_slice(head);
        out.extend_from_slice(inside.unwrap_or(path));
    }
    out
}

/// Reads /proc/PID/maps, or that of another thread if the main thread has ended.
///
/// The file of an ended main thread is empty.
fn raw_maps(pid: Pid) -> Result<Vec<u8>, ProcError> {
    let maps = read(format!("/proc/{pid}/maps"), MAX_FILE_BYTES)?;
    if !maps.is_empty() {
        return Ok(maps);
    }
    let read_thread = |tid| read(format!("/proc/{pid}/task/{tid}/maps"), MAX_FILE_BYTES).ok();
    let others = tids(pid)?.into_iter().filter_map(read_thread);
    Ok(others
        .into_iter()
        .find(|maps| !maps.is_empty())
        .unwrap_or(maps))
}

/// Parses the executable lines of a maps file.
pub(super) fn parse_maps(content: &[u8]) -> impl Iterator<Item = MapsLine<'_>> {
    parse_all_maps(content).filter(|line| line.executable)
}

/// Parses all lines of a maps file.
pub(super) fn parse_all_maps(content: &[u8]) -> impl Iterator<Item = MapsLine<'_>> {
    content.split(|&b| b == b'\n').filter_map(parse_maps_line)
}

/// Parses `start-end perms offset major:minor inode [path]`, see proc_pid_maps(5).
fn parse_maps_line(line: &[u8]) -> Option<MapsLine<'_>> {
    let mut rest = line;
    let mut field = || {
        let skip = rest.iter().position(|&b| b != b' ').unwrap_or(rest.len());
        let (_, trimmed) = rest.split_at(skip);
        let is_space = |&b: &u8| b == b' ';
        let len = trimmed.iter().position(is_space).unwrap_or(trimmed.len());
        let (word, after) = trimmed.split_at(len);
        rest = after;
        std::str::from_utf8(word).ok()
    };
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let (start, end) = field()?.split_once('-')?;
    let executable = field()?.as_bytes().get(2) == Some(&b'x');
    let file_offset = hex(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?.parse().ok()?;
    let path = rest.trim_ascii_start();
    Some(MapsLine {
        executable,
        start: hex(start)?,
        end: hex(end)?,
        file_offset,
        device: (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        inode,
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_executable_lines() {
        let content = b"55d0-55e0 r--p 00000000 fd:01 42   /usr/bin/with space\n\
            55e0-55f0 r-xp 00001000 fd:01 42                    /usr/bin/with space\n\
            7f00-7f10 r-xs 00400000 00:01 7 /memfd:doublemapper (deleted)\n\
            7f20-7f30 rwxp 00000000 00:00 0 \n\
            garbage\n-1 r-xp\n";
        let lines: Vec<_> = parse_maps(content).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].path, b"/usr/bin/with space");
        assert_eq!((lines[0].start, lines[0].end), (0x55e0, 0x55f0));
        assert_eq!((lines[0].device, lines[0].inode), ((0xfd, 1), 42));
        assert_eq!(lines[1].path, b"/memfd:doublemapper (deleted)");
        assert_eq!(lines[1].file_offset, 0x40_0000);
        assert_eq!(lines[2].path, b"");
    }

    #[test]
    fn makes_paths_relative_to_root() {
        let content = b"1000-2000 r-xp 00000000 fd:01 42   /jail/bin/a b\n\
            2000-3000 r-xp 00000000 fd:01 43   /jailer/lib\n\
            3000-4000 r-xp 00000000 00:00 0 \n\
            4000-5000 r-xp 00000000 fd:01 44   /jail/jail/x\n\
            /jail/garbage";
        let relative = String::from_utf8(relative_to(b"/jail", content)).unwrap();
        let original = std::str::from_utf8(content).unwrap();
        let lines = relative.lines().zip(original.lines());
        let changed: Vec<_> = lines.filter(|(new, old)| new != old).collect();
        assert_eq!(changed.len(), 2);
        assert!(changed[0].0.ends_with(" 42   /bin/a b"));
        assert!(changed[1].0.ends_with(" 44   /jail/x"));
    }

    #[test]
    fn reads_current_process() {
        let me = Pid(std::process::id() as i32);
        assert!(parse_maps(&maps(me).unwrap()).count() > 0);
    }
}
