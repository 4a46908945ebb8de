//! Addresses of a live process: its mapped files, its JIT code and the kernel.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::debug_files::Problem;
use super::file::{FileContent, FileSource, FileSymbolizer};
use super::frame::{Evidence, Frame, Unresolved};
use super::jit::{JitQuery, JitSource, JitSymbols};
use super::{FileKey, Symbolizer};
use crate::process::{
    MapsLine, Root, VDSO, is_elf, is_memory, mount_namespace, open_mapped_file, parse_maps,
    read_maps, start_ticks, vdso_image, without_deleted_suffix,
};

/// Addresses from here up are the kernel's, on x86-64 and ARM64.
const KERNEL_START: u64 = 0xffff << 48;

/// Symbolizes addresses of a running process.
///
/// It has the mappings of its creation, and the JIT symbols of its first lookup in JIT code: create
/// another one to see later changes.
pub struct ProcessSymbolizer<'s> {
    symbolizer: &'s Symbolizer,
    pid: i32,
    /// Start of the process: another one may have its id by now.
    start_ticks: u64,
    /// Sorted by address.
    mappings: Vec<Mapping>,
    jit: OnceLock<Result<JitSymbols, Unresolved>>,
}

struct Mapping {
    start: u64,
    end: u64,
    file_offset: u64,
    device: (u32, u32),
    inode: u64,
    path: Box<[u8]>,
    /// `None`: it is memory, which may contain JIT code.
    file: OnceLock<Option<Result<Arc<FileSymbolizer>, Unresolved>>>,
}

fn ended() -> io::Error {
    io::Error::other("the process has ended")
}

impl<'s> ProcessSymbolizer<'s> {
    pub(super) fn new(symbolizer: &'s Symbolizer, pid: i32) -> io::Result<Self> {
        let start_ticks = start_ticks(pid).ok_or_else(ended)?;
        let maps = read_maps(pid)?;
        Ok(Self {
            symbolizer,
            pid,
            start_ticks,
            mappings: parse_maps(&maps).map(Mapping::new).collect(),
            jit: OnceLock::new(),
        })
    }

