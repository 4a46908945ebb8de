#![allow(clippy::unwrap_used)]

use super::*;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

const USER: u32 = 4321;

/// A directory with files that `USER` could have placed at the path of a perf map.
fn read_as_user(place: impl FnOnce(&Path)) -> Result<PerfMap, JitError> {
    let directory = tempfile::tempdir().unwrap();
    place(directory.path());
    let source = JitSource {
        root: Arc::new(Root::at(directory.path()).unwrap()),
        uid: USER,
        map: "/map".into(),
        dump: None,
        until: None,
    };
    source.map(&JitQuery::default())
}

fn write(path: &Path, owner: u32, mode: u32) {
    std::fs::write(path, "1000 10 secret\n").unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
}

#[test]
fn uses_files_of_the_process_and_public_ones_of_root() {
    if !rustix::process::geteuid().is_root() {
        return test_skip::skip(test_skip::Missing::Root);
    }
    for (owner, mode) in [(USER, 0o600), (0, 0o644)] {
        let map = read_as_user(|root| write(&root.join("map"), owner, mode)).unwrap();
        assert_eq!(map.lookup(0x1000).unwrap().name, b"secret");
    }
    let other = read_as_user(|root| write(&root.join("map"), USER + 1, 0o644));
    assert!(matches!(other, Err(JitError::Owner { .. })));
}

#[test]
fn uses_no_file_that_the_process_may_not_be_able_to_read() {
    if !rustix::process::geteuid().is_root() {
        return test_skip::skip(test_skip::Missing::Root);
    }
    let private = read_as_user(|root| write(&root.join("map"), 0, 0o600));
    assert!(matches!(private, Err(JitError::Private(_))));
    let hard_link = read_as_user(|root| {
        write(&root.join("secret"), 0, 0o644);
        std::fs::hard_link(root.join("secret"), root.join("map")).unwrap();
    });
    assert!(matches!(hard_link, Err(JitError::Private(_))));
    let link = read_as_user(|root| {
        write(&root.join("secret"), 0, 0o644);
        symlink("secret", root.join("map")).unwrap();
    });
    let error = link.unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

/// The owner of files in /proc is root for a process that cannot be dumped.
#[test]
fn the_user_of_a_process_is_the_owner_of_its_files() {
    let source = JitSource::of_process(std::process::id() as i32, None).unwrap();
    assert_eq!(source.uid, rustix::process::geteuid().as_raw());
}

/// A file of 10 GB takes no space on the disk, and no time to read.
#[test]
fn skips_holes_of_any_size() {
    use std::os::unix::fs::FileExt;

    let uid = rustix::process::geteuid().as_raw();
    let directory = tempfile::tempdir().unwrap();
    let map = std::fs::File::create(directory.path().join("map")).unwrap();
    map.write_all_at(b"1000 10 first\n2000 10 second", 0)
        .unwrap();
    map.write_all_at(b"3000 10 third\n", 10 << 30).unwrap();
    map.set_len(20 << 30).unwrap();
    let source = JitSource {
        root: Root::at(directory.path()).unwrap().into(),
        uid,
        map: "/map".into(),
        dump: None,
        until: None,
    };
    let map = source.map(&JitQuery::default()).unwrap();
    let names = [0x1000, 0x2000, 0x3000].map(|address| map.lookup(address).unwrap().name);
    assert_eq!(names, [&b"first"[..], b"second", b"third"]);
    assert!(!map.truncated);
}
