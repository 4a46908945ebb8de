//! What is typed wrong is refused in words, with the nearest spelling; both ways of spelling are one.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use support::{perfcollect, run_perfcollect};

/// The message and the exit status 2; nothing is written.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let finished = run_perfcollect(arguments, directory.path(), Duration::from_secs(30));
    assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    finished.stderr
}

#[test]
fn unknown_options_name_the_nearest() {
    for (typed, meant) in [
        ("-colectsec", "--collectsec"),
        ("-CollectSecs", "--collectsec"),
        ("--pids", "--pid"),
        ("-Forse", "--force"),
        ("-quite", "--quiet"),
        ("-jsn", "--json"),
    ] {
        let message = refused(&["collect", "x", typed, "3"]);
        assert!(
            message.contains(&format!("'{meant}'")),
            "{typed}: {message}"
        );
    }
    assert!(refused(&["colect", "x"]).contains("'collect'"));
    assert!(refused(&["veiw", "x"]).contains("'view'"));
}

#[test]
fn missing_values_and_names() {
    assert!(refused(&["collect", "x", "-collectsec"]).contains("--collectsec <SECONDS>"));
    assert!(refused(&["collect", "x", "-pid"]).contains("--pid <P[,P...]>"));
    assert!(refused(&["stop"]).contains("<NAME>"));
    assert!(refused(&["view"]).contains("<NAME.trace.zip>"));
    assert!(refused(&[]).contains("Usage"));
}

/// What is about samples is not asked for where there are none.
#[test]
fn samples_and_events_alone_are_two_things() {
    for alone in ["-noperf", "-gconly", "-gccollectonly", "-gcwithheap"] {
        for (option, value) in [("-freq", "99"), ("-callgraph", "fp")] {
            let message = refused(&["collect", "x", alone, option, value]);
            assert!(message.contains("cannot be used with"), "{message}");
        }
        let message = refused(&["collect", "x", alone, "-perfdata"]);
        assert!(message.contains("cannot be used with"), "{message}");
    }
}

#[test]
fn bad_values() {
    for pid in [
        "0",
        "-1",
        "abc",
        "1,",
        "1,,2",
        "99999999999",
        "1.5",
        " 1",
        "+",
    ] {
        let message = refused(&["collect", "x", &format!("-pid={pid}")]);
        assert!(message.contains("not a process id"), "{pid}: {message}");
    }
    for seconds in ["0", "-1", "abc", "1x", "inf", "nan", "1e400", ""] {
        let message = refused(&["collect", "x", &format!("-collectsec={seconds}")]);
        assert!(message.contains("--collectsec"), "{seconds}: {message}");
    }
    for hertz in ["0", "-1", "20001", "abc", "1.5"] {
        let message = refused(&["collect", "x", &format!("-freq={hertz}")]);
        assert!(message.contains("--freq"), "{hertz}: {message}");
    }
    assert!(refused(&["collect", "x", "-pid", "1", "--", "ls"]).contains("cannot be used with"));
    assert!(refused(&["collect", "x", "y"]).contains("'y'"));
}

#[test]
fn case_and_dashes_do_not_matter() {
    // That a process is missing is only found when the line was understood.
    for spelling in ["-pid", "--pid", "-PID", "--Pid", "-pId"] {
        for line in [
            &[spelling, "2147483647"][..],
            &[&format!("{spelling}=2147483647")],
        ] {
            let directory = tempfile::tempdir().unwrap();
            let arguments = ["collect", "x"].iter().chain(line);
            let finished = run_perfcollect(arguments, directory.path(), Duration::from_secs(30));
            assert_eq!(finished.status.code(), Some(1), "{line:?}");
            assert!(
                finished.stderr.contains("does not exist"),
                "{}",
                finished.stderr
            );
        }
    }
}

