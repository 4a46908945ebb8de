//! Names of dynamically generated code, by time.
//!
//! The memory of freed code is reused, so an address may belong to one method now and to another
//! one later. Runtimes generate code in processes. The kernel generates its own (BPF programs,
//! trampolines).

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::code_address::CodeAddress;
use super::distinct::Distinct;
use super::ids::{FrameId, ProcessId};
use super::spool::{KsymbolRow, MethodRow};

/// A method as the runtime named it while its code was sampled, or generated kernel code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Method {
    /// Name. Untrusted.
    pub name: Box<str>,
    /// Assembly of the method. Untrusted.
    pub module: Box<str>,
    /// How the method was compiled, as the runtime spells it.
    pub tier: Option<Box<str>>,
}

/// Identity of the code of a frame. Equal keys share a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CodeKey {
    /// A named JIT method in any process: its row in [`Methods`]'s distinct methods.
    Method(u32),
    /// Kernel code, and the number of kernel code rows before. A later row may name earlier frames.
    Kernel(u64, u32),
    /// Other code: its address, and the row of the generated code there when it was sampled.
    Address(CodeAddress, Option<u32>),
}

/// The methods of a raw trace, and the frames in each of them.
#[derive(Debug, Default)]
pub struct Methods {
    /// Distinct methods. Processes of one program have the same ones.
    distinct: Distinct<Method>,
    /// Method of the code of each row. `None` is code without a name that replaced other code.
    rows: Vec<Option<u32>>,
    /// Processes with methods that have names.
    with_names: FxHashSet<ProcessId>,
    kernel_rows: u32,
    /// Current code of each process, and of the kernel (`None`).
    current: FxHashMap<Option<ProcessId>, Ranges>,
    /// Kernel frames in no row, by address.
    ///
    /// Their code may predate the capture and be unregistered later.
    unresolved: BTreeMap<u64, Vec<FrameId>>,
    /// Row of each frame; [`NO_ROW`] for frames in no method.
    by_frame: Vec<u32>,
}

const NO_ROW: u32 = u32::MAX;

/// End address and row, by start address.
type Ranges = BTreeMap<u64, (u64, u32)>;

/// Removes every range that overlaps `start..end`. Returns whether there was one.
fn clear(ranges: &mut Ranges, start: u64, end: u64) -> bool {
    let mut any = false;
    while let Some((&first, _)) = ranges
        .range(..end)
        .next_back()
        .filter(|(_, (last, _))| *last > start)
    {
        ranges.remove(&first);
        any = true;
    }
    any
}

impl Methods {
    /// Adds a method, which replaces earlier code at its addresses.
    pub(super) fn insert(&mut self, row: &MethodRow<'_>) {
        let end = row.start.saturating_add(row.size);
        let current = self.current.entry(Some(row.process)).or_default();
        clear(current, row.start, end);
        current.insert(row.start, (end, self.rows.len() as u32));
        if !row.name.is_empty() {
            self.with_names.insert(row.process);
        }
        self.push(&row.name, &row.module, &row.tier);
    }

    /// Adds a row. Code with an empty name has none.
    fn push(&mut self, name: &[u8], module: &[u8], tier: &[u8]) {
        let method = (!name.is_empty()).then(|| {
            self.distinct.intern(Method {
                name: lossy(name),
                module: lossy(module),
                tier: (!tier.is_empty()).then(|| lossy(tier)),
            })
        });
        self.rows.push(method);
    }

    /// Adds kernel code that was registered or unregistered.
    ///
    /// The kernel reports code that predates the capture only when it unregisters that code.
    /// Earlier frames in the range then belong to it.
    pub(super) fn follow_kernel(&mut self, row: &KsymbolRow<'_>) {
        let end = row.start.saturating_add(row.size);
        if row.start >= end {
            return;
        }
        self.kernel_rows = self.kernel_rows.wrapping_add(1);
        let current = self.current.entry(None).or_default();
        let was_registered = clear(current, row.start, end);
        let id = self.rows.len() as u32;
        if !row.unregistered {
            current.insert(row.start, (end, id));
        } else if !was_registered {
            let mut rest = self.unresolved.split_off(&row.start);
            let mut after = rest.split_off(&end);
            self.unresolved.append(&mut after);
            for frame in rest.into_values().flatten() {
                self.by_frame[frame.index()] = id;
            }
        } else {
            return;
        }
        self.push(&row.name, &row.module, b"");
    }

    /// Returns what distinguishes code from other code, with the row that [`Self::find`] returned.
    pub(super) fn key(&self, code: CodeAddress, row: Option<u32>) -> CodeKey {
        let method = row.and_then(|row| *self.rows.get(row as usize)?);
        match (code, method) {
            (CodeAddress::Jit(..), Some(method)) => CodeKey::Method(method),
            (CodeAddress::Kernel(address), _) => CodeKey::Kernel(address, self.kernel_rows),
            _ => CodeKey::Address(code, row),
        }
    }

    /// Returns whether the runtime named any method of a process.
    #[must_use]
    pub fn has_names(&self, process: ProcessId) -> bool {
        self.with_names.contains(&process)
    }

