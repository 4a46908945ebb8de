//! What is missing of the events, before they are shown: who looks at the beginning of a long list should know.

use std::collections::BTreeSet;
use std::io::{self, Write};

use rustc_hash::FxHashSet;

use crate::output::sanitize::terminal;
use crate::output::summary::Summary;
use crate::trace::{EventStreams, Pid};
use crate::view::{ViewError, count};

/// Prints what is missing of the events of some processes.
pub(super) fn print(
    streams: &EventStreams,
    summary: &Summary,
    pids: &FxHashSet<Pid>,
    out: &mut impl Write,
) -> io::Result<()> {
    let pids: BTreeSet<Pid> = pids.iter().copied().collect();
    for pid in pids {
        let told = summary.quality.events.iter();
        let told: Vec<_> = told.filter(|events| events.pid == pid.0).collect();
        let read = streams.streams().iter();
        let read: Vec<_> = read.filter(|stream| stream.process == pid).collect();
        let lives = told.len().max(read.len());
        if lives > 1 {
            writeln!(
                out,
                "process {pid}: {lives} processes had this id one after the other, and are shown as one"
            )?;
        }
        let cut: Vec<_> = told
            .iter()
            .filter(|events| !events.cut.is_empty())
            .collect();
        for events in &cut {
            let cut = terminal(&events.cut);
            writeln!(out, "process {pid}: its events end early: {cut}")?;
        }
        let dropped = told.iter().map(|events| events.dropped);
        let dropped = super::sum(dropped);
        if dropped > 0 {
            let dropped = count(dropped, "event", "events");
            writeln!(out, "process {pid}: its runtime dropped {dropped}")?;
        }
        let all = super::sum(told.iter().map(|events| events.events));
        let there = super::sum(read.iter().map(|stream| stream.counts.events));
        let damage = read.iter().find_map(|stream| stream.counts.cut.as_deref());
        let damage = damage.filter(|_| there < all || cut.is_empty());
        if there < all || damage.is_some() {
            writeln!(
                out,
                "process {pid}: its stream is damaged ({}), {there} of {} can be read",
                terminal(damage.unwrap_or("some of it is not there")),
                count(all.max(there), "event", "events")
            )?;
        }
    }
    Ok(())
}

/// Prints why no CPU time is known.
pub(super) fn print_no_samples(error: &ViewError, out: &mut impl Write) -> io::Result<()> {
    let error = error.to_string();
    writeln!(out, "the samples are not counted: {}", terminal(&error))
}
