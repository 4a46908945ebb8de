//! Record layouts of the events of a recording, and lookup of the event of a record.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::numbers::Order;
use super::record_stream::{RecordHeader, is_kernel_type};
use super::recording_info::RecordingInfo;
use super::swap;
use crate::perf::Layout;
use crate::trace::Nanos;

/// Record layouts by event index, and event indices by event id.
#[derive(Default)]
pub(super) struct Events {
    pub(super) layouts: Vec<Layout>,
    pub(super) by_id: FxHashMap<u64, u32>,
}

impl Events {
    /// Returns the index of the event of a record.
    ///
    /// Records without an event id belong to the first event. Returns `None` for a sample with an
    /// unknown id.
    pub(super) fn index_of(&self, record: &[u8]) -> Option<u32> {
        let first = self.layouts.first()?;
        if self.layouts.len() == 1 {
            return Some(0);
        }
        let id = first.event_of(record);
        let event = id.and_then(|id| self.by_id.get(&id)).copied();
        // Old versions of perf write no ids to a pipe.
        let is_unknown = first.is_sample(record) && id.is_some() && !self.by_id.is_empty();
        event.or((!is_unknown).then_some(0))
    }

    /// Converts a record of the kernel to the byte order of this machine.
    pub(super) fn to_native_order(&self, record: &mut [u8], info: &RecordingInfo) {
        if info.order == Order::Big {
            swap::to_little(record, &info.events, |id| self.by_id.get(&id).copied());
        }
    }

    /// Returns the time of a record in the byte order of the file; 0 for a user-type record.
    pub(super) fn time_of_raw(&self, record: &[u8], info: &RecordingInfo) -> Nanos {
        let header = RecordHeader::parse(record, info.order);
        if !header.is_some_and(|header| is_kernel_type(header.kind)) {
            return Nanos(0);
        }
        let mut native = Cow::Borrowed(record);
        if info.order == Order::Big {
            self.to_native_order(native.to_mut(), info);
        }
        let event = self.index_of(&native);
        event.map_or(Nanos(0), |event| self.time(event, &native))
    }

    pub(super) fn time(&self, event: u32, record: &[u8]) -> Nanos {
        let layout = &self.layouts[event as usize];
        layout.time_of(record).unwrap_or_default()
    }
}
