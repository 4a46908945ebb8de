//! The text behind an address: function and file, each made once.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use perfcollect_symbols::demangle::demangle_bare;
use perfcollect_symbols::symbolizer;
use perfcollect_symbols::table::Symbol;
use rustc_hash::FxHashMap;

use super::address::put_address;
use super::address_resolver::UNKNOWN;
use super::batch::{Frame, Object, ObjectId};
use super::fields::Fields;
use super::symbols::{FileSymbols, KernelList};
use crate::symbolize::problems::unavailable;
use crate::symbolize::unresolved::{self, Unresolved};
use crate::trace::Notice;

/// Addresses whose function is known: the last one of each slot.
const SLOTS: usize = 1 << 17;
/// When there are more texts, it is time to start anew.
const MAX_TEXT_BYTES: usize = 16 << 20;
/// Addresses of an object that are kept with what was inlined there.
const MAX_ADDRESSES: usize = 1 << 16;
/// Bytes of what was inlined at one address; of more, the innermost is shown.
const MAX_INLINED_BYTES: usize = 64 << 10;
/// Faults of debug files that are told.
const MAX_FAULTS: usize = 64;
/// Files that are told of as unread.
const MAX_GAPS: usize = 1 << 12;

/// Where the text of a function is, its length before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StringRef(u32);

const LENGTH_BYTES: usize = 4;

/// Texts by address.
pub(super) struct Functions {
    kernel: Arc<KernelList>,
    objects: Vec<CachedObject>,
    slots: Box<[Slot]>,
    texts: StringArena,
    /// Why names or functions that were inlined are not all shown.
    faults: BTreeSet<String>,
    /// Files that could not be read.
    gaps: BTreeSet<Unresolved>,
}

/// A frame and its text.
#[derive(Clone, Copy)]
struct Slot {
    shown: u64,
    object: ObjectId,
    text: StringRef,
}

/// What no frame is in.
const EMPTY: Slot = Slot {
    shown: 0,
    object: ObjectId(u32::MAX),
    text: StringRef(0),
};

enum CachedObject {
    One(StringRef),
    Many(SymbolizedObject),
}

/// An object with functions.
struct SymbolizedObject {
    list: List,
    /// By start, as a function has many addresses.
    functions: FxHashMap<u64, StringRef>,
    nameless: Option<StringRef>,
    /// By address, with what was inlined there.
    inlined: FxHashMap<u64, StringRef>,
}

enum List {
    File(Arc<FileSymbols>),
    Kernel(Arc<KernelList>, Arc<[u8]>),
}

impl List {
    fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        match self {
            Self::File(symbols) => symbols.lookup(address),
            Self::Kernel(list, _) => list.lookup(address),
        }
    }

    fn demangled(&self, name: &[u8], then: impl FnOnce(&[u8]) -> StringRef) -> StringRef {
        match self {
            Self::File(_) => then(demangle_bare(name).as_bytes()),
            Self::Kernel(..) => then(name),
        }
    }

    fn path(&self) -> &[u8] {
        match self {
            Self::File(symbols) => symbols.path(),
            Self::Kernel(_, name) => name,
        }
    }
}

impl SymbolizedObject {
    fn of(list: List) -> CachedObject {
        CachedObject::Many(Self {
            list,
            functions: FxHashMap::default(),
            nameless: None,
            inlined: FxHashMap::default(),
        })
    }

    fn text(&mut self, address: u64, texts: &mut StringArena) -> StringRef {
        let Self {
            list,
            functions,
            nameless,
            ..
        } = self;
        match list.lookup(address) {
            Some(symbol) => *functions.entry(symbol.start).or_insert_with(|| {
                list.demangled(symbol.name, |name| texts.add(Some(name), list.path()))
            }),
            None => *nameless.get_or_insert_with(|| texts.add(None, list.path())),
        }
    }
}

impl Functions {
    pub(super) fn new(fields: Fields, kernel: Arc<KernelList>) -> Self {
        Self {
            kernel,
            objects: Vec::new(),
            slots: vec![EMPTY; SLOTS].into(),
            texts: StringArena {
                fields,
                bytes: Vec::new(),
            },
            faults: BTreeSet::new(),
            gaps: BTreeSet::new(),
        }
    }

    pub(super) fn reset(&mut self) {
        self.learn_faults();
        self.objects.clear();
        self.slots.fill(EMPTY);
        self.texts.bytes.clear();
    }

    /// Whether there are so many texts that it is time to start anew.
    pub(super) fn is_full(&self) -> bool {
        self.texts.bytes.len() >= MAX_TEXT_BYTES
    }

    /// Why names are missing, in words.
    pub(super) fn into_faults(mut self) -> Vec<String> {
        self.learn_faults();
        let unread = unresolved::notices(self.gaps).into_iter().map(words);
        let more = (self.faults.len() >= MAX_FAULTS).then(|| "and maybe more of the kind".into());
        unread.chain(self.faults).chain(more).collect()
    }

