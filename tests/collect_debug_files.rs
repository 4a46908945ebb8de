//! A stripped program whose debug file is put where it is looked for: names and inlined functions are those of the whole program.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::{Missing, Saved, Workload, captured, run, run_perfcollect, workloads};

const LIMIT: Duration = Duration::from_secs(60);

/// `program` and `kept`, its debug file, in a folder.
fn stripped(name: &str) -> Result<tempfile::TempDir, Missing> {
    let whole = workloads::native(name)?;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let kept = folder.path().join("kept");
    fs::copy(
        whole.with_file_name("libwork.so"),
        folder.path().join("libwork.so"),
    )
    .unwrap();
    let objcopy = |option: &str, from: &Path, to: &Path| {
        let arguments = [OsStr::new(option), from.as_ref(), to.as_ref()];
        run(Command::new("objcopy").args(arguments), LIMIT).expect_success();
    };
    objcopy("--only-keep-debug", &whole, &kept);
    objcopy("--strip-all", &whole, &program);
    Ok(folder)
}

fn capture(folder: &Path, options: &[&str]) -> Saved {
    let arguments = ["--mode", "inlined", "--seconds", "3"];
    let workload = Workload::start(Command::new(folder.join("program")).args(arguments));
    let pid = workload.pid().to_string();
    let saved = captured([&["-pid", &pid, "-collectsec", "1"], options].concat());
    workload.done(LIMIT);
    saved
}

/// Whether the functions of the program have their names.
fn is_named(saved: &Saved) -> bool {
    let chain = [
        "main",
        "inline_caller",
        "inlined_outer_[i]",
        "inlined_inner_[i]",
    ];
    saved.samples_under(&chain) > 0
}

fn notices(saved: &Saved) -> String {
    let notices = saved.summary.quality.notices.iter();
    notices.map(|notice| notice.what.as_str()).collect()
}

/// An ELF file whose symbol table goes on behind its end, by the header of that section.
fn with_endless_symbols(mut elf: Vec<u8>) -> Vec<u8> {
    const SHT_SYMTAB: u8 = 2;
    let headers = u64::from_le_bytes(elf[40..48].try_into().unwrap()) as usize;
    let is_symbols = |header: &&mut [u8]| header[4] == SHT_SYMTAB;
    let header = elf[headers..].chunks_mut(64).find(is_symbols).unwrap();
    header[32..40].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    elf
}

#[test]
fn beside_the_program_and_in_a_directory() {
    need_capture!();
    let folder = need!(stripped("native-nofp"));
    let folder = folder.path();
    assert!(!is_named(&capture(folder, &[])));
    for place in ["program.debug", "program.dbg"] {
        fs::copy(folder.join("kept"), folder.join(place)).unwrap();
        assert!(is_named(&capture(folder, &[])), "{place}");
        fs::remove_file(folder.join(place)).unwrap();
    }
    let damaged = with_endless_symbols(fs::read(folder.join("kept")).unwrap());
    fs::write(folder.join("program.debug"), damaged).unwrap();
    fs::copy(folder.join("kept"), folder.join("program.dbg")).unwrap();
    let saved = capture(folder, &[]);
    let told = notices(&saved);
    assert!(is_named(&saved) && told.contains("program.debug was not used: ELF symbols too large"));
    fs::remove_file(folder.join("program.debug")).unwrap();
    fs::remove_file(folder.join("program.dbg")).unwrap();
    let symbols = folder.join("symbols");
    fs::create_dir(&symbols).unwrap();
    fs::rename(folder.join("kept"), symbols.join("program.debug")).unwrap();
    let saved = capture(folder, &["-symbols", symbols.to_str().unwrap()]);
    assert!(is_named(&saved));
    assert_eq!(notices(&saved), "");
}

/// What the program is captured with that has its own symbols, or less.
fn captured_whole(folder: &Path, options: &[&str]) -> Saved {
    let program = folder.join("program");
    let command = ["--", program.to_str().unwrap(), "--mode", "inlined"];
    captured([options, &command, &["--seconds", "0.5"]].concat())
}

