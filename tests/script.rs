//! `perfcollect script` against the installed perf, on recordings made here: the text is the same line by line, but for the
//! improvements that `docs/importing-perf-data.md` lists.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use perf_event_open_sys::bindings as sys;
use perfcollect_symbols::elf::build_id_from_notes;
use support::recording::{can_record, native_words, record, record_pipe, run_with_tracefs};
use support::{Missing, Runtime, perfcollect, run, workloads};

const FIELDS: &str = "comm,pid,tid,cpu,time,period,event,ip,sym,dso,trace";
const LIMIT: Duration = Duration::from_secs(300);

macro_rules! need_perf {
    () => {
        need!(can_record());
    };
}

/// Samples in which ours is better, by what it is in.
#[derive(Debug, Default)]
struct Better {
    samples: usize,
    /// perf drops a stack that has one bad address.
    whole_stacks: usize,
    /// A function that perf has no name for, or only half of one.
    names: usize,
    /// Callers behind the last one that perf has found.
    callers: usize,
}

fn perf_script(file: &Path) -> String {
    let mut perf = Command::new("perf");
    perf.args(["script", "--no-inline", "--fields", FIELDS, "-i"])
        .arg(file);
    String::from_utf8_lossy(&perf.output().unwrap().stdout).into_owned()
}

#[track_caller]
fn our_script(file: &Path) -> String {
    let mut script = Command::new(perfcollect());
    script.args(["script", "--no-inline"]).arg(file);
    run(&mut script, LIMIT).expect_success().stdout
}

/// Header and frames of each sample.
fn samples(text: &str) -> Vec<Vec<&str>> {
    let mut samples = Vec::new();
    for line in text.lines() {
        match (line.starts_with('\t'), samples.last_mut()) {
            (_, _) if line.is_empty() => {}
            (true, Some(sample)) => Vec::push(sample, line),
            _ => samples.push(vec![line]),
        }
    }
    samples
}

/// Whether two lines that differ do so in nothing but a name that perf lacks, or has wrong.
fn is_better_name(theirs: &str, ours: &str) -> bool {
    let is_bad = |name: &str| {
        // Of the stubs of calls through a table, perf counts some wrongly.
        name.starts_with("[unknown] (") || name.contains("@plt (")
    };
    // Everything up to the address is the same, and then comes the name.
    let same = theirs.bytes().zip(ours.bytes()).take_while(|(a, b)| a == b);
    let name = theirs.get(..same.count()).and_then(|same| same.rfind(' '));
    let name = name.and_then(|at| theirs.get(at + 1..));
    theirs != ours && name.is_some_and(is_bad)
}

/// Fails on any difference that is no improvement.
#[track_caller]
fn compare(file: &Path, is_walked: bool) -> Better {
    let (theirs, ours) = (perf_script(file), our_script(file));
    let (theirs, ours) = (samples(&theirs), samples(&ours));
    let mut better = Better {
        samples: ours.len(),
        ..Better::default()
    };
    assert!(
        ours.len() > 20,
        "{} samples are too few to tell",
        ours.len()
    );
    assert_eq!(theirs.len(), ours.len());
    for (theirs, ours) in theirs.iter().zip(&ours) {
        let same = |(theirs, ours): (&&str, &&str)| theirs == ours || is_better_name(theirs, ours);
        assert!(same((&theirs[0], &ours[0])), "{theirs:#?}\n{ours:#?}");
        if theirs.len() == 1 && ours.len() > 1 {
            better.whole_stacks += 1;
            continue;
        }
        let alike = theirs
            .iter()
            .zip(ours)
            .take_while(|pair| same(*pair))
            .count();
        // perf goes astray, or stops, where nothing but the frame pointer leads on.
        let is_nowhere = |frame: &&str| frame.ends_with(" [unknown] ([unknown])");
        let is_worse = alike < ours.len() || theirs.get(alike).is_some_and(is_nowhere);
        let is_astray = is_walked && alike > 1 && is_worse;
        // The frame of a lazy binding is relative to rbx, which only perf follows.
        let is_binding = ours
            .last()
            .is_some_and(|frame| frame.contains(" _dl_runtime_resolve"));
        let is_fine = alike == theirs.len() || is_astray || alike == ours.len() && is_binding;
        assert!(is_fine, "{theirs:#?}\n{ours:#?}");
        let mut frames = theirs.iter().zip(ours);
        better.names += usize::from(frames.any(|(theirs, ours)| {
            // perf names the functions of the vDSO in some runs and in others none of them.
            is_better_name(theirs, ours) && !theirs.contains("([vdso])")
        }));
        better.callers += usize::from(alike < ours.len());
    }
    better
}

