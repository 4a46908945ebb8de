//! BPF programs that are gone when the capture ends: they have the names they had.
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

/// `bpf NAME...`: loads a program of this name, says so, runs it for a while and unloads it, one after the other.
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

/// The tests run one by one: perf does not see that a program of another process went, and names by it what comes in its place.
static ALONE: Mutex<()> = Mutex::new(());

/// The program that runs programs, or why there is none.
fn program() -> Result<(tempfile::TempDir, PathBuf), Missing> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("bpf.c");
    let program = folder.path().join("bpf");
    fs::write(&source, PROGRAM).unwrap();
    let compiled = Command::new("cc")
        .arg("-o")
        .args([&program, &source])
        .output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        return Err(Missing::Command("cc"));
    }
    match Command::new(&program).arg("probe").output() {
        Ok(output) if output.status.success() => Ok((folder, program)),
        _ => Err(Missing::Bpf),
    }
}

#[test]
fn programs_that_come_and_go_have_their_names() {
    need_capture!();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_folder, program) = match program() {
        Ok(program) => program,
        Err(missing) => skip!(missing),
    };
    let program = program.to_str().unwrap();
    let saved = captured(["-freq", "1000", "--", program, "busy_one", "busy_two"]);
    // 0.4 s of CPU time each, nearly all of it in the program, but a virtual CPU may not have been one all the time.
    for name in ["_busy_one", "_busy_two"] {
        let samples = saved.samples_under(&[name]);
        assert!(samples > 20, "{name}: {samples}");
    }
    let unnamed = saved.summary.quality.names.kernel.unnamed;
    assert!(unnamed < 50, "{unnamed}");
}

#[test]
fn one_that_was_there_before_has_its_name() {
    need_capture!();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_folder, program) = match program() {
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
fn a_recording_of_perfs_tells_of_them_too() {
    need!(can_record());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (folder, program) = match program() {
        Ok(program) => program,
        Err(missing) => skip!(missing),
    };
    let words = [program.to_str().unwrap(), "busy_perf"];
    let options = ["-g", "-F", "999", "-e", "cpu-clock"];
    record(&folder.path().join("perf.data"), &options, words);

    let in_program = |script: &mut Command| -> Vec<String> {
        let text = run(script.current_dir(folder.path()), LIMIT)
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
    run_perfcollect(arguments, folder.path(), LIMIT).expect_success();
    let saved = Saved::open(folder, "trace");
    let samples = saved.samples_under(&["_busy_perf"]);
    assert!(samples > 20, "{samples}");
}
