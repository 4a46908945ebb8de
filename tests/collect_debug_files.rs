//! Stripped programs with a debug file in a searched directory: symbols and inlined functions are
//! those of the whole program.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use perfcollect::trace::{Notice, NoticeKind};
use perfcollect_symbols::elf::ElfFile;
use support::{Missing, Saved, Workload, captured, perfcollect, run, run_perfcollect, workloads};

const LIMIT: Duration = Duration::from_secs(60);

/// Creates a directory with `program` and its debug file, `kept`.
fn stripped(name: &str) -> Result<tempfile::TempDir, Missing> {
    let whole = workloads::native(name)?;
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    let kept = directory.path().join("kept");
    fs::copy(
        whole.with_file_name("libwork.so"),
        directory.path().join("libwork.so"),
    )
    .unwrap();
    let objcopy = |option: &str, from: &Path, to: &Path| {
        let arguments = [OsStr::new(option), from.as_ref(), to.as_ref()];
        run(Command::new("objcopy").args(arguments), LIMIT).expect_success();
    };
    objcopy("--only-keep-debug", &whole, &kept);
    objcopy("--strip-all", &whole, &program);
    Ok(directory)
}

fn capture(directory: &Path, options: &[&str]) -> Saved {
    let arguments = ["--mode", "inlined", "--seconds", "3"];
    let workload = Workload::start(Command::new(directory.join("program")).args(arguments));
    let pid = workload.pid().to_string();
    let saved = captured([&["-pid", &pid, "-collectsec", "1"], options].concat());
    workload.done(LIMIT);
    saved
}

/// Returns whether the functions of the program have symbols.
fn is_named(saved: &Saved) -> bool {
    let chain = [
        "main",
        "inline_caller",
        "inlined_outer_[i]",
        "inlined_inner_[i]",
    ];
    saved.samples_under(&chain) > 0
}

/// Kind and file name of each notice.
fn notices(saved: &Saved) -> Vec<(NoticeKind, &str)> {
    let notices = saved.summary.quality.notices.iter();
    notices
        .map(|notice| {
            let file = notice.subject.rsplit('/').next();
            (notice.kind, file.unwrap_or_default())
        })
        .collect()
}

/// Changes the size in the section header, so that the symbol table ends after the end of the file.
fn with_endless_symbols(mut elf: Vec<u8>) -> Vec<u8> {
    const SHT_SYMTAB: u8 = 2;
    let headers = u64::from_le_bytes(elf[40..48].try_into().unwrap()) as usize;
    let is_symbols = |header: &&mut [u8]| header[4] == SHT_SYMTAB;
    let header = elf[headers..].chunks_mut(64).find(is_symbols).unwrap();
    header[32..40].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    elf
}

#[test]
fn finds_debug_file_beside_the_program_and_in_a_directory() {
    need_capture!();
    let directory = need!(stripped("native-nofp"));
    let directory = directory.path();
    assert!(!is_named(&capture(directory, &[])));
    for name in ["program.debug", "program.dbg"] {
        fs::copy(directory.join("kept"), directory.join(name)).unwrap();
        assert!(is_named(&capture(directory, &[])), "{name}");
        fs::remove_file(directory.join(name)).unwrap();
    }
    let corrupt = with_endless_symbols(fs::read(directory.join("kept")).unwrap());
    fs::write(directory.join("program.debug"), corrupt).unwrap();
    fs::copy(directory.join("kept"), directory.join("program.dbg")).unwrap();
    let saved = capture(directory, &[]);
    assert!(is_named(&saved));
    assert_eq!(
        notices(&saved),
        [(NoticeKind::DebugFileRejected, "program.debug")]
    );
    fs::remove_file(directory.join("program.debug")).unwrap();
    fs::remove_file(directory.join("program.dbg")).unwrap();
    let symbols = directory.join("symbols");
    fs::create_dir(&symbols).unwrap();
    fs::rename(directory.join("kept"), symbols.join("program.debug")).unwrap();
    let saved = capture(directory, &["-symbols", symbols.to_str().unwrap()]);
    assert!(is_named(&saved));
    assert_eq!(notices(&saved), []);
}

