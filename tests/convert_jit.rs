//! Recordings of programs of Java, Node.js and Python, converted as on another machine: the names of their code come from the perf
//! maps and jitdumps beside the recording, and are those that perf has found where it was made.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use support::recording::{can_record, record};
use support::{Finished, Missing, Saved, perfcollect, run};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/workloads/jit");
/// Where the perf maps are that processes write.
const TMP: &str = "/tmp";
const OTHER_USER: u32 = 4321;
/// One address a sample, and whole callchains.
const WAYS: [&[&str]; 2] = [&["-F", "499"], &["-F", "499", "-g"]];

/// Skips a test where nothing can be recorded, or where no other machine can be made.
macro_rules! need_machines {
    () => {
        need!(can_record());
        if !is_success(&mut elsewhere(&["true"])) {
            skip!(Missing::Unshare("-u"));
        }
    };
}

/// Runs a command to see whether it works; a map that it leaves must not be taken for that of the next process with its id.
fn is_success(command: &mut Command) -> bool {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    child.is_ok_and(|mut child| {
        let status = child.wait().unwrap();
        let _ = fs::remove_file(format!("{TMP}/perf-{}.map", child.id()));
        status.success()
    })
}

/// A command on a host of another name.
fn elsewhere(words: &[&str]) -> Command {
    let script = "echo elsewhere >/proc/sys/kernel/hostname && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-u", "sh", "-c", script, "sh"]).args(words);
    command
}

/// Java, with the options that it needs and the class of `Work.java` in a directory.
fn java(options: &[&str]) -> Result<(TempDir, Vec<String>), Missing> {
    let directory = tempfile::tempdir().unwrap();
    let class_path = directory.path().display().to_string();
    let mut javac = Command::new("javac");
    javac
        .args(["-d", &class_path])
        .arg(Path::new(SOURCES).join("Work.java"));
    if !is_success(&mut javac) {
        return Err(Missing::Command("javac"));
    }
    let words = [&["java", "-XX:+PreserveFramePointer"], options].concat();
    if !is_success(Command::new(words[0]).args(&words[1..]).arg("-version")) {
        return Err(Missing::Java(17));
    }
    let words = [&words[..], &["-cp", &class_path, "Work"]].concat();
    Ok((directory, words.into_iter().map(str::to_owned).collect()))
}

/// Node.js with an option, and `work.js`.
fn node(option: &str) -> Result<Vec<String>, Missing> {
    if !is_success(
        Command::new("node")
            .args([option, "-e", ""])
            .current_dir(tempfile::tempdir().unwrap().path()),
    ) {
        return Err(Missing::Command("node"));
    }
    let program = format!("{SOURCES}/work.js");
    Ok(["node", option, &program].map(str::to_owned).to_vec())
}

/// The first Python that writes perf maps, and `work.py`.
fn python() -> Result<Vec<String>, Missing> {
    let versions = (12..20).map(|minor| format!("python3.{minor}"));
    let is_able = |python: &String| {
        let test = "import sys; sys.exit(not sys.is_stack_trampoline_active())";
        is_success(Command::new(python).args(["-X", "perf", "-c", test]))
    };
    let found = ["python3".to_owned()]
        .into_iter()
        .chain(versions)
        .find(is_able);
    let python = found.ok_or(Missing::PythonPerf)?;
    let program = format!("{SOURCES}/work.py");
    Ok([&*python, "-X", "perf", &program]
        .map(str::to_owned)
        .to_vec())
}

/// A recording that was made here, in a directory that is the other machine's root directory.
struct Recording {
    directory: TempDir,
    /// The process that makes code.
    pid: String,
}

impl Recording {
    /// Of a program that is run in the directory.
    #[track_caller]
    fn of(options: &[&str], program: &[String]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::record(&directory, options, program);
        Self::made(directory)
    }

    #[track_caller]
    fn record(directory: &TempDir, options: &[&str], program: &[String]) {
        let script = "cd \"$0\" && echo $$ >pid && exec \"$@\"";
        let directory = directory.path();
        let mut words = vec!["sh".into(), "-c".into(), script.into()];
        words.push(directory.display().to_string());
        words.extend_from_slice(program);
        record(&directory.join("perf.data"), options, words);
    }

