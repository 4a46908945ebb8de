//! Reads and parses /proc/PID/maps. The process may have chosen the paths.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Limit of a file, in bytes.
///
/// There are about 100 bytes for each of at most 65 530 mappings. Administrators may raise that
/// limit (vm.max_map_count).
const MAX_BYTES: u64 = 64 << 20;

/// Returns a path without the ` (deleted)` suffix.
#[must_use]
pub fn without_deleted_suffix(path: &[u8]) -> &[u8] {
    path.strip_suffix(b" (deleted)").unwrap_or(path)
}

/// A mapping: a line of /proc/PID/maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapsLine<'a> {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Offset of the first byte in the file.
    pub file_offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// Inode of the file, or 0 without a file.
    pub inode: u64,
    /// Path, or a name such as `[vdso]`; empty for anonymous memory.
    pub path: &'a [u8],
    /// Whether the process may execute it.
    pub executable: bool,
}

/// Returns whether a path is a name of memory, which may contain JIT code, and not of a file.
///
/// A memfd may also contain a library.
#[must_use]
pub fn is_memory(path: &[u8]) -> bool {
    const NAMES: [&[u8]; 5] = [
        b"//anon",
        b"/memfd:",
        b"/dev/zero",
        b"/anon_hugepage",
        b"/SYSV",
    ];
    !path.starts_with(b"/") || NAMES.iter().any(|name| path.starts_with(name))
}

/// Reads /proc/PID/maps, with paths relative to the root directory of the process.
///
/// # Errors
/// The process has ended, or its maps may not be read.
pub fn read_maps(pid: i32) -> io::Result<Vec<u8>> {
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
fn raw_maps(pid: i32) -> io::Result<Vec<u8>> {
    let maps = read(Path::new(&format!("/proc/{pid}/maps")))?;
    if !maps.is_empty() {
        return Ok(maps);
    }
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
    let mut others = tasks.filter_map(|task| read(&task.path().join("maps")).ok());
    Ok(others.find(|maps| !maps.is_empty()).unwrap_or(maps))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Parses the executable lines of a maps file.
pub fn parse_maps(content: &[u8]) -> impl Iterator<Item = MapsLine<'_>> {
    parse_all_maps(content).filter(|line| line.executable)
}

/// Parses all lines of a maps file.
pub fn parse_all_maps(content: &[u8]) -> impl Iterator<Item = MapsLine<'_>> {
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
    #![allow(clippy::unwrap_used)]
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
        let me = std::process::id() as i32;
        assert!(parse_maps(&read_maps(me).unwrap()).count() > 0);
    }

    #[test]
    fn distinguishes_memory_names_from_files() {
        for memory in [
            "",
            "//anon",
            "/memfd:doublemapper (deleted)",
            "/memfd:x",
            "[heap]",
            "/dev/zero (deleted)",
        ] {
            assert!(is_memory(memory.as_bytes()), "{memory}");
        }
        for file in ["/usr/lib/libc.so.6", "/tmp/gone.so (deleted)"] {
            assert!(!is_memory(file.as_bytes()), "{file}");
        }
    }
}
