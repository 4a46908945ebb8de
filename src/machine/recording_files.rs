//! Where the files are that a recording names: one that was made before, perhaps on another machine.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perfcollect_symbols::build_id::BuildId;
use perfcollect_symbols::elf::ElfFile;
use rustix::process::geteuid;

use super::content::{Content, build_id};
use super::jit_process::JitProcess;
use super::mapping_info::{VDSO, Wanted, vdso_image};
use super::root::Root;
use crate::trace::Pid;

/// What finds and proves the files of a recording.
#[derive(Debug)]
pub struct RecordingFiles {
    root: Arc<Root>,
    /// Whether the user has said that the files below `root` are those of the recording.
    sysroot_trusted: bool,
    /// Whether the recording was made on this machine.
    same_host: bool,
    /// Whether this kernel, or its twin, ran then.
    same_kernel: bool,
    /// Where the recording lies, with perf maps and jitdumps perhaps, and whose they are.
    beside: Option<(Root, u32)>,
    build_ids: HashMap<Box<[u8]>, Box<[u8]>>,
}

impl RecordingFiles {
    /// Files below `sysroot`, or of this machine; `beside`: the directory of the recording, and the user it belongs to.
    ///
    /// # Errors
    /// `sysroot` is no directory.
    pub fn new(sysroot: Option<&Path>, beside: Option<(&Path, u32)>) -> io::Result<Self> {
        Ok(Self {
            root: Arc::new(match sysroot {
                Some(sysroot) => Root::at(sysroot)?,
                None => Root::host()?,
            }),
            sysroot_trusted: sysroot.is_some(),
            same_host: false,
            same_kernel: false,
            beside: beside.and_then(|(path, owner)| Some((Root::at(path).ok()?, owner))),
            build_ids: HashMap::new(),
        })
    }

    /// Takes in what the recording tells: the host it was made on, its kernel's release, and the build ids of files.
    pub fn learn(&mut self, host: &str, release: &str, build_ids: &HashMap<Box<[u8]>, Box<[u8]>>) {
        let ours = rustix::system::uname();
        self.same_host = !host.is_empty() && ours.nodename().to_bytes() == host.as_bytes();
        self.same_kernel = self.same_host && ours.release().to_bytes() == release.as_bytes();
        self.build_ids.clone_from(build_ids);
    }

    /// Where debug files may be.
    pub(super) fn root(&self) -> Arc<Root> {
        Arc::clone(&self.root)
    }

    /// The file of a mapping, if it is proved to be the one that was mapped: by its build id, else by its inode.
    pub(super) fn open(&self, wanted: &Wanted<'_>) -> io::Result<Content> {
        let known = match wanted.build_id {
            [] => self.build_ids.get(wanted.path).map(|id| &**id),
            id => Some(id),
        };
        if wanted.path == VDSO {
            let image = vdso_image()?;
            let id = ElfFile::parse(&image).ok().and_then(|elf| elf.build_id());
            let is_it = match known {
                Some(_) => id.as_ref().map(BuildId::as_bytes) == known,
                None => self.same_kernel,
            };
            return match is_it {
                true => Ok(Content::Vdso(image)),
                false => Err(io::Error::other("it went with the kernel that ran then")),
            };
        }
        let path = Path::new(OsStr::from_bytes(wanted.path));
        if let Some(known) = known {
            let file = self.root.open(path)?;
            return match build_id(&file).is_some_and(|id| is_same(id.as_bytes(), known)) {
                true => Ok(Content::File(file)),
                false => Err(io::Error::other("its build id is not the recorded one")),
            };
        }
        let (is_chosen, is_ours) = (self.sysroot_trusted, self.same_host);
        let file = self.root.open_if(path, |found| {
            if is_chosen || is_ours && wanted.inode != 0 && found.st_ino == wanted.inode {
                Ok(())
            } else {
                Err(io::Error::other(
                    "nothing proves that it is the recorded one: the recording has no build id of it (with -sysroot / its files are believed)",
                ))
            }
        });
        file.map(Content::File)
    }

    /// Where the names of code are that a process made at run time; `dump`: the jitdump it has mapped.
    pub(super) fn jit_host(&self, pid: Pid, dump: Option<Box<[u8]>>) -> io::Result<JitProcess> {
        let map = PathBuf::from(format!("perf-{pid}.map"));
        if let Some((beside, owner)) = &self.beside {
            let dump = dump.as_deref().map(file_name);
            let path = |name| Path::new(OsStr::from_bytes(name));
            if has(beside, &map) || dump.is_some_and(|dump| has(beside, path(dump))) {
                let dump = dump.map(Box::from);
                return Ok(JitProcess::recorded(
                    pid,
                    *owner,
                    beside.again()?,
                    map,
                    dump,
                ));
            }
        }
        if !self.same_host && !self.sysroot_trusted {
            let dump = dump.map(|dump| String::from_utf8_lossy(&dump).into_owned());
            let dump = dump.map_or_else(String::new, |dump| format!(" or jitdump ({dump})"));
            let place = match self.beside {
                Some(_) => "the recording",
                None => "a recording in a pipe (write it to a file)",
            };
            let why = format!(
                "its perf map{dump} is not beside {place}, which does not say that it was made on this host"
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        Ok(JitProcess::recorded(
            pid,
            geteuid().as_raw(),
            self.root.again()?,
            Path::new("/tmp").join(map),
            dump,
        ))
    }
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Whether a directory has a file. One that cannot be opened is there, too: whoever opens it says why.
fn has(directory: &Root, path: &Path) -> bool {
    let error = directory.open(path).err();
    error.is_none_or(|error| error.kind() != io::ErrorKind::NotFound)
}

/// The header has 20 bytes of each build id, whatever its length, with zeros behind a shorter one.
fn is_same(of_file: &[u8], recorded: &[u8]) -> bool {
    let len = of_file.len().min(recorded.len());
    let (same, rest) = recorded.split_at(len);
    len > 0 && of_file[..len] == *same && rest.iter().all(|&byte| byte == 0)
}
