//! The text of a frame: address, function, file. Each is made once.

use std::io::Write;
use std::ops::Range;

use perfcollect_symbols::Aliases;
use perfcollect_symbols::demangle::demangle_bare;
use perfcollect_symbols::elf::{ElfFile, LoadSegment};
use perfcollect_symbols::perf_map::PerfMap;
use perfcollect_symbols::table::SymbolTable;
use rustc_hash::FxHashMap;

use super::fields::Fields;
use super::kernel::Kernel;
use crate::machine::{Backing, CodeFile, Content, Machine, Mapping};
use crate::naming;
use crate::perf::KernelCode;
use crate::trace::{ModuleId, Pid};

/// Texts that are kept, in bytes; when there are more, all are made anew.
const MAX_TEXT_BYTES: usize = 16 << 20;
/// Perf maps that are kept.
const MAX_MAPS: usize = 64;
const UNKNOWN: &[u8] = b"[unknown]";

/// What a frame's text depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Kernel(u64),
    /// Object and address in it.
    In(ModuleId, u64),
    /// Process, object and address: code made at run time.
    Jit(Pid, ModuleId, u64),
    Nowhere(u64),
}

/// Makes texts, and keeps them with what they are made from.
pub(super) struct Frames {
    fields: Fields,
    pub(super) kernel: Kernel,
    files: FxHashMap<ModuleId, Symbols>,
    maps: FxHashMap<Pid, PerfMap>,
    known: FxHashMap<Key, Range<u32>>,
    text: Vec<u8>,
}

/// The functions of a file.
#[derive(Default)]
struct Symbols {
    segments: Vec<LoadSegment>,
    tables: Vec<SymbolTable>,
    /// Demangled names by the start of the function, which has many addresses.
    names: FxHashMap<u64, Box<[u8]>>,
}

impl Symbols {
    fn of(file: &CodeFile) -> Self {
        let elf = match &file.content {
            Content::File(content) => ElfFile::open(content).ok(),
            Content::Vdso(image) => ElfFile::parse(image).ok(),
            Content::Unavailable(_) => None,
        };
        let Some(elf) = elf else {
            return Self::default();
        };
        Self {
            segments: elf.load_segments(),
            tables: naming::elf::symbols(file, Aliases::AsPerf),
            names: FxHashMap::default(),
        }
    }

    fn name(&mut self, offset: u64) -> Option<Box<[u8]>> {
        let address = self.segments.iter().find_map(|segment| {
            let at = offset.checked_sub(segment.file_offset)?;
            let inside = segment.executable && at < segment.file_size;
            inside.then(|| segment.address.checked_add(at))?
        })?;
        let mut found = self.tables.iter().filter_map(|table| table.lookup(address));
        let symbol = found.next()?;
        let name = self.names.entry(symbol.start);
        let name = name.or_insert_with(|| demangle_bare(symbol.name).as_bytes().into());
        Some(name.clone())
    }
}

impl Frames {
    pub(super) fn new(fields: Fields, kernel: Kernel) -> Self {
        Self {
            fields,
            kernel,
            files: FxHashMap::default(),
            maps: FxHashMap::default(),
            known: FxHashMap::default(),
            text: Vec::new(),
        }
    }

    /// Takes in code of the kernel's that came or went.
    pub(super) fn follow(&mut self, code: &KernelCode<'_>) {
        self.kernel.follow(code);
        self.forget();
    }

    fn forget(&mut self) {
        self.known.clear();
        self.text.clear();
    }

    /// Appends a frame in the kernel.
    pub(super) fn kernel(&mut self, ip: u64, is_line: bool, out: &mut Vec<u8>) {
        self.put(Key::Kernel(ip), is_line, out, |frames, frame| {
            frame.dso = frames.kernel.object(ip).unwrap_or(UNKNOWN).into();
            frame.name = match &*frame.dso {
                UNKNOWN => None,
                _ => frames.kernel.name(ip).map(Into::into),
            };
        });
    }

