//! Each event on a line of its own.

use std::io::{self, Write};

use super::Processes;
use crate::dotnet::decode;
use crate::output::event_json::{guid, json};
use crate::output::sanitize::{cut, shortened, terminal};
use crate::trace::RuntimeEvent;

/// Longest value that is printed, in bytes.
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
        let (name, fields) = decode(&event.kind, &event.payload);
        write!(
            out,
            "{:>12.3} {:>8} {:>8}  {}/{}",
            processes.ms(event.time),
            event.process,
            event.thread,
            terminal(cut(&event.kind.provider, MAX_VALUE_BYTES)),
            terminal(cut(&name, MAX_VALUE_BYTES))
        )?;
        for (field, value) in fields {
            let value = match json(value) {
                serde_json::Value::String(text) => format!("{text:?}"),
                value => value.to_string(),
            };
            let value = shortened(&value, MAX_VALUE_BYTES);
            write!(out, "  {}={}", terminal(field), terminal(&value))?;
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
            frames => writeln!(out, "  ({frames} frames)")?,
        }
    }
    Ok(())
}
