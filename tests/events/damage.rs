//! Archives with parts that are damaged.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use perfcollect::trace::ProcessEvents;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use crate::LIMIT;
use crate::support::events::entries;
use crate::support::{perfcollect, run};

fn view(trace: &Path) -> Command {
    let mut view = Command::new(perfcollect());
    view.arg("view").arg(trace).args(["-viewer", "gc"]);
    view
}

/// What `view` prints of the collections in a trace.
fn collections(trace: &Path) -> String {
    run(&mut view(trace), LIMIT).expect_success().stdout
}

/// Damages an entry of an archive in its middle.
fn damage(trace: &Path, entry: &str) {
    let mut archive = ZipArchive::new(File::open(trace).unwrap()).unwrap();
    let names = archive.file_names().map(Result::unwrap);
    let index = names.into_iter().position(|name| name.contains(entry));
    let entry = archive.by_index(index.unwrap()).unwrap();
    let middle = entry.data_start().unwrap() + entry.compressed_size() / 2;
    drop(entry);
    let mut bytes = std::fs::read(trace).unwrap();
    bytes[middle as usize] ^= 0x55;
    std::fs::write(trace, bytes).unwrap();
}

/// One part of an archive may be damaged: the others are shown, and what is missing stands above all of it.
#[track_caller]
pub(crate) fn expect_damage_is_told_first(trace: &Path, process: &ProcessEvents) {
    let pid = process.pid;
    let nowhere = run(view(trace).env("TMPDIR", "/nowhere"), LIMIT);
    let why = "cannot unpack the events into /nowhere: No such file";
    assert!(nowhere.stderr.contains(why), "{}", nowhere.stderr);
    let before = collections(trace);
    let cut = format!("process {pid}: its events end early: ");
    assert!(before.starts_with(&cut), "{before}");
    // Another life of the process, and another process.
    let name = format!("/eventpipe/{pid}");
    let (stored, stream) = entries(trace, &name).remove(0);
    let file = File::options().read(true).write(true).open(trace).unwrap();
    let mut archive = ZipWriter::new_append(file).unwrap();
    for other in ["9999999", &format!("{pid}-2")] {
        let other = stored.replace(&name, &format!("/eventpipe/{other}"));
        archive
            .start_file(other, SimpleFileOptions::default())
            .unwrap();
        archive.write_all(&stream).unwrap();
    }
    archive.finish().unwrap();
    let (_, table) = before.split_once("\nprocess ").unwrap();
    for entry in ["/eventpipe/9999999", "/perf.data.txt"] {
        damage(trace, entry);
    }
    let text = collections(trace);
    let (first, tables) = text.split_once("\n\nprocess ").unwrap();
    let is_told = |line: &str| first.lines().any(|told| told.starts_with(line));
    for line in [
        &cut,
        &format!("process {pid}: 2 processes had this id one after the other, "),
        "process 9999999: its stream is corrupt (in the archive: ",
    ] {
        assert!(is_told(line), "{line}: {text}");
    }
    assert_eq!(table.lines().next(), tables.lines().next());
    // Nothing is asked of the samples where no collection was until then.
    if before.contains(" (gen0 ") {
        let unread = "the samples are not counted: cannot read perf.data.txt in the trace: ";
        assert!(is_told(unread), "{text}");
        let without = "\nno samples of it, so no % GC ";
        assert!(tables.contains(without), "{tables}");
    }
}