/// Whether the summary says that the program has symbols.
fn has_symbols(saved: &Saved) -> bool {
    let mut modules = saved.summary.modules.iter();
    let module = modules.find(|module| module.path.ends_with("/program"));
    module.unwrap().has_symbols
}

#[test]
fn a_program_whose_section_headers_are_damaged_is_told_and_its_debug_file_found() {
    need_capture!();
    let folder = need!(stripped("native-fp"));
    let folder = folder.path();
    let mut program = fs::read(folder.join("program")).unwrap();
    program[40..48].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    fs::write(folder.join("program"), program).unwrap();
    let saved = captured_whole(folder, &[]);
    let told = notices(&saved);
    assert!(
        told.contains("program do not all have names: ELF"),
        "{told}"
    );
    assert!(!is_named(&saved) && !has_symbols(&saved));
    fs::rename(folder.join("kept"), folder.join("program.debug")).unwrap();
    let saved = captured_whole(folder, &[]);
    assert!(is_named(&saved) && has_symbols(&saved));
}

#[test]
fn names_come_of_debug_information_and_of_compressed_symbols_where_there_is_no_symbol() {
    need_capture!();
    let folder = need!(stripped("native-fp"));
    let whole = need!(workloads::native("native-fp"));
    let folder = folder.path();
    let run_in = |tool: &str, arguments: &[&str]| {
        run(
            Command::new(tool).args(arguments).current_dir(folder),
            LIMIT,
        )
        .expect_success();
    };
    let whole = whole.to_str().unwrap();
    run_in(
        "objcopy",
        &["--strip-symbol=inline_caller", whole, "program"],
    );
    let saved = captured_whole(folder, &["-noinline"]);
    assert!(saved.samples_under(&["main", "inline_caller"]) > 0);
    assert_eq!(saved.samples_under(&["_[i]"]), 0);

    if Command::new("xz").arg("--version").output().is_err() {
        skip!(Missing::Command("xz"))
    }
    run_in("objcopy", &["--strip-debug", whole, "mini"]);
    run_in("xz", &["mini"]);
    let add = "--add-section=.gnu_debugdata=mini.xz";
    run_in("objcopy", &["-S", add, whole, "program"]);
    let saved = captured_whole(folder, &[]);
    assert!(saved.samples_under(&["main", "inline_caller"]) > 0 && has_symbols(&saved));
}

#[test]
fn of_another_build_it_is_told_and_not_used() {
    need_capture!();
    let folder = need!(stripped("native-nofp"));
    let other = need!(stripped("native-fp"));
    let symbols = other.path().join("symbols");
    fs::create_dir(&symbols).unwrap();
    fs::copy(other.path().join("kept"), symbols.join("program.debug")).unwrap();
    let saved = capture(folder.path(), &["-symbols", symbols.to_str().unwrap()]);
    assert!(!is_named(&saved));
    let told = notices(&saved);
    assert!(
        told.contains("program.debug was not used: build id"),
        "{told}"
    );
}

/// Puts the libraries of a program where they are, below another root directory.
fn add_libraries(program: &Path, root: &Path) {
    let listed = run(Command::new("ldd").arg(program), LIMIT).expect_success();
    let words = listed.stdout.split_whitespace();
    let elsewhere = |word: &&str| word.starts_with('/') && !Path::new(word).starts_with(root);
    for library in words.filter(elsewhere) {
        let copy = root.join(&library[1..]);
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(library, copy).unwrap();
    }
}

