//! Recordings that the installed perf makes here, converted: all samples, complete stacks, names; and damaged ones.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;
#[path = "convert/inputs.rs"]
mod inputs;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use perfcollect::trace::{Notice, NoticeKind};
use support::recording::{can_record, native_words, record, record_pipe};
use support::zip::zip_of;
use support::{Runtime, Saved, captured, perfcollect, run, run_perfcollect, workloads};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

macro_rules! need_perf {
    () => {
        need!(can_record());
    };
}

/// The trace of a recording in a directory.
#[track_caller]
fn converted(directory: TempDir, options: &[&str]) -> Saved {
    let words = [&["convert", "perf.data", "-o", "trace", "-quiet"], options].concat();
    run_perfcollect(words, directory.path(), LIMIT).expect_success();
    Saved::open(directory, "trace")
}

/// Samples by perf's own count.
#[track_caller]
fn samples_of_perf(file: &Path) -> u64 {
    let mut perf = Command::new("perf");
    perf.args(["script", "-F", "pid,time", "-i"]).arg(file);
    let text = String::from_utf8_lossy(&perf.output().unwrap().stdout).into_owned();
    let headers = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('\t'));
    headers.count() as u64
}

/// All but a few stacks have `main`, and if the stack was copied, the entry of the program.
#[track_caller]
fn expect_paths(saved: &Saved, is_copied: bool) {
    let quality = &saved.summary.quality;
    let most = saved.summary.samples * 95 / 100;
    assert!(!is_copied || quality.stacks.rooted >= most, "{quality:#?}");
    assert_eq!(quality.names.kernel.unresolved, 0, "{quality:#?}");
    let under_main = saved.samples_under(&["main"]);
    assert!(under_main >= most, "{under_main}");
}

#[test]
fn all_samples_of_each_kind_of_recording() {
    need_perf!();
    let command = need!(native_words("native-fp"));
    let ways: [(&[&str], bool); 5] = [
        (&["-F", "1999", "-g"], false),
        (&["-F", "1999", "-g", "--threads=cpu"], false),
        (&["-F", "1999", "-g"], true),
        (&["-F", "1999", "-g", "-z"], false),
        (&["-F", "1999", "--call-graph", "dwarf,16384", "-z"], true),
    ];
    for (options, through_pipe) in ways {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("perf.data");
        match through_pipe {
            true => record_pipe(&file, options, &command),
            false => record(&file, options, &command),
        }
        let expected = samples_of_perf(&file);
        let saved = converted(directory, &[]);
        assert_eq!(
            saved.summary.samples, expected,
            "{options:?} {through_pipe}"
        );
        assert!(expected > 30, "{expected} samples are too few to tell");
        expect_paths(&saved, options.contains(&"--call-graph"));
    }
}

#[test]
fn stack_copies_reach_the_root_without_frame_pointers() {
    need_perf!();
    let command = need!(native_words("native-nofp"));
    let directory = tempfile::tempdir().unwrap();
    let options = ["-F", "499", "--call-graph", "dwarf"];
    record(&directory.path().join("perf.data"), &options, command);
    expect_paths(&converted(directory, &[]), true);
}

#[test]
fn functions_of_the_kernel_come_from_a_copy_of_its_list() {
    need_perf!();
    let convert_with = |kallsyms: &[u8]| {
        let directory = tempfile::tempdir().unwrap();
        let options = ["-F", "999", "-g", "-e", "cpu-clock"];
        let command = [
            "dd",
            "if=/dev/zero",
            "of=/dev/null",
            "bs=64",
            "count=300000",
        ];
        record(&directory.path().join("perf.data"), &options, command);
        std::fs::write(directory.path().join("list"), kallsyms).unwrap();
        converted(directory, &["-kallsyms", "list"])
    };
    let whole = convert_with(&std::fs::read("/proc/kallsyms").unwrap());
    let kernel = whole.summary.quality.names.kernel;
    assert!(kernel.named > 0 && kernel.unresolved == 0, "{kernel:?}");

    // As a user without privileges sees it.
    let hidden = convert_with(b"0000000000000000 T _text\n0000000000000000 T _stext\n");
    let quality = &hidden.summary.quality;
    assert_eq!(quality.names.kernel.named, 0);
    let notices = format!("{:?}", quality.notices);
    assert!(notices.contains("missing CAP_SYSLOG"), "{notices}");
    assert!(notices.contains("copy /proc/kallsyms as root"), "{notices}");
}