/// Captures a program that has its own symbols, or fewer.
fn captured_whole(directory: &Path, options: &[&str]) -> Saved {
    let program = directory.join("program");
    let command = ["--", program.to_str().unwrap(), "--mode", "inlined"];
    captured([options, &command, &["--seconds", "0.5"]].concat())
}

/// Returns whether the program has symbols according to the summary.
fn has_symbols(saved: &Saved) -> bool {
    let mut modules = saved.summary.modules.iter();
    let module = modules.find(|module| module.path.ends_with("/program"));
    module.unwrap().has_symbols
}

#[test]
fn reports_corrupt_section_headers_and_finds_the_debug_file() {
    need_capture!();
    let directory = need!(stripped("native-fp"));
    let directory = directory.path();
    let mut program = fs::read(directory.join("program")).unwrap();
    program[40..48].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    fs::write(directory.join("program"), program).unwrap();
    let saved = captured_whole(directory, &[]);
    assert_eq!(
        notices(&saved),
        [(NoticeKind::SymbolsIncomplete, "program")]
    );
    assert!(!is_named(&saved) && !has_symbols(&saved));
    fs::rename(directory.join("kept"), directory.join("program.debug")).unwrap();
    let saved = captured_whole(directory, &[]);
    assert!(is_named(&saved) && has_symbols(&saved));
}

#[test]
fn symbolizes_from_debug_information_and_compressed_symbols() {
    need_capture!();
    let directory = need!(stripped("native-fp"));
    let whole = need!(workloads::native("native-fp"));
    let directory = directory.path();
    let run_in = |tool: &str, arguments: &[&str]| {
        run(
            Command::new(tool).args(arguments).current_dir(directory),
            LIMIT,
        )
        .expect_success();
    };
    let whole = whole.to_str().unwrap();
    run_in(
        "objcopy",
        &["--strip-symbol=inline_caller", whole, "program"],
    );
    let saved = captured_whole(directory, &["-noinline"]);
    assert!(saved.samples_under(&["main", "inline_caller"]) > 0);
    assert_eq!(saved.samples_under(&["_[i]"]), 0);

    need_command!("xz");
    run_in("objcopy", &["--strip-debug", whole, "mini"]);
    run_in("xz", &["mini"]);
    let add = "--add-section=.gnu_debugdata=mini.xz";
    run_in("objcopy", &["-S", add, whole, "program"]);
    let saved = captured_whole(directory, &[]);
    assert!(saved.samples_under(&["main", "inline_caller"]) > 0 && has_symbols(&saved));
}

#[test]
fn rejects_debug_file_of_another_build() {
    need_capture!();
    let directory = need!(stripped("native-nofp"));
    let other = need!(stripped("native-fp"));
    let symbols = other.path().join("symbols");
    fs::create_dir(&symbols).unwrap();
    fs::copy(other.path().join("kept"), symbols.join("program.debug")).unwrap();
    let saved = capture(directory.path(), &["-symbols", symbols.to_str().unwrap()]);
    assert!(!is_named(&saved));
    assert_eq!(
        notices(&saved),
        [(NoticeKind::DebugFileRejected, "program.debug")]
    );
}

