//! What is given to `convert` that is no plain recording of a clock, and what it says of it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use crate::support::recording::{can_record, record};
use crate::support::{Missing, Runtime, perfcollect, run, run_perfcollect, workloads};
use crate::{LIMIT, converted};

/// Somebody who is neither root nor us.
const OTHER_USER: u32 = 12_345;

#[track_caller]
fn refused(words: &[&str], directory: &Path) -> String {
    let done = run_perfcollect(words, directory, LIMIT);
    assert_eq!(done.status.code(), Some(1), "{}", done.stderr);
    done.stderr
}

#[test]
fn a_recording_is_never_replaced_by_its_trace() {
    let directory = tempfile::tempdir().unwrap();
    for (name, options) in [
        ("app.perf.data", &["-o", "app", "-perfdata"][..]),
        ("app.trace.zip", &["-o", "app"]),
        ("app.flamegraph.svg", &["-o", "app"]),
    ] {
        let file = directory.path().join(name);
        fs::write(&file, b"PERFILE2 and what else there is").unwrap();
        let words = [&["convert", name, "-force"], options].concat();
        let said = refused(&words, directory.path());
        assert!(said.contains("is the recording itself"), "{said}");
        assert!(fs::read(&file).unwrap().starts_with(b"PERFILE2"), "{name}");
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn what_is_no_recording_is_told_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let kinds: [(&[u8], &str); 5] = [
        (b"", "is empty"),
        (b"\x1f\x8b\x08 and sixteen bytes and more", "gunzip"),
        (b"Nettrace and sixteen bytes and more", "PerfView open"),
        (b"swapper     0 [000] 1.0: cpu-clock:", "of idle CPUs"),
        (
            b"\x00\x01\x02\x03\x04\x05\x06\x07 and sixteen bytes",
            "its format is unknown",
        ),
    ];
    for (bytes, expected) in kinds {
        fs::write(directory.path().join("file"), bytes).unwrap();
        let said = refused(&["convert", "file"], directory.path());
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_file_in_a_pipe_is_told_to_be_given_by_its_name() {
    need!(can_record());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    record(&file, &["-F", "99"], ["true"]);
    let script = "cat perf.data | \"$0\" convert -";
    let mut piped = Command::new("sh");
    piped.args(["-c", script]).arg(perfcollect());
    let done = run(piped.current_dir(directory.path()), LIMIT);
    assert!(
        done.stderr.contains("pass the name of the file"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_list_of_kernel_functions_that_is_not_there_is_refused() {
    need!(can_record());
    let directory = tempfile::tempdir().unwrap();
    record(&directory.path().join("perf.data"), &["-F", "99"], ["true"]);
    for command in ["convert", "script"] {
        let said = refused(&[command, "-kallsyms", "nowhere"], directory.path());
        assert!(said.contains("nowhere: No such file"), "{said}");
    }
}

/// perf lists the events in the order they were asked for, whether they happened or not.
#[test]
fn an_event_that_never_happened_is_not_the_one_of_the_trace() {
    const NEVER: &str = "oom:mark_victim";
    need!(can_record());
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "{{ mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing; }} && \
         perf record -q --no-buildid-cache -e {NEVER},sched:sched_switch -c 1 -o perf.data -- sh -c 'sleep 0.01; sleep 0.01'"
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "sh", "-c", &script]);
    if !run(unshare.current_dir(directory.path()), LIMIT)
        .status
        .success()
    {
        skip!(Missing::Tracepoints);
    }
    let saved = converted(directory, &[]);
    assert_eq!(saved.summary.info.event, "sched:sched_switch");
    assert!(saved.summary.samples >= 2, "{}", saved.summary.samples);
    let report = run(
        Command::new(perfcollect()).arg("view").arg(&saved.path),
        LIMIT,
    );
    let expected = "no time, each counts as 1 ms";
    assert!(report.stdout.contains(expected), "{}", report.stdout);
    let words = ["convert", "perf.data", "-o", "hang", "-event", NEVER];
    let said = refused(&words, saved.directory());
    assert!(said.contains("-event sched:sched_switch has "), "{said}");
}

/// What a customer sent, unpacked by root: all of it belongs to the user it had there.
#[test]
fn maps_beside_a_recording_are_believed_as_it_is() {
    need!(can_record());
    let program = need!(workloads::cpu());
    let runtime = need!(Runtime::newest());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let dotnet = runtime.command(&program);
    let script = "echo $$ > \"$0\" && exec env DOTNET_PerfMapEnabled=3 DOTNET_ROLL_FORWARD=LatestMajor \"$@\"";
    let pid_file = directory.path().join("pid");
    let mut words: Vec<&OsStr> = vec![
        "sh".as_ref(),
        "-c".as_ref(),
        script.as_ref(),
        pid_file.as_ref(),
    ];
    words.push(dotnet.get_program());
    words.extend(dotnet.get_args());
    words.extend(["--seconds", "1"].map(OsStr::new));
    record(&file, &["-F", "1999", "-g"], words);
    let pid = fs::read_to_string(pid_file).unwrap();
    let name = format!("perf-{}.map", pid.trim());
    let (written, map) = (Path::new("/tmp").join(&name), directory.path().join(&name));
    fs::copy(&written, &map).unwrap();
    fs::remove_file(&written).unwrap();
    chown(&map, Some(OTHER_USER), None).unwrap();
    let words = ["convert", "perf.data", "-o", "nameless"];
    let done = run_perfcollect(words, directory.path(), LIMIT).expect_success();
    let expected = format!("{name}: belongs to user {OTHER_USER}");
    assert!(done.stdout.contains(&expected), "{}", done.stdout);
    chown(&file, Some(OTHER_USER), None).unwrap();
    let names = converted(directory, &[]).summary.quality.names.jit;
    assert!(names.named > 0, "{names:?}");
}
