//! The text printed after an address: function and file, each formatted once.

use std::borrow::Cow;
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
use crate::output::sanitize::is_unprintable;
use crate::symbolize::problems::unavailable;
use crate::symbolize::unresolved::{self, Unresolved};
use crate::trace::Notice;

/// Cached addresses: the latest one of each slot.
const SLOTS: usize = 1 << 17;
/// Text size at which the caches are reset, in bytes.
const MAX_TEXT_BYTES: usize = 16 << 20;
/// Maximum number of addresses per object whose inlined functions are cached.
const MAX_ADDRESSES: usize = 1 << 16;
/// Limit of the inlined functions at one address, in bytes; the innermost are shown.
const MAX_INLINED_BYTES: usize = 64 << 10;
/// Maximum number of reported problems with debug files.
const MAX_FAULTS: usize = 64;
/// Maximum number of reported unreadable files.
const MAX_GAPS: usize = 1 << 12;

/// Position of a function's text, which its length precedes.
#[derive(Clone, Copy, Debug)]
pub(super) struct StringRef(u32);

const LENGTH_BYTES: usize = 4;

/// Texts by address.
pub(super) struct Functions {
    kernel: Arc<KernelList>,
    objects: Vec<CachedObject>,
    slots: Box<[Slot]>,
    texts: StringArena,
    /// Reasons for missing names and inlined functions.
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

/// A slot that matches no frame.
const EMPTY: Slot = Slot {
    shown: 0,
    object: ObjectId(u32::MAX),
    text: StringRef(0),
};

enum CachedObject {
    One(StringRef),
    Many(SymbolizedObject),
}

/// An object with symbols.
struct SymbolizedObject {
    list: List,
    /// By start, because a function has many addresses.
    functions: FxHashMap<u64, StringRef>,
    nameless: Option<StringRef>,
    /// By address, with the functions inlined there.
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

    /// Returns whether the texts are so large that the caches must be reset.
    pub(super) fn is_full(&self) -> bool {
        self.texts.bytes.len() >= MAX_TEXT_BYTES
    }

    /// Returns the reasons for missing names.
    pub(super) fn into_faults(mut self) -> Vec<String> {
        self.learn_faults();
        let unread = unresolved::notices(self.gaps).into_iter().map(words);
        let more = (self.faults.len() >= MAX_FAULTS).then(|| "and maybe more of the kind".into());
        unread.chain(self.faults).chain(more).collect()
    }

    /// Returns the problems of the currently cached files.
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

    /// Adds the next object.
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

    /// Returns the text of a frame, after those of the functions inlined there, one line each.
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

/// Formats a problem on one line.
pub(super) fn words(notice: Notice) -> String {
    match &*notice.remedy {
        "" => notice.what,
        remedy => format!("{}; {remedy}", notice.what),
    }
}

/// Formats the text after an address.
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
            bytes.extend_from_slice(&printable(name.unwrap_or(UNKNOWN)));
        }
        if fields.dso {
            bytes.extend_from_slice(b" (");
            bytes.extend_from_slice(&printable(path));
            bytes.push(b')');
        }
        self.end(start)
    }

    /// Returns the lines of the functions inlined at an address, the first without the address, and
    /// `outer` last.
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
                    .extend_from_slice(&printable(demangle_bare(&frame.symbol).as_bytes()));
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
        // The caches are reset long before the texts reach 4 GiB.
        StringRef(u32::try_from(start).unwrap_or(0))
    }

    /// Returns the position of a text.
    fn place(&self, text: StringRef) -> Range<usize> {
        let start = text.0 as usize;
        let first = start + LENGTH_BYTES;
        let len = self.bytes.get(start..).and_then(<[u8]>::first_chunk);
        first..first + len.map_or(0, |len| u32::from_le_bytes(*len) as usize)
    }
}

/// Names are untrusted: none may start a line or change how a terminal shows the others.
pub(super) fn printable(name: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = |byte: &u8| matches!(byte, b' '..0x7f);
    if name.iter().all(is_plain) {
        return name.into();
    }
    let mut out = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            let c = if is_unprintable(c) { '?' } else { c };
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        // Bytes that are no UTF-8 are as perf prints them, but for the controls among them.
        let others = chunk.invalid().iter();
        out.extend(others.map(|byte| {
            if matches!(byte, 0x80..0xa0) {
                b'?'
            } else {
                *byte
            }
        }));
    }
    out.into()
}

fn slot(frame: Frame) -> usize {
    let mixed = (frame.shown ^ u64::from(frame.object.0) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - SLOTS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_character_that_changes_the_terminal() {
        for (name, expected) in [
            (&b"plain name"[..], &b"plain name"[..]),
            (b"a\nb\x7f", b"a?b?"),
            ("a\u{9b}31m\u{202e}é".as_bytes(), "a?31m?é".as_bytes()),
            (b"\x9b31m\xff", b"?31m\xff"),
        ] {
            assert_eq!(*printable(name), *expected);
        }
    }
}
