//! Addresses of the kernel and its modules in a recording.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::{Object, ObjectId};
use super::symbols::KernelList;
use crate::perf::{Ksymbol, MmapRecord};
use crate::perf_data::RecordingInfo;

/// Name of the kernel's own mapping; the name of a symbol follows.
const PROPER: &[u8] = b"[kernel.kallsyms]";
/// Size limit of the kernel image. Its mapping does not include the init functions at the end, in
/// which idle CPUs still are.
const IMAGE_BYTES: u64 = 64 << 20;
/// Maximum number of modules and parts of the kernel.
const MAX_RANGES: usize = 1 << 16;

/// Ranges of kernel code.
#[derive(Default)]
pub(super) struct Kernel {
    /// By start.
    ranges: Vec<(u64, Range)>,
    /// The kernel's path as perf prints it.
    path: Option<Arc<[u8]>>,
    /// Dynamically generated kernel code (BPF) that is currently registered, by start.
    made: BTreeMap<u64, Range>,
    /// Whether the symbol list is of another kernel, or of another boot.
    pub(super) is_another: bool,
    /// Whether the kernel's own mapping, which verifies this, was there.
    pub(super) is_checked: bool,
    /// Whether an address that the list may resolve was requested.
    pub(super) is_asked: bool,
}

struct Range {
    end: u64,
    name: Arc<[u8]>,
    /// Whether this is the kernel itself.
    is_proper: bool,
    /// Set at the first request.
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
    /// Adds a mapping of the kernel. For the kernel, and for modules with a build id in the
    /// recording, perf prints the recorded path.
    pub(super) fn map(&mut self, mapping: &MmapRecord<'_>, info: &RecordingInfo) {
        if self.ranges.len() >= MAX_RANGES {
            return;
        }
        let end = mapping.start.saturating_add(mapping.len);
        let is_proper = mapping.path.starts_with(PROPER);
        let range = match &info.kernel {
            Some((path, _)) if is_proper => {
                let path = self.path.get_or_insert_with(|| (**path).into());
                Range::new(end, Arc::clone(path))
            }
            None if is_proper => Range::new(end, PROPER),
            _ if info.build_ids.contains_key(mapping.path) => Range::new(end, mapping.path),
            _ => Range::new(end, module_name(mapping.path)),
        };
        let range = Range { is_proper, ..range };
        let at = self.ranges.partition_point(|range| range.0 < mapping.start);
        self.ranges.insert(at, (mapping.start, range));
    }

    /// Adds or removes code that was registered or unregistered.
    pub(super) fn follow(&mut self, code: &Ksymbol<'_>) {
        if code.unregistered {
            self.made.remove(&code.start);
        } else if self.made.len() < MAX_RANGES {
            let end = code.start.saturating_add(code.len.into());
            // A recording of one process does not contain all unregistrations.
            self.made
                .retain(|start, range| range.end <= code.start || end <= *start);
            self.made.insert(code.start, Range::new(end, code.name));
        }
    }

    /// Returns the object at an address; `new` assigns an id at the first request. Dynamically
    /// generated code is a separate object with the name of its only function.
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
        let next = self.ranges.partition_point(|range| range.0 <= ip);
        let (start, range) = self.ranges.get_mut(next.checked_sub(1)?)?;
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

    /// Returns the function at an address, and its start.
    pub(super) fn function<'a>(&'a self, ip: u64, list: &'a KernelList) -> Option<(&'a [u8], u64)> {
        if let Some((start, range)) = self.made.range(..=ip).next_back()
            && ip < range.end
        {
            return Some((&range.name, *start));
        }
        let symbol = list.lookup(ip).filter(|_| !self.is_another)?;
        Some((symbol.name, symbol.start))
    }

    /// Discards all ids.
    pub(super) fn reset(&mut self) {
        let ranges = self.ranges.iter_mut().map(|(_, range)| range);
        for range in ranges.chain(self.made.values_mut()) {
            range.object = None;
        }
    }
}

/// Returns `[ext4]` for `/lib/modules/6.1/kernel/fs/ext4/ext4.ko.xz`.
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
