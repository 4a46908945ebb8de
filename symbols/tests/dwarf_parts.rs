//! Debug information in several files: names, inlined functions and lines are those of the same program with all in one file.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use perfcollect_symbols::debug_file::{LookupMethod, Rejection, Search, package_candidates};
use perfcollect_symbols::dwarf::{Detail, DwarfSections, SplitUnit};
use perfcollect_symbols::elf::ElfFile;

mod oracle;

/// Whether the tool is there; it must succeed then.
fn run(directory: &Path, tool: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(tool);
    match command.args(arguments).current_dir(directory).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("skipped: {tool} is not installed");
            false
        }
        output => {
            let output = output.unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{tool} {arguments:?}: {told}");
            true
        }
    }
}

/// With `-fdebug-types-section` each is a unit of its own.
const TYPES: &str = "
struct pair { int a, b; };
struct both { struct pair of[2]; };
int sum(struct both *x) { return x->of[0].a + x->of[1].b; }
";

/// Makes `program` of a C program in this directory.
fn compile(directory: &Path, program: &str, options: &[&str]) -> bool {
    fs::write(
        directory.join("program.c"),
        [oracle::PROGRAM, TYPES].concat(),
    )
    .unwrap();
    let common = ["-O2", "-Wl,--build-id=sha1", "-o", program, "program.c"];
    run(directory, "cc", &[options, &common].concat())
}

fn sections(program: &Path) -> DwarfSections<'static> {
    let file = File::open(program).unwrap();
    let elf = ElfFile::open(&file).unwrap();
    elf.copied_dwarf_sections().unwrap().expect("DWARF")
}

/// Whether each address is told as addr2line tells it of the whole program.
fn agrees(
    sections: &DwarfSections<'_>,
    open: impl Fn(&SplitUnit) -> Option<PathBuf>,
    whole: &Path,
) {
    let open = |unit: &SplitUnit| unit.load(&File::open(open(unit)?).unwrap()).ok();
    let debug_info = sections.debug_info_with(open).unwrap();
    let inlined = oracle::compare(&debug_info, whole, usize::MAX - 1);
    assert!(inlined.is_none_or(|inlined| inlined > 20), "{inlined:?}");
}

#[test]
fn what_dwz_moved_to_a_common_file_is_found_there() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for version in ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        let is_made = ["whole", "one", "two"].map(|name| compile(at, name, &[version]));
        let arguments = [
            "-m",
            "common.debug",
            "-M",
            "../lib/common.debug",
            "one",
            "two",
        ];
        if is_made != [true; 3] || !run(at, "dwz", &arguments) {
            return;
        }
        let file = File::open(at.join("one")).unwrap();
        let link = ElfFile::open(&file).unwrap().alt_link().expect("a link");
        assert_eq!(link.path, Path::new("../lib/common.debug"));

        let inside = |path: &Path| at.join(path.strip_prefix("/").unwrap());
        let search = || {
            let places = link.candidates(&[Path::new("/usr/bin/one")], &["/symbols".into()]);
            Search::run(
                places,
                |path| File::open(inside(path)),
                |file| link.load(&file),
            )
        };
        let digits = link.build_id.to_string();
        let pair = format!("{}/{}.debug", &digits[..2], &digits[2..]);
        // From the last place to the first: each is preferred to those before.
        let places = [
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
        for (path, evidence) in places {
            assert!(
                search()
                    .found
                    .is_none_or(|(found, _)| found.path != Path::new(&path))
            );
            let to = inside(Path::new(&path));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(at.join("common.debug"), to).unwrap();
            let (found, common) = search().found.expect("the common file");
            assert_eq!(
                (found.path.to_str(), found.method),
                (Some(&*path), evidence)
            );

            let mut sections = sections(&at.join("one"));
            sections.set_supplementary(common);
            agrees(&sections, |_| None, &at.join("whole"));
        }

        // Without it there is nothing to tell the inlined functions by, and that of another build is not taken.
        let lonely = sections(&at.join("one"));
        let debug_info = lonely.debug_info().unwrap();
        let symbols = ElfFile::open(&file).unwrap().symbols().unwrap();
        let main = symbols
            .iter()
            .find(|symbol| symbol.name == b"main")
            .unwrap();
        let frames =
            (main.start..main.end).flat_map(|at| debug_info.frames(at, Detail::Functions).unwrap());
        assert!(frames.into_iter().any(|frame| frame.name.is_none()));
        let other = link.load(&File::open(at.join("whole")).unwrap());
        assert!(matches!(other, Err(Rejection::BuildId { .. })));
        for made in ["symbols", "usr"] {
            fs::remove_dir_all(at.join(made)).unwrap();
        }
    }
}

