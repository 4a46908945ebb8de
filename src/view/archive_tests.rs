#![allow(clippy::unwrap_used)]

use super::*;
use crate::trace::Trace;
use crate::zip::made::zip_of;
use std::io::Write;

fn read_entries(entries: &[(&str, &[u8])]) -> Result<ReportData, ViewError> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&zip_of(entries.iter().copied())).unwrap();
    let archive = TraceArchive::from_file(Path::new("x.trace.zip"), file)?;
    read_archive(&archive)
}

fn summary(samples: u64) -> Vec<u8> {
    let mut summary = Summary::new(&Trace::default());
    summary.samples = samples;
    serde_json::to_vec(&summary).unwrap()
}

fn error(entries: &[(&str, &[u8])]) -> ViewError {
    read_entries(entries).unwrap_err()
}

#[test]
fn reads_summary_and_hot_path() {
    let summary = summary(3);
    let entries: [(&str, &[u8]); 2] = [
        ("x.trace/summary.json", &summary),
        ("x.trace/stacks.folded", b"p (1);a 3\n"),
    ];
    let capture = read_entries(&entries).unwrap();
    assert_eq!(
        capture.hot_path,
        [("p (1)".to_owned(), 3), ("a".to_owned(), 3)]
    );
    assert_eq!(capture.flame_graph, "x.trace/flamegraph.svg");
}

#[test]
fn names_missing_and_corrupt_stacks() {
    let good = summary(3);
    let case = |json: &[u8], folded: &[u8]| {
        error(&[
            ("x.trace/summary.json", json),
            ("x.trace/stacks.folded", folded),
        ])
        .to_string()
    };
    assert!(
        error(&[("x.trace/summary.json", &good)])
            .to_string()
            .contains("stacks.folded")
    );
    assert!(case(&good, b"a 1\nb\n").contains("line 2"));
    assert!(case(&good, b"a 3").contains("line 1"));
    assert!(case(&good, b"a 1\n").contains("1 samples"));
    assert!(case(&good, b"\xff 3\n").contains("line 1"));
    // An archive of some MB may contain GB of lines, so those after too many samples are not read.
    assert!(case(&good, b"a 4\nb\n").contains("4 samples"));
}
