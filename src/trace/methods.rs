//! What code made at run time is, by time: memory of freed code is used again, so an address may stand for one method
//! now and for another later.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::ids::{FrameId, ProcessId};
use super::recorder::CodeAddress;
use super::spool::MethodRow;

/// A method as the runtime named it while its code was sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name. Text from outside.
    pub name: Box<str>,
    /// The assembly it is of. Text from outside.
    pub module: Box<str>,
    /// How it was compiled, in the runtime's word.
    pub tier: Option<Box<str>>,
}

/// The methods of a recording, and which frames are in which.
#[derive(Debug, Default)]
pub struct Methods {
    /// `None`: code that took the place of other and has no name.
    rows: Vec<Option<Method>>,
    /// By process and start: the end, and the row.
    now: FxHashMap<ProcessId, BTreeMap<u64, (u64, u32)>>,
    /// By frame; frames in no method are not in it.
    of_frame: FxHashMap<FrameId, u32>,
    frames: u32,
}

impl Methods {
    /// Takes in what code is from now on, in place of what it was before.
    pub(super) fn insert(&mut self, row: &MethodRow<'_>) {
        let end = row.start.saturating_add(row.size);
        let now = self.now.entry(row.process).or_default();
        while let Some((&start, _)) = now
            .range(..end)
            .next_back()
            .filter(|(_, (behind, _))| *behind > row.start)
        {
            now.remove(&start);
        }
        now.insert(row.start, (end, self.rows.len() as u32));
        let text = |bytes| -> Box<str> { String::from_utf8_lossy(bytes).into() };
        self.rows.push((!row.name.is_empty()).then(|| Method {
            name: text(&row.name),
            module: text(&row.module),
            tier: (!row.tier.is_empty()).then(|| text(&row.tier)),
        }));
    }

    /// Takes in the next frame.
    pub(super) fn meet(&mut self, code: CodeAddress) {
        let frame = FrameId(self.frames);
        self.frames += 1;
        if let Some(row) = self.at(code) {
            self.of_frame.insert(frame, row);
        }
    }

    /// Gives frames that were in no method when they were met what is known at the end: a name may come late.
    pub(super) fn settle(&mut self, frames: &[CodeAddress]) {
        for (&code, frame) in frames.iter().zip(0..) {
            if let Some(row) = self.at(code) {
                self.of_frame.entry(FrameId(frame)).or_insert(row);
            }
        }
        self.now = FxHashMap::default();
    }

    fn at(&self, code: CodeAddress) -> Option<u32> {
        let CodeAddress::Jit(process, address) = code else {
            return None;
        };
        let (_, (end, row)) = self.now.get(&process)?.range(..=address).next_back()?;
        (address < *end).then_some(*row)
    }

    /// The method that a frame lies in. `None`: none is known; `Some(None)`: it is known that the name is not.
    #[must_use]
    pub fn of(&self, frame: FrameId) -> Option<Option<&Method>> {
        let row = self.of_frame.get(&frame)?;
        self.rows.get(*row as usize).map(Option::as_ref)
    }
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
    fn a_frame_is_in_the_method_of_its_time() {
        let mut methods = Methods::default();
        let mut frames = Vec::new();
        let mut meet = |methods: &mut Methods, address| {
            let code = CodeAddress::Jit(PROCESS, address);
            methods.meet(code);
            frames.push(code);
        };
        meet(&mut methods, 0x105);
        meet(&mut methods, 0x205);
        methods.insert(&row(0x100, "first"));
        meet(&mut methods, 0x105);
        meet(&mut methods, 0x120);
        methods.insert(&row(0x110, "second"));
        meet(&mut methods, 0x105);
        meet(&mut methods, 0x115);
        methods.insert(&row(0x110, ""));
        meet(&mut methods, 0x115);
        methods.settle(&frames);
        let name = |frame| {
            let method = methods.of(FrameId(frame));
            method.map(|method| method.map(|method| &*method.name))
        };
        // The first one has no method: what it would have got was replaced.
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
}