    /// Appends a frame of a process.
    pub(super) fn user(
        &mut self,
        machine: &Machine,
        pid: Pid,
        ip: u64,
        is_line: bool,
        out: &mut Vec<u8>,
    ) {
        let mapping = machine.mapping(pid, ip);
        let Some((mapping, object)) = mapping.and_then(|found| Some((found, found.object?))) else {
            return self.put(Key::Nowhere(ip), is_line, out, |_, frame| {
                frame.dso = UNKNOWN.into();
            });
        };
        let file = machine.files().file(object);
        let offset = shown_offset(mapping, &file.path, ip);
        // A single address is shown as it is.
        let shown = if is_line { offset } else { ip };
        match mapping.backing {
            Backing::File(_) if is_line => {
                self.put(Key::In(object, offset), is_line, out, |frames, frame| {
                    frame.dso = file.path.clone();
                    frame.name = frames.name_in(object, file, offset);
                });
            }
            Backing::File(_) => self.put_anew(shown, out, |frames, frame| {
                frame.dso = file.path.clone();
                frame.name = frames.name_in(object, file, offset);
            }),
            Backing::Jit | Backing::DoubleMapped => {
                let key = Key::Jit(pid, object, ip);
                self.put(key, is_line, out, |frames, frame| {
                    frame.shown = shown;
                    frame.dso = match is_anonymous(&file.path) {
                        true => format!("/tmp/perf-{pid}.map").into_bytes().into(),
                        false => file.path.clone(),
                    };
                    frame.name = frames.name_in_map(machine, pid, ip);
                });
            }
        }
    }

    fn name_in(&mut self, object: ModuleId, file: &CodeFile, offset: u64) -> Option<Box<[u8]>> {
        let symbols = self.files.entry(object);
        let symbols = symbols.or_insert_with(|| Symbols::of(file));
        symbols.name(offset)
    }

    fn name_in_map(&mut self, machine: &Machine, pid: Pid, ip: u64) -> Option<Box<[u8]>> {
        if !self.maps.contains_key(&pid) {
            if self.maps.len() >= MAX_MAPS {
                self.maps.clear();
            }
            self.maps.insert(pid, naming::perf_map(machine, pid));
        }
        let symbol = self.maps.get(&pid)?.lookup(ip)?;
        Some(symbol.name.into())
    }

    fn put(
        &mut self,
        key: Key,
        is_line: bool,
        out: &mut Vec<u8>,
        make: impl FnOnce(&mut Self, &mut Frame),
    ) {
        if !is_line {
            return self.put_anew(key.address(), out, make);
        }
        if let Some(known) = self.known.get(&key) {
            let known = known.start as usize..known.end as usize;
            return out.extend_from_slice(&self.text[known]);
        }
        if self.text.len() > MAX_TEXT_BYTES {
            self.forget();
        }
        let mut frame = Frame::at(key.address());
        make(self, &mut frame);
        let start = self.text.len();
        self.text.push(b'\t');
        frame.write(self.fields, &mut self.text);
        self.text.push(b'\n');
        out.extend_from_slice(&self.text[start..]);
        self.known.insert(key, start as u32..self.text.len() as u32);
    }

    /// The same for an address that stands behind its sample.
    fn put_anew(
        &mut self,
        shown: u64,
        out: &mut Vec<u8>,
        make: impl FnOnce(&mut Self, &mut Frame),
    ) {
        let mut frame = Frame::at(shown);
        make(self, &mut frame);
        frame.write(self.fields, out);
    }
}

impl Key {
    fn address(self) -> u64 {
        match self {
            Self::Kernel(address)
            | Self::In(_, address)
            | Self::Jit(_, _, address)
            | Self::Nowhere(address) => address,
        }
    }
}

/// A frame before it is text.
struct Frame {
    shown: u64,
    name: Option<Box<[u8]>>,
    dso: Box<[u8]>,
}

impl Frame {
    fn at(shown: u64) -> Self {
        Self {
            shown,
            name: None,
            dso: Box::default(),
        }
    }

    fn write(&self, fields: Fields, out: &mut Vec<u8>) {
        // Writing to memory cannot fail.
        let _ = write!(out, "{:16x}", self.shown);
        if fields.sym {
            out.push(b' ');
            out.extend(printable(self.name.as_deref().unwrap_or(UNKNOWN)));
        }
        if fields.dso {
            out.extend_from_slice(b" (");
            out.extend(printable(&self.dso));
            out.push(b')');
        }
    }
}

/// Names come from outside: none may begin a line.
fn printable(name: &[u8]) -> impl Iterator<Item = u8> + '_ {
    name.iter().map(|&byte| match byte {
        0..0x20 | 0x7f => b'?',
        byte => byte,
    })
}

/// What perf shows of an address in a callchain: where it is in its file, but in memory without one the address itself.
fn shown_offset(mapping: &Mapping, name: &[u8], ip: u64) -> u64 {
    match is_anonymous(name) || is_memory(name) {
        true => ip,
        false => mapping.file_offset_of(ip),
    }
}

/// Memory whose functions a runtime may tell in a perf map.
fn is_anonymous(name: &[u8]) -> bool {
    [&b"//anon"[..], b"/dev/zero", b"/anon_hugepage"]
        .iter()
        .any(|begin| name.starts_with(begin))
}

/// Other memory that is no file.
fn is_memory(name: &[u8]) -> bool {
    [&b"[stack"[..], b"/SYSV", b"[heap]"]
        .iter()
        .any(|begin| name.starts_with(begin))
}
