//! Debug information in several files: the frames equal those of the same program in one file.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use perfcollect_symbols::debug_file::{LookupMethod, Rejection, Search, package_candidates};
use perfcollect_symbols::dwarf::{Detail, DwarfSections, SplitUnit};
use perfcollect_symbols::elf::ElfFile;
use test_skip::{Missing, skip};

mod oracle;

/// Runs a tool, which must succeed. Returns `false` if it is not installed.
fn run(directory: &Path, tool: &'static str, arguments: &[&str]) -> bool {
    let mut command = Command::new(tool);
    match command.args(arguments).current_dir(directory).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skip(Missing::Command(tool));
            false
        }
        output => {
            let output = output.unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{tool} {arguments:?}: {stderr}");
            true
        }
    }
}

/// Types that become separate type units with `-fdebug-types-section`.
const TYPES: &str = "
struct pair { int a, b; };
struct both { struct pair of[2]; };
int sum(struct both *x) { return x->of[0].a + x->of[1].b; }
";

/// Compiles the C program to `program` in this directory. Returns `false` without a compiler.
fn compile(directory: &Path, program: &str, options: &[&str]) -> bool {
    fs::write(
        directory.join("program.c"),
        [oracle::PROGRAM, TYPES].concat(),
    )
    .unwrap();
    let common = ["-O2", "-Wl,--build-id=sha1", "-o", program, "program.c"];
    run(directory, "cc", &[options, &common].concat())
}

fn sections(program: &Path) -> DwarfSections {
    let file = File::open(program).unwrap();
    let elf = ElfFile::open(file).unwrap();
    elf.copied_dwarf_sections().unwrap().expect("DWARF")
}

/// Compares the frames of all addresses with those of addr2line for the whole program.
fn compare(
    sections: DwarfSections,
    open: impl Fn(&SplitUnit) -> Option<PathBuf> + Send + Sync + 'static,
    whole: &Path,
) {
    let open = move |unit: &SplitUnit| unit.load(File::open(open(unit)?).unwrap()).ok();
    let debug_info = sections.into_debug_info_with(open).unwrap();
    let inlined = oracle::compare(&debug_info, whole, usize::MAX - 1);
    assert!(inlined.is_none_or(|inlined| inlined > 20), "{inlined:?}");
}

#[test]
fn reads_supplementary_files_of_dwz() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for version in ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        let is_built = ["whole", "one", "two"].map(|name| compile(at, name, &[version]));
        let arguments = [
            "-m",
            "common.debug",
            "-M",
            "../lib/common.debug",
            "one",
            "two",
        ];
        if is_built != [true; 3] || !run(at, "dwz", &arguments) {
            return;
        }
        let file = File::open(at.join("one")).unwrap();
        let one = ElfFile::open(file).unwrap();
        let link = one.alt_link().expect("a link");
        assert_eq!(link.path, Path::new("../lib/common.debug"));

        let inside = |path: &Path| at.join(path.strip_prefix("/").unwrap());
        let search = || {
            let candidates = link.candidates(&[Path::new("/usr/bin/one")], &["/symbols".into()]);
            Search::run(
                candidates,
                |path| File::open(inside(path)),
                |file| link.load(file),
            )
        };
        let digits = link.build_id.to_string();
        let pair = format!("{}/{}.debug", &digits[..2], &digits[2..]);
        // In reverse search order: each file is preferred to those before.
        let paths = [
            (
                "/usr/bin/../lib/common.debug".to_owned(),
                LookupMethod::Named,
            ),
            (
                format!("/usr/lib/debug/.build-id/{pair}"),
                LookupMethod::BuildId,
            ),
            ("/symbols/common.debug".to_owned(), LookupMethod::Directory),
            (format!("/symbols/{pair}"), LookupMethod::Directory),
            (
                format!("/symbols/.build-id/{pair}"),
                LookupMethod::Directory,
            ),
        ];
        fs::create_dir_all(at.join("usr/bin")).unwrap();
        for (path, method) in paths {
            assert!(
                search()
                    .found
                    .is_none_or(|(found, _)| found.path != Path::new(&path))
            );
            let to = inside(Path::new(&path));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(at.join("common.debug"), to).unwrap();
            let (found, supplementary) = search().found.expect("the supplementary file");
            assert_eq!((found.path.to_str(), found.method), (Some(&*path), method));

            let mut sections = sections(&at.join("one"));
            sections.set_supplementary(supplementary);
            compare(sections, |_| None, &at.join("whole"));
        }

        // Without the supplementary file, inlined functions have no names. The file of another
        // build is rejected.
        let incomplete = sections(&at.join("one"));
        let debug_info = incomplete.into_debug_info().unwrap();
        let symbols = one.symbols().unwrap();
        let main = symbols
            .iter()
            .find(|symbol| symbol.name == b"main")
            .unwrap();
        let frames =
            (main.start..main.end).flat_map(|at| debug_info.frames(at, Detail::Functions).unwrap());
        assert!(frames.into_iter().any(|frame| frame.name.is_none()));
        let other = link.load(File::open(at.join("whole")).unwrap());
        assert!(matches!(other, Err(Rejection::BuildId { .. })));
        for directory in ["symbols", "usr"] {
            fs::remove_dir_all(at.join(directory)).unwrap();
        }
    }
}