    /// Returns the functions at an address, innermost first.
    ///
    /// # Errors
    /// - [`Unresolved::Unmapped`]: no executable mapping is there.
    /// - [`Unresolved::Unreadable`]: the mapped file cannot be opened.
    /// - [`Unresolved::Kernel`]: `/proc/kallsyms` cannot be read, or hides addresses.
    /// - [`Unresolved::Image`]: the ReadyToRun image of the mapped file cannot be used.
    /// - [`Unresolved::NoSymbol`], [`Unresolved::NoMethod`], [`Unresolved::Jit`]: nothing names the
    ///   function.
    pub fn frames(&self, address: u64) -> Result<Vec<Frame<'_>>, Unresolved> {
        if address >= KERNEL_START {
            return self.kernel_frame(address).map(|frame| vec![frame]);
        }
        let after = self
            .mappings
            .partition_point(|mapping| mapping.start <= address);
        let mapping = after
            .checked_sub(1)
            .and_then(|index| self.mappings.get(index));
        let mapping = mapping.filter(|mapping| address < mapping.end);
        let mapping = mapping.ok_or(Unresolved::Unmapped)?;
        let Some(file) = mapping.file.get_or_init(|| self.open(mapping)) else {
            return self.jit_frame(address).map(|frame| vec![frame]);
        };
        let file = file.as_ref().map_err(Clone::clone)?;
        let delta = address - mapping.start;
        let offset = match &*mapping.path {
            VDSO => delta,
            _ => mapping.file_offset.wrapping_add(delta),
        };
        let Some(svma) = file.address_of(offset) else {
            return file.method(offset).map(|method| vec![method]);
        };
        let bias = address.wrapping_sub(svma);
        let rebased = |start: Option<u64>| start.map(|start| start.wrapping_add(bias));
        let mut frames = file.frames(svma).map_err(|why| match why {
            Unresolved::NoSymbol { start } => Unresolved::NoSymbol {
                start: rebased(start),
            },
            why => why,
        })?;
        for frame in &mut frames {
            frame.start = rebased(frame.start);
            frame.module = Some(String::from_utf8_lossy(mapping.clean_path()));
        }
        Ok(frames)
    }

    /// Returns the problems of the files since the last call, with their paths.
    #[must_use]
    pub fn take_problems(&self) -> Vec<(PathBuf, Problem)> {
        let files = self.mappings.iter().filter_map(|mapping| {
            let file = mapping.file.get()?.as_ref()?.as_ref().ok()?;
            Some((path(mapping.clean_path()), file))
        });
        let problems = files.map(|(path, file)| {
            let problems = file.take_problems().into_iter();
            problems.map(move |problem| (path.clone(), problem))
        });
        problems.flatten().collect()
    }

    fn kernel_frame(&self, address: u64) -> Result<Frame<'_>, Unresolved> {
        let kernel = self.symbolizer.kernel();
        let kernel = kernel.map_err(|error| Unresolved::Kernel(error.to_string()))?;
        let found = kernel.lookup(address);
        let found = found.ok_or(Unresolved::NoSymbol { start: None })?;
        Ok(Frame {
            start: Some(found.symbol.start),
            module: found.module.map(String::from_utf8_lossy),
            ..Frame::new(found.symbol.name, Evidence::Kallsyms)
        })
    }

    fn jit_frame(&self, address: u64) -> Result<Frame<'_>, Unresolved> {
        let read = || {
            let mut mappings = self.mappings.iter();
            let dump = mappings.find_map(|mapping| jit_dump(&mapping.path));
            let source = JitSource::of_process(self.pid, dump);
            let source = source.and_then(|source| self.check(source));
            let source = source.map_err(|error| Unresolved::Unreadable {
                path: format!("/proc/{}/root", self.pid).into(),
                why: error.to_string(),
            })?;
            Ok(JitSymbols::read(&source, &JitQuery::default()))
        };
        let symbols = self.jit.get_or_init(read);
        Ok(symbols.as_ref().map_err(Clone::clone)?.frame(address)?)
    }

    /// Returns what was opened, if it is of this process and not of a later one with its id.
    fn check<T>(&self, opened: T) -> io::Result<T> {
        match start_ticks(self.pid) == Some(self.start_ticks) {
            true => Ok(opened),
            false => Err(ended()),
        }
    }

    /// Opens the file of a mapping. Returns `None` if it is memory.
    fn open(&self, mapping: &Mapping) -> Option<Result<Arc<FileSymbolizer>, Unresolved>> {
        let is_vdso = *mapping.path == *VDSO;
        let is_library = || is_elf(self.pid, &mapping.line());
        let is_memfd = mapping.path.starts_with(b"/memfd:");
        if !is_vdso && is_memory(&mapping.path) && !(is_memfd && is_library()) {
            return None;
        }
        let file = match is_vdso {
            true => self.vdso(mapping),
            false => self.open_file(mapping),
        };
        Some(file.map_err(|error| Unresolved::Unreadable {
            path: path(mapping.clean_path()),
            why: error.to_string(),
        }))
    }

    fn vdso(&self, mapping: &Mapping) -> io::Result<Arc<FileSymbolizer>> {
        // A 32-bit process has another vDSO than this one.
        if mapping.start < 1 << 32 {
            return Err(io::Error::other("it is a 32-bit process"));
        }
        Ok(Arc::new(self.symbolizer.file(FileSource {
            content: FileContent::Image(vdso_image()?),
            path: path(VDSO),
            roots: Vec::new(),
        })))
    }

    fn open_file(&self, mapping: &Mapping) -> io::Result<Arc<FileSymbolizer>> {
        let file = open_mapped_file(self.pid, &mapping.line())?;
        let root = Root::of(self.pid)?;
        let metadata = file.metadata()?;
        // The debug files of a file are those in the root directory of its process.
        let key = FileKey {
            file: (metadata.dev(), metadata.ino()),
            root: root.identity()?,
            mount_namespace: mount_namespace(self.pid)?,
            path: path(mapping.clean_path()),
        };
        let (file, root) = self.check((file, root))?;
        Ok(self.symbolizer.shared_file(key, |path| FileSource {
            content: FileContent::File(Arc::new(file)),
            path,
            roots: [Ok(root), Root::host()]
                .into_iter()
                .flatten()
                .map(Arc::new)
                .collect(),
        }))
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

impl Mapping {
    fn new(line: MapsLine<'_>) -> Self {
        Self {
            start: line.start,
            end: line.end,
            file_offset: line.file_offset,
            device: line.device,
            inode: line.inode,
            path: line.path.into(),
            file: OnceLock::new(),
        }
    }

    fn line(&self) -> MapsLine<'_> {
        MapsLine {
            start: self.start,
            end: self.end,
            file_offset: self.file_offset,
            device: self.device,
            inode: self.inode,
            path: &self.path,
            executable: true,
        }
    }

    fn clean_path(&self) -> &[u8] {
        without_deleted_suffix(&self.path)
    }
}

/// Returns the path of a mapped file if it has the name of a jitdump, `jit-PID.dump`.
fn jit_dump(path: &[u8]) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(path));
    let name = path.file_name()?.to_str()?;
    let pid = name.strip_prefix("jit-")?.strip_suffix(".dump")?;
    let is_pid = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    is_pid.then(|| path.to_owned())
}
