#![allow(clippy::unwrap_used)]

use super::*;
use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn write_all(path: &Path, force: bool, text: &str) -> Result<(), OutputError> {
    let mut file = OutputFile::create_for(path, force, None)?;
    file.write_all(text.as_bytes())
        .map_err(|e| file.explain(e))?;
    file.commit()
}

#[test]
fn keeps_committed_file_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    write_all(&path, false, "text").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

/// Creates a file that has a hidden name until it is complete, as on NFS.
fn named_partial(path: &Path, older: Older) -> OutputFile {
    let place = PathAt::open(path).unwrap();
    OutputFile::new(path, place, older, |_| None).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn incomplete_file_has_no_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let mut file = OutputFile::create_for(&path, false, None).unwrap();
    file.write_all(b"half").unwrap();
    assert_eq!(names(dir.path()), [""; 0]);
    drop(file);
    assert_eq!(names(dir.path()), [""; 0]);
    let file = named_partial(&path, Older::None);
    assert!(names(dir.path())[0].ends_with(".partial"));
    drop(file);
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn never_replaces_a_file_that_appeared_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let unnamed = OutputFile::create_for(&path, false, None).unwrap();
    let named = named_partial(&path, Older::None);
    std::fs::write(&path, "other").unwrap();
    for file in [unnamed, named] {
        let error = file.commit().unwrap_err();
        assert!(matches!(error, OutputError::Exists { .. }), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "other");
    assert_eq!(names(dir.path()), ["x"]);
}

#[test]
fn renames_a_file_with_a_hidden_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    for (older, text) in [(Older::None, "first"), (Older::Own, "second")] {
        let mut file = named_partial(&path, older);
        file.write_all(text.as_bytes()).unwrap();
        file.commit().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        assert_eq!(names(dir.path()), ["x"]);
    }
}

/// As on NFS, whose renaming always replaces.
#[test]
fn moves_by_a_hard_link_and_replaces_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name| PathAt::open(&dir.path().join(name)).unwrap();
    let read = |name| std::fs::read_to_string(dir.path().join(name)).unwrap();
    std::fs::write(dir.path().join("partial"), "new").unwrap();
    place("partial").move_by_link(&place("x")).unwrap();
    assert_eq!(names(dir.path()), ["x"]);
    std::fs::write(dir.path().join("partial"), "newer").unwrap();
    let taken = place("partial").move_by_link(&place("x"));
    assert_eq!(taken, Err(Errno::EXIST));
    assert_eq!((read("x"), read("partial")), ("new".into(), "newer".into()));
}

#[test]
fn replaces_a_file_with_the_longest_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x".repeat(255));
    write_all(&path, false, "old").unwrap();
    write_all(&path, true, "new").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
}

#[test]
fn files_that_belong_together_appear_all_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a", "b", "c"].map(|name| dir.path().join(name));
    let create = || {
        let files = paths.iter();
        files.map(|path| OutputFile::create_for(path, false, None).unwrap())
    };
    let files: Vec<_> = create().collect();
    std::fs::write(&paths[2], "other").unwrap();
    assert!(OutputFile::commit_all(files).is_err());
    assert_eq!(names(dir.path()), ["c"]);
    std::fs::remove_file(&paths[2]).unwrap();
    OutputFile::commit_all(create()).unwrap();
    assert_eq!(names(dir.path()), ["a", "b", "c"]);
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
        let left = dir
            .path()
            .join(super::super::file::partial_name(OsStr::new("x"), number));
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
