//! Search for debug files that objcopy wrote.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use perfcollect_symbols::build_id::BuildId;
use perfcollect_symbols::debug_file::{DebugFileQuery, LookupMethod, Rejection, Search};
use perfcollect_symbols::elf::ElfFile;
use test_skip::{Missing, skip};

fn run(program: &'static str, arguments: &[&str], directory: &Path) -> bool {
    match Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .output()
    {
        Ok(output) => {
            assert!(
                output.status.success(),
                "{program} {arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            true
        }
        Err(_) => {
            skip(Missing::Command(program));
            false
        }
    }
}

/// A root directory with `/app/program`, stripped, with a debug link to `program.debug`.
///
/// The debug file is at `/kept.debug`, where no search finds it.
struct Root {
    directory: tempfile::TempDir,
    build_id: Option<BuildId>,
}

impl Root {
    fn new(build_id_option: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::create_dir(path.join("app")).unwrap();
        fs::write(path.join("program.c"), "static int inner(int x) { return x * 3; }\nint main(int c, char **v) { (void)v; return inner(c); }\n").unwrap();
        let is_built = run(
            "cc",
            &["-O0", build_id_option, "-o", "app/program", "program.c"],
            path,
        ) && run(
            "objcopy",
            &["--only-keep-debug", "app/program", "program.debug"],
            path,
        ) && run(
            "objcopy",
            &[
                "--strip-all",
                "--add-gnu-debuglink=program.debug",
                "app/program",
            ],
            path,
        );
        if !is_built {
            return None;
        }
        fs::rename(path.join("program.debug"), path.join("kept.debug")).unwrap();
        let build_id = ElfFile::open(File::open(path.join("app/program")).unwrap())
            .unwrap()
            .build_id();
        Some(Self {
            directory,
            build_id,
        })
    }

    /// Copies the debug file to a path below the root.
    fn install(&self, path: &str) {
        let to = self.inside(Path::new(path));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(self.directory.path().join("kept.debug"), to).unwrap();
    }

    fn inside(&self, path: &Path) -> PathBuf {
        self.directory.path().join(path.strip_prefix("/").unwrap())
    }

    fn search(&self) -> Search<ElfFile> {
        let file = File::open(self.inside(Path::new("/app/program"))).unwrap();
        let elf = ElfFile::open(file).unwrap();
        assert!(!elf.has_symtab());
        let link = elf.debug_link().unwrap();
        assert_eq!(link.name, b"program.debug");
        let query = DebugFileQuery {
            path: Path::new("/app/program"),
            build_id: self.build_id.as_ref(),
            debug_link: Some(&link),
            directories: &["/symbols".into()],
            perf_cache: Some(Path::new("/home/me/.debug")),
        };
        query.find(|path| File::open(self.inside(path)))
    }

    fn build_id_path(&self) -> String {
        format!("/usr/lib/debug/.build-id/{}.debug", self.build_id_pair())
    }

    fn perf_cache_path(&self, name: &str) -> String {
        format!("/home/me/.debug/.build-id/{}/{name}", self.build_id_pair())
    }

    /// Returns `ab/cdef`.
    fn build_id_pair(&self) -> String {
        let build_id = self.build_id.as_ref().unwrap();
        let digits = build_id.to_string();
        format!("{}/{}", &digits[..2], &digits[2..])
    }
}

#[track_caller]
fn found_at(search: &Search<ElfFile>) -> (&str, LookupMethod) {
    let (candidate, _) = search.found.as_ref().expect("a debug file");
    (candidate.path.to_str().unwrap(), candidate.method)
}

#[test]
fn finds_the_debug_file_at_each_path() {
    let Some(root) = Root::new("-Wl,--build-id=sha1") else {
        return;
    };
    assert!(root.search().found.is_none());
    let paths = [
        (root.perf_cache_path("elf"), LookupMethod::Cache),
        (root.perf_cache_path("debug"), LookupMethod::Cache),
        (
            "/usr/lib/debug/app/program.dbg".to_owned(),
            LookupMethod::Beside,
        ),
        ("/app/program.dbg".to_owned(), LookupMethod::Beside),
        (
            "/usr/lib/debug/app/program.debug".to_owned(),
            LookupMethod::DebugLink,
        ),
        (
            "/app/.debug/program.debug".to_owned(),
            LookupMethod::DebugLink,
        ),
        ("/app/program.debug".to_owned(), LookupMethod::DebugLink),
        (root.build_id_path(), LookupMethod::BuildId),
        ("/symbols/program".to_owned(), LookupMethod::Directory),
        ("/symbols/program.dbg".to_owned(), LookupMethod::Directory),
        ("/symbols/program.debug".to_owned(), LookupMethod::Directory),
    ];
    // In reverse search order: each new file is preferred to those before.
    for (path, method) in &paths {
        root.install(path);
        let search = root.search();
        assert_eq!(found_at(&search), (path.as_str(), *method));
        let (_, elf) = search.found.as_ref().unwrap();
        let symbols = elf.symbols().unwrap();
        assert!(symbols.iter().any(|symbol| symbol.name == b"inner"));
    }
}

#[test]
fn reports_the_file_of_another_build() {
    let (Some(root), Some(other)) = (
        Root::new("-Wl,--build-id=0x11223344"),
        Root::new("-Wl,--build-id=0x55667788"),
    ) else {
        return;
    };
    let beside = root.inside(Path::new("/app/program.debug"));
    fs::copy(other.directory.path().join("kept.debug"), &beside).unwrap();
    let search = root.search();
    assert!(search.found.is_none());
    let (candidate, why) = &search.rejected[0];
    assert_eq!(candidate.path, Path::new("/app/program.debug"));
    assert_eq!(why.to_string(), "build id 55667788, expected 11223344");
    root.install("/app/program.dbg");
    assert_eq!(
        found_at(&root.search()),
        ("/app/program.dbg", LookupMethod::Beside)
    );
}

#[test]
fn rejects_other_build_ids_at_all_paths() {
    let (Some(root), Some(other)) = (
        Root::new("-Wl,--build-id=0x11223344"),
        Root::new("-Wl,--build-id=0x55667788"),
    ) else {
        return;
    };
    let paths = [
        "/symbols/.build-id/11/223344.debug",
        "/symbols/11/223344.debug",
        "/symbols/program.debug",
        "/symbols/program.dbg",
        "/symbols/program",
        "/usr/lib/debug/.build-id/11/223344.debug",
        "/app/program.debug",
        "/app/.debug/program.debug",
        "/usr/lib/debug/app/program.debug",
        "/app/program.dbg",
        "/usr/lib/debug/app/program.dbg",
        "/home/me/.debug/.build-id/11/223344/debug",
        "/home/me/.debug/.build-id/11/223344/elf",
    ];
    for path in paths {
        let to = root.inside(Path::new(path));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(other.directory.path().join("kept.debug"), to).unwrap();
    }
    let search = root.search();
    assert!(search.found.is_none());
    let rejected = search.rejected.iter().map(|(candidate, why)| {
        assert!(matches!(why, Rejection::BuildId { .. }), "{why}");
        candidate.path.to_str().unwrap()
    });
    assert_eq!(rejected.collect::<Vec<_>>(), paths);
}

/// The build id matches, but the symbol table extends past the end of the file.
#[test]
fn continues_the_search_after_a_corrupt_file() {
    const SHT_SYMTAB: u8 = 2;
    let Some(root) = Root::new("-Wl,--build-id=sha1") else {
        return;
    };
    root.install("/app/program.debug");
    let path = root.inside(Path::new("/app/program.debug"));
    let mut bytes = fs::read(&path).unwrap();
    let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let mut tables = bytes[headers..].chunks_mut(64);
    let table = tables.find(|header| header[4] == SHT_SYMTAB).unwrap();
    table[32..40].copy_from_slice(&(1_u64 << 20).to_le_bytes());
    fs::write(&path, bytes).unwrap();
    root.install("/app/program.dbg");
    let search = root.search();
    assert_eq!(
        found_at(&search),
        ("/app/program.dbg", LookupMethod::Beside)
    );
    let [(candidate, Rejection::Elf(_))] = &search.rejected[..] else {
        panic!("{:?}", search.rejected)
    };
    assert_eq!(candidate.path, Path::new("/app/program.debug"));
}

#[test]
fn skips_stripped_files_in_the_cache_of_perf() {
    let Some(root) = Root::new("-Wl,--build-id=sha1") else {
        return;
    };
    let cached = root.inside(Path::new(&root.perf_cache_path("elf")));
    fs::create_dir_all(cached.parent().unwrap()).unwrap();
    fs::copy(root.inside(Path::new("/app/program")), cached).unwrap();
    let search = root.search();
    assert!(search.found.is_none() && search.rejected.is_empty());
}

#[test]
fn verifies_by_crc_without_build_ids() {
    let Some(root) = Root::new("-Wl,--build-id=none") else {
        return;
    };
    assert_eq!(root.build_id, None);
    root.install("/app/.debug/program.debug");
    assert_eq!(
        found_at(&root.search()),
        ("/app/.debug/program.debug", LookupMethod::DebugLink)
    );
    let path = root.inside(Path::new("/app/.debug/program.debug"));
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let search = root.search();
    assert!(search.found.is_none());
    assert!(
        matches!(search.rejected[0].1, Rejection::Crc { .. }),
        "{:?}",
        search.rejected
    );
}

#[test]
fn reports_stripped_files_and_files_that_are_not_elf() {
    let Some(root) = Root::new("-Wl,--build-id=sha1") else {
        return;
    };
    fs::write(root.inside(Path::new("/app/program.debug")), "rubbish").unwrap();
    fs::copy(
        root.inside(Path::new("/app/program")),
        root.inside(Path::new("/app/program.dbg")),
    )
    .unwrap();
    let search = root.search();
    assert!(search.found.is_none());
    assert!(
        matches!(
            search.rejected[..],
            [(_, Rejection::Elf(_)), (_, Rejection::NoSymbols)]
        ),
        "{:?}",
        search.rejected
    );
}
