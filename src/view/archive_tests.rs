#![allow(clippy::unwrap_used)]

use super::*;
use crate::output::summary::Summary;
use crate::trace::Trace;
use std::io::{Cursor, Write};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

fn zip_of(entries: &[(&str, &[u8])]) -> ZipArchive<Cursor<Vec<u8>>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in entries {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    ZipArchive::new(zip.finish().unwrap()).unwrap()
}

fn summary(samples: u64, format_version: u32) -> Vec<u8> {
    let mut summary = Summary::new(&Trace::default());
    summary.samples = samples;
    summary.format_version = format_version;
    serde_json::to_vec(&summary).unwrap()
}

fn error(entries: &[(&str, &[u8])]) -> ViewError {
    read_zip(zip_of(entries)).unwrap_err()
}

#[test]
fn reads_summary_and_hot_path() {
    let summary = summary(3, FORMAT_VERSION);
    let entries: [(&str, &[u8]); 2] = [
        ("x.trace/summary.json", &summary),
        ("x.trace/stacks.folded", b"p (1);a 3\n"),
    ];
    let capture = read_zip(zip_of(&entries)).unwrap();
    assert_eq!(
        capture.hot_path,
        [("p (1)".to_owned(), 3), ("a".to_owned(), 3)]
    );
    assert_eq!(capture.flame_graph, "x.trace/flamegraph.svg");
}

#[test]
fn rejects_unsafe_names() {
    for name in [
        "../x",
        "/etc/x",
        "a/../../x",
        "a\\b",
        "c:x",
        "a//b",
        "x/./y",
        "\u{1b}/..",
        "a'; reboot '.trace/summary.json",
    ] {
        let error = error(&[(name, b"")]);
        assert!(
            matches!(error, ViewError::UnsafeName { .. }),
            "{name:?}: {error}"
        );
        assert!(!error.to_string().contains('\u{1b}'));
    }
}

#[test]
fn names_missing_and_corrupt_entries() {
    let good = summary(3, FORMAT_VERSION);
    let newer = summary(3, FORMAT_VERSION + 1);
    let case = |json: &[u8], folded: &[u8]| {
        error(&[
            ("x.trace/summary.json", json),
            ("x.trace/stacks.folded", folded),
        ])
        .to_string()
    };
    assert!(
        error(&[("x/readme", b"")])
            .to_string()
            .contains("summary.json")
    );
    assert!(
        error(&[("x.trace/summary.json", &good)])
            .to_string()
            .contains("stacks.folded")
    );
    assert!(case(b"{", b"").contains("corrupt"));
    assert!(case(&newer, b"").contains("use a newer one"));
    assert!(case(&good, b"a 1\nb\n").contains("line 2"));
    assert!(case(&good, b"a 3").contains("line 1"));
    assert!(case(&good, b"a 1\n").contains("1 samples"));
    assert!(case(&good, b"\xff 3\n").contains("line 1"));
}

#[test]
fn bounds_the_size_of_unpacked_entries() {
    let bomb = vec![b' '; MAX_SUMMARY_BYTES as usize + 1];
    let error = error(&[("x.trace/summary.json", &bomb)]);
    assert!(matches!(error, ViewError::TooLarge { .. }), "{error}");
}