    #[track_caller]
    fn made(directory: TempDir) -> Self {
        let pid = fs::read_to_string(directory.path().join("pid")).unwrap();
        let pid = pid.trim().to_owned();
        let copy = directory.path().join("perfcollect");
        if fs::hard_link(perfcollect(), &copy).is_err() {
            // A file that this process has written may be open for writing in a child of another test, and so not run.
            assert!(is_success(Command::new("cp").arg(perfcollect()).arg(copy)));
        }
        Self { directory, pid }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn map_name(&self) -> String {
        format!("perf-{}.map", self.pid)
    }

    /// Moves the perf map beside the recording; tells where it is.
    #[track_caller]
    fn take_map(&self) -> PathBuf {
        let (written, map) = (
            Path::new(TMP).join(self.map_name()),
            self.path(&self.map_name()),
        );
        fs::copy(&written, &map).unwrap_or_else(|error| panic!("{}: {error}", written.display()));
        fs::remove_file(written).unwrap();
        map
    }

    /// perfcollect where nothing is but what is in the directory.
    #[track_caller]
    fn perfcollect_elsewhere(&self, words: &[&str]) -> Finished {
        let root = self.directory.path().to_str().unwrap();
        let words = [&["chroot", root, "/perfcollect"], words].concat();
        run(&mut elsewhere(&words), LIMIT).expect_success()
    }

    /// Returns the JIT functions that `perfcollect script` resolves in the chroot.
    #[track_caller]
    fn functions_elsewhere(&self) -> BTreeMap<String, u64> {
        let words = ["script", "--no-inline", "-F", "ip,sym,dso", "/perf.data"];
        let text = self.perfcollect_elsewhere(&words).stdout;
        functions(&text, &format!("{TMP}/{}", self.map_name()))
    }

    /// Those that perf finds here in files whose paths begin so.
    #[track_caller]
    fn functions_of_perf(&self, recording: &str, path: &str) -> BTreeMap<String, u64> {
        let words = ["script", "--no-inline", "-F", "ip,sym,dso", "-i"];
        let mut perf = Command::new("perf");
        let output = perf.args(words).arg(self.path(recording)).output().unwrap();
        functions(&String::from_utf8_lossy(&output.stdout), path)
    }

    /// Converts it elsewhere: at least half of the samples are in a program, by its functions.
    #[track_caller]
    fn expect_names_elsewhere(self, program: &str) {
        self.perfcollect_elsewhere(&["convert", "/perf.data", "-o", "/trace", "-quiet"]);
        let saved = Saved::open(self.directory, "trace");
        let (samples, names) = (saved.summary.samples, saved.summary.quality.names);
        assert!(samples > 100, "{samples} samples are too few to tell");
        assert!(names.jit.named > names.jit.unresolved * 9, "{names:#?}");
        // The program's files are not there.
        assert_eq!(names.native.named, 0, "{names:#?}");
        let named = saved.samples_under(&[program]);
        assert!(
            named * 2 > samples,
            "{named} of {samples}: {:#?}",
            saved.stacks
        );
    }

    /// Neither command names anything, and both say why.
    #[track_caller]
    fn expect_nameless(&self, why: &str) {
        let words = ["convert", "/perf.data", "-o", "/nameless", "-force"];
        let output = self.perfcollect_elsewhere(&words).stdout;
        let expected = format!("JIT code of process {} has no names: {why}", self.pid);
        assert!(output.contains(&expected), "{expected}: {output}");
        assert!(output.contains("JIT 0.0 %"), "{output}");
        let output = self.perfcollect_elsewhere(&["script", "/perf.data"]);
        assert!(
            output.stderr.contains(&expected),
            "{expected}: {}",
            output.stderr
        );
        assert!(!output.stdout.contains("work.js:"));
    }
}

/// How often each function is in a text of `ip,sym,dso`, of files whose paths begin so.
fn functions(text: &str, path: &str) -> BTreeMap<String, u64> {
    let mut functions = BTreeMap::new();
    let frames = text.lines().filter_map(|line| {
        let (_, frame) = line.trim_start().split_once(' ')?;
        frame.strip_suffix(')')?.rsplit_once(" (")
    });
    for (function, _) in frames.filter(|(_, file)| file.starts_with(path)) {
        *functions.entry(function.to_owned()).or_default() += 1;
    }
    functions
}

/// perf has found no function more often. It leaves out stacks in which one address is none.
#[track_caller]
fn expect_all_of(theirs: &BTreeMap<String, u64>, ours: &BTreeMap<String, u64>) {
    let sum = theirs.values().sum::<u64>();
    assert!(sum > 100, "{sum} frames are too few to tell: {theirs:#?}");
    for (function, count) in theirs {
        let found = ours.get(function).copied().unwrap_or_default();
        assert!(found >= *count, "{function}: {found} of {count}; {ours:#?}");
    }
}

/// A recording with its perf map.
#[track_caller]
fn expect_names_of_map(recording: Recording, program: &str) {
    let map = format!("{TMP}/{}", recording.map_name());
    let theirs = recording.functions_of_perf("perf.data", &map);
    recording.take_map();
    expect_all_of(&theirs, &recording.functions_elsewhere());
    recording.expect_names_elsewhere(program);
}

#[test]
fn java_that_was_asked_for_its_map() {
    need_machines!();
    let (_class, program) = need!(java(&[]));
    for options in WAYS {
        let directory = tempfile::tempdir().unwrap();
        let mut program = program.clone();
        program.push(directory.path().display().to_string());
        let is_asked = thread::scope(|scope| {
            let recording = scope.spawn(|| Recording::record(&directory, options, &program));
            let done = directory.path().join("done");
            while !done.exists() && !recording.is_finished() {
                thread::sleep(Duration::from_millis(10));
            }
            let pid = fs::read_to_string(directory.path().join("pid")).unwrap();
            let mut jcmd = Command::new("jcmd");
            let is_asked = is_success(jcmd.args([pid.trim(), "Compiler.perfmap"]));
            File::create(directory.path().join("end")).unwrap();
            is_asked
        });
        if !is_asked {
            skip!(Missing::Java(17));
        }
        expect_names_of_map(Recording::made(directory), "Work.burn");
    }
}

#[test]
fn java_that_writes_its_map_at_the_end() {
    need_machines!();
    let options = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit"];
    let (_class, program) = need!(java(&options));
    for options in WAYS {
        expect_names_of_map(Recording::of(options, &program), "Work.burn");
    }
}

#[test]
fn node_with_a_map() {
    need_machines!();
    let program = need!(node("--perf-basic-prof"));
    for options in WAYS {
        expect_names_of_map(Recording::of(options, &program), "work.js:");
    }
}

/// Without `perf inject --jit`, which copies each function to a separate file.
#[test]
fn node_with_a_jitdump() {
    need_machines!();
    let program = need!(node("--perf-prof"));
    for options in WAYS {
        let options = [options, &["-k", "mono"]].concat();
        let recording = Recording::of(&options, &program);
        let ours = recording.functions_elsewhere();
        let mut inject = Command::new("perf");
        inject.args(["inject", "--jit", "-i", "perf.data", "-o", "injected"]);
        if is_success(inject.current_dir(recording.directory.path())) {
            let directory = recording.path("jitted-").display().to_string();
            let theirs = recording.functions_of_perf("injected", &directory);
            // perf has files also for code that is in the program itself.
            let of_program = |functions: &BTreeMap<String, u64>| {
                let mut functions = functions.clone();
                functions.retain(|function, _| function.contains("work.js:"));
                functions
            };
            expect_all_of(&of_program(&theirs), &of_program(&ours));
        }
        recording.expect_names_elsewhere("work.js:");
    }
}

/// By the clock of the recording, all of the dump was written after its end.
#[test]
fn a_jitdump_by_another_clock() {
    need_machines!();
    let program = need!(node("--perf-prof"));
    let words = ["unshare", "--fork", "-T", "--monotonic", "100000"];
    if !is_success(Command::new(words[0]).args(&words[1..]).arg("true")) {
        skip!(Missing::Unshare("-T"));
    }
    let script = "echo $$ >pid && exec \"$@\"";
    let words = [&words[..], &["sh", "-c", script, "sh"]].concat();
    let mut words: Vec<_> = words.into_iter().map(str::to_owned).collect();
    words.extend(program);
    let recording = Recording::of(WAYS[1], &words);
    let ours = recording.functions_elsewhere();
    assert!(
        ours.keys().any(|name| name.contains("work.js:")),
        "{ours:#?}"
    );
    recording.expect_names_elsewhere("work.js:");
}

#[test]
fn why_there_are_no_names() {
    need_machines!();
    let program = need!(node("--perf-basic-prof"));
    let recording = Recording::of(WAYS[1], &program);
    let map = recording.take_map();
    let kept = recording.path("kept");
    fs::rename(&map, &kept).unwrap();
    recording.expect_nameless("its perf map is not beside the recording");

    fs::copy(&kept, &map).unwrap();
    chown(&map, Some(OTHER_USER), None).unwrap();
    let name = recording.map_name();
    recording.expect_nameless(&format!(
        "{name}: belongs to user {OTHER_USER}, not to 0 or root"
    ));

    chown(&map, Some(0), None).unwrap();
    fs::write(&map, "nothing\nof the kind\n").unwrap();
    recording.expect_nameless("what it wrote names none of it: 2 lines of its perf map");

    fs::rename(&kept, &map).unwrap();
    recording.expect_names_elsewhere("work.js:");
}

/// Only stack copies have the callers, so the program's files are needed, which their build ids prove.
#[test]
fn python_with_a_map() {
    need_machines!();
    let program = need!(python());
    let options = ["-F", "199", "--call-graph", "dwarf,16384"];
    let recording = Recording::of(&options, &program);
    recording.take_map();
    let [file, trace] = ["perf.data", "trace"].map(|name| recording.path(name));
    let words = [
        perfcollect(),
        "convert".as_ref(),
        &file,
        "-o".as_ref(),
        &trace,
    ];
    let words = words.map(|word| word.to_str().unwrap());
    run(elsewhere(&words).arg("-quiet"), LIMIT).expect_success();
    let saved = Saved::open(recording.directory, "trace");
    let named = saved.samples_under(&["burn_leaf", "_PyEval_EvalFrameDefault"]);
    let samples = saved.summary.samples;
    assert!(
        samples > 100 && named * 2 > samples,
        "{named} of {samples}: {:#?}",
        saved.stacks
    );
}

/// The code of the functions shows where the callers are: V8 writes it to the jitdump, and unwind
/// information of optimized functions.
#[test]
fn node_with_a_jitdump_and_stack_copies() {
    need_machines!();
    let program = need!(node("--perf-prof"));
    let options = ["-F", "499", "-k", "mono", "--call-graph", "dwarf,8192"];
    let recording = Recording::of(&options, &program);
    let directory = fs::read_dir(recording.directory.path()).unwrap().flatten();
    let mut names = directory.map(|entry| entry.path());
    let is_dump = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "dump");
    let dump = names.find(is_dump).unwrap();
    let convert = |name: &str| {
        let output = format!("/{name}");
        recording.perfcollect_elsewhere(&["convert", "/perf.data", "-o", &output, "-quiet"]);
        let directory = tempfile::tempdir().unwrap();
        for kind in ["trace.zip", "nettrace", "flamegraph.svg"] {
            let file = format!("{name}.{kind}");
            fs::rename(recording.path(&file), directory.path().join(file)).unwrap();
        }
        Saved::open(directory, name)
    };
    let with_dump = convert("trace");
    let stacks = with_dump.summary.quality.stacks;
    // `burnBranch` has no name while V8 interprets it.
    let called = with_dump.samples_under(&["burn"]);
    assert!(called * 2 > with_dump.summary.samples, "{called}");
    let doubtful = |saved: &Saved| {
        let of_jit = saved.summary.quality.doubtful.iter();
        let of_jit = of_jit.filter(|code| code.name.starts_with("JIT code"));
        of_jit.map(|code| code.likely + code.guessed).sum::<u64>()
    };
    let with_dump = doubtful(&with_dump);
    assert!(
        with_dump * 4 < called,
        "{with_dump} of {called}: {stacks:?}"
    );
    fs::remove_file(dump).unwrap();
    let without = doubtful(&convert("without"));
    assert!(without * 2 > called, "{without} of {called}");
}
