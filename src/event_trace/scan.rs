//! The first pass: the session of a stream, and the methods that its runtime lists.

use super::session::Session;
use crate::dotnet::{CodeEvent, RundownTable};
use crate::nettrace::{AddedEvents, EventMetadata};
use crate::trace::EventStream;

const RUNTIME: &str = "Microsoft-Windows-DotNETRuntime";
const RUNDOWN: &str = "Microsoft-Windows-DotNETRuntimeRundown";
const EVENT_PIPE: &str = "Microsoft-DotNETCore-EventPipe";
/// Event of [`EVENT_PIPE`] with the command line.
const PROCESS_INFO: u32 = 1;
/// Events of [`RUNTIME`] of a heap dump: start of a collection, objects.
const GC_START: u32 = 1;
const BULK_NODE: u32 = 18;

/// What the first pass finds.
#[derive(Debug)]
pub(super) struct Scan {
    /// The session and its process.
    pub(super) session: Session,
    /// Methods of JIT and ReadyToRun code.
    pub(super) methods: RundownTable,
    /// Whether there is a list of methods.
    pub(super) has_list: bool,
    /// Whether perfcollect listed the methods: by the addresses in stacks, not by their code.
    pub(super) lists_addresses: bool,
    /// Number of collections, and of events with objects of a heap.
    collections: u64,
    objects: u64,
    /// Whether the runtime sent anything but what belongs to collections.
    has_other_events: bool,
}

impl Scan {
    /// Reads a stream to its end, or to the corruption.
    pub(super) fn of(stream: &EventStream) -> Self {
        let mut scan = Self {
            session: Session::default(),
            methods: RundownTable::of_all_code(),
            has_list: false,
            lists_addresses: false,
            collections: 0,
            objects: 0,
            has_other_events: false,
        };
        let Some(mut reader) = stream.reader() else {
            return scan;
        };
        while let Ok(Some(event)) = reader.next_event() {
            let is_added = AddedEvents::set_of(event.capture_thread).is_some();
            if let Ok(Some(code)) = CodeEvent::parse(event.metadata, event.payload) {
                let is_listed = matches!(code, CodeEvent::Listed(_));
                scan.has_list |= is_listed;
                scan.lists_addresses |= is_listed && is_added;
                match is_added {
                    true => scan.methods.take_formatted(code),
                    false => scan.methods.take(code),
                }
            }
            match (event.metadata.provider.as_str(), event.metadata.id) {
                (EVENT_PIPE, PROCESS_INFO) => scan.session.take_process_info(event.payload),
                (EVENT_PIPE, _) => {}
                _ if is_added => {}
                (RUNDOWN, _) => scan.session.take_rundown(event.time),
                _ => {
                    scan.session.take_time(event.time);
                    scan.count(event.metadata);
                }
            }
        }
        scan
    }

    fn count(&mut self, kind: &EventMetadata) {
        match (kind.provider.as_str(), kind.id) {
            (RUNTIME, GC_START) => self.collections += 1,
            (RUNTIME, BULK_NODE) => self.objects += 1,
            (RUNTIME, 1..=39 | 200..=210) => {}
            _ => self.has_other_events = true,
        }
    }

    /// Returns whether the stream is of one induced collection that lists all objects.
    pub(super) fn is_heap_dump(&self) -> bool {
        self.objects > 0 && self.collections <= 1 && !self.has_other_events
    }
}