#[test]
fn events_that_there_are_not() {
    for (words, said) in [
        (
            &["-events", "DotNETRuntime_X"][..],
            "DotNETRuntime_GCKeyword",
        ),
        (&["-clrevents", "gc+bogus"], "bogus"),
        (&["-clrevents", "gc", "-clreventlevel", "6"], "\"6\""),
        (&["-clreventlevel", "4"], "--clrevents"),
        (&["-profile", "bogus"], "gc-collect"),
        (&["-providers", "A:xyz"], "hexadecimal"),
        (&["-nolttng", "-gconly"], "cannot be used with"),
        (&["-nolttng", "-noperf"], "cannot be used with"),
        (&["-gconly", "-gccollectonly"], "cannot be used with"),
    ] {
        for action in ["collect", "start"] {
            let line: Vec<&str> = [action, "x"].iter().chain(words).copied().collect();
            let message = refused(&line);
            assert!(message.contains(said), "{line:?}: {message}");
        }
    }
    assert!(refused(&["view", "x", "-viewer", "table"]).contains("events"));
    let filter = refused(&["view", "x", "-viewer", "gc", "-thread", "1"]);
    assert!(filter.contains("-process"), "{filter}");
    assert!(refused(&["view", "x", "-from=-1"]).contains("seconds"));
    assert!(refused(&["report", "x", "-fold", "{a"]).contains("not a pattern"));
    assert!(refused(&["view", "x", "-viewer", "gc", "-filter", "GCStart"]).contains("-filter"));
    assert!(refused(&["view", "x", "-viewer", "events", "-from", "inf"]).contains("seconds"));
}

/// Bash completes the word at the end of a line so.
fn completed(line: &[&str]) -> String {
    let script = format!(
        "source <({} completions bash); COMP_WORDS=({}); COMP_CWORD={}; \
         _perfcollect perfcollect {:?} {:?}; echo \"${{COMPREPLY[@]}}\"",
        support::perfcollect().display(),
        line.join(" "),
        line.len() - 1,
        line[line.len() - 1],
        line[line.len() - 2],
    );
    let mut bash = std::process::Command::new("bash");
    let finished = support::run(bash.args(["-c", &script]), Duration::from_secs(30));
    finished.expect_success().stdout.trim().to_owned()
}

#[test]
fn shells_complete_commands_and_options() {
    need_command!("bash");
    assert_eq!(completed(&["perfcollect", "rec"]), "recover");
    assert_eq!(completed(&["perfcollect", "rep"]), "report");
    let option = ["perfcollect", "collect", "--collects"];
    assert_eq!(completed(&option), "--collectsec");
    for shell in ["zsh", "fish"] {
        let directory = tempfile::tempdir().unwrap();
        let words = ["completions", shell];
        let script = run_perfcollect(words, directory.path(), Duration::from_secs(30));
        let script = script.expect_success().stdout;
        assert!(script.contains("collectsec"), "{shell}: {script}");
    }
}

#[test]
fn each_command_has_a_page_for_man() {
    let directory = tempfile::tempdir().unwrap();
    let page = |words: &[&str]| {
        let words = [&["man"], words].concat();
        run_perfcollect(words, directory.path(), Duration::from_secs(30))
    };
    for command in ["collect", "view", "report", "diff", "convert", "symbols"] {
        let text = page(&[command]).expect_success().stdout;
        let title = format!(".TH perfcollect-{command} 1");
        assert!(text.contains(&title), "{text}");
        assert!(
            text.contains("SYNOPSIS") && text.contains("OPTIONS"),
            "{text}"
        );
    }
    let all = page(&[]).expect_success().stdout;
    assert!(all.contains("collect"), "{all}");
    assert_eq!(page(&["nothing"]).status.code(), Some(1));
}

/// As on a terminal that is gone. A panic would have status 101.
#[test]
fn a_message_that_cannot_be_written_changes_no_status() {
    for (words, status) in [(&["view", "missing"][..], 1), (&["-bp"], 2), (&["stop"], 2)] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(perfcollect());
        let ended = command.args(words).stderr(full).status().unwrap();
        assert_eq!(ended.code(), Some(status), "{words:?}");
    }
}