/// /proc/PID/maps has the paths from our root directory, the records of the kernel from the process's own.
#[test]
fn a_process_in_a_chroot_has_its_own_files_and_before_that_ours() {
    need_capture!();
    let folder = need!(stripped("native-nofp"));
    let root = folder.path();
    add_libraries(&root.join("program"), root);
    let chroot = |seconds: &'static str| {
        let mut command = Command::new("chroot");
        let arguments = ["/program", "--mode", "inlined", "--seconds", seconds];
        command.arg(root).args(arguments);
        command.env("LD_LIBRARY_PATH", "/");
        command
    };
    run(&mut chroot("0.01"), LIMIT).expect_success();
    let debug = root.join("usr/lib/debug");
    fs::create_dir_all(&debug).unwrap();
    fs::rename(root.join("kept"), debug.join("program.debug")).unwrap();
    let workload = Workload::start(&mut chroot("3"));
    let pid = workload.pid().to_string();
    let saved = captured(["-pid", &pid, "-collectsec", "1"]);
    workload.done(LIMIT);
    assert!(is_named(&saved));
    assert_eq!(notices(&saved), "");

    // What chroot itself runs is gone from the memory of its process when it is looked for.
    let script = "for i in 1 2 3 4; do \
        LD_LIBRARY_PATH=/ chroot $0 /program --mode inlined --seconds 1 & done; wait";
    let command = ["--", "sh", "-c", script, root.to_str().unwrap()];
    let saved = captured([&["-freq", "5000"][..], &command].concat());
    assert!(is_named(&saved));
    assert_eq!(notices(&saved), "");
}

#[test]
fn a_directory_that_is_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["collect", "trace", "-symbols", "missing", "--", "true"];
    let finished = run_perfcollect(arguments, folder.path(), LIMIT);
    assert_eq!(finished.status.code(), Some(2));
    assert!(
        finished.stderr.contains("not a directory"),
        "{}",
        finished.stderr
    );
}

const SPLIT: &str = "
static inline __attribute__((always_inline)) unsigned inlined_inner(unsigned x) {
    for (int i = 0; i < 999; i++) {
        x = x * 31 + 7;
        __asm__ volatile(\"\" : \"+r\"(x));
    }
    return x;
}
__attribute__((noinline)) unsigned inline_caller(unsigned x) { return inlined_inner(x) + 1; }
int main(void) {
    unsigned x = 0;
    for (int i = 0; i < 300000; i++) x = inline_caller(x);
    return x == 42;
}
";

#[test]
fn split_units_and_what_dwz_moved_are_found_beside_the_program() {
    need_capture!();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("split.c"), SPLIT).unwrap();
    let run_in = |tool: &str, arguments: &[&str]| {
        run(Command::new(tool).args(arguments).current_dir(at), LIMIT).expect_success();
    };
    let compile = |program: &str, option: &str| {
        run_in("cc", &["-O2", "-g", option, "-o", program, "split.c"]);
    };
    let program = at.join("program");
    let capture = || captured(["-freq", "1000", "--", program.to_str().unwrap()]);
    let chain = ["main", "inline_caller", "inlined_inner_[i]"];
    let is_missing = |saved: &Saved, file: &str| {
        let told = notices(saved);
        saved.samples_under(&chain) == 0
            && told.contains("are not all shown")
            && told.contains(file)
            && told.contains("is not there")
    };

    compile("program", "-gsplit-dwarf");
    assert!(capture().samples_under(&chain) > 0);
    let is_dwo = |entry: &fs::DirEntry| entry.path().extension() == Some("dwo".as_ref());
    let mut entries = fs::read_dir(at).unwrap().map(Result::unwrap);
    let dwo = entries.find(is_dwo).unwrap().path();
    fs::remove_file(&dwo).unwrap();
    let saved = capture();
    assert!(is_missing(&saved, ".dwo"), "{}", notices(&saved));
    fs::write(&dwo, "of another build").unwrap();
    let told = notices(&capture());
    let twice = told.matches("was not used").count() == 2;
    assert!(twice && !told.contains("is not there"), "{told}");

    if Command::new("dwz").arg("--version").output().is_err() {
        skip!(Missing::Command("dwz"))
    }
    compile("program", "-gdwarf-4");
    compile("other", "-gdwarf-4");
    run_in("dwz", &["-m", "common", "-M", "common", "program", "other"]);
    assert!(capture().samples_under(&chain) > 0);
    fs::remove_file(at.join("common")).unwrap();
    let saved = capture();
    assert!(is_missing(&saved, "common"), "{}", notices(&saved));
}
