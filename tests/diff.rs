//! Two captures compared: of the same program, and of one with a slower function.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::{Finished, perfcollect, run, start, wait_for_cpu_time};

const LIMIT: Duration = Duration::from_secs(300);
/// How much longer `validate` takes.
const SLOWER: &str = "1.5";

/// Four functions in turn. The argument is the work of `validate`.
const PROGRAM: &str = "
#include <stdlib.h>
#include <string.h>
volatile unsigned long x;
__attribute__((noinline)) void parse(long n) { for (long i = 0; i < n; i++) x += i; }
__attribute__((noinline)) void validate(long n) { for (long i = 0; i < n; i++) x ^= i; }
__attribute__((noinline)) void render(long n) { for (long i = 0; i < n; i++) x -= i; }
__attribute__((noinline)) void store(long n) {
    char block[4096];
    for (long i = 0; i < n; i++) { memset(block, (int)i, sizeof block); x += block[i % 4096]; }
}
int main(int count, char **words) {
    double times = count > 1 ? atof(words[1]) : 1;
    for (;;) { parse(30000); validate((long)(20000 * times)); render(40000); store(250); }
}
";

fn compiled(directory: &Path) -> PathBuf {
    let [source, program] = ["work.c", "work"].map(|name| directory.join(name));
    std::fs::write(&source, PROGRAM).unwrap();
    let options = ["-O1", "-o"].map(AsRef::as_ref);
    let compile = options.into_iter().chain([program.as_path(), &source]);
    run(Command::new("cc").args(compile), LIMIT).expect_success();
    program
}

/// Captures the program for this much CPU time.
fn capture(program: &Path, times: &str, name: &str, cpu: Duration) {
    let directory = program.parent().unwrap();
    let work = start(Command::new(program).arg(times));
    let mut command = Command::new(perfcollect());
    let pid = work.pid().to_string();
    command.args(["collect", name, "-pid", &pid]);
    let capture = support::start_capture(command.current_dir(directory));
    wait_for_cpu_time(work.pid(), cpu);
    support::end_capture(capture);
}

fn diff(directory: &Path, words: &[&str]) -> Finished {
    let mut command = Command::new(perfcollect());
    command.arg("diff").args(words).current_dir(directory);
    run(&mut command, LIMIT)
}

/// The changes that are printed as JSON.
fn changes(directory: &Path, before: &str, after: &str) -> Vec<Value> {
    let printed = diff(directory, &[before, after, "-format", "json"]);
    let table: Value = serde_json::from_str(&printed.expect_success().stdout).unwrap();
    table["rows"].as_array().unwrap().clone()
}

/// Whether the two tables name the slower function, with the right amount, and nothing else.
fn names_the_slower_one(rows: &[Value]) -> bool {
    let expected: f64 = SLOWER.parse().unwrap();
    let is_it = |row: &Value| {
        let times = row["times"].as_f64().unwrap();
        row["method"] == "validate" && (times / expected - 1.0).abs() < 0.1
    };
    rows.len() == 2 && rows.iter().all(is_it)
}

/// Captures pairs, and returns for how many the answer is right: of the same program, and of the slower.
fn right_answers(pairs: usize, cpu: Duration) -> [usize; 2] {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let program = compiled(directory);
    let mut right = [0; 2];
    for pair in 0..pairs {
        let [a, b, c] = ["a", "b", "c"].map(|name| format!("{name}{pair}"));
        for (name, times) in [(&a, "1"), (&b, "1"), (&c, SLOWER)] {
            capture(&program, times, name, cpu);
        }
        let same = changes(directory, &a, &b);
        right[0] += usize::from(same.is_empty());
        let slower = changes(directory, &b, &c);
        right[1] += usize::from(names_the_slower_one(&slower));
        println!("{same:#?}\n{slower:#?}");
    }
    right
}

#[test]
fn a_slower_function_is_named() {
    need_capture!();
    // Of two pairs, one may be by chance.
    let [same, slower] = right_answers(2, Duration::from_millis(1500));
    assert!(same + slower >= 3, "{same} {slower}");
}

#[test]
#[ignore = "slow"]
fn nine_of_ten_pairs_are_right() {
    need_capture!();
    let right = right_answers(10, Duration::from_secs(3));
    assert!(right.iter().all(|right| *right >= 9), "{right:?}");
}

#[test]
fn what_cannot_be_compared_is_said() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path());
    capture(&program, "1", "a", Duration::from_millis(200));
    let text = diff(directory.path(), &["a", "a"]).expect_success().stdout;
    assert!(text.contains("no difference"), "{text}");
    let missing = diff(directory.path(), &["a", "b"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(missing.stderr.contains('b'), "{}", missing.stderr);
    let nobody = diff(directory.path(), &["a", "a", "-process", "nobody"]);
    assert!(nobody.stderr.contains("none of the"), "{}", nobody.stderr);
}