#[test]
fn split_units_are_found_in_their_files_and_in_packages() {
    let with_types = ["-gdwarf-5", "-fdebug-types-section"];
    for version in [&["-gdwarf-4"][..], &["-gdwarf-5"], &with_types] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().canonicalize().unwrap();
        let split = [version, &["-gsplit-dwarf"]].concat();
        if !compile(&at, "whole", &version[..1]) || !compile(&at, "program", &split) {
            return;
        }
        let (whole, program) = (at.join("whole"), at.join("program"));

        let asked = RefCell::new(Vec::new());
        let search = |unit: &SplitUnit| {
            asked.borrow_mut().push(unit.clone());
            let places = unit.candidates(&program, &[at.join("symbols")]);
            let search = Search::run(places, |path| File::open(path), |file| unit.load(&file));
            Some(search.found?.0)
        };
        agrees(&sections(&program), |unit| Some(search(unit)?.path), &whole);
        let asked = asked.take();
        let [unit] = asked.as_slice() else {
            panic!("asked more than once: {asked:?}");
        };
        assert_eq!(unit.directory.as_deref(), Some(&*at));
        let dwo = at.join(&unit.name);
        assert_eq!(
            search(unit).map(|found| found.method),
            Some(LookupMethod::Named)
        );

        // In a directory of the caller's it is found first; that of another unit is not taken.
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
        let refused = another.load(&File::open(&kept).unwrap());
        assert!(
            matches!(refused, Err(Rejection::SplitUnit { .. })),
            "{refused:?}"
        );

        // Without it the skeleton tells nothing, and that is no fault.
        let lonely = sections(&program);
        let symbols = ElfFile::open(&File::open(&program).unwrap())
            .unwrap()
            .symbols()
            .unwrap();
        let main = symbols
            .iter()
            .find(|symbol| symbol.name == b"main")
            .unwrap()
            .start;
        let debug_info = lonely.debug_info().unwrap();
        let frames = debug_info.frames(main, Detail::Lines).unwrap();
        assert!(
            frames.iter().all(|frame| frame.name.is_none()),
            "{frames:?}"
        );

        // What binutils and LLVM 14 have makes no package of gcc's DWARF 5.
        let arguments = ["-e", "program", "-o", "program.dwp"];
        if version == ["-gdwarf-4"] && run(&at, "dwp", &arguments) {
            fs::remove_file(&dwo).unwrap();
            let places = package_candidates(&program, &[]);
            assert_eq!(places[0].path, at.join("program.dwp"));
            let file = File::open(&places[0].path).unwrap();
            let mut sections = sections(&program);
            let package = ElfFile::open(&file).unwrap().package_sections().unwrap();
            sections.set_package(package.expect("a package"));
            agrees(
                &sections,
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

/// Of each instruction of `caller`, the functions with their lines, innermost first.
fn chains(program: &Path, package: Option<&Path>) -> Vec<Vec<String>> {
    let file = File::open(program).unwrap();
    let elf = ElfFile::open(&file).unwrap();
    let mut sections = elf.dwarf_sections().expect("DWARF");
    if let Some(package) = package {
        let package = File::open(package).unwrap();
        let package = ElfFile::open(&package).unwrap().package_sections();
        sections.set_package(package.unwrap().expect("a package"));
    }
    let debug_info = sections.debug_info().unwrap();
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

/// Each way in which sections are compressed: by a flag, and before there was one by their names.
#[test]
fn compressed_sections_tell_what_they_told() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    if !compile(at, "whole", &["-gdwarf-4"]) {
        return;
    }
    for way in ["zlib", "zlib-gnu", "zstd"] {
        let way = format!("--compress-debug-sections={way}");
        if run(at, "objcopy", &[&way, "whole", "compressed"]) {
            let program = at.join("compressed");
            agrees(&sections(&program), |_| None, &at.join("whole"));
        }
    }
}

/// rustc makes packages of DWARF 5.
#[test]
fn packages_of_dwarf_5_tell_what_the_whole_program_tells() {
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