/// A link of the owner could lead to it.
#[test]
fn rejects_debug_file_that_the_owner_of_the_program_may_not_read() {
    need_capture!();
    let directory = need!(stripped("native-nofp"));
    let debug_file = directory.path().join("program.debug");
    fs::rename(directory.path().join("kept"), &debug_file).unwrap();
    chown(directory.path().join("program"), Some(65534), None).unwrap();
    fs::set_permissions(&debug_file, fs::Permissions::from_mode(0o600)).unwrap();
    let private = capture(directory.path(), &[]);
    assert!(!is_named(&private));
    assert_eq!(
        notices(&private),
        [(NoticeKind::DebugFileRejected, "program.debug")]
    );
    fs::set_permissions(&debug_file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(is_named(&capture(directory.path(), &[])));
}

/// Copies the libraries of a program to the same paths below another root directory.
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

/// /proc/PID/maps has paths from perfcollect's root directory, the kernel's records from the
/// process's own.
#[test]
fn process_in_a_chroot_uses_its_own_files_after_the_chroot() {
    need_capture!();
    let directory = need!(stripped("native-nofp"));
    let root = directory.path();
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
    assert_eq!(notices(&saved), []);

    // The program that chroot runs first is gone from the process's memory when perfcollect looks
    // for it.
    let script = "for i in 1 2 3 4; do \
        LD_LIBRARY_PATH=/ chroot $0 /program --mode inlined --seconds 1 & done; wait";
    let command = ["--", "sh", "-c", script, root.to_str().unwrap()];
    let saved = captured([&["-freq", "5000"][..], &command].concat());
    assert!(is_named(&saved));
    assert_eq!(notices(&saved), []);
}

#[test]
fn rejects_missing_symbol_directory() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["collect", "trace", "-symbols", "missing", "--", "true"];
    let finished = run_perfcollect(arguments, directory.path(), LIMIT);
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
fn finds_split_units_and_dwz_files_beside_the_program() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
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
        let missing = saved.notices(NoticeKind::DebugPartMissing);
        let is_file = |notice: &&Notice| notice.subject.ends_with(file);
        let is_there = |notice: &Notice| notice.what.contains("is not there");
        saved.samples_under(&chain) == 0 && missing.into_iter().find(is_file).is_some_and(is_there)
    };

    compile("program", "-gsplit-dwarf");
    assert!(capture().samples_under(&chain) > 0);
    let is_dwo = |entry: &fs::DirEntry| entry.path().extension() == Some("dwo".as_ref());
    let mut entries = fs::read_dir(at).unwrap().map(Result::unwrap);
    let dwo = entries.find(is_dwo).unwrap().path();
    fs::remove_file(&dwo).unwrap();
    let saved = capture();
    assert!(is_missing(&saved, ".dwo"), "{:?}", notices(&saved));
    fs::write(&dwo, "of another build").unwrap();
    let saved = capture();
    let kinds: Vec<_> = notices(&saved).into_iter().map(|(kind, _)| kind).collect();
    let expected = [NoticeKind::DebugFileRejected, NoticeKind::DebugPartMissing];
    assert_eq!(kinds, expected);
    assert!(!is_missing(&saved, ".dwo"));

    need_command!("dwz");
    compile("program", "-gdwarf-4");
    compile("other", "-gdwarf-4");
    run_in("dwz", &["-m", "common", "-M", "common", "program", "other"]);
    assert!(capture().samples_under(&chain) > 0);
    fs::remove_file(at.join("common")).unwrap();
    let saved = capture();
    assert!(is_missing(&saved, "common"), "{:?}", notices(&saved));
}

/// `perf record` of root copies files of all processes to its cache, with the names that they claim.
#[test]
fn uses_the_build_id_cache_of_perf_of_root_only_on_request() {
    need_capture!();
    let directory = need!(stripped("native-nofp"));
    let directory = directory.path();
    let notes = fs::read(directory.join("kept")).unwrap();
    let build_id = ElfFile::parse(&notes).unwrap().build_id().unwrap();
    let home = directory.join("home");
    let cache = home.join(".debug");
    let entry = cache.join(".build-id").join(build_id.relative_path());
    fs::create_dir_all(&entry).unwrap();
    fs::rename(directory.join("kept"), entry.join("elf")).unwrap();
    let workload = Workload::start(Command::new(directory.join("program")).args([
        "--mode",
        "inlined",
        "--seconds",
        "30",
    ]));
    let pid = workload.pid().to_string();
    let cache = cache.to_str().unwrap();
    for (symbols, expected) in [(&[][..], false), (&["-symbols", cache], true)] {
        let traces = tempfile::tempdir().unwrap();
        let mut command = Command::new(perfcollect());
        command
            .args(["collect", "x", "-pid", &pid, "-collectsec", "0.5"])
            .args(symbols)
            .current_dir(&traces)
            .env("HOME", &home);
        run(&mut command, LIMIT).expect_success();
        let is_expected = expected || !rustix::process::geteuid().is_root();
        assert_eq!(is_named(&Saved::open(traces, "x")), is_expected);
    }
}
