//! What a function is called wherever it is shown, before any escaping.

use std::borrow::Cow;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::trace::{FrameId, Function, FunctionId, FunctionKind, Trace};

/// Name of the frame that stands for missing callers.
const TRUNCATED: &str = "[truncated]";

/// Behind the name of an inlined function, as `stackcollapse-perf --all` writes it.
pub(crate) const INLINED: &str = "_[i]";

/// The name of a function; without one the offset in its module, of the function or else of the address.
pub(super) fn name(trace: &Trace, frame: FrameId, function: FunctionId) -> Cow<'_, str> {
    let row = &trace.functions[function.index()];
    let offset = || trace.frames[frame.index()].offset;
    match known_name(row) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("{:#x}", row.start.unwrap_or_else(offset))),
    }
}

/// Whether a function is shown alike at all its addresses.
fn is_one_row(function: &Function) -> bool {
    known_name(function).is_some() || function.start.is_some()
}

/// The name of a function, unless only its address is known.
pub(super) fn known_name(function: &Function) -> Option<&str> {
    let name = function
        .name
        .as_deref()
        .filter(|name| !name.trim().is_empty());
    name.or((function.kind == FunctionKind::Marker).then_some(TRUNCATED))
}

/// The module of a function, or its kind of code where there is none.
pub(super) fn module(function: &Function) -> &str {
    match function.module.trim() {
        "" => module_of_kind(function.kind),
        module => module,
    }
}

/// What stands for the module of code in none.
pub(super) fn module_of_kind(kind: FunctionKind) -> &'static str {
    match kind {
        FunctionKind::Kernel => "vmlinux",
        FunctionKind::Native => "native",
        FunctionKind::Jit => "jit",
        FunctionKind::ReadyToRun => "r2r",
        FunctionKind::Unmapped => "unmapped",
        FunctionKind::Marker => "perfcollect",
    }
}

/// No row yet.
const NONE: u32 = u32::MAX;

/// Gives functions that show alike one row, whatever tier or address they have.
pub(super) struct Interner<K> {
    /// The rows, in the order they were met.
    pub(super) rows: Vec<K>,
    ids: FxHashMap<K, u32>,
    /// Rows of the functions with a name or a start; the others have one per address.
    of_function: Vec<u32>,
    /// Rows by the position in [`Trace::frame_functions`].
    of_place: Vec<u32>,
}

impl<K: Clone + Eq + Hash> Interner<K> {
    pub(super) fn new(trace: &Trace) -> Self {
        Self {
            rows: Vec::new(),
            ids: FxHashMap::default(),
            of_function: vec![NONE; trace.functions.len()],
            of_place: vec![NONE; trace.frame_functions.len()],
        }
    }

    /// The row of `key`.
    pub(super) fn intern(&mut self, key: K) -> u32 {
        *self.ids.entry(key).or_insert_with_key(|key| {
            self.rows.push(key.clone());
            self.rows.len() as u32 - 1
        })
    }

    /// The row of a function of a frame, by its position in [`Trace::frame_functions`]; `key` makes its key and runs once at most.
    pub(super) fn row(
        &mut self,
        trace: &Trace,
        place: u32,
        key: impl FnOnce(FunctionId) -> K,
    ) -> u32 {
        let known = self.of_place[place as usize];
        if known != NONE {
            return known;
        }
        let function = trace.frame_functions[place as usize];
        let row = match self.of_function[function.index()] {
            NONE => self.intern(key(function)),
            row => row,
        };
        if is_one_row(&trace.functions[function.index()]) {
            self.of_function[function.index()] = row;
        }
        self.of_place[place as usize] = row;
        row
    }
}
