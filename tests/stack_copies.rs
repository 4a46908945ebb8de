//! Captures of native programs whose stacks are hard to walk: they grow beyond a short copy, or assembly
//! has its frame in another register.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use support::{captured, compiled};

/// Burns CPU time on one CPU, first with a small stack, then with one of 48 KiB.
const PROGRAM: &str = "
#define _GNU_SOURCE
#include <sched.h>
#include <time.h>
static volatile unsigned long steps;
static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}
__attribute__((noinline)) static void burn(double until) {
    while (cpu_seconds() < until) for (int i = 0; i < 200000; i++) steps++;
}
__attribute__((noinline)) static void shallow(double until) { burn(until); steps++; }
__attribute__((noinline)) static void deep(int frames, double until) {
    volatile char frame[4096];
    frame[0] = (char)frames;
    if (frames > 1) deep(frames - 1, until); else burn(until);
    steps += frame[0];
}
int main(void) {
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(sched_getcpu(), &cpu);
    sched_setaffinity(0, sizeof cpu, &cpu);
    shallow(3);
    deep(12, 6);
    return 0;
}
";

/// A CPU that has had only small stacks makes short copies. Then deep stacks are truncated until
/// perfcollect has seen the first of them, and only those.
#[test]
fn copies_grow_with_the_stacks() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let options = ["-O1", "-fomit-frame-pointer"];
    let program = compiled(directory.path(), "grow", PROGRAM, &options);
    for (call_graph, short) in [("auto", true), ("dwarf", false)] {
        let saved = captured(["-callgraph", call_graph, "--", program.to_str().unwrap()]);
        let shallow = saved.samples_under(&["main", "shallow", "burn"]);
        let deep = saved.samples_under(&["main", "deep", "deep", "deep", "burn"]);
        let truncated = saved.summary.quality.stacks.stack_copy_ended;
        // A copy is empty where the program has not touched the page below the stack pointer yet.
        assert_eq!(truncated > 3, short, "{call_graph}: {truncated}");
        // A busy machine may delay perfcollect for some of these milliseconds.
        assert!(
            truncated < deep / 5,
            "{call_graph}: {truncated} truncated, {deep} whole"
        );
        let all = saved.summary.samples;
        assert!(
            shallow + deep + truncated + all / 20 >= all,
            "{call_graph}: {shallow} shallow, {deep} deep, {truncated} truncated of {all}"
        );
        // No sample is lost or counted twice where the copies change.
        assert!(
            shallow > all * 2 / 5 && deep + truncated > all * 2 / 5,
            "{call_graph}"
        );
    }
}

/// Calls two functions in a loop, with frame pointers, and ends by itself.
const PROGRAM_32: &str = "
static volatile unsigned steps;
__attribute__((noinline)) static void inner(void) { for (int i = 0; i < 1000000; i++) steps++; }
__attribute__((noinline)) static void outer(void) { inner(); steps++; }
void _start(void) {
    for (int i = 0; i < 6000; i++) outer();
    __asm__ volatile (\"int $0x80\" :: \"a\"(1), \"b\"(0));
}
";

/// The kernel gives no registers of 32-bit code that perfcollect could unwind: only the callchain,
/// which short copies lack, has the callers.
#[test]
fn stacks_of_32_bit_programs_have_callers() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let options = "-m32 -O0 -fno-omit-frame-pointer -fno-pic -no-pie -nostdlib -static";
    let options: Vec<_> = options.split(' ').collect();
    let program = compiled(directory.path(), "small", PROGRAM_32, &options);
    let saved = captured(["--", program.to_str().unwrap()]);
    let whole = saved.samples_under(&["outer", "inner"]);
    let all = saved.summary.samples;
    assert!(
        all > 1200 && whole + all / 20 + 10 >= all,
        "{whole} of {all}"
    );
}

/// Burns CPU time in assembly whose frame only `rsi` leads to, as in epilogues of OpenSSL. Its caller
/// has a frame pointer, which leads to the caller of that.
const ASSEMBLY: &str = r#"
#include <time.h>
void busy(long steps);
asm(".text\n"
    ".type busy,@function\n"
    "busy:\n"
    ".cfi_startproc\n"
    "push %rbp\n"
    ".cfi_adjust_cfa_offset 8\n"
    ".cfi_offset %rbp, -16\n"
    "sub $64, %rsp\n"
    ".cfi_adjust_cfa_offset 64\n"
    "lea 72(%rsp), %rsi\n"
    ".cfi_def_cfa %rsi, 8\n"
    "mov -8(%rsi), %rbp\n"
    ".cfi_restore %rbp\n"
    "1: dec %rdi\n"
    "jnz 1b\n"
    "lea (%rsi), %rsp\n"
    ".cfi_def_cfa_register %rsp\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size busy, .-busy\n");
static volatile long calls;
__attribute__((noinline)) static void near_caller(long steps) { busy(steps); calls++; }
__attribute__((noinline)) static void far_caller(long steps) { near_caller(steps); calls++; }
int main(void) {
    while (clock() < 2 * CLOCKS_PER_SEC) far_caller(1000000);
    return 0;
}
"#;

#[test]
fn callers_of_assembly_with_its_frame_in_another_register() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let options = ["-O1", "-fno-omit-frame-pointer"];
    let program = compiled(directory.path(), "assembly", ASSEMBLY, &options);
    let saved = captured(["--", program.to_str().unwrap()]);
    let all = saved.samples_under(&["busy"]);
    let whole = saved.samples_under(&["main", "far_caller", "near_caller", "busy"]);
    assert!(all > 1000 && whole == all, "{whole} of {all}");
}
