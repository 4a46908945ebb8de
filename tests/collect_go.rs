//! Captures of stripped Go programs, which have names and frame sizes in their function table only.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use perfcollect_symbols::elf::ElfFile;
use support::{Saved, run, run_perfcollect};

const LIMIT: Duration = Duration::from_secs(300);

/// Functions with the only callers that they have.
const CALLERS: [(&str, &[&str]); 19] = [
    ("main.leaf", &["main.computeCaller", "main.goCallback_[i]"]),
    ("main.computeCaller", &["main.work"]),
    ("main.allocateCaller", &["main.work"]),
    ("main.mapCaller", &["main.work"]),
    ("main.sortCaller", &["main.work"]),
    ("main.channelCaller", &["main.work"]),
    ("main.deepCaller", &["main.work"]),
    ("main.writeCaller", &["main.work"]),
    ("main.timeCaller", &["main.work"]),
    ("main.cCaller", &["main.work"]),
    ("main.work", &["main.main.func1"]),
    ("main.main.func1", &["runtime.goexit"]),
    ("main.channelCaller.func1", &["runtime.goexit"]),
    ("main.deepCaller.func1", &["runtime.goexit"]),
    ("main.descend", &["main.descend", "main.deepCaller.func1"]),
    ("main.main", &["runtime.main"]),
    ("runtime.main", &["runtime.goexit"]),
    ("runtime.mstart0", &["runtime.mstart"]),
    ("runtime.mstart1", &["runtime.mstart0"]),
];

/// Compiles the program in a directory: `whole`, and `callers` without symbols.
fn compile(directory: &Path, has_c: bool, mode: &str) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workloads/go");
    let part = match has_c {
        true => "with_c.go",
        false => "without_c.go",
    };
    for (name, flags) in [("whole", ""), ("callers", "-s -w")] {
        let mut compiler = Command::new("go");
        compiler
            .args(["build", "-p", "1", "-ldflags", flags, "-o", name])
            .arg(format!("-buildmode={mode}"))
            .args(["callers.go", part].map(|file| sources.join(file)))
            .env("CGO_ENABLED", if has_c { "1" } else { "0" })
            .env("GO111MODULE", "off")
            .env("GOCACHE", support::cache().join("go-build"))
            .env("GOFLAGS", "")
            .env("GOPROXY", "off")
            .env("GOTOOLCHAIN", "local");
        run(compiler.current_dir(directory), LIMIT).expect_success();
    }
    let stripped = ElfFile::open(File::open(directory.join("callers")).unwrap()).unwrap();
    assert!(!stripped.has_symtab());
}

/// Returns the functions of a program, without the suffix of those in assembly.
fn symbols(program: &Path) -> HashSet<String> {
    let elf = ElfFile::open(File::open(program).unwrap()).unwrap();
    let symbols = elf.symbols().unwrap();
    let names = symbols.iter().map(|symbol| {
        let name = String::from_utf8_lossy(symbol.name);
        name.strip_suffix(".abi0").unwrap_or(&name).to_owned()
    });
    names.collect()
}

fn capture(has_c: bool, mode: &str, options: &[&str]) -> (Saved, HashSet<String>) {
    let directory = tempfile::tempdir().unwrap();
    compile(directory.path(), has_c, mode);
    let symbols = symbols(&directory.path().join("whole"));
    let collect = ["collect", "x", "-quiet"];
    let command = ["--", "./callers", "4"];
    let arguments = [&collect, options, &command].concat();
    run_perfcollect(arguments, directory.path(), LIMIT).expect_success();
    (Saved::open(directory, "x"), symbols)
}

/// Samples of which something is true, and others.
#[derive(Debug, Default)]
struct Share {
    yes: u64,
    no: u64,
}

impl Share {
    fn count(&mut self, is_true: bool, samples: u64) {
        *if is_true { &mut self.yes } else { &mut self.no } += samples;
    }

    #[track_caller]
    fn expect(&self, per_mille: u64) {
        let all = self.yes + self.no;
        assert!(self.yes * 1000 >= all * per_mille, "{self:?}");
    }
}

/// Returns whether a frame is of the program: not of the kernel, the loader, C or the vDSO.
fn is_go(frame: &str) -> bool {
    let package = frame.split_once('.').map(|(package, _)| package);
    frame.starts_with("callers+0x") || package.is_some_and(|package| !package.contains('_'))
}

