//! Processes whose names are malicious input for readers of the output, captured together.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use quick_xml::Reader;
use quick_xml::events::Event;
use support::{
    Running, Saved, captured, captured_during, cpu_time, expect_totals, grammar, perfview_json,
    run, run_perfcollect, start, wait_until,
};

/// Names as the kernel accepts them: up to 15 bytes, anything but NUL.
const NAMES: [&[u8]; 16] = [
    b"a b",
    b"x(y)",
    b"1/2 3/4",
    b"[k]",
    b":-1",
    b"Thread 1/4",
    b"line\nbreak",
    b"\n\n",
    "pr\u{f6}ze\u{df} \u{4e2d}".as_bytes(),
    b"\x1b[31m\x1b]0;x\x07",
    b"\xff\xfe\x80",
    b" ",
    b"a;b 12",
    b"</svg><script>",
    b"|a|.*)(&amp;",
    b"x\t0 f (m)\r",
];

/// Starts a busy process with each name.
fn busy() -> Vec<Running> {
    let script = r#"printf "$1" > /proc/$$/comm && echo named && while :; do :; done"#;
    let octal = |name: &[u8]| {
        name.iter()
            .map(|byte| format!("\\{byte:03o}"))
            .collect::<String>()
    };
    let started = NAMES.map(|name| {
        // A higher niceness leaves the CPUs to perfcollect and the readers of the output.
        start(Command::new("nice").args(["sh", "-c", script, "sh", &octal(name)]))
    });
    for (process, name) in started.iter().zip(NAMES) {
        let path = format!("/proc/{}/comm", process.pid());
        let mut expected = name.to_vec();
        expected.truncate(15);
        expected.push(b'\n');
        while std::fs::read(&path).unwrap() != expected {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    started.into()
}

/// Captures until each process has used CPU time of some 100 samples.
fn capture(options: &[&str], processes: &[Running]) -> Saved {
    captured_during(options, || {
        let used = |process: &Running| cpu_time(process.pid());
        let before: Vec<Duration> = processes.iter().map(used).collect();
        wait_until("CPU time of all processes", || {
            let mut pairs = processes.iter().zip(&before);
            pairs.all(|(process, before)| used(process) - *before >= Duration::from_millis(100))
        });
    })
}

fn check(saved: &Saved, processes: &[Running]) {
    // Each name must appear as one process with its own pid.
    let text = grammar::parse(&saved.perf_text);
    let samples = text.events;
    assert_eq!(samples.len() as u64, saved.summary.samples);
    for process in processes {
        let pid = process.pid() as i32;
        let ours = |row: &&perfcollect::output::summary::ProcessSummary| row.pid == pid;
        let row = saved.summary.processes.iter().find(ours);
        let written = samples.iter().filter(|event| event.pid == pid).count() as u64;
        assert!(written > 0, "{pid}");
        // A busy system may have more processes than the summary lists.
        let is_truncated = saved.summary.process_count > saved.summary.processes.len() as u64;
        match row {
            Some(row) => assert_eq!(written, row.samples, "{row:?}"),
            None => assert!(is_truncated, "{pid}"),
        }
        let end = format!("({pid})");
        let folded = saved
            .stacks
            .iter()
            .filter(|(stack, _)| stack[0].ends_with(&end));
        assert_eq!(
            folded.map(|(_, samples)| samples).sum::<u64>(),
            written,
            "{row:?}"
        );
    }
    if let Some(cpu) = perfview_json("cpu", &saved.path, &["--top", "0"]) {
        expect_totals(&cpu, &saved.summary);
    }
    expect_harmless_picture(saved);
    let arguments = ["view".as_ref(), saved.path.as_os_str()];
    let view =
        run_perfcollect(arguments, saved.directory(), Duration::from_secs(60)).expect_success();
    assert!(
        !view.stdout.contains(is_harmful),
        "{}",
        view.stdout.escape_debug()
    );
}

/// Returns whether a terminal may interpret the character.
fn is_harmful(c: char) -> bool {
    c.is_control() && c != '\n'
}

/// Checks that a strict XML parser accepts the flame graph, and that its only script is
/// perfcollect's.
fn expect_harmless_picture(saved: &Saved) {
    let svg = saved.svg();
    assert!(!svg.contains(|c: char| is_harmful(c) && c != '\t'));
    let mut reader = Reader::from_str(&svg);
    let (mut depth, mut scripts) = (0, 0);
    loop {
        match reader.read_event().unwrap() {
            Event::Start(start) => {
                depth += 1;
                scripts += usize::from(start.name().as_ref() == b"script");
            }
            Event::End(_) => depth -= 1,
            Event::Eof => break,
            _ => {}
        }
    }
    // For the pointer and for the keys.
    assert_eq!((depth, scripts), (0, 2));
}

#[test]
fn escapes_names_of_processes_selected_by_pid() {
    need_capture!();
    let processes = busy();
    let pids: Vec<String> = processes
        .iter()
        .map(|process| process.pid().to_string())
        .collect();
    let saved = capture(&["-pid", &pids.join(",")], &processes);
    assert_eq!(saved.summary.process_count, NAMES.len() as u64);
    check(&saved, &processes);
}

#[test]
fn escapes_names_in_a_system_wide_capture() {
    need_capture!();
    let processes = busy();
    let saved = capture(&[], &processes);
    check(&saved, &processes);
}

/// Runs one function of its file and copies of it.
///
/// The perf map names the copies with an empty string, a blank, and a name over the limit.
const NAMELESS: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
typedef unsigned spin_t(unsigned);
unsigned spin(unsigned x) __asm__("\" \"");
__attribute__((noinline)) unsigned spin(unsigned x) {
    for (int i = 0; i < 100000; i++) {
        x = x * 31 + 7;
        __asm__ volatile("" : "+r"(x));
        x ^= x >> 3;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}
int main(void) {
    char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char path[64], name[70000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    const char *names[] = {"", " ", name};
    sprintf(path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    for (int i = 0; i < 3; i++) {
        memcpy(code + 256 * i, (void *)spin, 256);
        fprintf(map, "%lx 100 %s\n", (unsigned long)(code + 256 * i), names[i]);
    }
    fclose(map);
    unsigned x = 0;
    while (clock() < CLOCKS_PER_SEC) {
        x = spin(x);
        for (int i = 0; i < 3; i++) x = ((spin_t *)(code + 256 * i))(x);
    }
    return x == 42;
}
"#;

#[test]
fn unnamed_function_is_one_row_and_a_long_name_is_truncated() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (
        directory.path().join("nameless.c"),
        directory.path().join("blank"),
    );
    std::fs::write(&source, NAMELESS).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-O1", "-o"]).args([&program, &source]);
    run(&mut compile, Duration::from_secs(60)).expect_success();
    let saved = captured(["-freq", "5000", "--", program.to_str().unwrap()]);
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", saved.summary.processes[0].pid));
    let rows = |begin: &str| -> BTreeSet<&str> {
        let frames = saved.stacks.keys().flatten().map(String::as_str);
        frames.filter(|frame| frame.starts_with(begin)).collect()
    };
    assert_eq!(rows("blank+0x").len(), 1, "{:?}", rows("blank+0x"));
    assert_eq!(rows("jit+0x").len(), 2, "{:?}", rows("jit+0x"));
    let truncated = rows("xxx");
    assert_eq!(truncated.len(), 1);
    for name in truncated {
        let (begin, checksum) = name.split_once("...").unwrap();
        assert!(begin.bytes().all(|byte| byte == b'x'), "{name}");
        let checksum = checksum.strip_suffix("_[j]").unwrap();
        assert!(u32::from_str_radix(checksum, 16).is_ok() && checksum.len() == 8);
    }
}

#[test]
fn escapes_the_command_and_the_name_of_the_trace() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let name = "a;b <c> & \u{1b}[31m\nd";
    let script = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
    let argument = "\u{1b}]0;x\u{7}\n</svg>";
    let arguments = ["collect", name, "--", "sh", "-c", script, argument];
    let finished =
        run_perfcollect(arguments, directory.path(), Duration::from_secs(60)).expect_success();
    for output in [finished.stdout, finished.stderr] {
        assert!(!output.contains(is_harmful), "{}", output.escape_debug());
    }
    let svg =
        std::fs::read_to_string(directory.path().join(format!("{name}.flamegraph.svg"))).unwrap();
    assert!(!svg.contains('\u{1b}') && !svg.contains("<c>"));
}
