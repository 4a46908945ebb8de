//! Checks the writers with synthetic traces, a strict grammar and PerfView's own reader.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

#[path = "writers/build.rs"]
mod build;
#[path = "writers/measure.rs"]
mod measure;
#[path = "writers/nettrace_tests.rs"]
mod nettrace_tests;
#[path = "writers/perf_data_tests.rs"]
mod perf_data_tests;
#[path = "writers/perfview_tests.rs"]
mod perfview_tests;
#[path = "writers/text_tests.rs"]
mod text_tests;

use std::io::Cursor;
use std::path::PathBuf;

use perfcollect::output::archive::{self, Contents};
use perfcollect::output::summary::Summary;
use perfcollect::output::{NameStyle, StackViews};
use perfcollect::trace::Trace;

/// A written file of a trace, and the summary of the trace.
struct Written {
    path: PathBuf,
    summary: Summary,
    _dir: tempfile::TempDir,
}

fn archive_bytes(trace: &Trace, summary: &Summary) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let contents = Contents {
        threads: None,
        summary,
        pictures: &StackViews::new(trace, NameStyle::Full, "test"),
        name: "test",
        log: b"log",
        raw_events: true,
    };
    archive::write(trace, &contents, &mut bytes).unwrap();
    bytes.into_inner()
}

fn write(trace: &Trace) -> Written {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.trace.zip");
    let summary = Summary::new(trace);
    std::fs::write(&path, archive_bytes(trace, &summary)).unwrap();
    Written {
        path,
        summary,
        _dir: dir,
    }
}
