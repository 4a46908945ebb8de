//! How to read the records of each event, and which event made a record.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::numbers::Order;
use super::record_stream::{RecordHeader, is_kernels};
use super::recording_info::RecordingInfo;
use super::swap;
use crate::perf::Layout;
use crate::trace::Nanos;

/// How to read the records of each event.
#[derive(Default)]
pub(super) struct Events {
    pub(super) layouts: Vec<Layout>,
    pub(super) by_id: FxHashMap<u64, u32>,
}

impl Events {
    /// Which event made a record; those that do not tell belong to the first. `None`: a sample of an event that is not there.
    pub(super) fn of(&self, record: &[u8]) -> Option<u32> {
        let first = self.layouts.first()?;
        if self.layouts.len() == 1 {
            return Some(0);
        }
        let id = first.event_of(record);
        let event = id.and_then(|id| self.by_id.get(&id)).copied();
        // Old pipes tell no ids.
        let is_nobodys = first.is_sample(record) && id.is_some() && !self.by_id.is_empty();
        event.or((!is_nobodys).then_some(0))
    }

    /// Turns a record of the kernel's to the byte order of this machine.
    pub(super) fn swap(&self, record: &mut [u8], about: &RecordingInfo) {
        if about.order == Order::Big {
            swap::to_little(record, &about.events, |id| self.by_id.get(&id).copied());
        }
    }

    /// When a record was made that was not turned; 0 if it is perf's own.
    pub(super) fn time_of_raw(&self, record: &[u8], about: &RecordingInfo) -> Nanos {
        let header = RecordHeader::parse(record, about.order);
        if !header.is_some_and(|header| is_kernels(header.kind)) {
            return Nanos(0);
        }
        let mut turned = Cow::Borrowed(record);
        if about.order == Order::Big {
            self.swap(turned.to_mut(), about);
        }
        let event = self.of(&turned);
        event.map_or(Nanos(0), |event| self.time(event, &turned))
    }

    pub(super) fn time(&self, event: u32, record: &[u8]) -> Nanos {
        let layout = &self.layouts[event as usize];
        layout.time_of(record).unwrap_or_default()
    }
}
