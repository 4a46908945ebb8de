#![allow(clippy::unwrap_used)]

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn write_all(path: &Path, force: bool, text: &str) -> Result<(), OutputError> {
    let mut file = OutputFile::create_for(path, force, None)?;
    file.write_all(text.as_bytes())
        .map_err(|e| file.explain(e))?;
    file.commit()
}

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
fn keeps_committed_file_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    write_all(&path, false, "text").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn removes_dropped_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    drop(OutputFile::create_for(&path, false, None).unwrap());
    assert!(!path.exists());
}

#[test]
fn drop_keeps_replacement_of_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let file = OutputFile::create_for(&path, false, None).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "other").unwrap();
    drop(file);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "other");
}

#[test]
fn replaces_existing_file_only_with_force() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    write_all(&path, false, "old").unwrap();
    let error = write_all(&path, false, "new").unwrap_err();
    assert!(error.to_string().contains("-force"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    write_all(&path, true, "new").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
}

#[test]
fn replaces_beside_what_a_killed_process_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    std::fs::write(&path, "old").unwrap();
    for number in 0..3 {
        let left = dir.path().join(partial_name(OsStr::new("x"), number));
        std::fs::write(left, "left").unwrap();
    }
    let older = std::fs::File::open(&path).unwrap();
    let mut file = OutputFile::replace(&path, &older).unwrap();
    file.write_all(b"new").unwrap();
    file.commit().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    write_all(&path, true, "newer").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "newer");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
}

#[test]
fn never_replaces_or_follows_links_and_directories() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    let link = dir.path().join("link");
    symlink(&victim, &link).unwrap();
    let dangling = dir.path().join("dangling");
    symlink(dir.path().join("new"), &dangling).unwrap();
    for path in [&link, &dangling, &dir.path().to_path_buf()] {
        assert!(matches!(
            write_all(path, false, "x"),
            Err(OutputError::Exists { .. })
        ));
        assert!(matches!(
            write_all(path, true, "x"),
            Err(OutputError::NotReplaceable { .. })
        ));
    }
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!dir.path().join("new").exists());
}

#[test]
fn error_messages_contain_remedy() {
    let missing = write_all(Path::new("/nonexistent/x"), false, "").unwrap_err();
    assert!(missing.to_string().contains("/nonexistent"), "{missing}");
    let no_name = write_all(Path::new("/"), false, "").unwrap_err();
    assert!(matches!(no_name, OutputError::NoFileName { .. }));
    let full = write_error(Path::new("x"), Errno::NOSPC.into());
    assert!(full.to_string().contains("free some space"), "{full}");
}

#[test]
fn invoking_user_owns_file() {
    if !rustix::process::geteuid().is_root() {
        return test_skip::skip(test_skip::Missing::Root);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let owner = FileOwner {
        uid: Uid::from_raw(1234),
        gid: Gid::from_raw(5678),
    };
    OutputFile::create_for(&path, false, Some(owner))
        .unwrap()
        .commit()
        .unwrap();
    let metadata = path.metadata().unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (1234, 5678));
    // A second run of the same user may replace it.
    OutputFile::create_for(&path, true, Some(owner))
        .unwrap()
        .commit()
        .unwrap();
}

#[test]
fn failed_capture_keeps_older_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    write_all(&path, false, "old").unwrap();
    let mut file = OutputFile::create_for(&path, true, None).unwrap();
    file.write_all(b"half").unwrap();
    drop(file);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
