//! `perf script` output of different versions, and edited by other tools, against inferno on the
//! same text.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};
use perfcollect::output::summary::Summary;

use crate::LIMIT;
use crate::support::recording::{can_record, native_words, record};
use crate::support::zip::entry;
use crate::support::{Saved, perfcollect, run_perfcollect};

/// Stacks from the root, the process first, and their weights.
type Stacks = BTreeMap<Vec<String>, u64>;

/// The fields of a dialect, other options, whether the recording has callers, and how the text is
/// edited.
type Dialect = (
    &'static str,
    &'static str,
    &'static [&'static str],
    bool,
    fn(&str) -> String,
);

const DIALECTS: [Dialect; 15] = [
    (
        "perf 3.10",
        "comm,tid,time,event,ip,sym,dso",
        &[],
        true,
        same,
    ),
    (
        "perf 4.1",
        "comm,tid,time,period,event,ip,sym,dso",
        &[],
        true,
        same,
    ),
    (
        "perf 4.8, offsets",
        "comm,tid,time,period,event,ip,sym,symoff,dso",
        &[],
        true,
        same,
    ),
    (
        "the original perfcollect",
        "comm,pid,tid,cpu,time,period,event,ip,sym,dso,trace",
        &[],
        true,
        same,
    ),
    (
        "FlameGraph's advice",
        "comm,pid,tid,cpu,time,event,ip,sym,dso,trace",
        &[],
        true,
        same,
    ),
    (
        "nanoseconds",
        "comm,pid,tid,cpu,time,event,ip,sym,dso",
        &["--ns"],
        true,
        same,
    ),
    (
        "header",
        "comm,pid,tid,cpu,time,event,ip,sym,dso",
        &["--header"],
        true,
        same,
    ),
    ("no time", "comm,tid,event,ip,sym,dso", &[], true, same),
    (
        "no time, CPU",
        "comm,pid,tid,cpu,event,ip,sym,dso",
        &[],
        true,
        same,
    ),
    (
        "one line a sample",
        "comm,tid,time,period,event,ip,sym,dso",
        &[],
        false,
        same,
    ),
    (
        "one line a sample, ids",
        "comm,pid,tid,cpu,time,period,event,ip,sym,dso",
        &[],
        false,
        same,
    ),
    (
        "spaces",
        "comm,tid,time,event,ip,sym,dso",
        &[],
        true,
        spaces,
    ),
    (
        "not indented",
        "comm,tid,event,ip,sym,dso",
        &[],
        true,
        not_indented,
    ),
    (
        "ends of lines of Windows",
        "comm,pid,tid,time,period,event,ip,sym,dso",
        &[],
        true,
        windows,
    ),
    (
        "process without a name",
        "comm,pid,tid,time,period,event,ip,sym,dso",
        &[],
        true,
        without_name,
    ),
];

fn same(text: &str) -> String {
    text.to_owned()
}

fn spaces(text: &str) -> String {
    text.replace("\n\t", "\n        ")
}

