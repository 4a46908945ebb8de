#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn adds_trace_suffix_once() {
    for (name, path) in [
        ("app", "app.trace.zip"),
        ("dir/app.v1", "dir/app.v1.trace.zip"),
        ("app.trace.zip", "app.trace.zip"),
        ("app.TRACE.ZIP", "app.TRACE.ZIP"),
    ] {
        assert_eq!(trace_path(Path::new(name)), Path::new(path));
    }
    assert_eq!(capture_name(Path::new("a/app.v1.trace.zip")), "app.v1");
    assert_eq!(capture_name(Path::new("é")), "é");
}

#[test]
fn full_disk_has_a_remedy() {
    let full = write_error(Path::new("x"), Errno::NOSPC.into());
    assert!(full.to_string().contains("free some space"), "{full}");
}
