//! Display names of functions and modules, before escaping.

use std::borrow::Cow;
use std::hash::Hash;

use crate::trace::{Distinct, FrameId, Function, FunctionId, FunctionKind, Trace};

/// Name of the frame that represents missing callers.
const TRUNCATED: &str = "[truncated]";

/// Suffix of an inlined function's name, as `stackcollapse-perf --all` writes it.
pub(crate) const INLINED: &str = "_[i]";

/// Returns the name of a function.
///
/// Without a name, returns the offset in the module: of the function if its start is known, else of
/// the address.
pub(crate) fn name(trace: &Trace, frame: FrameId, function: FunctionId) -> Cow<'_, str> {
    let row = &trace.functions[function.index()];
    let offset = || trace.frames[frame.index()].offset;
    match known_name(row) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("{:#x}", row.start.unwrap_or_else(offset))),
    }
}

/// Returns whether a function has the same display name at all its addresses.
fn is_one_row(function: &Function) -> bool {
    known_name(function).is_some() || function.start.is_some()
}

/// Returns the name of a function, or `None` if only its address is known.
pub(crate) fn known_name(function: &Function) -> Option<&str> {
    let name = function
        .name
        .as_deref()
        .filter(|name| !name.trim().is_empty());
    name.or((function.kind == FunctionKind::Marker).then_some(TRUNCATED))
}

/// Returns the module of a function, or its kind of code if it has no module.
pub(crate) fn module(function: &Function) -> &str {
    match function.module.trim() {
        "" => module_of_kind(function.kind),
        module => module,
    }
}

/// Returns the module name for code without a module; a group has none.
pub(super) fn module_of_kind(kind: FunctionKind) -> &'static str {
    match kind {
        FunctionKind::Kernel => "vmlinux",
        FunctionKind::Native => "native",
        FunctionKind::Jit => "jit",
        FunctionKind::ReadyToRun => "r2r",
        FunctionKind::Unmapped => "unmapped",
        FunctionKind::Marker | FunctionKind::Blocked => "perfcollect",
        FunctionKind::Group => "",
    }
}

/// Marker for a missing row.
const NONE: u32 = u32::MAX;

/// Assigns one row to all functions with the same key, regardless of tier and address.
pub(crate) struct Interner<K> {
    keys: Distinct<K>,
    /// Rows of the functions with a name or a known start. Other functions have one row per
    /// address.
    by_function: Vec<u32>,
    /// Rows by index in [`Trace::frame_functions`].
    by_entry: Vec<u32>,
}

impl<K: Eq + Hash> Interner<K> {
    pub(crate) fn new(trace: &Trace) -> Self {
        Self {
            keys: Distinct::default(),
            by_function: vec![NONE; trace.functions.len()],
            by_entry: vec![NONE; trace.frame_functions.len()],
        }
    }

    /// Returns the row of `key`. Adds a row if it is new.
    pub(crate) fn intern(&mut self, key: K) -> u32 {
        self.keys.intern(key)
    }

    /// Returns the keys, in the order of their first use.
    pub(crate) fn rows(&self) -> &[K] {
        self.keys.rows()
    }

    pub(crate) fn into_rows(self) -> Vec<K> {
        self.keys.into_rows()
    }

    /// Returns the row of a frame's function, by its index in [`Trace::frame_functions`].
    ///
    /// Calls `key` at most once, to create the key.
    pub(crate) fn row(
        &mut self,
        trace: &Trace,
        entry: u32,
        key: impl FnOnce(FunctionId) -> K,
    ) -> u32 {
        let cached = self.by_entry[entry as usize];
        if cached != NONE {
            return cached;
        }
        let function = trace.frame_functions[entry as usize];
        let row = match self.by_function[function.index()] {
            NONE => self.intern(key(function)),
            row => row,
        };
        if is_one_row(&trace.functions[function.index()]) {
            self.by_function[function.index()] = row;
        }
        self.by_entry[entry as usize] = row;
        row
    }
}
