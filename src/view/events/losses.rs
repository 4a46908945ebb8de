//! Losses of events, printed before the events so that no reader of a long list misses them.

use std::collections::BTreeSet;
use std::io::{self, Write};

use rustc_hash::FxHashSet;

use crate::history::sum;
use crate::output::sanitize::terminal;
use crate::output::summary::Summary;
use crate::trace::{EventStreams, Pid};
use crate::view::{ViewError, count};

/// Prints the losses of the events of some processes.
pub(super) fn print(
    streams: &EventStreams,
    summary: &Summary,
    pids: &FxHashSet<Pid>,
    out: &mut impl Write,
) -> io::Result<()> {
    let pids: BTreeSet<Pid> = pids.iter().copied().collect();
    for pid in pids {
        let recorded = summary.quality.events.iter();
        let recorded: Vec<_> = recorded.filter(|events| events.pid == pid.0).collect();
        let read = streams.streams().iter();
        let read: Vec<_> = read.filter(|stream| stream.name.process == pid).collect();
        let instances = read.iter().map(|stream| stream.name.instance);
        let instances = instances.collect::<BTreeSet<_>>().len().max(recorded.len());
        if instances > 1 {
            writeln!(
                out,
                "process {pid}: {instances} processes had this id one after the other, and are shown as one"
            )?;
        }
        let truncated: Vec<_> = recorded
            .iter()
            .filter(|events| !events.truncated.is_empty())
            .collect();
        for events in &truncated {
            let why = terminal(&events.truncated);
            writeln!(out, "process {pid}: its events end early: {why}")?;
        }
        let dropped = recorded.iter().map(|events| events.dropped);
        let dropped = sum(dropped);
        if dropped > 0 {
            let dropped = count(dropped, "event", "events");
            writeln!(out, "process {pid}: its runtime dropped {dropped}")?;
        }
        let all = sum(recorded.iter().map(|events| events.events));
        let readable = sum(read.iter().map(|stream| stream.counts.events));
        let why = read
            .iter()
            .find_map(|stream| stream.counts.truncated.as_deref());
        let why = why.filter(|_| readable < all || truncated.is_empty());
        if readable < all || why.is_some() {
            writeln!(
                out,
                "process {pid}: its stream is corrupt ({}), {readable} of {} are readable",
                terminal(why.unwrap_or("some of it is missing")),
                count(all.max(readable), "event", "events")
            )?;
        }
    }
    Ok(())
}

/// Prints why the CPU time is unknown.
pub(super) fn print_no_samples(error: &ViewError, out: &mut impl Write) -> io::Result<()> {
    let error = error.to_string();
    writeln!(out, "the samples are not counted: {}", terminal(&error))
}
