//! Resolves addresses: what to print, and which object may have a symbol.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use perfcollect_symbols::Aliases;
use perfcollect_symbols::symbolizer::Symbolizer;
use rustc_hash::FxHashMap;

use super::batch::{Frame, Object, ObjectId};
use super::jit_symbols::Made;
use super::kernel::Kernel;
use super::symbols::FileSymbols;
use crate::machine::{AddressSpace, Backing, Machine, Mapping};
use crate::symbolize::{self, elf};
use crate::trace::{ModuleId, Pid};

/// perf shows inlined functions.
pub(super) const OPTIONS: symbolize::Options = symbolize::Options {
    inlined: true,
    symbol_directories: Vec::new(),
    invoking_user: None,
};
/// Maximum number of cached JIT functions.
const MAX_MADE: usize = 64 << 10;
pub(super) const UNKNOWN: &[u8] = b"[unknown]";

/// Assigns ids to objects.
pub(super) struct AddressResolver {
    pub(super) kernel: Kernel,
    /// By module.
    files: Vec<Option<KnownFile>>,
    pub(super) made: Made,
    made_objects: FxHashMap<MadeKey, ObjectId>,
    nowhere: Option<ObjectId>,
    /// The number of ids.
    count: u32,
    /// Requests symbols before their use.
    ahead: Sender<Arc<FileSymbols>>,
    symbolizer: Symbolizer,
}

struct KnownFile {
    symbols: Arc<FileSymbols>,
    object: Option<ObjectId>,
}

/// The process, its memory, and the range of the function, if known.
type MadeKey = (Pid, ModuleId, Option<(u64, u64)>);

impl AddressResolver {
    pub(super) fn new(ahead: Sender<Arc<FileSymbols>>) -> Self {
        Self {
            kernel: Kernel::default(),
            files: Vec::new(),
            made: Made::default(),
            made_objects: FxHashMap::default(),
            nowhere: None,
            count: 0,
            ahead,
            symbolizer: elf::symbolizer(&OPTIONS, Aliases::AsPerf),
        }
    }

    /// Returns whether there are so many objects that the ids must be reset.
    pub(super) fn is_full(&self) -> bool {
        self.made_objects.len() >= MAX_MADE
    }

    /// Restarts ids from 0.
    pub(super) fn reset(&mut self) {
        self.kernel.reset();
        for file in self.files.iter_mut().flatten() {
            file.object = None;
            if let Some(renewed) = file.symbols.without_debug_info(&self.symbolizer) {
                file.symbols = Arc::new(renewed);
            }
        }
        self.made_objects.clear();
        self.nowhere = None;
        self.count = 0;
    }

    /// Resolves an address of the kernel.
    pub(super) fn kernel(&mut self, ip: u64, objects: &mut Vec<Object>) -> Frame {
        let count = &mut self.count;
        let object = self.kernel.object(ip, |object| put(count, objects, object));
        Frame {
            shown: ip,
            object: object.unwrap_or_else(|| self.nowhere(objects)),
        }
    }

    /// Resolves an address of a process.
    pub(super) fn user(
        &mut self,
        machine: &Machine,
        pid: Pid,
        space: &mut AddressSpace<'_>,
        ip: u64,
        objects: &mut Vec<Object>,
    ) -> Frame {
        let mapping = space.find(ip);
        let Some((mapping, object)) = mapping.and_then(|found| Some((found, found.object?))) else {
            return Frame {
                shown: ip,
                object: self.nowhere(objects),
            };
        };
        match mapping.backing {
            Backing::File(_) => Frame {
                shown: mapping.file_offset_of(ip),
                object: self.file(machine, object, objects),
            },
            Backing::Jit | Backing::DoubleMapped => {
                let name = &machine.files().file(object).path;
                Frame {
                    shown: shown_offset(mapping, name, ip),
                    object: self.made(machine, (pid, object), ip, objects),
                }
            }
        }
    }

    fn nowhere(&mut self, objects: &mut Vec<Object>) -> ObjectId {
        let count = &mut self.count;
        let new = || put(count, objects, Object::One(None, UNKNOWN.into()));
        *self.nowhere.get_or_insert_with(new)
    }

    fn file(&mut self, machine: &Machine, id: ModuleId, objects: &mut Vec<Object>) -> ObjectId {
        if self.files.len() <= id.index() {
            self.files.resize_with(id.index() + 1, || None);
        }
        let Self {
            files,
            ahead,
            count,
            symbolizer,
            ..
        } = self;
        let known = files[id.index()].get_or_insert_with(|| {
            let symbols = Arc::new(FileSymbols::new(symbolizer, machine.files().shared(id)));
            // The first user reads the symbols if no thread has read them before.
            let _ = ahead.send(Arc::clone(&symbols));
            KnownFile {
                symbols,
                object: None,
            }
        });
        let symbols = &known.symbols;
        let new = || put(count, objects, Object::File(Arc::clone(symbols)));
        *known.object.get_or_insert_with(new)
    }

    fn made(
        &mut self,
        machine: &Machine,
        (pid, memory): (Pid, ModuleId),
        ip: u64,
        objects: &mut Vec<Object>,
    ) -> ObjectId {
        let symbol = self.made.lookup(machine, pid, ip);
        let place = symbol.map(|symbol| (symbol.start, symbol.end));
        let count = &mut self.count;
        let object = self.made_objects.entry((pid, memory, place));
        *object.or_insert_with(|| {
            let path = &machine.files().file(memory).path;
            let file = match is_anonymous(path) {
                true => format!("/tmp/perf-{pid}.map").into_bytes().into(),
                false => path.clone(),
            };
            let name = symbol.map(|symbol| symbol.name.into());
            put(count, objects, Object::One(name, file))
        })
    }
}

fn put(count: &mut u32, objects: &mut Vec<Object>, object: Object) -> ObjectId {
    objects.push(object);
    *count += 1;
    ObjectId(*count - 1)
}

/// Returns the address that perf prints in a callchain: the file offset, or the address itself for
/// memory without a file.
fn shown_offset(mapping: &Mapping, name: &[u8], ip: u64) -> u64 {
    match is_anonymous(name) || is_memory(name) {
        true => ip,
        false => mapping.file_offset_of(ip),
    }
}

/// Returns whether a runtime may list the functions of this memory in a perf map.
fn is_anonymous(name: &[u8]) -> bool {
    [&b"//anon"[..], b"/dev/zero", b"/anon_hugepage"]
        .iter()
        .any(|begin| name.starts_with(begin))
}

/// Returns whether this is other memory without a file.
fn is_memory(name: &[u8]) -> bool {
    [&b"[stack"[..], b"/SYSV", b"[heap]"]
        .iter()
        .any(|begin| name.starts_with(begin))
}
