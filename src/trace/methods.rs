//! What code made at run time is, by time: memory of freed code is used again, so an address may stand for one method
//! now and for another later. Runtimes make such code in processes, and the kernel in itself (BPF programs, trampolines).

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::ids::{FrameId, ProcessId};
use super::recorder::CodeAddress;
use super::spool::{KsymbolRow, MethodRow};

/// A method as the runtime named it while its code was sampled, or code of the kernel's.
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
    /// By start: the end, and the row. Of each process, and of the kernel.
    now: FxHashMap<Option<ProcessId>, Ranges>,
    /// Frames in the kernel that are in no row, by address: what they are in may have been there before, and go.
    open: BTreeMap<u64, Vec<FrameId>>,
    /// By frame; frames in no method are not in it.
    of_frame: FxHashMap<FrameId, u32>,
    frames: u32,
}

type Ranges = BTreeMap<u64, (u64, u32)>;

/// Takes out what lies in a range, in whole or in part; whether there was any.
fn clear(ranges: &mut Ranges, start: u64, end: u64) -> bool {
    let mut any = false;
    while let Some((&first, _)) = ranges
        .range(..end)
        .next_back()
        .filter(|(_, (behind, _))| *behind > start)
    {
        ranges.remove(&first);
        any = true;
    }
    any
}

impl Methods {
    /// Takes in what code is from now on, in place of what it was before.
    pub(super) fn insert(&mut self, row: &MethodRow<'_>) {
        let end = row.start.saturating_add(row.size);
        let now = self.now.entry(Some(row.process)).or_default();
        clear(now, row.start, end);
        now.insert(row.start, (end, self.rows.len() as u32));
        self.rows.push((!row.name.is_empty()).then(|| Method {
            name: text(&row.name),
            module: text(&row.module),
            tier: (!row.tier.is_empty()).then(|| text(&row.tier)),
        }));
    }

    /// Takes in what code of the kernel came or went. What came before the recording is told when it goes: it is what the frames
    /// there were in.
    pub(super) fn follow_kernel(&mut self, row: &KsymbolRow<'_>) {
        let end = row.start.saturating_add(row.size);
        if row.start >= end {
            return;
        }
        let now = self.now.entry(None).or_default();
        let was_known = clear(now, row.start, end);
        let id = self.rows.len() as u32;
        if !row.gone {
            now.insert(row.start, (end, id));
        } else if !was_known {
            let mut rest = self.open.split_off(&row.start);
            let mut behind = rest.split_off(&end);
            self.open.append(&mut behind);
            let frames = rest.into_values().flatten();
            self.of_frame.extend(frames.map(|frame| (frame, id)));
        } else {
            return;
        }
        self.rows.push((!row.name.is_empty()).then(|| Method {
            name: text(&row.name),
            module: text(&row.module),
            tier: None,
        }));
    }

    /// Takes in the next frame.
    pub(super) fn push_frame(&mut self, code: CodeAddress) {
        let frame = FrameId(self.frames);
        self.frames += 1;
        if let Some(row) = self.at(code) {
            self.of_frame.insert(frame, row);
        } else if let CodeAddress::Kernel(address) = code {
            self.open.entry(address).or_default().push(frame);
        }
    }

    /// Gives frames that were in no method when they were met what is known at the end: a name may come late.
    pub(super) fn resolve_pending(&mut self, frames: &[CodeAddress]) {
        // The kernel tells on time.
        self.now.remove(&None);
        self.open = BTreeMap::new();
        for (&code, frame) in frames.iter().zip(0..) {
            if let Some(row) = self.at(code) {
                self.of_frame.entry(FrameId(frame)).or_insert(row);
            }
        }
        self.now = FxHashMap::default();
    }

    fn at(&self, code: CodeAddress) -> Option<u32> {
        let (owner, address) = match code {
            CodeAddress::Jit(process, address) => (Some(process), address),
            CodeAddress::Kernel(address) => (None, address),
            _ => return None,
        };
        let (_, (end, row)) = self.now.get(&owner)?.range(..=address).next_back()?;
        (address < *end).then_some(*row)
    }

    /// The method that a frame lies in. `None`: none is known; `Some(None)`: it is known that the name is not.
    #[must_use]
    pub fn of(&self, frame: FrameId) -> Option<Option<&Method>> {
        let row = self.of_frame.get(&frame)?;
        self.rows.get(*row as usize).map(Option::as_ref)
    }
}

fn text(bytes: &[u8]) -> Box<str> {
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
    fn a_frame_is_in_the_method_of_its_time() {
        let mut methods = Methods::default();
        let mut frames = Vec::new();
        let mut meet = |methods: &mut Methods, address| {
            let code = CodeAddress::Jit(PROCESS, address);
            methods.push_frame(code);
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
        methods.resolve_pending(&frames);
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

    #[test]
    fn a_frame_in_the_kernel_is_in_the_code_of_its_time() {
        let mut methods = Methods::default();
        let mut frames = Vec::new();
        let mut meet = |methods: &mut Methods, address| {
            let code = CodeAddress::Kernel(address);
            methods.push_frame(code);
            frames.push(code);
        };
        let row = |start, gone, name: &'static str| KsymbolRow {
            start,
            size: 0x20,
            gone,
            name: name.as_bytes().into(),
            module: b"bpf".into(),
        };
        meet(&mut methods, 0x0ff);
        meet(&mut methods, 0x100);
        meet(&mut methods, 0x120);
        // It was there before.
        methods.follow_kernel(&row(0x100, true, "before"));
        meet(&mut methods, 0x100);
        methods.follow_kernel(&row(0x100, false, "first"));
        meet(&mut methods, 0x100);
        methods.follow_kernel(&row(0x100, true, "first"));
        meet(&mut methods, 0x110);
        // That it went was lost.
        methods.follow_kernel(&row(0x110, false, "second"));
        methods.follow_kernel(&row(0x100, false, "third"));
        meet(&mut methods, 0x110);
        meet(&mut methods, 0x128);
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