#[test]
fn reads_split_units_from_files_and_packages() {
    let with_types = ["-gdwarf-5", "-fdebug-types-section"];
    for version in [&["-gdwarf-4"][..], &["-gdwarf-5"], &with_types] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().canonicalize().unwrap();
        let split = [version, &["-gsplit-dwarf"]].concat();
        if !compile(&at, "whole", &version[..1]) || !compile(&at, "program", &split) {
            return;
        }
        let (whole, program) = (at.join("whole"), at.join("program"));

        let searched = Arc::new(Mutex::new(Vec::new()));
        let (path, directory, units) = (program.clone(), at.join("symbols"), searched.clone());
        let search = move |unit: &SplitUnit| {
            units.lock().unwrap().push(unit.clone());
            let candidates = unit.candidates(&path, std::slice::from_ref(&directory));
            let search = Search::run(candidates, |path| File::open(path), |file| unit.load(file));
            Some(search.found?.0)
        };
        let open = search.clone();
        compare(
            sections(&program),
            move |unit| Some(open(unit)?.path),
            &whole,
        );
        let searched = std::mem::take(&mut *searched.lock().unwrap());
        let [unit] = searched.as_slice() else {
            panic!("not searched once: {searched:?}");
        };
        assert_eq!(unit.directory.as_deref(), Some(&*at));
        let dwo = at.join(&unit.name);
        assert_eq!(
            search(unit).map(|found| found.method),
            Some(LookupMethod::Named)
        );

        // The caller's directories are searched first. The file of another unit is rejected.
        fs::create_dir(at.join("symbols")).unwrap();
        let kept = at.join("symbols").join(&unit.name);
        fs::copy(&dwo, &kept).unwrap();
        assert_eq!(
            search(unit).map(|found| found.method),
            Some(LookupMethod::Directory)
        );
        let another = SplitUnit {
            id: unit.id ^ 1,
            ..unit.clone()
        };
        assert!(search(&another).is_none());
        let rejected = another.load(File::open(&kept).unwrap());
        assert!(
            matches!(rejected, Err(Rejection::SplitUnit { .. })),
            "{rejected:?}"
        );

        // Without the file, the skeleton has no functions, which is not an error.
        let incomplete = sections(&program);
        let symbols = ElfFile::open(File::open(&program).unwrap())
            .unwrap()
            .symbols()
            .unwrap();
        let main = symbols
            .iter()
            .find(|symbol| symbol.name == b"main")
            .unwrap()
            .start;
        let debug_info = incomplete.into_debug_info().unwrap();
        let frames = debug_info.frames(main, Detail::Lines).unwrap();
        assert!(
            frames.iter().all(|frame| frame.name.is_none()),
            "{frames:?}"
        );

        // The tools of binutils and LLVM 14 cannot build a package of gcc's DWARF 5.
        let arguments = ["-e", "program", "-o", "program.dwp"];
        if version == ["-gdwarf-4"] && run(&at, "dwp", &arguments) {
            fs::remove_file(&dwo).unwrap();
            let candidates = package_candidates(&program, &[]);
            assert_eq!(candidates[0].path, at.join("program.dwp"));
            let file = File::open(&candidates[0].path).unwrap();
            let mut sections = sections(&program);
            let package = ElfFile::open(file).unwrap().package_sections().unwrap();
            sections.set_package(package.expect("a package"));
            compare(
                sections,
                |unit| panic!("{unit:?} is in the package"),
                &whole,
            );
        }
    }
}

