//! List of events, one per line.

use std::io::{self, Write};

use uuid::Uuid;

use super::{Processes, fields};
use crate::dotnet::{decode, runtime_event_kind};
use crate::output::sanitize::{terminal, truncate, truncate_with_ellipsis};
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
        let (name, values) = decode(&event.metadata, &event.payload);
        let event_name = runtime_event_kind(&event.metadata).map(|kind| kind.name);
        write!(
            out,
            "{:>12.3} {:>8} {:>8}  {}/{}",
            processes.ms(event.time),
            event.process,
            event.thread,
            terminal(truncate(&event.metadata.provider, MAX_VALUE_BYTES)),
            terminal(truncate(&name, MAX_VALUE_BYTES))
        )?;
        for (field, value) in values {
            let label = fields::label(field, &value);
            let value = fields::format(event_name, field, value);
            let value = truncate_with_ellipsis(&value, MAX_VALUE_BYTES);
            write!(out, "  {}={}", terminal(&label), terminal(&value))?;
        }
        for (name, id) in [
            ("activity", event.activity.id),
            ("related", event.activity.related),
        ] {
            if id != [0; 16] {
                write!(out, "  {name}={}", Uuid::from_bytes_le(id))?;
            }
        }
        match event.stack.len() {
            0 => writeln!(out)?,
            frames => writeln!(out, "  ({})", count(frames as u64, "frame", "frames"))?,
        }
    }
    Ok(())
}
