//! List of events, one per line.

use std::io::{self, Write};

use super::{Processes, fields};
use crate::dotnet::{decode, runtime_event_kind};
use crate::output::event_json::guid;
use crate::output::sanitize::{cut, shortened, terminal};
use crate::trace::RuntimeEvent;
use crate::view::count;

/// Maximum length of a printed value, in bytes.
const MAX_VALUE_BYTES: usize = 300;

pub(super) fn print(
    events: impl Iterator<Item = RuntimeEvent>,
    processes: &Processes,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        out,
        "          ms      pid      tid  provider/event  fields"
    )?;
    for event in events {
        let (name, values) = decode(&event.kind, &event.payload);
        let event_name = runtime_event_kind(&event.kind).map(|kind| kind.name);
        write!(
            out,
            "{:>12.3} {:>8} {:>8}  {}/{}",
            processes.ms(event.time),
            event.process,
            event.thread,
            terminal(cut(&event.kind.provider, MAX_VALUE_BYTES)),
            terminal(cut(&name, MAX_VALUE_BYTES))
        )?;
        for (field, value) in values {
            let label = fields::label(field, &value);
            let value = fields::format(event_name, field, value);
            let value = shortened(&value, MAX_VALUE_BYTES);
            write!(out, "  {}={}", terminal(&label), terminal(&value))?;
        }
        for (name, id) in [
            ("activity", event.activity.id),
            ("related", event.activity.related),
        ] {
            if id != [0; 16] {
                write!(out, "  {name}={}", guid(id))?;
            }
        }
        match event.stack.len() {
            0 => writeln!(out)?,
            frames => writeln!(out, "  ({})", count(frames as u64, "frame", "frames"))?,
        }
    }
    Ok(())
}