/// perf stops at the first frame that no ELF file describes.
#[test]
fn stacks_of_dotnet_reach_the_root() {
    need_perf!();
    let cpu = need!(workloads::cpu());
    let runtime = need!(Runtime::newest());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let cpu = cpu.display().to_string();
    let dotnet = runtime.dotnet.display().to_string();
    let root = runtime.root().display().to_string();
    let command = [
        "env",
        &format!("DOTNET_ROOT={root}"),
        "DOTNET_PerfMapEnabled=1",
        &dotnet,
        &cpu,
        "--seconds",
        "1",
    ];
    record(
        &file,
        &["-F", "499", "--call-graph", "dwarf,32768"],
        command,
    );
    let saved = converted(directory, &[]);
    let names = saved.summary.quality.names;
    assert!(names.jit.named > names.jit.unresolved * 9, "{names:#?}");
    let managed = saved.samples_under(&["Main"]);
    assert!(
        managed * 100 > saved.summary.samples * 50,
        "{managed} of {}",
        saved.summary.samples
    );
    let rooted =
        saved.samples_under(&["_start", "Main"]) + saved.samples_under(&["dotnet!", "Main"]);
    assert!(rooted * 100 >= managed * 95, "{rooted} of {managed}");
}

/// A file that is cut gives what is before the cut, and says so.
#[test]
fn a_cut_recording_gives_its_beginning() {
    need_perf!();
    let command = need!(native_words("native-fp"));
    let directory = tempfile::tempdir().unwrap();
    let file: PathBuf = directory.path().join("perf.data");
    record(&file, &["-F", "499", "-g"], command);
    let whole = samples_of_perf(&file);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let saved = converted(directory, &[]);
    assert!((whole / 10..whole).contains(&saved.summary.samples));
    assert_eq!(saved.notices(NoticeKind::RecordingCorrupt).len(), 1);
}

/// An archive as the original perfcollect makes it.
fn archive(path: &Path, entries: &[(&str, &Path)]) {
    let entry =
        |&(name, file): &(&str, &Path)| (format!("old.trace/{name}"), std::fs::read(file).unwrap());
    std::fs::write(path, zip_of(entries.iter().map(entry))).unwrap();
}