const RUST: &str = "
#[inline(always)] fn inner(x: u64) -> u64 { (0..x).fold(x, |sum, i| std::hint::black_box(sum ^ i)) }
#[unsafe(no_mangle)] #[inline(never)] pub extern \"C\" fn caller(x: u64) -> u64 { inner(x) + 1 }
fn main() { std::process::exit(caller(std::env::args().count() as u64) as i32 & 1) }
";

/// Returns the functions with file and line at each address of `caller`, innermost first.
fn chains(program: &Path, package: Option<&Path>) -> Vec<Vec<String>> {
    let file = File::open(program).unwrap();
    let elf = ElfFile::open(file).unwrap();
    let mut sections = elf.dwarf_sections().expect("DWARF");
    if let Some(package) = package {
        let package = File::open(package).unwrap();
        let package = ElfFile::open(package).unwrap().package_sections();
        sections.set_package(package.unwrap().expect("a package"));
    }
    let debug_info = sections.into_debug_info().unwrap();
    let symbols = elf.symbols().unwrap();
    let caller = symbols.iter().find(|symbol| symbol.name == b"caller");
    let caller = caller.expect("the function");
    let chain = |address| {
        let frames = debug_info.frames(address, Detail::Lines).unwrap();
        let frame = |frame: &perfcollect_symbols::dwarf::SourceFrame<'_>| {
            let name = frame.name.map(String::from_utf8_lossy);
            format!("{name:?} {:?} {:?}", frame.file, frame.line)
        };
        frames.iter().map(frame).collect()
    };
    (caller.start..caller.end).map(chain).collect()
}

/// Sections are compressed with a flag, or by the older GNU form with another name.
#[test]
fn reads_compressed_sections() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    if !compile(at, "whole", &["-gdwarf-4"]) {
        return;
    }
    for format in ["zlib", "zlib-gnu", "zstd"] {
        let option = format!("--compress-debug-sections={format}");
        if run(at, "objcopy", &[&option, "whole", "compressed"]) {
            let program = at.join("compressed");
            compare(sections(&program), |_| None, &at.join("whole"));
        }
    }
}

/// rustc builds packages of DWARF 5.
#[test]
fn reads_packages_of_dwarf_5() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("program.rs"), RUST).unwrap();
    let rustc = |program: &str, split: &str| {
        let options = ["-O", "-g", "-Cdwarf-version=5", split, "-o", program];
        run(at, "rustc", &[&options[..], &["program.rs"]].concat())
    };
    if !rustc("whole", "-Csplit-debuginfo=off") || !rustc("program", "-Csplit-debuginfo=packed") {
        return;
    }
    let whole = chains(&at.join("whole"), None);
    assert!(whole.iter().any(|chain| chain.len() > 2), "{whole:?}");
    let package = at.join("program.dwp");
    assert_eq!(chains(&at.join("program"), Some(&package)), whole);
}
