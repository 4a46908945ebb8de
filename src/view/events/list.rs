//! List of events, one per line.

use std::io::{self, Write};

use uuid::Uuid;

use super::columns::FirstRows;
use super::{EventSelection, Processes, fields};
use crate::dotnet::{decode, runtime_event_kind};
use crate::nettrace::Value;
use crate::output::is_added_event;
use crate::output::sanitize::{terminal, truncate, truncate_with_ellipsis};
use crate::trace::RuntimeEvent;
use crate::view::count;

/// Maximum length of a printed value, in bytes.
const MAX_VALUE_BYTES: usize = 300;

/// An event with the values of its fields.
pub(super) struct Row<'a> {
    pub(super) event: &'a RuntimeEvent,
    pub(super) name: String,
    pub(super) values: Vec<(&'a str, Value<'a>)>,
}

impl<'a> Row<'a> {
    fn new(event: &'a RuntimeEvent) -> Self {
        let (name, values) = decode(&event.metadata, &event.payload);
        Self {
            event,
            name,
            values,
        }
    }

    /// Returns the name of the event if the runtime defines it.
    pub(super) fn runtime_name(&self) -> Option<&'static str> {
        runtime_event_kind(&self.event.metadata).map(|kind| kind.name)
    }

    /// Returns the activities that the event belongs to.
    pub(super) fn activities(&self) -> impl Iterator<Item = (&'static str, Uuid)> + use<> {
        let activity = &self.event.activity;
        let ids = [("activity", activity.id), ("related", activity.related)].into_iter();
        let ids = ids.filter(|(_, id)| *id != [0; 16]);
        ids.map(|(name, id)| (name, Uuid::from_bytes_le(id)))
    }

    fn print(self, processes: &Processes, out: &mut impl Write) -> io::Result<()> {
        let event = self.event;
        write!(
            out,
            "{:>12.3} {:>8} {:>8}  {}/{}",
            processes.ms_of_capture(event.time),
            event.process,
            event.thread,
            terminal(truncate(&event.metadata.provider, MAX_VALUE_BYTES)),
            terminal(truncate(&self.name, MAX_VALUE_BYTES))
        )?;
        let (runtime_name, activities) = (self.runtime_name(), self.activities());
        for (field, value) in self.values {
            let label = fields::label(field, &value);
            let value = fields::format(runtime_name, field, value);
            let value = truncate_with_ellipsis(&value, MAX_VALUE_BYTES);
            write!(out, "  {}={}", terminal(&label), terminal(&value))?;
        }
        for (name, id) in activities {
            write!(out, "  {name}={id}")?;
        }
        match event.stack.len() {
            0 => writeln!(out),
            frames => writeln!(out, "  ({})", count(frames as u64, "frame", "frames")),
        }
    }
}

/// Prints the selected events that were received.
pub(super) fn print(
    events: impl Iterator<Item = RuntimeEvent>,
    selection: &EventSelection,
    processes: &Processes,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        out,
        "          ms      pid      tid  provider/event  fields"
    )?;
    let mut rows = FirstRows::new(selection.top.unwrap_or(usize::MAX));
    let times = selection.times.range(processes.start_ns);
    for event in events {
        if is_added_event(&event) || !times.contains(&event.time) {
            continue;
        }
        let row = Row::new(&event);
        if !selection.has(&row) {
            continue;
        }
        if rows.take() {
            row.print(processes, out)?;
        }
    }
    rows.end(out)
}
