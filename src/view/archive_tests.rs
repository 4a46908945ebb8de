#![allow(clippy::unwrap_used)]

use super::*;
use crate::output::summary::Summary;
use crate::selection::Selection;
use crate::trace::Trace;
use crate::view::OpenTrace;
use crate::view::call_tree::CallTree;
use crate::zip::made::zip_of;
use std::io::Write;

fn read_entries(entries: &[(&str, &[u8])]) -> Result<CallTree, ViewError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&zip_of(entries.iter().copied())).unwrap();
    let trace = OpenTrace::open(file.path(), &Selection::default())?;
    trace.call_tree(0.0)
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
fn reads_summary_and_stacks() {
    let summary = summary(3);
    let entries: [(&str, &[u8]); 2] = [
        ("x.trace/summary.json", &summary),
        ("x.trace/stacks.folded", b"p (1);a 3\n"),
    ];
    let tree = read_entries(&entries).unwrap();
    assert_eq!(tree.hottest_path(), [("p (1)", 3), ("a", 3)]);
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
