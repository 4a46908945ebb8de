//! The text behind an address: function and file, each made once.

use std::sync::Arc;

use perfcollect_symbols::demangle::demangle_bare;
use perfcollect_symbols::table::Symbol;
use rustc_hash::FxHashMap;

use super::batch::{Frame, Object, ObjectId};
use super::fields::Fields;
use super::places::UNKNOWN;
use super::symbols::{FileSymbols, KernelList};

/// Addresses whose function is known: the last one of each slot.
const SLOTS: usize = 1 << 17;
/// When there are more texts, it is time to start anew.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// Where the text of a function is, its length before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text(u32);

const LENGTH_BYTES: usize = 4;

/// Texts by address.
pub(super) struct Functions {
    kernel: Arc<KernelList>,
    objects: Vec<Known>,
    slots: Box<[Slot]>,
    texts: Texts,
}

/// A frame and its text.
#[derive(Clone, Copy)]
struct Slot {
    shown: u64,
    object: ObjectId,
    text: Text,
}

/// What no frame is in.
const EMPTY: Slot = Slot {
    shown: 0,
    object: ObjectId(u32::MAX),
    text: Text(0),
};

enum Known {
    One(Text),
    Many(Many),
}

/// An object with functions.
struct Many {
    list: List,
    /// By start, as a function has many addresses.
    functions: FxHashMap<u64, Text>,
    nameless: Option<Text>,
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

    fn demangled(&self, name: &[u8], then: impl FnOnce(&[u8]) -> Text) -> Text {
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

impl Many {
    fn of(list: List) -> Known {
        Known::Many(Self {
            list,
            functions: FxHashMap::default(),
            nameless: None,
        })
    }

    fn text(&mut self, address: u64, texts: &mut Texts) -> Text {
        let Self {
            list,
            functions,
            nameless,
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
            texts: Texts {
                fields,
                bytes: Vec::new(),
            },
        }
    }

    pub(super) fn start_anew(&mut self) {
        self.objects.clear();
        self.slots.fill(EMPTY);
        self.texts.bytes.clear();
    }

    /// Whether there are so many texts that it is time to start anew.
    pub(super) fn is_full(&self) -> bool {
        self.texts.bytes.len() >= MAX_TEXT_BYTES
    }

    /// Takes in the next object.
    pub(super) fn add(&mut self, object: Object) {
        self.objects.push(match object {
            Object::One(name, path) => Known::One(self.texts.add(name.as_deref(), &path)),
            Object::File(symbols) => Many::of(List::File(symbols)),
            Object::Kernel(name) => Many::of(List::Kernel(Arc::clone(&self.kernel), name)),
        });
    }

    pub(super) fn text(&mut self, frame: Frame) -> Text {
        let many = match &mut self.objects[frame.object.0 as usize] {
            Known::One(text) => return *text,
            Known::Many(many) => many,
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

    pub(super) fn get(&self, text: Text) -> &[u8] {
        let text = &self.texts.bytes[text.0 as usize..];
        let (len, text) = text
            .split_first_chunk()
            .unwrap_or((&[0; LENGTH_BYTES], text));
        &text[..u32::from_le_bytes(*len) as usize]
    }
}

/// What stands behind the address.
struct Texts {
    fields: Fields,
    bytes: Vec<u8>,
}

impl Texts {
    fn add(&mut self, name: Option<&[u8]>, path: &[u8]) -> Text {
        let Self { fields, bytes } = self;
        let start = bytes.len();
        bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        if fields.sym {
            bytes.push(b' ');
            bytes.extend(printable(name.unwrap_or(UNKNOWN)));
        }
        if fields.dso {
            bytes.extend_from_slice(b" (");
            bytes.extend(printable(path));
            bytes.push(b')');
        }
        let len = (bytes.len() - start - LENGTH_BYTES) as u32;
        bytes[start..start + LENGTH_BYTES].copy_from_slice(&len.to_le_bytes());
        // More than that many gigabytes of names in the few batches before all are forgotten are no names.
        Text(u32::try_from(start).unwrap_or(0))
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
