//! Archives with corrupt parts.

use std::path::Path;
use std::process::Command;

use perfcollect::trace::ProcessEvents;

use crate::LIMIT;
use crate::support::events::entries;
use crate::support::zip::{damage, unzip, zip_of};
use crate::support::{perfcollect, run};

fn view(trace: &Path) -> Command {
    let mut view = Command::new(perfcollect());
    view.arg("view").arg(trace).args(["-viewer", "gc"]);
    view
}

/// Returns what `view` prints about the collections of a trace.
fn collections(trace: &Path) -> String {
    run(&mut view(trace), LIMIT).expect_success().stdout
}

/// If one part of an archive is corrupt, the others are shown, below a notice of what is missing.
#[track_caller]
pub(crate) fn expect_damage_is_reported_first(trace: &Path, process: &ProcessEvents) {
    let pid = process.pid;
    let nowhere = run(view(trace).env("TMPDIR", "/nowhere"), LIMIT);
    let why = "cannot unpack the events into /nowhere: No such file";
    assert!(nowhere.stderr.contains(why), "{}", nowhere.stderr);
    let before = collections(trace);
    let cut = format!("process {pid}: its events end early: ");
    assert!(before.starts_with(&cut), "{before}");
    // Another process with the same pid, and another process.
    let name = format!("/eventpipe/{pid}");
    let (stored, stream) = entries(trace, &name).remove(0);
    let mut archive = unzip(&std::fs::read(trace).unwrap());
    for other in ["9999999", &format!("{pid}-2")] {
        let other = stored.replace(&name, &format!("/eventpipe/{other}"));
        archive.push((other, stream.clone()));
    }
    let mut archive = zip_of(archive);
    let (_, table) = before.split_once("\nprocess ").unwrap();
    for entry in ["/eventpipe/9999999", "/perf.data.txt"] {
        damage(&mut archive, entry);
    }
    std::fs::write(trace, archive).unwrap();
    let text = collections(trace);
    let (first, tables) = text.split_once("\n\nprocess ").unwrap();
    let is_reported = |line: &str| first.lines().any(|first| first.starts_with(line));
    for line in [
        &cut,
        &format!("process {pid}: 2 processes had this id one after the other, "),
        "process 9999999: its stream is corrupt (in the archive: ",
    ] {
        assert!(is_reported(line), "{line}: {text}");
    }
    assert_eq!(table.lines().next(), tables.lines().next());
    // Without a collection, the samples are not read.
    if before.contains(" (gen0 ") {
        let unread = "the samples are not counted: cannot read perf.data.txt in the trace: ";
        assert!(is_reported(unread), "{text}");
        let without = "\nno samples of it, so no % GC ";
        assert!(tables.contains(without), "{tables}");
    }
}
