//! Where the kernel of a recording and its modules lay.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::{Object, ObjectId};
use super::symbols::KernelList;
use crate::perf::{Ksymbol, MmapRecord};
use crate::perf_data::RecordingInfo;

/// What the kernel's own mapping is called; the name of a symbol follows.
const PROPER: &[u8] = b"[kernel.kallsyms]";
/// How long the kernel may be with all that its mapping does not tell: the functions of its start, in which idle CPUs still are,
/// lie behind the others.
const IMAGE_BYTES: u64 = 64 << 20;
/// Modules, and pieces of the kernel.
const MAX_RANGES: usize = 1 << 16;

/// Where the kernel's code is.
#[derive(Default)]
pub(super) struct Kernel {
    /// By start.
    ranges: Vec<(u64, Range)>,
    /// The path of the kernel that perf shows.
    path: Option<Arc<[u8]>>,
    /// What the kernel made at run time and is there now, by start.
    made: BTreeMap<u64, Range>,
    /// Whether the list of functions is that of another kernel, or of another start of it.
    pub(super) is_another: bool,
    /// Whether its own mapping was there, by which that is known.
    pub(super) is_checked: bool,
    /// Whether somebody has asked for an address that the list would name.
    pub(super) is_asked: bool,
}

struct Range {
    end: u64,
    name: Arc<[u8]>,
    /// Whether it is the kernel itself.
    is_proper: bool,
    /// Once somebody has asked for it.
    object: Option<ObjectId>,
}

impl Range {
    fn new(end: u64, name: impl Into<Arc<[u8]>>) -> Self {
        Self {
            end,
            name: name.into(),
            is_proper: false,
            object: None,
        }
    }
}

impl Kernel {
    /// Takes in a mapping of the kernel's. Of the kernel, and of a module, whose build id the recording lists, perf shows the path
    /// that is listed.
    pub(super) fn map(&mut self, mapping: &MmapRecord<'_>, about: &RecordingInfo) {
        if self.ranges.len() >= MAX_RANGES {
            return;
        }
        let end = mapping.start.saturating_add(mapping.len);
        let is_proper = mapping.path.starts_with(PROPER);
        let range = match &about.kernel {
            Some((path, _)) if is_proper => {
                let path = self.path.get_or_insert_with(|| (**path).into());
                Range::new(end, Arc::clone(path))
            }
            None if is_proper => Range::new(end, PROPER),
            _ if about.build_ids.contains_key(mapping.path) => Range::new(end, mapping.path),
            _ => Range::new(end, module_name(mapping.path)),
        };
        let range = Range { is_proper, ..range };
        let at = self.ranges.partition_point(|range| range.0 < mapping.start);
        self.ranges.insert(at, (mapping.start, range));
    }

    /// Takes in code that came or went.
    pub(super) fn follow(&mut self, code: &Ksymbol<'_>) {
        if code.gone {
            self.made.remove(&code.start);
        } else if self.made.len() < MAX_RANGES {
            let end = code.start.saturating_add(code.len.into());
            // A recording of one process does not tell that others' went.
            self.made
                .retain(|start, range| range.end <= code.start || end <= *start);
            self.made.insert(code.start, Range::new(end, code.name));
        }
    }

    /// What an address lies in; `new` numbers what nobody has asked for. Code made at run time is an object of its own,
    /// with the name of its only function.
    pub(super) fn object(
        &mut self,
        ip: u64,
        new: impl FnOnce(Object) -> ObjectId,
    ) -> Option<ObjectId> {
        let mut made = self.made.range_mut(..=ip);
        if let Some((_, range)) = made.next_back()
            && ip < range.end
        {
            let name = &range.name;
            let object = || new(Object::One(Some((**name).into()), (**name).into()));
            return Some(*range.object.get_or_insert_with(object));
        }
        let behind = self.ranges.partition_point(|range| range.0 <= ip);
        let (start, range) = self.ranges.get_mut(behind.checked_sub(1)?)?;
        let end = match range.is_proper {
            true => range.end.max(start.saturating_add(IMAGE_BYTES)),
            false => range.end,
        };
        let Self {
            is_another,
            is_asked,
            ..
        } = self;
        let object = || {
            *is_asked = true;
            match is_another {
                true => new(Object::One(None, (*range.name).into())),
                false => new(Object::Kernel(Arc::clone(&range.name))),
            }
        };
        (ip < end).then(|| *range.object.get_or_insert_with(object))
    }

    /// The function at an address, and where it starts.
    pub(super) fn function<'a>(&'a self, ip: u64, list: &'a KernelList) -> Option<(&'a [u8], u64)> {
        if let Some((start, range)) = self.made.range(..=ip).next_back()
            && ip < range.end
        {
            return Some((&range.name, *start));
        }
        let symbol = list.lookup(ip).filter(|_| !self.is_another)?;
        Some((symbol.name, symbol.start))
    }

    /// All are to be numbered anew.
    pub(super) fn reset(&mut self) {
        let ranges = self.ranges.iter_mut().map(|(_, range)| range);
        for range in ranges.chain(self.made.values_mut()) {
            range.object = None;
        }
    }
}

/// `/lib/modules/6.1/kernel/fs/ext4/ext4.ko.xz` is `[ext4]`.
fn module_name(path: &[u8]) -> Vec<u8> {
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let suffix = file.windows(3).position(|suffix| suffix == b".ko");
    let Some(suffix) = suffix else {
        return path.into();
    };
    let name = file[..suffix].iter().map(|&byte| match byte {
        b'-' => b'_',
        byte => byte,
    });
    [b'['].into_iter().chain(name).chain([b']']).collect()
}
