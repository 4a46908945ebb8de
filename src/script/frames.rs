//! The text of a frame: address, function, file. That of a function is made once.

use perfcollect_symbols::Aliases;
use perfcollect_symbols::demangle::demangle_bare;
use perfcollect_symbols::elf::{ElfFile, LoadSegment};
use perfcollect_symbols::perf_map::PerfMap;
use perfcollect_symbols::table::SymbolTable;
use rustc_hash::FxHashMap;

use super::fields::Fields;
use super::kernel::Kernel;
use crate::bytes::put_digits;
use crate::machine::{Backing, CodeFile, Content, Machine, Mapping};
use crate::naming;
use crate::perf::KernelCode;
use crate::trace::{ModuleId, Pid};

/// Names and files that are kept, in bytes, and addresses; when there are more, all are made anew.
const MAX_TEXT_BYTES: usize = 16 << 20;
const MAX_ADDRESSES: usize = 512 << 10;
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
}

/// Makes texts, and keeps them with what they are made from.
pub(super) struct Frames {
    pub(super) kernel: Kernel,
    files: FxHashMap<ModuleId, Symbols>,
    maps: FxHashMap<Pid, PerfMap>,
    known: FxHashMap<Key, Text>,
    texts: Texts,
}

/// Where in the texts a function and its file are.
#[derive(Clone, Copy, Debug)]
struct Text {
    start: u32,
    end: u32,
}

/// What stands behind the address.
struct Texts {
    fields: Fields,
    bytes: Vec<u8>,
}

impl Texts {
    fn add(&mut self, name: Option<&[u8]>, dso: &[u8]) -> Text {
        let start = self.bytes.len() as u32;
        write_names(self.fields, name, dso, &mut self.bytes);
        Text {
            start,
            end: self.bytes.len() as u32,
        }
    }

    fn get(&self, text: Text) -> &[u8] {
        &self.bytes[text.start as usize..text.end as usize]
    }
}

fn write_names(fields: Fields, name: Option<&[u8]>, dso: &[u8], out: &mut Vec<u8>) {
    if fields.sym {
        out.push(b' ');
        out.extend(printable(name.unwrap_or(UNKNOWN)));
    }
    if fields.dso {
        out.extend_from_slice(b" (");
        out.extend(printable(dso));
        out.push(b')');
    }
}

/// The functions of a file.
#[derive(Default)]
struct Symbols {
    segments: Vec<LoadSegment>,
    tables: Vec<SymbolTable>,
    /// Texts of functions by their start, as they have many addresses.
    functions: FxHashMap<u64, Text>,
}

impl Symbols {
    fn of(file: &CodeFile) -> Self {
        let elf = match &file.content {
            Content::File(content) => ElfFile::open_mapped(content).ok(),
            Content::Vdso(image) => ElfFile::parse(image).ok(),
            Content::Unavailable(_) => None,
        };
        let Some(elf) = elf else {
            return Self::default();
        };
        Self {
            segments: elf.load_segments(),
            tables: naming::elf::symbols(file, Aliases::AsPerf),
            functions: FxHashMap::default(),
        }
    }

    fn text(&mut self, offset: u64, dso: &[u8], texts: &mut Texts) -> Text {
        let address = self.segments.iter().find_map(|segment| {
            let at = offset.checked_sub(segment.file_offset)?;
            let inside = segment.executable && at < segment.file_size;
            inside.then(|| segment.address.checked_add(at))?
        });
        let mut tables = self.tables.iter();
        let symbol = address.and_then(|address| tables.find_map(|table| table.lookup(address)));
        let Some(symbol) = symbol else {
            return texts.add(None, dso);
        };
        let text = self.functions.entry(symbol.start);
        *text.or_insert_with(|| texts.add(Some(demangle_bare(symbol.name).as_bytes()), dso))
    }
}

impl Frames {
    pub(super) fn new(fields: Fields, kernel: Kernel) -> Self {
        Self {
            kernel,
            files: FxHashMap::default(),
            maps: FxHashMap::default(),
            known: FxHashMap::default(),
            texts: Texts {
                fields,
                bytes: Vec::new(),
            },
        }
    }

    /// Takes in code of the kernel's that came or went.
    pub(super) fn follow(&mut self, code: &KernelCode<'_>) {
        self.kernel.follow(code);
        self.forget();
    }

    fn forget(&mut self) {
        self.known.clear();
        self.texts.bytes.clear();
        for symbols in self.files.values_mut() {
            symbols.functions.clear();
        }
    }

    /// Appends a frame in the kernel.
    pub(super) fn kernel(&mut self, ip: u64, is_line: bool, out: &mut Vec<u8>) {
        let text = self.text(Key::Kernel(ip), |Self { kernel, texts, .. }| {
            let Some(dso) = kernel.object(ip).map(Box::<[u8]>::from) else {
                return texts.add(None, UNKNOWN);
            };
            texts.add(kernel.name(ip), &dso)
        });
        put(ip, self.texts.get(text), is_line, out);
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
            let mut text = Vec::new();
            write_names(self.texts.fields, None, UNKNOWN, &mut text);
            return put(ip, &text, is_line, out);
        };
        let file = machine.files().file(object);
        let offset = shown_offset(mapping, &file.path, ip);
        let text = match mapping.backing {
            Backing::File(_) => self.text(Key::In(object, offset), |frames| {
                let symbols = frames.files.entry(object);
                let symbols = symbols.or_insert_with(|| Symbols::of(file));
                symbols.text(offset, &file.path, &mut frames.texts)
            }),
            Backing::Jit | Backing::DoubleMapped => {
                self.text(Key::Jit(pid, object, ip), |frames| {
                    let map = format!("/tmp/perf-{pid}.map");
                    let dso = match is_anonymous(&file.path) {
                        true => map.as_bytes(),
                        false => &file.path,
                    };
                    let maps = map_of(&mut frames.maps, machine, pid);
                    let symbol = maps.lookup(ip);
                    frames.texts.add(symbol.map(|symbol| symbol.name), dso)
                })
            }
        };
        // A single address is shown as it is.
        let shown = if is_line { offset } else { ip };
        put(shown, self.texts.get(text), is_line, out);
    }

    /// The text of a frame, made now if it is not known.
    fn text(&mut self, key: Key, make: impl FnOnce(&mut Self) -> Text) -> Text {
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        if self.texts.bytes.len() > MAX_TEXT_BYTES || self.known.len() > MAX_ADDRESSES {
            self.forget();
        }
        let text = make(self);
        self.known.insert(key, text);
        text
    }
}

fn map_of<'a>(maps: &'a mut FxHashMap<Pid, PerfMap>, machine: &Machine, pid: Pid) -> &'a PerfMap {
    if maps.len() >= MAX_MAPS && !maps.contains_key(&pid) {
        maps.clear();
    }
    let map = maps.entry(pid);
    map.or_insert_with(|| naming::perf_map(machine, pid))
}

/// Appends a frame: a line, or what stands behind its sample.
fn put(shown: u64, text: &[u8], is_line: bool, out: &mut Vec<u8>) {
    if is_line {
        out.push(b'\t');
    }
    put_digits::<16>(out, shown, 16, b' ');
    out.extend_from_slice(text);
    if is_line {
        out.push(b'\n');
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