/// The original perfcollect leaves the recording in its archive, and the perf maps of its processes.
#[test]
fn an_archive_of_the_original_is_converted() {
    need_perf!();
    let cpu = need!(workloads::cpu());
    let runtime = need!(Runtime::newest());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let root = runtime.root().display().to_string();
    let id = directory.path().join("pid");
    // The process's id is that of its shell.
    let script = format!(
        "echo $$ >{}; exec {} {} --seconds 1",
        id.display(),
        runtime.dotnet.display(),
        cpu.display()
    );
    let command = [
        "env",
        &format!("DOTNET_ROOT={root}"),
        "DOTNET_PerfMapEnabled=1",
        "DOTNET_EnableWriteXorExecute=0",
        "sh",
        "-c",
        &script,
    ];
    record(&file, &["-F", "499", "-g"], command);
    let expected = samples_of_perf(&file);
    let pid = std::fs::read_to_string(id).unwrap().trim().to_owned();
    let map = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    // Its input, its output and its temporary files are in three directories, which it may write to.
    let (input, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let old = input.path().join("old.trace.zip");
    let name = format!("perf-{pid}.map");
    archive(
        &old,
        &[
            ("perfcollect.log", &cpu),
            ("perf.data", &file),
            (&name, &map),
        ],
    );
    // The only one is now that of the archive.
    std::fs::remove_file(&map).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut convert = Command::new(perfcollect());
    convert
        .arg("convert")
        .arg(&old)
        .args(["-o", "trace", "-quiet"]);
    convert
        .current_dir(&directory)
        .env("TMPDIR", temporary.path());
    run(&mut convert, LIMIT).expect_success();
    let mut script = Command::new(perfcollect());
    let script = run(script.arg("script").arg(&old), LIMIT);
    assert!(script.expect_success().stdout.contains("Work50("));
    let saved = Saved::open(directory, "trace");
    assert_eq!(saved.summary.samples, expected);
    let names = saved.summary.quality.names;
    assert!(names.jit.named > names.jit.unresolved * 9, "{names:#?}");
}

/// One that has only the text of the recording gives what the recording would give, with the names that perf found.
#[test]
fn an_archive_with_nothing_but_text_is_converted() {
    need_perf!();
    let command = need!(native_words("native-fp"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let options = ["-F", "499", "-g", "-e", "page-faults,cpu-clock"];
    record(&file, &options, &command);
    let fields = "comm,pid,tid,cpu,time,period,event,ip,sym,dso,trace";
    let mut script = Command::new("perf");
    script.args(["script", "--fields", fields, "-i"]).arg(&file);
    let text = directory.path().join("text");
    std::fs::write(&text, script.output().unwrap().stdout).unwrap();
    let old = directory.path().join("old.trace.zip");
    archive(
        &old,
        &[("perfcollect.log", &text), ("perf.data.txt", &text)],
    );
    let other = tempfile::tempdir().unwrap();
    let words = [
        "convert".as_ref(),
        old.as_os_str(),
        "-o".as_ref(),
        "text".as_ref(),
        "-quiet".as_ref(),
    ];
    run_perfcollect(words, other.path(), LIMIT).expect_success();
    let shown = run_perfcollect(["view", "text.trace.zip"], other.path(), LIMIT).expect_success();
    assert!(shown.stdout.contains(" machine  Linux; "));
    let words = ["convert", "perf.data", "-o", "trace", "-quiet"];
    run_perfcollect(words, directory.path(), LIMIT).expect_success();
    let of_text = Saved::open(other, "text");
    let whole = Saved::open(directory, "trace");
    assert_eq!(of_text.summary.samples, whole.summary.samples);
    assert_eq!(of_text.summary.cpu_ms, whole.summary.cpu_ms);
    assert_eq!(of_text.summary.info.event, "cpu-clock");
    assert_eq!(of_text.notices(NoticeKind::Imported).len(), 1);
    let omitted = of_text.notices(NoticeKind::EventOmitted);
    assert_eq!(omitted.len(), 1, "{omitted:#?}");
    assert_eq!(omitted[0].subject, "page-faults");
    for path in [&["main"][..], &["main", "spin"], &["vmlinux"]] {
        let counts = [&of_text, &whole].map(|saved| saved.samples_under(path));
        assert_eq!(counts[0], counts[1], "{path:?}");
    }
    assert_eq!(of_text.summary.quality.names.kernel.unresolved, 0);
}

#[test]
fn a_changed_file_gives_no_names() {
    need_perf!();
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    std::fs::copy("/bin/bash", &program).unwrap();
    let file = directory.path().join("perf.data");
    let command = [
        program.to_str().unwrap(),
        "-c",
        "for ((i = 0; i < 200000; i++)); do :; done",
    ];
    record(&file, &["-F", "499", "-g"], command);
    // Another program in its place, with another build id.
    std::fs::copy("/bin/ls", &program).unwrap();
    let saved = converted(directory, &[]);
    let notices = saved.notices(NoticeKind::CodeUnsymbolized);
    let is_other = |notice: &&Notice| notice.what.contains("build id");
    let other = notices.into_iter().find(is_other);
    let program = program.display().to_string();
    assert!(other.is_some_and(|notice| notice.subject.contains(&program)));
    let named = saved
        .stacks
        .keys()
        .flatten()
        .filter(|frame| *frame == "execute_command");
    assert_eq!(named.count(), 0);
}

#[test]
fn what_is_no_recording_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("perf.data"), [7, 0, 1].repeat(60)).unwrap();
    let mut command = Command::new(perfcollect());
    let finished = run(
        command.args(["convert", "-quiet"]).current_dir(&directory),
        LIMIT,
    );
    assert!(
        finished
            .stderr
            .contains("as a perf.data recording: its format is unknown"),
        "{}",
        finished.stderr
    );
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
}

/// The list of events, as `view` prints it.
#[track_caller]
fn events(trace: &Path) -> String {
    let mut view = Command::new(perfcollect());
    view.arg("view").arg(trace).args(["-viewer", "events"]);
    run(&mut view, LIMIT).expect_success().stdout
}

/// A trace of perfcollect itself, whose summary knows the machine.
#[test]
fn a_trace_is_converted_with_what_it_knows_of_its_machine() {
    need_capture!();
    let runtime = need!(Runtime::newest());
    let program = need!(workloads::mixed());
    let command = runtime.command(&program);
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let words: Vec<&OsStr> = words
        .chain(["--cpu-seconds", "1"].map(OsStr::new))
        .collect();
    let words = [&["-shortnames", "--"].map(OsStr::new)[..], &words].concat();
    let original = captured(words);
    let convert = |options: &[&str]| {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(perfcollect());
        command.arg("convert").arg(&original.path);
        command.args(["-o", "trace", "-quiet"]).args(options);
        run(command.current_dir(&directory), LIMIT).expect_success();
        Saved::open(directory, "trace")
    };
    let same = convert(&["-shortnames", "-perfdata"]);
    assert!(same.directory().join("trace.perf.data").exists());
    assert_eq!(same.perf_text, original.perf_text);
    assert_eq!(same.stacks, original.stacks);
    let [ours, theirs] = [&same.summary, &original.summary];
    assert!(ours.info.cpus > 0);
    assert_eq!(
        (
            ours.info.cpus,
            &ours.info.host,
            &ours.info.kernel,
            ours.info.start_ns
        ),
        (
            theirs.info.cpus,
            &theirs.info.host,
            &theirs.info.kernel,
            theirs.info.start_ns
        )
    );
    assert_eq!(ours.samples, theirs.samples);
    assert_eq!(ours.processes, theirs.processes);
    assert_eq!(ours.methods, theirs.methods);
    assert_eq!(ours.modules, theirs.modules);
    assert_eq!(ours.time_zero_ns, theirs.time_zero_ns);
    assert_eq!(ours.quality.events, theirs.quality.events);
    assert_eq!(events(&same.path), events(&original.path));
    let [notice] = &ours.quality.notices[theirs.quality.notices.len()..] else {
        panic!("{:#?}", ours.quality.notices);
    };
    assert_eq!(notice.kind, NoticeKind::Imported);
    assert!(
        notice.what.contains("not converted: names of methods"),
        "{notice:?}"
    );
    // Full names, from a trace whose flame graph has short ones.
    let full = convert(&["-format", "zip"]);
    assert!(!full.directory().join("trace.nettrace").exists());
    let namespaces = |saved: &Saved| saved.samples_under(&["System.Collections.Generic."]);
    assert_eq!(namespaces(&original), 0);
    assert!(namespaces(&full) > 0);
}

/// `view` and `report` of a recording, or of its text, show what they show of its conversion.
#[test]
fn a_recording_is_viewed_without_a_trace() {
    need_perf!();
    let command = need!(native_words("native-fp"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    record(&file, &["-F", "999", "-g"], &command);
    let mut perf = Command::new("perf");
    perf.args(["script", "--header", "-F"]);
    perf.args(["comm,pid,tid,cpu,time,period,event,ip,sym,dso", "-i"]);
    let text = perf.arg(&file).output().unwrap().stdout;
    std::fs::write(directory.path().join("perf.txt"), text).unwrap();
    let printed = |words: &[&str]| {
        let printed = run_perfcollect(words, directory.path(), LIMIT).expect_success();
        printed.stdout
    };
    for recording in ["perf.data", "perf.txt"] {
        let name = recording.replace('.', "-");
        let trace = format!("{name}.trace.zip");
        printed(&["convert", recording, "-quiet", "-o", &name]);
        for options in [
            &["-kind", "cpu"][..],
            &["-kind", "processes"],
            &["-kind", "calltree", "-include", "main"],
        ] {
            let [ours, converted] = [recording, &trace].map(|file| {
                let words = [&["report", file, "-format", "csv"], options].concat();
                printed(&words)
            });
            assert!(ours.lines().count() > 1, "{ours}");
            assert_eq!(ours, converted, "{recording} {options:?}");
        }
    }
    let view = printed(&["view", "perf.data"]);
    assert!(
        view.contains("native-fp") && view.contains("hottest path"),
        "{view}"
    );
    std::fs::write(directory.path().join("other"), [0_u8; 5000]).unwrap();
    let other = run_perfcollect(["view", "other"], directory.path(), LIMIT);
    assert!(other.stderr.contains("is not a trace"), "{}", other.stderr);
}
