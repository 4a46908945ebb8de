//! Finds the files of a recording, which may come from another host.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perfcollect_symbols::build_id::BuildId;
use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::process::{Reader, Root, VDSO, vdso_image};
use perfcollect_symbols::symbolizer::JitSource;
use rustix::process::geteuid;

use super::content::{Content, build_id};
use super::jit_process::JitProcess;
use super::mapping_info::MappingInfo;
use crate::trace::Pid;

/// Finds and verifies the files of a recording.
#[derive(Debug)]
pub struct RecordingFiles {
    root: Arc<Root>,
    /// Whether the user declared the files below `root` to be those of the recording.
    sysroot_trusted: bool,
    /// Whether the recording comes from this host.
    same_host: bool,
    /// Whether the recording comes from this host and the same kernel release.
    same_kernel: bool,
    /// Directory of the recording, which may contain perf maps and jitdumps, and its owner.
    beside: Option<(Arc<Root>, u32)>,
    build_ids: HashMap<Box<[u8]>, Box<[u8]>>,
}

impl RecordingFiles {
    /// Creates a finder for files below `sysroot`, or of this machine.
    ///
    /// `beside` is the directory of the recording and the user who owns the recording.
    ///
    /// # Errors
    /// `sysroot` is not a directory.
    pub fn new(sysroot: Option<&Path>, beside: Option<(&Path, u32)>) -> io::Result<Self> {
        Ok(Self {
            root: Arc::new(match sysroot {
                Some(sysroot) => Root::at(sysroot)?,
                None => Root::host()?,
            }),
            sysroot_trusted: sysroot.is_some(),
            same_host: false,
            same_kernel: false,
            beside: beside.and_then(|(path, owner)| Some((Arc::new(Root::at(path).ok()?), owner))),
            build_ids: HashMap::new(),
        })
    }

    /// Adds the header information of the recording: host, kernel release and build ids of files.
    pub fn set_origin(
        &mut self,
        host: &str,
        release: &str,
        build_ids: &HashMap<Box<[u8]>, Box<[u8]>>,
    ) {
        let current = rustix::system::uname();
        self.same_host = !host.is_empty() && current.nodename().to_bytes() == host.as_bytes();
        self.same_kernel = self.same_host && current.release().to_bytes() == release.as_bytes();
        self.build_ids.clone_from(build_ids);
    }

    /// Returns the root directory to search for debug files.
    pub(super) fn root(&self) -> Arc<Root> {
        Arc::clone(&self.root)
    }

    /// Opens the file of a mapping, verified by build id or else by device and inode.
    ///
    /// Files below a sysroot need no verification unless the recording contains their build id.
    ///
    /// # Errors
    /// The file cannot be opened or verified.
    pub(super) fn open(&self, info: &MappingInfo<'_>) -> io::Result<Content> {
        let recorded_id = match info.build_id {
            [] => self.build_ids.get(info.line.path).map(|id| &**id),
            id => Some(id),
        };
        if info.line.path == VDSO {
            let image = vdso_image()?;
            let id = ElfFile::parse(&image).ok().and_then(|elf| elf.build_id());
            let is_same_vdso = match recorded_id {
                Some(_) => id.as_ref().map(BuildId::as_bytes) == recorded_id,
                None => self.same_kernel,
            };
            return match is_same_vdso {
                true => Ok(Content::Vdso(image)),
                false => Err(io::Error::other(
                    "it belongs to another kernel than the running one",
                )),
            };
        }
        let file = Arc::new(self.find(info, recorded_id.is_some())?);
        let is_other = recorded_id.is_some_and(|recorded_id| {
            build_id(file.clone()).is_none_or(|id| !is_same(id.as_bytes(), recorded_id))
        });
        match is_other {
            false => Ok(Content::File(file)),
            true => Err(io::Error::other(
                "its build id differs from the recorded one",
            )),
        }
    }

    /// Opens the file at the path of a mapping. `has_id`: its build id is compared then.
    fn find(&self, info: &MappingInfo<'_>, has_id: bool) -> io::Result<File> {
        let path = Path::new(OsStr::from_bytes(info.line.path));
        let is_identified = self.same_host && info.line.inode != 0;
        match (has_id, is_identified) {
            _ if self.sysroot_trusted => self.root.open(path),
            (true, true) => self.root.open_build(&info.line, &Reader::unknown()),
            (true, false) => self.root.open(path),
            (false, true) => self.root.open_mapped(&info.line, Some(&Reader::unknown())),
            (false, false) => self.root.open_if(path, |_| {
                Err(io::Error::other(
                    "cannot verify the file: the recording has no build id for it; use -sysroot / to trust the files of this machine",
                ))
            }),
        }
    }

    /// Finds the perf map and jitdump of a process. `dump` is the path of its mapped jitdump.
    ///
    /// # Errors
    /// The files are not beside the recording, which may come from another host.
    pub fn jit_process(&self, pid: Pid, dump: Option<PathBuf>) -> io::Result<JitProcess> {
        let map = PathBuf::from(format!("perf-{pid}.map"));
        if let Some((beside, owner)) = &self.beside {
            let dump = dump
                .as_ref()
                .map(|dump| file_name(dump.as_os_str().as_bytes()));
            let path = |name| Path::new(OsStr::from_bytes(name));
            if has(beside, &map) || dump.is_some_and(|dump| has(beside, path(dump))) {
                let source = JitSource {
                    root: Arc::clone(beside),
                    uid: *owner,
                    map,
                    dump: dump.map(|dump| path(dump).to_owned()),
                    until: None,
                };
                return Ok(JitProcess::recorded(pid, source));
            }
        }
        if !self.same_host && !self.sysroot_trusted {
            let dump = dump.map(|dump| format!(" or jitdump ({})", dump.display()));
            let dump = dump.unwrap_or_default();
            let location = match self.beside {
                Some(_) => "the recording",
                None => "a recording in a pipe (write it to a file)",
            };
            let why = format!(
                "its perf map{dump} is not beside {location}, which is not known to come from this machine"
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        let source = JitSource {
            root: self.root(),
            uid: geteuid().as_raw(),
            map: Path::new("/tmp").join(map),
            dump,
            until: None,
        };
        Ok(JitProcess::recorded(pid, source))
    }
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Returns whether a directory contains a file, even if the file cannot be opened.
///
/// Opening the file later reports the error.
fn has(directory: &Root, path: &Path) -> bool {
    let error = directory.open(path).err();
    error.is_none_or(|error| error.kind() != io::ErrorKind::NotFound)
}

/// Returns whether a file has the recorded build id.
///
/// The header of a recording contains 20 bytes for each build id: shorter ids are padded with
/// zeros, longer ids are truncated.
fn is_same(file_id: &[u8], recorded: &[u8]) -> bool {
    let len = file_id.len().min(recorded.len());
    let (same, rest) = recorded.split_at(len);
    len > 0 && file_id[..len] == *same && rest.iter().all(|&byte| byte == 0)
}
