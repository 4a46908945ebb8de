//! Finding again, from what a spool says of them, the files and processes that a dead capture had open.
//!
//! A path or a pid may stand for something else by now. A file must be the same by build id or, without one, by
//! device, inode, size and time of change; a process by the time it started.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::content::{Content, build_id, identity};
use super::file::{CodeFile, FileTable};
use super::jit_process::{JitProcess, perf_map};
use super::mapping_info::{VDSO, vdso_image};
use super::proc_fs;
use super::root::Root;
use super::{Machine, ProcessRow};
use crate::trace::spool::{FileRow, JitProcessRow};
use crate::trace::{Pid, RawTrace};

/// How much later than the capture's end a map of names may have changed if its process is gone: it may have lived on
/// for a while, but its pid is not another's so soon.
const GRACE_SECONDS: i64 = 60;

impl Machine {
    /// The machine as far as a recording tells of it. `same_boot`: the machine was not started again since.
    #[must_use]
    pub fn recover(recording: &RawTrace, same_boot: bool) -> Self {
        let files = recording.files.iter().map(|row| CodeFile {
            path: row.path.as_ref().into(),
            content: content(row, same_boot).unwrap_or_else(Content::Unavailable),
            root: None,
            container: None,
            pid: row.pid,
        });
        let info = &recording.header.info;
        let captured_ns = recording.end.0.saturating_sub(info.start_ns);
        let end = info.start_unix_ns.saturating_add(captured_ns) / 1_000_000_000;
        let until = (end as i64).saturating_add(GRACE_SECONDS);
        let hosts = recording.jit_hosts.iter();
        let process_rows = recording.processes.iter().zip(hosts).map(|(row, host)| {
            let recover = |host: &JitProcessRow| jit_host(row.pid, host, until, same_boot);
            ProcessRow {
                pid: row.pid,
                name: row.name.as_bytes().into(),
                command_line: row.command_line.as_bytes().into(),
                jit_host: host.as_ref().map(recover),
            }
        });
        let process_rows = process_rows.collect();
        Self::of_rows(process_rows, files.collect::<FileTable>())
    }
}

fn content(row: &FileRow<'_>, same_boot: bool) -> io::Result<Content> {
    match &*row.path {
        VDSO if same_boot => vdso_image().map(Content::Vdso),
        VDSO => Err(io::Error::other("it went with the kernel that ran then")),
        _ => reopen(row).map(Content::File),
    }
}

/// The file at its path: below the root directory of the process, if that still runs, else below ours.
fn reopen(row: &FileRow<'_>) -> io::Result<File> {
    if row.identity.is_none() {
        return Err(io::Error::other("the capture could not open it either"));
    }
    let path = Path::new(OsStr::from_bytes(&row.path));
    let open = |root: io::Result<Root>| {
        let file = root?.open(path)?;
        if is_same(&file, row)? {
            return Ok(file);
        }
        Err(io::Error::other("another file has taken its path since"))
    };
    open(Root::of(row.pid)).or_else(|_| open(Root::host()))
}

fn is_same(file: &File, row: &FileRow<'_>) -> io::Result<bool> {
    if row.build_id.is_empty() {
        return Ok(Some(identity(file)?) == row.identity);
    }
    Ok(build_id(file).is_some_and(|id| id.as_bytes() == &*row.build_id))
}

/// Where a process's names of code made at run time are, if that can still be told.
fn jit_host(pid: Pid, row: &JitProcessRow, until: i64, same_boot: bool) -> io::Result<JitProcess> {
    if !same_boot {
        return Err(io::Error::other("the machine was started again since"));
    }
    let dump = || (!row.dump.is_empty()).then(|| row.dump.clone());
    if proc_fs::start_ticks(pid) == Some(row.start_ticks) {
        return JitProcess::of(pid, dump());
    }
    let root = Root::host()?;
    if root.identity()? != (row.root_device, row.root_inode) {
        return Err(io::Error::other(
            "the process is gone, and its root directory with it",
        ));
    }
    Ok(JitProcess {
        root,
        namespace_pid: row.namespace_pid,
        map: perf_map(row.namespace_pid),
        uid: row.uid,
        start_ticks: row.start_ticks,
        until: Some(until),
        dump: dump(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    use crate::trace::spool::FileIdentity;

    fn row(path: &Path) -> FileRow<'static> {
        let file = File::open(path).unwrap();
        FileRow {
            path: path.as_os_str().as_bytes().to_vec().into(),
            pid: Pid(i32::MAX),
            identity: Some(identity(&file).unwrap()),
            build_id: build_id(&file).map_or_else(Cow::default, |id| id.as_bytes().to_vec().into()),
        }
    }

    #[test]
    fn a_file_is_found_again_only_if_it_is_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("code");
        std::fs::write(&path, "no ELF file").unwrap();
        let row = row(&path);
        assert!(reopen(&row).is_ok());
        let other = FileIdentity {
            inode: 1,
            ..row.identity.unwrap()
        };
        let other = FileRow {
            identity: Some(other),
            ..row.clone()
        };
        let error = reopen(&other).unwrap_err().to_string();
        assert!(error.contains("another file"), "{error}");
        // Written to in place: the same inode, but not the same code.
        std::fs::write(&path, "another ELF file").unwrap();
        assert!(reopen(&row).is_err());
    }

    #[test]
    fn a_build_id_counts_more_than_an_inode() {
        let row = row(Path::new("/proc/self/exe"));
        let copy = tempfile::NamedTempFile::new().unwrap();
        std::fs::copy("/proc/self/exe", copy.path()).unwrap();
        let path = copy.path().as_os_str().as_bytes().to_vec().into();
        assert!(!row.build_id.is_empty(), "this program has no build id");
        let moved = FileRow { path, ..row };
        assert!(reopen(&moved).is_ok());
        let build_id = vec![1; 20].into();
        assert!(reopen(&FileRow { build_id, ..moved }).is_err());
    }

    #[test]
    fn a_process_is_found_again_only_if_it_is_the_same() {
        let me = Pid(std::process::id() as i32);
        let host = JitProcess::of(me, None).unwrap();
        let row = host.describe().unwrap();
        assert_eq!(jit_host(me, &row, 5, true).unwrap().until, None);
        let other = JitProcessRow {
            start_ticks: row.start_ticks + 1,
            ..row.clone()
        };
        let root = Root::host().unwrap().identity().unwrap();
        if root == (row.root_device, row.root_inode) {
            assert_eq!(jit_host(me, &other, 5, true).unwrap().until, Some(5));
        }
        let elsewhere = JitProcessRow {
            root_inode: 0,
            ..other
        };
        assert!(jit_host(me, &elsewhere, 5, true).is_err());
        assert!(jit_host(me, &row, 5, false).is_err());
    }
}
