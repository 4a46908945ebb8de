//! Finds the files and processes of an interrupted capture from the rows in its spool.
//!
//! A path or pid may belong to another file or process by now. A file is verified by build id or,
//! without one, by device, inode, size and modification time. A process is verified by its start
//! time.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perfcollect_symbols::process::{Root, VDSO, vdso_image};
use perfcollect_symbols::symbolizer::JitSource;

use super::content::{Content, build_id, identity};
use super::file::{CodeFile, FileTable};
use super::jit_process::JitProcess;
use super::proc_fs;
use super::{JitProcesses, Machine};
use crate::trace::spool::{FileRow, JitProcessRow};
use crate::trace::{Pid, ProcessId, RawTrace};

/// Time after the capture's end until which changes of an ended process's perf map are trusted.
///
/// The process may have run on for a while, but its pid is not reused that soon.
const GRACE_SECONDS: i64 = 60;

impl Machine {
    /// Recovers a machine from the rows of a spool.
    ///
    /// `same_boot` declares that the system was not rebooted since the capture.
    #[must_use]
    pub fn recover(raw_trace: &RawTrace, same_boot: bool) -> Self {
        let files = raw_trace.files.iter().map(|row| {
            let found = content(row, same_boot);
            let (content, container) =
                found.unwrap_or_else(|error| (Content::Unavailable(error), None));
            CodeFile {
                path: row.path.as_ref().into(),
                content,
                root: None,
                container,
                pid: row.pid,
            }
        });
        let info = &raw_trace.header.info;
        let captured_ns = raw_trace.end.0.saturating_sub(info.start_ns);
        let end = info.start_unix_ns.saturating_add(captured_ns) / 1_000_000_000;
        let until = (end as i64).saturating_add(GRACE_SECONDS);
        let jit_rows = raw_trace.jit_processes.iter();
        let processes = raw_trace.processes.iter().zip(0..).zip(jit_rows);
        let jit_processes = processes.filter_map(|((process, row), jit_row)| {
            let found = jit_process(process.pid, jit_row.as_ref()?, until, same_boot);
            Some((ProcessId(row), found))
        });
        let jit_processes: JitProcesses = jit_processes.collect();
        Self::of_symbol_sources(jit_processes, files.collect::<FileTable>())
    }
}

/// Returns the content of a file, and the root directory below which it is if not the host's.
fn content(row: &FileRow<'_>, same_boot: bool) -> io::Result<(Content, Option<Arc<Root>>)> {
    match &*row.path {
        VDSO if same_boot => Ok((Content::Vdso(vdso_image()?), None)),
        VDSO => Err(io::Error::other(
            "it belongs to another kernel than the running one",
        )),
        _ => {
            let (file, container) = reopen(row)?;
            Ok((Content::File(file), container))
        }
    }
}

/// Opens and verifies a file at its path, below the root directory of the host or of its process.
///
/// The process, or another one with its id by now, chooses what is below its root directory, and a
/// build id is easy to forge: there, it must be the very file.
fn reopen(row: &FileRow<'_>) -> io::Result<(Arc<File>, Option<Arc<Root>>)> {
    if row.identity.is_none() {
        return Err(io::Error::other("the capture could not open the file"));
    }
    let path = Path::new(OsStr::from_bytes(&row.path));
    let open = |root: &Root, is_same: fn(&Arc<File>, &FileRow<'_>) -> io::Result<bool>| {
        let file = Arc::new(root.open(path)?);
        match is_same(&file, row)? {
            true => Ok(file),
            false => Err(io::Error::other("another file is now at its path")),
        }
    };
    open(&Root::host()?, is_same_build).map_or_else(
        |error| {
            let root = Root::of(row.pid.0).map_err(|_| error)?;
            let file = open(&root, is_same_file)?;
            Ok((file, Some(Arc::new(root))))
        },
        |file| Ok((file, None)),
    )
}

fn is_same_build(file: &Arc<File>, row: &FileRow<'_>) -> io::Result<bool> {
    if row.build_id.is_empty() {
        return is_same_file(file, row);
    }
    Ok(build_id(file.clone()).is_some_and(|id| id.as_bytes() == &*row.build_id))
}

fn is_same_file(file: &Arc<File>, row: &FileRow<'_>) -> io::Result<bool> {
    Ok(Some(identity(file)?) == row.identity)
}

/// Finds the perf map and jitdump of a process.
fn jit_process(
    pid: Pid,
    row: &JitProcessRow,
    until: i64,
    same_boot: bool,
) -> io::Result<JitProcess> {
    if !same_boot {
        return Err(io::Error::other(
            "the system was rebooted since the capture",
        ));
    }
    let dump = || (!row.dump.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(&row.dump)));
    if proc_fs::start_ticks(pid) == Some(row.start_ticks) {
        return JitProcess::of(pid, dump());
    }
    let root = Root::host()?;
    if root.identity()? != (row.root_device, row.root_inode) {
        return Err(io::Error::other(
            "the process has ended, and its root directory is gone",
        ));
    }
    Ok(JitProcess {
        source: JitSource {
            root: Arc::new(root),
            uid: row.uid,
            map: JitSource::map_of(row.namespace_pid.0),
            dump: dump(),
            until: Some(until),
        },
        namespace_pid: row.namespace_pid,
        start_ticks: row.start_ticks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    use crate::trace::spool::FileIdentity;

    fn row(path: &Path) -> FileRow<'static> {
        let file = Arc::new(File::open(path).unwrap());
        FileRow {
            path: path.as_os_str().as_bytes().to_vec().into(),
            pid: Pid(i32::MAX),
            identity: Some(identity(&file).unwrap()),
            build_id: build_id(file).map_or_else(Cow::default, |id| id.as_bytes().to_vec().into()),
        }
    }

    #[test]
    fn reopens_only_unchanged_files() {
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
        // A write in place keeps the inode, but not the content.
        std::fs::write(&path, "another ELF file").unwrap();
        assert!(reopen(&row).is_err());
    }

    #[test]
    fn prefers_build_id_to_inode() {
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
    fn recovers_only_the_same_process_instance() {
        let me = Pid(std::process::id() as i32);
        let process = JitProcess::of(me, None).unwrap();
        let row = process.describe().unwrap();
        assert_eq!(jit_process(me, &row, 5, true).unwrap().source.until, None);
        let other = JitProcessRow {
            start_ticks: row.start_ticks + 1,
            ..row.clone()
        };
        let root = Root::host().unwrap().identity().unwrap();
        if root == (row.root_device, row.root_inode) {
            assert_eq!(
                jit_process(me, &other, 5, true).unwrap().source.until,
                Some(5)
            );
        }
        let elsewhere = JitProcessRow {
            root_inode: 0,
            ..other
        };
        assert!(jit_process(me, &elsewhere, 5, true).is_err());
        assert!(jit_process(me, &row, 5, false).is_err());
    }
}
