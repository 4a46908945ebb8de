//! Addresses of a live process: its mapped files, its JIT code and the kernel.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::Symbolizer;
use super::file::{FileContent, FileSource, FileSymbolizer};
use super::frame::{Evidence, Frame, Unresolved};
use super::jit::{JitQuery, JitSource, JitSymbols};
use crate::process::{
    MapsLine, Root, VDSO, open_mapped_file, parse_maps, read_maps, vdso_image,
    without_deleted_suffix,
};

/// Addresses from here up are the kernel's, on x86-64 and ARM64.
const KERNEL_START: u64 = 0xffff << 48;

/// Symbolizes addresses of a process, as its mappings were when this was created.
pub struct ProcessSymbolizer<'s> {
    symbolizer: &'s Symbolizer,
    pid: i32,
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
    file: OnceLock<Result<Arc<FileSymbolizer>, Unresolved>>,
}

impl<'s> ProcessSymbolizer<'s> {
    pub(super) fn new(symbolizer: &'s Symbolizer, pid: i32) -> io::Result<Self> {
        let maps = read_maps(pid)?;
        Ok(Self {
            symbolizer,
            pid,
            mappings: parse_maps(&maps).map(Mapping::new).collect(),
            jit: OnceLock::new(),
        })
    }

    /// Returns the functions at an address, innermost first.
    ///
    /// # Errors
    /// The function has no name.
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
        if !mapping.is_file() {
            return self.jit_frame(address).map(|frame| vec![frame]);
        }
        let file = mapping.file.get_or_init(|| self.open(mapping));
        let delta = address - mapping.start;
        let offset = match &*mapping.path {
            VDSO => delta,
            _ => mapping.file_offset.wrapping_add(delta),
        };
        file.as_ref()
            .map_err(Clone::clone)?
            .frames_at_offset(offset)
    }

    fn kernel_frame(&self, address: u64) -> Result<Frame<'_>, Unresolved> {
        let kernel = self.symbolizer.kernel();
        let kernel = kernel.map_err(|error| Unresolved::Kernel(error.to_string()))?;
        let found = kernel.lookup(address);
        let symbol = found.ok_or(Unresolved::NoSymbol { start: None })?.symbol;
        Ok(Frame {
            start: Some(symbol.start),
            ..Frame::new(symbol.name, Evidence::Kallsyms)
        })
    }

    fn jit_frame(&self, address: u64) -> Result<Frame<'_>, Unresolved> {
        let read = || {
            let mut mappings = self.mappings.iter();
            let dump = mappings.find_map(|mapping| jit_dump(&mapping.path));
            let source = JitSource::of_process(self.pid, dump);
            let source = source.map_err(|error| Unresolved::Unreadable {
                path: format!("/proc/{}/root", self.pid).into(),
                why: error.to_string(),
            })?;
            Ok(JitSymbols::read(&source, &JitQuery::default()))
        };
        let symbols = self.jit.get_or_init(read);
        Ok(symbols.as_ref().map_err(Clone::clone)?.frame(address)?)
    }

    fn open(&self, mapping: &Mapping) -> Result<Arc<FileSymbolizer>, Unresolved> {
        let path = without_deleted_suffix(&mapping.path);
        let path = PathBuf::from(OsStr::from_bytes(path));
        let open = || {
            if *mapping.path == *VDSO {
                return Ok(((0, 0), FileContent::Image(vdso_image()?)));
            }
            let file = open_mapped_file(self.pid, &mapping.line())?;
            let metadata = file.metadata()?;
            let id = (metadata.dev(), metadata.ino());
            Ok((id, FileContent::File(Arc::new(file))))
        };
        let (id, content) = open().map_err(|error: io::Error| Unresolved::Unreadable {
            path: path.clone(),
            why: error.to_string(),
        })?;
        Ok(self.symbolizer.shared_file(id, || FileSource {
            content,
            path,
            roots: [Root::of(self.pid), Root::host()]
                .into_iter()
                .flatten()
                .collect(),
        }))
    }
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

    /// Returns whether it is a file or the vDSO, and not memory for JIT code.
    fn is_file(&self) -> bool {
        let is_jit_memory = self.path.starts_with(b"/memfd:doublemapper");
        *self.path == *VDSO || self.inode != 0 && !is_jit_memory
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