fn not_indented(text: &str) -> String {
    let lines = text.lines().map(|line| match line.strip_prefix('\t') {
        Some(frame) => frame.trim_start(),
        None => line,
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

fn windows(text: &str) -> String {
    text.replace('\n', "\r\n")
}

/// perf's name for a process without a recorded name.
fn without_name(text: &str) -> String {
    renamed(text, |ids| {
        let tid = ids.split('/').next_back().unwrap();
        format!(":{tid} {ids}")
    })
}

/// Replaces names and ids in the first lines of samples.
fn renamed(text: &str, to: impl Fn(&str) -> String) -> String {
    let lines = text.lines().map(|line| {
        let mut words = line.split_whitespace();
        let (Some(name), Some(ids)) = (words.next(), words.next()) else {
            return line.to_owned();
        };
        match line.starts_with('\t') || name.starts_with('#') {
            true => line.to_owned(),
            false => {
                let rest = line.trim_start()[name.len()..].trim_start();
                format!("{} {}", to(ids), &rest[ids.len()..])
            }
        }
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn texts_of_many_dialects_give_the_stacks_of_inferno() {
    need!(can_record());
    let command = need!(native_words("native-fp"));
    let directory = tempfile::tempdir().unwrap();
    let recordings = [
        ("plain.data", &["-F", "999"][..]),
        ("callers.data", &["-F", "999", "-g"]),
    ];
    for (name, options) in recordings {
        record(&directory.path().join(name), options, &command);
    }
    for (name, fields, options, has_callers, change) in DIALECTS {
        let recording = directory
            .path()
            .join(recordings[usize::from(has_callers)].0);
        let mut perf = Command::new("perf");
        perf.args(["script", "--no-inline", "--fields", fields, "-i"])
            .arg(recording)
            .args(options);
        let text = String::from_utf8(perf.output().unwrap().stdout).unwrap();
        // perf ends stacks with an invalid address if the text has no more.
        let text = change(&text);
        let theirs = inferno(&text);
        let ours = converted(directory.path(), &text);
        let total = theirs.values().sum::<u64>();
        println!("{name}: {} stacks, {total}", theirs.len());
        assert!(theirs.len() > 2, "{name}: {text}");
        assert_eq!(ours.values().sum::<u64>(), total, "{name}");
        for (stack, count) in &theirs {
            assert_eq!(ours.get(stack), Some(count), "{name}: {stack:?}");
        }
        assert_eq!(ours.len(), theirs.len(), "{name}");
    }
}

/// perf uses the name before the exec for earlier samples.
#[test]
fn samples_before_an_exec_keep_their_name() {
    let directory = tempfile::tempdir().unwrap();
    let text = "perf-exec  7/7  5.000001:  10 cycles: \n\tffffffff81000001 exec ([kernel.kallsyms])\n\n\
                worker  7/8  5.000002:  10 cycles: \n\t401000 work (/bin/x)\n\n\
                x  7/7  5.000003:  10 cycles: \n\t401000 main (/bin/x)\n\n";
    converted(directory.path(), text);
    fs::write(directory.path().join("text.txt"), text).unwrap();
    let words = ["convert", "text.txt", "-o", "trace", "-quiet", "-force"];
    run_perfcollect(words, directory.path(), LIMIT).expect_success();
    let saved = Saved::open(directory, "trace");
    let mut names: Vec<_> = saved.stacks.keys().map(|stack| stack[0].as_str()).collect();
    names.dedup();
    assert_eq!(names, ["perf-exec (7)", "x (7)"]);
    assert_eq!(saved.samples_under(&["work"]), 1);
}

/// The kernel has no ids for a thread that has ended; stackcollapse-perf.pl and inferno cannot
/// parse such lines.
#[test]
fn samples_of_threads_that_were_gone_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let text = "             :-1    -1 [001]  5.000001:  10 cycles: \n\tffffffff81000001 do_exit ([kernel.kallsyms])\n\n\
                x  7 [001]  5.000003:  10 cycles: \n\t401000 main (/bin/x)\n\n\
                :-1 -1/-1 [-01]  5.000004:  10 cycles: \n\tffffffff81000001 do_exit ([kernel.kallsyms])\n\n";
    fs::write(directory.path().join("text.txt"), text).unwrap();
    let words = ["convert", "text.txt", "-o", "trace", "-quiet"];
    run_perfcollect(words, directory.path(), LIMIT).expect_success();
    let saved = Saved::open(directory, "trace");
    assert_eq!(saved.summary.samples, 3);
    assert_eq!(saved.samples_under(&["do_exit"]), 2);
    let processes = saved.summary.processes.iter();
    let names: Vec<_> = processes
        .map(|process| (&*process.name, process.samples))
        .collect();
    assert_eq!(names, [(":-1", 2), ("x", 1)]);
}

/// As in a recording, two kinds of CPUs count the same event, and `-event` selects one.
#[test]
fn events_of_a_hybrid_processor_are_one_in_a_text() {
    let directory = tempfile::tempdir().unwrap();
    let text = "x 7/7 [000] 5.000001:  10 cpu_core/cycles:u/: \n\t401000 main (/bin/x)\n\n\
                x 7/7 [008] 5.000002:  10 cpu_atom/cycles:u/: \n\t401000 main (/bin/x)\n\n\
                x 7/7 [008] 5.000003:  1 sched:sched_switch: a ==> b\n";
    fs::write(directory.path().join("text.txt"), text).unwrap();
    for (options, event, samples) in [
        (&[][..], "cycles:u", 2),
        (&["-event", "cycles"], "cycles:u", 2),
        (&["-event", "cpu_atom/cycles:u/"], "cpu_atom/cycles:u/", 1),
        (&["-event", "sched:sched_switch"], "sched:sched_switch", 1),
    ] {
        let words = [
            &["convert", "text.txt", "-o", "trace", "-quiet", "-force"],
            options,
        ];
        run_perfcollect(words.concat(), directory.path(), LIMIT).expect_success();
        let archive = fs::read(directory.path().join("trace.trace.zip")).unwrap();
        let summary = entry(&archive, "trace.trace/summary.json");
        let summary: Summary = serde_json::from_slice(&summary).unwrap();
        assert_eq!(summary.info.event, event);
        assert_eq!(summary.samples, samples);
    }
}

/// A pipe may pause for any time, and a signal ends the wait.
#[test]
fn a_pipe_that_pauses_can_be_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut convert = Command::new(perfcollect());
    let mut convert = convert
        .args(["convert", "-", "-o", "trace"])
        .current_dir(&directory)
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = convert.stdin.take().unwrap();
    pipe.write_all(b"java 7/7 5.000001: 10 cpu-clock: \n\t1 f (/x)\n\n")
        .unwrap();
    // Before the handler is installed, the signal kills the process, which proves nothing.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let pid = rustix::process::Pid::from_child(&convert);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let done = convert.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("stopped by a signal"), "{said}");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    drop(pipe);
}

/// A missing field is not invented: a notice names the perf field.
#[test]
fn fields_that_are_missing_are_named() {
    let texts = [
        (
            "java 7 5.000001:  10 cpu-clock: \n\t1 f (/x)\n\njava 8 5.000002:  10 cpu-clock: \n\t1 f (/x)\n\n",
            "-F +pid",
            "0.0 ms of CPU time",
        ),
        (
            "java 7/7 cpu-clock: \n\t1 f (/x)\n\n",
            "-F +period",
            "no time",
        ),
        (
            "java 7/7 5.000001: 10 sched:sched_switch: a ==> b\n",
            "-F +ip,+sym,+dso",
            "no frames",
        ),
        (
            "java 7/7 5.000001: 10 cpu-clock: \n\t55c5110ec730\n\n",
            "",
            "1 unresolved",
        ),
    ];
    for (text, remedy, expected) in texts {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("text.txt"), text).unwrap();
        let done =
            run_perfcollect(["convert", "text.txt"], directory.path(), LIMIT).expect_success();
        assert!(done.stdout.contains(remedy), "{}", done.stdout);
        assert!(done.stdout.contains(expected), "{}", done.stdout);
        let saved = Saved::open(directory, "text");
        assert_eq!(saved.summary.process_count, 1);
    }
}

/// Through a pipe, and with messages of perf among the samples.
#[test]
fn text_may_come_through_a_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let text = "Warning:\nProcessed 3 events and lost 1 chunks!\n\n\
                java 7/7 5.000001: PERF_RECORD_COMM: java:7/7\n\
                java 7/7 5.000002:  10 cpu-clock: \n\t1 LA;::outer->LB;::inner (/tmp/perf-7.map)\n\n";
    fs::write(directory.path().join("text"), text).unwrap();
    let mut shell = Command::new("sh");
    let script = format!(
        "cat text | {} convert - -o trace",
        env!("CARGO_BIN_EXE_perfcollect")
    );
    shell.args(["-c", &script]).current_dir(&directory);
    let done = crate::support::run(&mut shell, LIMIT).expect_success();
    assert!(done.stdout.contains("messages of perf"), "{}", done.stdout);
    let saved = Saved::open(directory, "trace");
    let stacks: Vec<_> = saved.stacks.keys().map(|stack| stack.join(";")).collect();
    assert_eq!(stacks, ["java (7);LA:::outer_[j];LB:::inner_[i]"]);
}

/// Returns inferno's result for a text; samples of idle CPUs belong to no process.
fn inferno(text: &str) -> Stacks {
    let mut folder = Folder::from(Options::default());
    let mut folded = Vec::new();
    folder.collapse(text.as_bytes(), &mut folded).unwrap();
    let folded = String::from_utf8(folded).unwrap();
    let mut stacks = Stacks::new();
    for line in folded.lines().filter(|line| !line.starts_with("swapper;")) {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let stack = stack.split(';').map(str::to_owned).collect();
        *stacks.entry(stack).or_default() += count.parse::<u64>().unwrap();
    }
    stacks
}

/// Returns the same from a conversion: like inferno, it counts periods if the text has them.
fn converted(directory: &Path, text: &str) -> Stacks {
    let other = tempfile::tempdir_in(directory).unwrap();
    fs::write(other.path().join("text.txt"), text).unwrap();
    let words = ["convert", "text.txt", "-quiet"];
    run_perfcollect(words, other.path(), LIMIT).expect_success();
    let saved = Saved::open(other, "text");
    let summary = &saved.summary;
    let weight = (summary.cpu_ms * 1e6 / summary.samples as f64).round() as u64;
    // Without periods, each sample counts as one.
    let has_periods = weight != 1_000_000;
    let mut stacks = Stacks::new();
    for (stack, samples) in &saved.stacks {
        let names = stack.iter().enumerate().map(|(at, name)| match at {
            0 => name.split(" (").next().unwrap().replace(' ', "_"),
            _ => as_inferno(name),
        });
        let count = if has_periods {
            samples * weight
        } else {
            *samples
        };
        *stacks.entry(names.collect()).or_default() += count;
    }
    stacks
}

/// Returns a function as inferno prints it: without suffixes, and only the module if it has no
/// name.
fn as_inferno(name: &str) -> String {
    let name = ["_[k]", "_[j]", "_[i]"]
        .iter()
        .find_map(|mark| name.strip_suffix(mark))
        .unwrap_or(name);
    match name.rsplit_once("+0x") {
        Some(("unmapped", _)) => "[unknown]".to_owned(),
        Some(("vdso", _)) => "[[vdso]]".to_owned(),
        Some(("vmlinux", _)) => "[[kernel.kallsyms]]".to_owned(),
        Some((module, _)) => format!("[{module}]"),
        None => name.split('(').next().unwrap().to_owned(),
    }
}