    /// What was not used for the names of the files that are known now.
    fn learn_faults(&mut self) {
        for object in &self.objects {
            let CachedObject::Many(SymbolizedObject {
                list: List::File(symbols),
                ..
            }) = object
            else {
                continue;
            };
            let problems = symbols.take_problems();
            let left = MAX_FAULTS.saturating_sub(self.faults.len());
            let faults = problems.notices.into_iter().map(words);
            self.faults.extend(faults.take(left));
            let left = MAX_GAPS.saturating_sub(self.gaps.len());
            self.gaps.extend(problems.gaps.into_iter().take(left));
        }
    }

    /// Takes in the next object.
    pub(super) fn add(&mut self, object: Object) {
        if let Object::File(symbols) = &object
            && let Some(gap) = unavailable(&symbols.file)
            && self.gaps.len() < MAX_GAPS
        {
            self.gaps.insert(gap);
        }
        self.objects.push(match object {
            Object::One(name, path) => CachedObject::One(self.texts.add(name.as_deref(), &path)),
            Object::File(symbols) => SymbolizedObject::of(List::File(symbols)),
            Object::Kernel(name) => {
                SymbolizedObject::of(List::Kernel(Arc::clone(&self.kernel), name))
            }
        });
    }

    pub(super) fn text(&mut self, frame: Frame) -> StringRef {
        let many = match &mut self.objects[frame.object.0 as usize] {
            CachedObject::One(text) => return *text,
            CachedObject::Many(many) => many,
        };
        let slot = &mut self.slots[slot(frame)];
        if (slot.shown, slot.object) != (frame.shown, frame.object) {
            *slot = Slot {
                shown: frame.shown,
                object: frame.object,
                text: many.text(frame.shown, &mut self.texts),
            };
        }
        slot.text
    }

    /// The text of a frame behind those of the functions that were inlined there, each with a line of its own.
    pub(super) fn with_inlined(&mut self, frame: Frame) -> StringRef {
        let text = self.text(frame);
        let CachedObject::Many(SymbolizedObject {
            list: List::File(symbols),
            inlined,
            ..
        }) = &mut self.objects[frame.object.0 as usize]
        else {
            return text;
        };
        if inlined.len() >= MAX_ADDRESSES {
            inlined.clear();
        }
        let texts = &mut self.texts;
        *inlined.entry(frame.shown).or_insert_with(|| {
            let frames = symbols.inlined(frame.shown);
            match &frames[..] {
                [] => text,
                frames => texts.add_inlined(frames, frame.shown, text),
            }
        })
    }

    pub(super) fn get(&self, text: StringRef) -> &[u8] {
        &self.texts.bytes[self.texts.place(text)]
    }
}

/// What there is to tell, on one line.
pub(super) fn words(notice: Notice) -> String {
    match &*notice.remedy {
        "" => notice.what,
        remedy => format!("{}; {remedy}", notice.what),
    }
}

/// What stands behind the address.
struct StringArena {
    fields: Fields,
    bytes: Vec<u8>,
}

impl StringArena {
    fn add(&mut self, name: Option<&[u8]>, path: &[u8]) -> StringRef {
        let start = self.begin();
        let Self { fields, bytes } = self;
        if fields.sym {
            bytes.push(b' ');
            bytes.extend(printable(name.unwrap_or(UNKNOWN)));
        }
        if fields.dso {
            bytes.extend_from_slice(b" (");
            bytes.extend(printable(path));
            bytes.push(b')');
        }
        self.end(start)
    }

    /// Lines of functions inlined at an address, the first without it, and `outer` at the end.
    fn add_inlined(
        &mut self,
        frames: &[symbolizer::Frame<'_>],
        address: u64,
        outer: StringRef,
    ) -> StringRef {
        let start = self.begin();
        for frame in frames {
            if self.bytes.len() - start > MAX_INLINED_BYTES {
                break;
            }
            if self.fields.sym {
                self.bytes.push(b' ');
                self.bytes
                    .extend(printable(demangle_bare(&frame.symbol).as_bytes()));
            }
            self.bytes.extend_from_slice(b" (inlined)\n");
            put_address::<b'\t'>(address, &mut self.bytes);
        }
        self.bytes.extend_from_within(self.place(outer));
        self.end(start)
    }

    fn begin(&mut self) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        start
    }

    fn end(&mut self, start: usize) -> StringRef {
        let bytes = &mut self.bytes;
        let len = (bytes.len() - start - LENGTH_BYTES) as u32;
        bytes[start..start + LENGTH_BYTES].copy_from_slice(&len.to_le_bytes());
        // More than that many gigabytes of names in the few batches before all are forgotten are no names.
        StringRef(u32::try_from(start).unwrap_or(0))
    }

    /// Where a text is.
    fn place(&self, text: StringRef) -> Range<usize> {
        let start = text.0 as usize;
        let behind = start + LENGTH_BYTES;
        let len = self.bytes.get(start..).and_then(<[u8]>::first_chunk);
        behind..behind + len.map_or(0, |len| u32::from_le_bytes(*len) as usize)
    }
}

/// Names come from outside: none may begin a line.
fn printable(name: &[u8]) -> impl Iterator<Item = u8> + '_ {
    name.iter().map(|&byte| match byte {
        0..0x20 | 0x7f => b'?',
        byte => byte,
    })
}

fn slot(frame: Frame) -> usize {
    let mixed = (frame.shown ^ u64::from(frame.object.0) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - SLOTS.ilog2())) as usize
}