/// Asserts that functions have only the callers that call them. The stack copy may end before a caller, and so may
/// the kernel's callchain, which is used on other stacks.
#[track_caller]
fn expect_callers(saved: &Saved) {
    for stack in saved.stacks.keys() {
        for (caller, function) in stack.iter().zip(&stack[1..]) {
            let known = CALLERS.iter().find(|(name, _)| name == function);
            let is_cut = caller.starts_with("[truncated");
            if let Some((_, callers)) = known.filter(|_| !is_cut) {
                assert!(callers.contains(&caller.as_str()), "{stack:?}");
            }
        }
    }
}

#[track_caller]
fn expect_complete(mode: &str) {
    need_capture!();
    need_command!("go");
    let (saved, symbols) = capture(false, mode, &[]);
    let (mut named, mut kept, mut other_stack) =
        (Share::default(), Share::default(), Share::default());
    for (stack, count) in &saved.stacks {
        let is_kept = !stack.iter().any(|frame| frame.starts_with("[truncated"));
        kept.count(is_kept, *count);
        if !is_kept {
            println!("{count} {stack:?}");
        }
        if stack.iter().any(|frame| frame == "runtime.systemstack") {
            other_stack.count(is_kept, *count);
        }
        let frames = stack.iter().skip(1);
        for frame in frames
            .filter(|frame| is_go(frame) && !frame.ends_with("_[i]") && !frame.ends_with("_[k]"))
        {
            let is_named = symbols.contains(frame);
            named.count(is_named, *count);
            if !is_named {
                println!("{count} {frame}");
            }
        }
    }
    assert!(kept.yes > 300 && named.yes > 2000, "{kept:?} {named:?}");
    assert!(other_stack.yes > 10, "{other_stack:?}");
    println!("{named:?} {kept:?} {other_stack:?}");
    named.expect(999);
    kept.expect(970);
    other_stack.expect(800);
    expect_callers(&saved);
    for caller in ["allocateCaller", "mapCaller", "sortCaller", "channelCaller"] {
        assert!(saved.samples_under(&["runtime.goexit", caller]) > 5);
    }
}

#[test]
fn frames_of_a_stripped_program_have_names_and_callers() {
    expect_complete("exe");
}

#[test]
fn frames_of_a_position_independent_program_have_names_and_callers() {
    expect_complete("pie");
}

/// C code runs on another stack, and may keep anything in rbp: its callers may be missing.
#[test]
fn stacks_with_c_code_end_where_the_stack_changes() {
    need_capture!();
    need_command!("go");
    need_command!("gcc");
    let (saved, _) = capture(true, "exe", &[]);
    expect_callers(&saved);
    let (mut kept, mut with_c) = (Share::default(), Share::default());
    for (stack, count) in &saved.stacks {
        let has = |name: &str| stack.iter().any(|frame| frame == name);
        let has_c = has("runtime.asmcgocall") || has("runtime.cgocallback");
        let is_kept = !stack.iter().any(|frame| frame.starts_with("[truncated"));
        match has_c {
            true => with_c.count(is_kept || has("[truncated: other stack]"), *count),
            false => kept.count(is_kept, *count),
        }
        if !is_kept {
            println!("{count} {stack:?}");
        }
    }
    println!("{kept:?} {with_c:?}");
    assert!(kept.yes > 300 && with_c.yes > 20, "{kept:?} {with_c:?}");
    kept.expect(970);
    with_c.expect(970);
    assert!(saved.samples_under(&["goCallback", "main.leaf"]) > 5);
}

/// Without stack copies, callers of functions without a frame are missing. None is wrong.
#[test]
fn frame_pointers_lead_to_the_start_of_a_goroutine() {
    need_capture!();
    need_command!("go");
    let (saved, _) = capture(false, "exe", &["-callgraph", "fp"]);
    let stacks = saved.summary.quality.stacks;
    assert!(
        stacks.rooted * 100 >= saved.summary.samples * 97,
        "{stacks:?}"
    );
    assert!(saved.samples_under(&["runtime.goexit", "main.work", "allocateCaller"]) > 5);
}