#[track_caller]
fn expect_same(better: &Better) {
    assert_eq!(better.callers, 0, "{better:?}");
    let few = better.samples / 50 + 1;
    assert!(better.whole_stacks.max(better.names) <= few, "{better:?}");
}

#[test]
#[ignore = "slow"]
fn callchains_in_each_kind_of_recording() {
    need_perf!();
    let command = need!(native_words("native-fp"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let ways: [&[&str]; 4] = [
        &["-F", "499", "-g"],
        &["-F", "499", "-g", "-z"],
        &["-F", "499"],
        &[
            "-F",
            "499",
            "-g",
            "-e",
            "cpu-clock,page-faults,task-clock,context-switches",
        ],
    ];
    for options in ways {
        record(&file, options, &command);
        expect_same(&compare(&file, false));
        record_pipe(&file, options, &command);
        expect_same(&compare(&file, false));
    }
}

/// A sample of a group has a line for each member that has counted something, with what that is.
#[test]
fn groups_of_events() {
    need_perf!();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let group = ["-e", "{cpu-clock,page-faults,task-clock}:S"];
    for more in [&["-g", "-F", "999"][..], &["-c", "1000000"]] {
        record(&file, &[more, &group].concat(), ["ls", "-lR", "/usr/share"]);
        expect_same(&compare(&file, false));
        let text = our_script(&file);
        assert!(text.contains(" page-faults: ") && text.contains(" task-clock: "));
    }
}

/// Records a busy shell that no other program is.
fn record_copy_of_shell(program: &Path, file: &Path) {
    std::fs::copy("/bin/sh", program).unwrap();
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let command = [program.to_str().unwrap(), "-c", script];
    record(file, &["-F", "999"], command);
}

#[test]
fn a_file_that_is_gone_is_told_of() {
    need_perf!();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let gone = directory.path().join("gone");
    record_copy_of_shell(&gone, &file);
    std::fs::remove_file(&gone).unwrap();
    let mut script = Command::new(perfcollect());
    let output = run(script.arg("script").arg(&file), LIMIT).expect_success();
    let frames = format!(" [unknown] ({})", gone.display());
    assert!(output.stdout.contains(&frames), "{}", output.stdout);
    let why = format!("code of {} has no names: No such file", gone.display());
    assert!(output.stderr.contains(&why), "{}", output.stderr);
}

#[test]
fn a_debug_file_of_another_build_is_told_of() {
    need_perf!();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let program = directory.path().join("program");
    record_copy_of_shell(&program, &file);
    let debug = directory.path().join("program.debug");
    std::fs::copy(perfcollect(), &debug).unwrap();
    let mut script = Command::new(perfcollect());
    let output = run(script.arg("script").arg(&file), LIMIT).expect_success();
    let why = format!("{} was not used: ", debug.display());
    assert!(output.stderr.contains(&why), "{}", output.stderr);
}

#[test]
fn processes_that_come_and_go() {
    need_perf!();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let storm = "for i in $(seq 150); do ls / >/dev/null; (true); done";
    record(&file, &["-F", "4999", "-g"], ["sh", "-c", storm]);
    expect_same(&compare(&file, false));
}

/// `perf record --threads` makes a directory with a file for each CPU.
#[test]
fn threads_that_record_to_files_of_their_own() {
    need_perf!();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let busy = "for i in $(seq 50); do ls / >/dev/null; done & ls -lR /usr/share >/dev/null; wait";
    for more in [&[][..], &["-z"]] {
        let options = [&["-F", "999", "-g", "--threads=cpu"], more].concat();
        record(&file, &options, ["sh", "-c", busy]);
        expect_same(&compare(&file, false));
    }
    let file_of_one = file.join("data");
    let alone = run(
        Command::new(perfcollect()).arg("script").arg(file_of_one),
        LIMIT,
    );
    assert!(
        alone.stderr.contains("pass their directory"),
        "{}",
        alone.stderr
    );
    // Of a file that was cut, all before the cut is there, and all of the others.
    let whole = our_script(&file);
    let cut = std::fs::File::options()
        .write(true)
        .open(file.join("data.0"));
    let cut = cut.unwrap();
    cut.set_len(cut.metadata().unwrap().len() - 4).unwrap();
    let said = run(Command::new(perfcollect()).arg("script").arg(&file), LIMIT).expect_success();
    assert!(said.stderr.contains("ends within"), "{}", said.stderr);
    // The missing records may contain names and mappings, so only the times are equal.
    let times = |text: &str, is_wanted: fn(&str) -> bool| -> Vec<String> {
        let columns = samples(text).into_iter().map(|sample| {
            let (_, behind) = sample[0].split_once(" [").unwrap();
            behind.split_once(": ").unwrap().0.to_owned()
        });
        columns.filter(|columns| is_wanted(columns)).collect()
    };
    let of_others = |columns: &str| !columns.starts_with("000]");
    assert_eq!(times(&whole, of_others), times(&said.stdout, of_others));
    let (whole, rest) = (times(&whole, |_| true), times(&said.stdout, |_| true));
    assert!(rest.iter().all(|time| whole.contains(time)));
}

#[test]
fn copied_stacks() {
    need_perf!();
    let command = need!(native_words("native-nofp"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    record(&file, &["-F", "499", "--call-graph", "dwarf"], command);
    let better = compare(&file, true);
    assert!(better.callers * 20 <= better.samples, "{better:?}");
}

/// In the program itself, which is of C: there addr2line has the names that the symbol table has.
#[test]
fn functions_inlined_in_copied_stacks() {
    need_perf!();
    let program = need!(workloads::native("native-fp")).display().to_string();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let command = [&*program, "--mode", "inlined", "--seconds", "1"];
    record(&file, &["-F", "499", "--call-graph", "dwarf"], command);
    let mut perf = Command::new("perf");
    let perf = perf.args(["script", "--fields", FIELDS, "-i"]).arg(&file);
    let theirs = String::from_utf8_lossy(&perf.output().unwrap().stdout).into_owned();
    let ours = run(Command::new(perfcollect()).arg("script").arg(&file), LIMIT).expect_success();
    assert_eq!(ours.stderr, "");
    let (theirs, ours) = (samples(&theirs), samples(&ours.stdout));
    assert_eq!(theirs.len(), ours.len());
    let is_of_program =
        |frame: &&&str| frame.ends_with("/native-fp)") || frame.ends_with(" (inlined)");
    let mut whole = 0;
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(theirs[0], ours[0]);
        let frames = ours[1..].iter().take_while(is_of_program).count();
        assert_eq!(theirs[1..][..frames], ours[1..][..frames]);
        let names = [
            "burn (inlined)",
            "inlined_inner (inlined)",
            "inlined_outer (inlined)",
            "inline_caller (",
        ];
        let has = |(frame, name): (&&str, &str)| frame.contains(&format!(" {name}"));
        whole += usize::from(ours.len() > 4 && ours[1..].iter().zip(names).all(has));
    }
    assert!(whole > 10, "{ours:#?}");
    assert!(!our_script(&file).contains("(inlined)"));
}

/// tracefs is mounted for the recording alone.
#[test]
fn tracepoints_with_their_fields() {
    need_perf!();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let events = "sched:sched_switch,sched:sched_process_exit,sched:sched_process_exec,sched:sched_wakeup,\
                  sched:sched_process_fork,syscalls:sys_enter_openat,syscalls:sys_exit_openat,syscalls:sys_enter_write,\
                  irq:softirq_entry,signal:signal_generate,kmem:mm_page_alloc,kmem:kmalloc,kmem:kfree,\
                  timer:hrtimer_start,timer:hrtimer_expire_entry,rcu:rcu_utilization,cpu-clock";
    for callchain in ["", "-g"] {
        let script = format!(
            "perf record -q --no-buildid-cache --sample-cpu -e {events} {callchain} -o {} -- sh -c 'ls -l / | sort; sleep 0.1'",
            file.display()
        );
        if !run_with_tracefs(&script) {
            skip!(Missing::Tracepoints);
        }
        expect_same(&compare(&file, false));
    }
}

#[test]
fn dotnet_with_a_perf_map() {
    need_perf!();
    let cpu = need!(workloads::cpu());
    let runtime = need!(Runtime::newest());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let root = runtime.root().display().to_string();
    for (options, write_xor_execute) in [("fp", "0"), ("fp", "1"), ("dwarf", "0"), ("dwarf", "1")] {
        let command = [
            "env".to_owned(),
            format!("DOTNET_ROOT={root}"),
            "DOTNET_PerfMapEnabled=1".to_owned(),
            format!("DOTNET_EnableWriteXorExecute={write_xor_execute}"),
            runtime.dotnet.display().to_string(),
            cpu.display().to_string(),
            "--seconds".to_owned(),
            "1".to_owned(),
        ];
        record(&file, &["-F", "199", "--call-graph", options], command);
        let better = compare(&file, options == "dwarf");
        println!("{options}, W^X {write_xor_execute}: {better:?}");
        match (options, write_xor_execute) {
            ("fp", "0") => assert_eq!(better.callers, 0),
            ("fp", _) => assert!(better.names * 4 > better.samples, "{better:?}"),
            // perf stops at the first frame that no ELF file describes.
            _ => assert!(better.callers * 4 > better.samples, "{better:?}"),
        }
    }
}

/// A list in which the kernel lies elsewhere names nothing; the kernel's own list, kept in a file, names what it named. Nor does this kernel
/// name what another one has run.
#[test]
fn another_kernel_gives_no_names() {
    need_perf!();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let busy = ["sh", "-c", "ls -lR /usr/share >/dev/null"];
    record(&file, &["-F", "999", "-g"], busy);
    let list = directory.path().join("kallsyms");
    let script = |file: &Path, list: Option<&Path>| {
        let mut script = Command::new(perfcollect());
        script.arg("script").arg(file);
        script.args(list.iter().flat_map(|list| [Path::new("-kallsyms"), list]));
        run(&mut script, LIMIT).expect_success()
    };
    let is_named = |text: &str| {
        let mut frames = text
            .lines()
            .filter(|line| line.ends_with("([kernel.kallsyms])"));
        frames.any(|frame| !frame.contains(" [unknown] "))
    };
    std::fs::write(
        &list,
        "ffffffff00000000 T _text\nffffffff00000000 T impostor\n",
    )
    .unwrap();
    let other = script(&file, Some(&list));
    assert!(other.stdout.contains(" [unknown] ([kernel.kallsyms])"));
    assert!(!other.stdout.contains("impostor"));
    let why = "kernel frames have no names: ";
    assert!(
        other.stderr.starts_with(why) && other.stderr.contains("(_text is not at 0x"),
        "{}",
        other.stderr
    );
    std::fs::write(&list, std::fs::read("/proc/kallsyms").unwrap()).unwrap();
    let named = our_script(&file);
    assert!(is_named(&named));
    assert_eq!(script(&file, Some(&list)).stdout, named);

    let recording = std::fs::read(&file).unwrap();
    let notes = std::fs::read("/sys/kernel/notes").unwrap();
    let id = build_id_from_notes(&notes).unwrap();
    let mut foreign = recording.clone();
    let at = recording
        .windows(id.as_bytes().len())
        .position(|bytes| bytes == id.as_bytes());
    foreign[at.unwrap()] ^= 1;
    // Behind the records stands what was recorded; the header tells where they are.
    let [begin, len] =
        [40, 48].map(|at| u64::from_le_bytes(recording[at..at + 8].try_into().unwrap()));
    let its_end = (begin + len) as usize;
    for (bytes, why) in [
        (&foreign[..], " build id "),
        (&recording[..its_end], "does not identify its kernel"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let unnamed = script(&file, None);
        assert!(unnamed.stderr.contains(why), "{}", unnamed.stderr);
        assert!(!is_named(&unnamed.stdout));
        assert!(is_named(&script(&file, Some(&list)).stdout));
    }
    // It is reported before the text, so that readers of the first lines see it.
    let head = format!(
        "{} script {} | head -n 1",
        perfcollect().display(),
        file.display()
    );
    let head = run(Command::new("sh").args(["-c", &head]), LIMIT);
    assert!(head.stderr.starts_with(why), "{}", head.stderr);
}

#[test]
fn fields_are_chosen_as_in_perf() {
    need_perf!();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    record(
        &file,
        &["-F", "4999", "-g"],
        ["sh", "-c", "ls -lR /usr/share >/dev/null"],
    );
    let all_but_cpu = "comm,pid,tid,time,period,event,ip,sym,dso";
    for (fields, ours) in [("pid,time,", "pid,time,"), (all_but_cpu, "-cpu,+pid")] {
        let mut perf = Command::new("perf");
        perf.args(["script", "--no-inline", "-F", fields, "-i"])
            .arg(&file);
        let theirs = String::from_utf8_lossy(&perf.output().unwrap().stdout).into_owned();
        let mut script = Command::new(perfcollect());
        script.args(["script", "-f", "--header", "--no-inline", "-F", ours, "-i"]);
        let ours = run(script.arg(&file), LIMIT).expect_success().stdout;
        assert_eq!(samples(&theirs).len(), samples(&ours).len());
        assert_eq!(samples(&theirs)[0][0], samples(&ours)[0][0]);
    }
    for fields in [
        "pid,time",
        "comm,tid,event",
        "tid,ip",
        "ip,sym",
        "comm,cpu,period,event",
        "ip,dso",
        "pid",
    ] {
        let mut perf = Command::new("perf");
        perf.args(["script", "--no-inline", "-F", fields, "-i"])
            .arg(&file);
        let mut ours = Command::new(perfcollect());
        ours.args(["script", "-F", fields]).arg(&file);
        let ours = run(&mut ours, LIMIT).expect_success().stdout;
        let theirs = String::from_utf8_lossy(&perf.output().unwrap().stdout).into_owned();
        // Stubs, and what perf has no name for, such as the vDSO at times, are where the names are better.
        let is_better = |theirs: &str, ours: &str| {
            theirs.ends_with("[unknown]") || [theirs, ours].iter().any(|line| line.contains("@plt"))
        };
        let mut lines = theirs.lines().zip(ours.lines());
        let first = lines.find(|(theirs, ours)| theirs != ours && !is_better(theirs, ours));
        assert!(
            first.is_none_or(|(theirs, _)| theirs.is_empty()),
            "{fields}: {first:?}"
        );
    }
}

/// `perf record --call-graph lbr` through a pipe, as it is where the processor keeps calls: made by hand.
fn lbr_recording() -> Vec<u8> {
    let record = |kind: u32, misc: u16, body: &[u8]| {
        let size = (body.len() + 8) as u16;
        let header = [
            &kind.to_le_bytes()[..],
            &misc.to_le_bytes(),
            &size.to_le_bytes(),
        ];
        [&header.concat(), body].concat()
    };
    let numbers = |numbers: &[u64]| -> Vec<u8> {
        numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    };
    let sample_type = sys::PERF_SAMPLE_IP
        | sys::PERF_SAMPLE_TID
        | sys::PERF_SAMPLE_TIME
        | sys::PERF_SAMPLE_CPU
        | sys::PERF_SAMPLE_PERIOD
        | sys::PERF_SAMPLE_CALLCHAIN
        | sys::PERF_SAMPLE_BRANCH_STACK;
    let branches = sys::PERF_SAMPLE_BRANCH_USER
        | sys::PERF_SAMPLE_BRANCH_CALL_STACK
        | sys::PERF_SAMPLE_BRANCH_HW_INDEX;
    let software = u64::from(sys::PERF_TYPE_SOFTWARE) | 112 << 32;
    let mut attribute = numbers(&[
        software,
        0,
        1_000_000,
        sample_type.into(),
        0,
        1 << 18 | 1 << 20,
    ]);
    attribute.extend(numbers(&[0, 0, 0, branches.into(), 0, 0, 0, 0]));
    attribute.extend(numbers(&[77]));
    let mut recording = [b"PERFILE2".to_vec(), numbers(&[16])].concat();
    recording.extend(record(64, 0, &attribute));
    let (kernel, user) = (sys::PERF_CONTEXT_KERNEL, sys::PERF_CONTEXT_USER);
    let kernel_ip = 0xffff_ffff_8100_0010;
    let chains = [
        vec![
            kernel,
            kernel_ip,
            kernel_ip + 64,
            user,
            0x40_1010,
            0x40_2020,
        ],
        vec![user, 0x40_1010],
        // The calls are of no use without a user side.
        vec![kernel, kernel_ip],
    ];
    for (at, chain) in (0..30).flat_map(|round| chains.iter().map(move |chain| (round, chain))) {
        let time = 1_000_000_000 + at * 1_000_000;
        let mut sample = numbers(&[0x40_1010, 5 | 6 << 32, time, 1, 1_000_000]);
        sample.extend(numbers(&[chain.len() as u64]));
        sample.extend(numbers(chain));
        let calls = (0..1 + at % 4).map(|call| [0x40_3000 + 16 * call, 0x40_1000 + 256 * call, 0]);
        sample.extend(numbers(&[1 + at % 4, 0]));
        sample.extend(calls.flat_map(|call| numbers(&call)));
        recording.extend(record(sys::PERF_RECORD_SAMPLE, 2, &sample));
    }
    recording
}

#[test]
fn calls_that_the_processor_has_kept() {
    need_perf!();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    std::fs::write(&file, lbr_recording()).unwrap();
    let text = our_script(&file);
    assert!(
        text.contains("401000 ") && text.contains("403030 "),
        "{text}"
    );
    expect_same(&compare(&file, false));
}
