//! BPF programs that are unloaded before the capture ends: their frames keep the symbols.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use support::recording::{can_record, record};
use support::{Missing, Saved, captured, perfcollect, run, run_perfcollect};

const LIMIT: Duration = Duration::from_secs(60);

/// `bpf NAME...` loads programs with these names one after the other, prints each name, runs the
/// program briefly and unloads it.
const PROGRAM: &str = r#"
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct bpf_insn insns[1502];

static int bpf(int command, union bpf_attr *attr) { return syscall(SYS_bpf, command, attr, sizeof *attr); }

int main(int count, char **names) {
    insns[0] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = 1};
    for (int i = 1; i <= 1500; i++) insns[i] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MUL | BPF_K, .imm = 31};
    insns[1501] = (struct bpf_insn){.code = BPF_JMP | BPF_EXIT};
    for (int i = 1; i < count; i++) {
        union bpf_attr load = {.prog_type = BPF_PROG_TYPE_SOCKET_FILTER, .insns = (unsigned long)insns, .insn_cnt = 1502};
        load.license = (unsigned long)"GPL";
        strcpy(load.prog_name, names[i]);
        int fd = bpf(BPF_PROG_LOAD, &load);
        if (fd < 0) { perror("bpf"); return 1; }
        puts("loaded");
        fflush(stdout);
        char data[64] = {0};
        struct timespec used;
        do {
            union bpf_attr run = {.test = {.prog_fd = fd, .data_in = (unsigned long)data, .data_size_in = 64, .repeat = 20000}};
            if (bpf(BPF_PROG_TEST_RUN, &run) < 0) { perror("run"); return 1; }
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        } while (used.tv_sec * 1000 + used.tv_nsec / 1000000 < 400 * i);
        close(fd);
    }
}
"#;

/// Serializes the tests.
///
/// perf does not see that another process unloaded a program, and gives its symbol to the code that
/// replaces it.
static ALONE: Mutex<()> = Mutex::new(());

/// Builds the program that loads BPF programs. Returns what is missing if that is impossible.
fn program() -> Result<(tempfile::TempDir, PathBuf), Missing> {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("bpf.c");
    let program = directory.path().join("bpf");
    fs::write(&source, PROGRAM).unwrap();
    let compiled = Command::new("cc")
        .arg("-o")
        .args([&program, &source])
        .output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        return Err(Missing::Command("cc"));
    }
    match Command::new(&program).arg("probe").output() {
        Ok(output) if output.status.success() => Ok((directory, program)),
        _ => Err(Missing::Bpf),
    }
}

#[test]
fn unloaded_programs_keep_their_symbols() {
    need_capture!();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_directory, program) = match program() {
        Ok(program) => program,
        Err(missing) => skip!(missing),
    };
    let program = program.to_str().unwrap();
    let saved = captured(["-freq", "1000", "--", program, "busy_one", "busy_two"]);
    // Each program takes 0.4 s, nearly all of it in BPF code. A virtual CPU may not run all the
    // time.
    for name in ["_busy_one", "_busy_two"] {
        let samples = saved.samples_under(&[name]);
        assert!(samples > 20, "{name}: {samples}");
    }
    let unresolved = saved.summary.quality.names.kernel.unresolved;
    assert!(unresolved < 50, "{unresolved}");
}

#[test]
fn program_loaded_before_the_capture_has_its_symbol() {
    need_capture!();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_directory, program) = match program() {
        Ok(program) => program,
        Err(missing) => skip!(missing),
    };
    let mut command = Command::new(&program);
    let mut child = command
        .arg("busy_before")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "loaded\n");
    let saved = captured(["-freq", "1000", "-pid", &child.id().to_string()]);
    assert!(child.wait().unwrap().success());
    let samples = saved.samples_under(&["_busy_before"]);
    assert!(samples > 20, "{samples}");
}

#[test]
fn imports_symbols_of_bpf_programs_from_perf_data() {
    need!(can_record());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (directory, program) = match program() {
        Ok(program) => program,
        Err(missing) => skip!(missing),
    };
    let words = [program.to_str().unwrap(), "busy_perf"];
    let options = ["-g", "-F", "999", "-e", "cpu-clock"];
    record(&directory.path().join("perf.data"), &options, words);

    let in_program = |script: &mut Command| -> Vec<String> {
        let text = run(script.current_dir(directory.path()), LIMIT)
            .expect_success()
            .stdout;
        let lines = text.lines().filter(|line| line.contains("_busy_"));
        lines.map(str::to_owned).collect()
    };
    let arguments = ["script", "-F", "ip,sym,dso", "-i", "perf.data"];
    let theirs = in_program(Command::new("perf").args(arguments));
    let arguments = ["script", "-F", "ip,sym,dso", "perf.data"];
    let ours = in_program(Command::new(perfcollect()).args(arguments));
    assert!(ours.len() > 20, "{}", ours.len());
    // perf may read the time of a KSYMBOL record from the zeros after it, and then knows of no program.
    assert!(theirs.is_empty() || ours == theirs, "{ours:#?} {theirs:#?}");

    let arguments = ["convert", "perf.data", "-o", "trace", "-quiet"];
    run_perfcollect(arguments, directory.path(), LIMIT).expect_success();
    let saved = Saved::open(directory, "trace");
    let samples = saved.samples_under(&["_busy_perf"]);
    assert!(samples > 20, "{samples}");
}