    /// Adds the next frame, with the row of its method.
    pub(super) fn push_frame(&mut self, code: CodeAddress, row: Option<u32>) {
        let frame = FrameId(self.by_frame.len() as u32);
        self.by_frame.push(row.unwrap_or(NO_ROW));
        if let (CodeAddress::Kernel(address), None) = (code, row) {
            self.unresolved.entry(address).or_default().push(frame);
        }
    }

    /// Looks up frames that had no method when first sampled, as a method name may arrive late.
    pub(super) fn resolve_pending(&mut self, frames: &[CodeAddress]) {
        // The kernel reports its code in time.
        self.current.remove(&None);
        self.unresolved = BTreeMap::new();
        for (index, &code) in frames.iter().enumerate() {
            if self.by_frame[index] == NO_ROW
                && let Some(row) = self.find(code)
            {
                self.by_frame[index] = row;
            }
        }
        self.by_frame.shrink_to_fit();
        self.rows.shrink_to_fit();
        self.current = FxHashMap::default();
        self.distinct.seal();
    }

    /// Returns the row of the method that is at an address now.
    pub(super) fn find(&self, code: CodeAddress) -> Option<u32> {
        let (owner, address) = match code {
            CodeAddress::Jit(process, address) => (Some(process), address),
            CodeAddress::Kernel(address) => (None, address),
            _ => return None,
        };
        let (_, (end, row)) = self.current.get(&owner)?.range(..=address).next_back()?;
        (address < *end).then_some(*row)
    }

    /// Returns the method of a frame.
    ///
    /// Returns `None` if no code is known there, and `Some(None)` if the code has no name.
    #[must_use]
    pub fn of(&self, frame: FrameId) -> Option<Option<&Method>> {
        let row = *self.by_frame.get(frame.index())?;
        let method = *self.rows.get(row as usize)?;
        Some(method.and_then(|method| self.distinct.rows().get(method as usize)))
    }
}

fn lossy(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: ProcessId = ProcessId(1);

    fn row(start: u64, name: &str) -> MethodRow<'_> {
        MethodRow {
            process: PROCESS,
            start,
            size: 0x20,
            name: name.as_bytes().into(),
            module: b"m".into(),
            tier: b"".into(),
        }
    }

    #[test]
    fn frame_belongs_to_the_method_of_its_time() {
        let mut methods = Methods::default();
        let mut frames = Vec::new();
        let mut sample = |methods: &mut Methods, address| {
            let code = CodeAddress::Jit(PROCESS, address);
            methods.push_frame(code, methods.find(code));
            frames.push(code);
        };
        sample(&mut methods, 0x105);
        sample(&mut methods, 0x205);
        methods.insert(&row(0x100, "first"));
        sample(&mut methods, 0x105);
        sample(&mut methods, 0x120);
        methods.insert(&row(0x110, "second"));
        sample(&mut methods, 0x105);
        sample(&mut methods, 0x115);
        methods.insert(&row(0x110, ""));
        sample(&mut methods, 0x115);
        methods.resolve_pending(&frames);
        let name = |frame| {
            let method = methods.of(FrameId(frame));
            method.map(|method| method.map(|method| &*method.name))
        };
        // The first frame has no method: its method was replaced before the end.
        let expected = [
            None,
            None,
            Some(Some("first")),
            Some(None),
            None,
            Some(Some("second")),
            Some(None),
        ];
        for (frame, expected) in (0..).zip(expected) {
            assert_eq!(name(frame), expected, "{frame}");
        }
    }

    #[test]
    fn kernel_frame_belongs_to_the_code_of_its_time() {
        let mut methods = Methods::default();
        let mut frames = Vec::new();
        let mut sample = |methods: &mut Methods, address| {
            let code = CodeAddress::Kernel(address);
            methods.push_frame(code, methods.find(code));
            frames.push(code);
        };
        let row = |start, unregistered, name: &'static str| KsymbolRow {
            start,
            size: 0x20,
            unregistered,
            name: name.as_bytes().into(),
            module: b"bpf".into(),
        };
        sample(&mut methods, 0x0ff);
        sample(&mut methods, 0x100);
        sample(&mut methods, 0x120);
        // The code predates the capture.
        methods.follow_kernel(&row(0x100, true, "before"));
        sample(&mut methods, 0x100);
        methods.follow_kernel(&row(0x100, false, "first"));
        sample(&mut methods, 0x100);
        methods.follow_kernel(&row(0x100, true, "first"));
        sample(&mut methods, 0x110);
        // The kernel lost the record that unregisters this code.
        methods.follow_kernel(&row(0x110, false, "second"));
        methods.follow_kernel(&row(0x100, false, "third"));
        sample(&mut methods, 0x110);
        sample(&mut methods, 0x128);
        methods.resolve_pending(&frames);
        let names: Vec<_> = (0..frames.len() as u32)
            .map(|frame| Some(&*methods.of(FrameId(frame))??.name))
            .collect();
        let expected = [
            None,
            Some("before"),
            None,
            None,
            Some("first"),
            None,
            Some("third"),
            None,
        ];
        assert_eq!(names, expected);
    }
}
