use super::*;

#[test]
fn lists_candidates_in_the_order_of_gdb() {
    let link = DebugLink {
        name: b"libx.debuglink".to_vec(),
        crc: 1,
    };
    let query = DebugFileQuery {
        path: Path::new("/opt/app/libx.so"),
        build_id: Some(&"abcd0f01".parse().unwrap()),
        debug_link: Some(&link),
        directories: &["/symbols".into()],
        perf_cache: Some(Path::new("/root/.debug")),
    };
    let paths: Vec<_> = query
        .candidates()
        .into_iter()
        .map(|candidate| candidate.path)
        .collect();
    let expected = [
        "/symbols/.build-id/ab/cd0f01.debug",
        "/symbols/ab/cd0f01.debug",
        "/symbols/abcd0f01.debug",
        "/symbols/libx.debuglink",
        "/symbols/libx.so.debug",
        "/symbols/libx.so.dbg",
        "/symbols/libx.so",
        "/usr/lib/debug/.build-id/ab/cd0f01.debug",
        "/opt/app/libx.debuglink",
        "/opt/app/.debug/libx.debuglink",
        "/usr/lib/debug/opt/app/libx.debuglink",
        "/opt/app/libx.so.debug",
        "/opt/app/libx.so.dbg",
        "/usr/lib/debug/opt/app/libx.so.debug",
        "/usr/lib/debug/opt/app/libx.so.dbg",
        "/symbols/.build-id/ab/cd0f01/debug",
        "/symbols/.build-id/ab/cd0f01/elf",
        "/root/.debug/.build-id/ab/cd0f01/debug",
        "/root/.debug/.build-id/ab/cd0f01/elf",
    ];
    assert_eq!(paths, expected.map(PathBuf::from));
}

#[test]
fn lists_no_candidate_twice_and_never_the_file_itself() {
    let link = DebugLink {
        name: b"libcoreclr.so.dbg".to_vec(),
        crc: 1,
    };
    let mut query = DebugFileQuery {
        path: Path::new("/d/libcoreclr.so"),
        build_id: Some(&"01010101".parse().unwrap()),
        debug_link: Some(&link),
        directories: &[],
        perf_cache: None,
    };
    let beside = |query: &DebugFileQuery<'_>| {
        query
            .candidates()
            .iter()
            .filter(|c| c.path == Path::new("/d/libcoreclr.so.dbg"))
            .count()
    };
    assert_eq!((query.candidates().len(), beside(&query)), (6, 1));
    query.path = Path::new("/d/libcoreclr.so.dbg");
    assert_eq!(beside(&query), 0);
}
