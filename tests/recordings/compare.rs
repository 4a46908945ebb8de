//! `convert` against `perf script`, sample by sample.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use perfcollect::output::summary::Summary;
use perfcollect::trace::{Notice, StackQuality};

use crate::LIMIT;
use crate::support::{Saved, perfcollect, run, run_perfcollect};

/// Size of the pages by which files are mapped: perf may print a memory address, perfcollect an
/// offset in the file.
const IN_PAGE: u64 = 0xfff;
/// Lowest kernel address.
const KERNEL: u64 = 0xffff << 48;
/// Maximum number of printed differences.
const MAX_SHOWN: usize = 3;

/// A sample: process, thread, microseconds, event, addresses leaf first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sample {
    micros: Option<u64>,
    pid: i32,
    tid: i32,
    event: String,
    frames: Vec<u64>,
    /// Why callers are missing.
    cut: bool,
}

/// Differences between a conversion and perf's output.
pub(crate) struct Compared {
    pub event: String,
    pub samples: u64,
    /// Samples of running processes that perf prints for this event.
    pub of_perf: u64,
    /// Samples with perf's leaf.
    pub leaves: u64,
    /// Stacks that differ for a reason in docs/importing-perf-data.md, by reason.
    reasons: BTreeMap<&'static str, u64>,
    /// Samples with an unexplained difference.
    pub differences: Vec<String>,
    pub quality: StackQuality,
    pub notices: Vec<Notice>,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} samples of {} ({} of perf), {} leaves the same, {} different; {:?}",
            self.samples,
            self.event,
            self.of_perf,
            self.leaves,
            self.differences.len(),
            self.reasons
        )
    }
}

/// Converts the samples of an event, by default the one that perfcollect chooses, and compares
/// each.
#[track_caller]
pub(crate) fn compare(file: &Path, event: Option<&str>) -> Compared {
    let (summary, ours) = converted(file, event);
    let event = summary.info.event.clone();
    let theirs = perf_script(file);
    let mut theirs: Vec<_> = theirs
        .into_iter()
        .filter(|sample| sample.pid != 0 && is_event(&sample.event, &event))
        .map(of_its_process)
        .collect();
    let mut ours = ours;
    let has_times = theirs.iter().all(|sample| sample.micros.is_some());
    match has_times {
        true => {
            theirs.sort();
            ours.sort();
        }
        // All have the same time, in any order.
        false => {
            let in_pages = |sample: &Sample| {
                let frames = sample.frames.iter();
                let frames: Vec<_> = frames.map(|address| address & IN_PAGE).collect();
                (sample.pid, sample.tid, frames)
            };
            theirs.sort_by_key(in_pages);
            ours.sort_by_key(in_pages);
        }
    }
    let mut compared = Compared {
        event,
        samples: ours.len() as u64,
        of_perf: theirs.len() as u64,
        leaves: 0,
        reasons: BTreeMap::new(),
        differences: Vec::new(),
        quality: summary.quality.stacks,
        notices: summary.quality.notices,
    };
    // Samples of one thread in one microsecond have any order.
    for (theirs, ours) in theirs.iter().zip(&ours) {
        let when = |sample: &Sample| sample.micros.filter(|_| has_times);
        let who = |sample: &Sample| (sample.pid, sample.tid);
        let is_same = when(theirs) == when(ours) && who(theirs) == who(ours);
        let reason = reason(theirs, ours);
        match (is_same, reason) {
            (true, Ok(reason)) => {
                compared.leaves += 1;
                if let Some(reason) = reason {
                    *compared.reasons.entry(reason).or_default() += 1;
                }
            }
            _ if compared.differences.len() < MAX_SHOWN => {
                let difference = format!("perf {theirs:x?}\nours {ours:x?}");
                compared.differences.push(difference);
            }
            _ => {}
        }
    }
    compared
}

/// The kernel has no id for a thread that is being reaped: its samples belong to its process, or to
/// none.
fn of_its_process(sample: Sample) -> Sample {
    let nobody = perfcollect::trace::Pid::UNKNOWN.0;
    let pid = if sample.pid < 0 { nobody } else { sample.pid };
    let tid = if sample.tid < 0 { pid } else { sample.tid };
    Sample { pid, tid, ..sample }
}

/// Returns the events with samples of running processes, by perf's names.
pub(crate) fn events(file: &Path) -> Vec<String> {
    let samples = perf_script(file).into_iter();
    let running = samples.filter(|sample| sample.pid != 0);
    let mut events: Vec<_> = running.map(|sample| sample.event).collect();
    events.sort();
    events.dedup();
    events
}

/// For recordings that perf cannot read: each sample of `perfcollect script`, which reads the same
/// records in another way, is in the trace.
#[track_caller]
pub(crate) fn expect_all_of_script(file: &Path) {
    let (summary, ours) = converted(file, None);
    let mut script = Command::new(perfcollect());
    script.args([
        "script",
        "--no-inline",
        "-F",
        "comm,pid,tid,time,event,ip,sym,dso",
    ]);
    let text = run(script.arg(file), LIMIT).expect_success().stdout;
    let all = samples_of(&text).into_iter();
    let of_event =
        all.filter(|sample| sample.pid != 0 && is_event(&sample.event, &summary.info.event));
    let mut times: Vec<_> = of_event.map(|sample| sample.micros).collect();
    let mut of_trace: Vec<_> = ours.iter().map(|sample| sample.micros).collect();
    times.sort_unstable();
    of_trace.sort_unstable();
    assert_eq!(of_trace, times);
    assert!(!times.is_empty() && ours.iter().all(|sample| !sample.frames.is_empty()));
}

/// Returns why two stacks with the same leaf differ, if they do.
fn reason(theirs: &Sample, ours: &Sample) -> Result<Option<&'static str>, ()> {
    let same = |at: usize| {
        let (theirs, ours) = (theirs.frames[at], ours.frames[at]);
        // perfcollect's address is in the call, perf's after it.
        let ours = ours + u64::from(at > 0);
        ours == theirs
            || (ours ^ theirs) & IN_PAGE == 0
            || at > 0 && ((ours - 1) ^ theirs) & IN_PAGE == 0
    };
    if let [leaf, callers @ ..] = &ours.frames[..]
        && *leaf >= KERNEL
        && theirs.frames.first().is_some_and(|first| *first < KERNEL)
    {
        let of_user = Sample {
            frames: callers.to_vec(),
            ..ours.clone()
        };
        let behind = reason(theirs, &of_user);
        return behind.map(|_| Some("perf shows no kernel address beside user callers"));
    }
    let shorter = theirs.frames.len().min(ours.frames.len());
    let alike = (0..shorter).take_while(|&at| same(at)).count();
    match () {
        () if ours.frames.is_empty() => Err(()),
        () if theirs.frames.is_empty() => Ok(Some("perf shows no frame of an empty callchain")),
        () if alike == 0 => Err(()),
        () if alike == theirs.frames.len() && alike == ours.frames.len() => Ok(None),
        () if alike == ours.frames.len() && ours.cut => {
            Ok(Some("callers in no mapping are left out, and marked"))
        }
        // The registers of the previous program, whose memory no longer exists.
        () if alike == ours.frames.len()
            && ours.frames.iter().all(|frame| *frame >= KERNEL)
            && matches!(theirs.frames[alike..], [ip] if ip < KERNEL) =>
        {
            Ok(Some("within an exec, a user address that is gone"))
        }
        () if alike == theirs.frames.len() => Ok(Some("more callers than perf has found")),
        () => Err(()),
    }
}

/// Returns whether an event of perf has this name: events of hybrid processors are named without
/// their unit.
fn is_event(theirs: &str, ours: &str) -> bool {
    let in_unit = theirs
        .split_once('/')
        .and_then(|(_, event)| event.strip_suffix('/'));
    theirs == ours || in_unit == Some(ours)
}

#[track_caller]
fn converted(file: &Path, event: Option<&str>) -> (Summary, Vec<Sample>) {
    let directory = tempfile::tempdir().unwrap();
    let mut words = vec![
        "convert",
        file.to_str().unwrap(),
        "-o",
        "trace",
        "-quiet",
        "-noinline",
    ];
    words.extend(event.map(|event| ["-event", event]).into_iter().flatten());
    run_perfcollect(words, directory.path(), LIMIT).expect_success();
    let saved = Saved::open(directory, "trace");
    let text = String::from_utf8_lossy(&saved.perf_text).into_owned();
    let mut samples = samples_of(&text);
    samples.retain(|sample| sample.pid != 0);
    assert_eq!(samples.len() as u64, saved.summary.samples);
    (saved.summary, samples)
}

/// Returns the output of the installed perf with all fields of the recording.
#[track_caller]
fn perf_script(file: &Path) -> Vec<Sample> {
    for fields in [
        "comm,pid,tid,time,event,ip,sym,dso",
        "comm,pid,tid,event,ip,sym,dso",
    ] {
        let mut perf = Command::new("perf");
        perf.args(["script", "-f", "--no-inline", "--fields", fields, "-i"]);
        let output = perf.arg(file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if !said.contains("Cannot print 'time' field") {
            assert!(output.status.success(), "{said}");
            return samples_of(&String::from_utf8_lossy(&output.stdout));
        }
    }
    panic!("perf cannot print {}", file.display());
}

/// Parses the samples of a text of perf, or in its style.
fn samples_of(text: &str) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        if let Some(frame) = line.strip_prefix('\t') {
            let sample = samples.last_mut().unwrap();
            match frame {
                "0 {no stack} (perfcollect)" => {}
                frame if frame.contains(" {truncated: ") => sample.cut = true,
                frame => sample.frames.push(address(frame)),
            }
            continue;
        }
        let sample = header(line);
        samples.push(sample.unwrap_or_else(|| panic!("{line:?}")));
    }
    samples
}

fn address(frame: &str) -> u64 {
    let digits = frame.split_whitespace().next().unwrap();
    u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{frame:?}"))
}

/// Parses `COMM PID/TID [CPU] TIME: PERIOD EVENT: FRAME`; CPU, time, period and frame are optional.
fn header(line: &str) -> Option<Sample> {
    let ids = line.match_indices('/').find_map(|(slash, _)| {
        let start = line[..slash].rfind(|c: char| c != '-' && !c.is_ascii_digit())? + 1;
        let end = slash + 1 + line[slash + 1..].find(|c: char| c != '-' && !c.is_ascii_digit())?;
        let (pid, tid) = (
            line[start..slash].parse().ok()?,
            line[slash + 1..end].parse().ok()?,
        );
        Some((pid, tid, line[end..].trim_start()))
    });
    let (pid, tid, mut rest) = ids?;
    if rest.starts_with('[') {
        rest = rest.split_once("] ")?.1.trim_start();
    }
    let mut micros = None;
    if let Some((time, behind)) = rest.split_once(": ")
        && let Some((seconds, fraction)) = time.split_once('.')
        && let (Ok(seconds), Some(Ok(fraction))) = (
            seconds.parse::<u64>(),
            fraction.get(..6).map(str::parse::<u64>),
        )
    {
        micros = Some(seconds * 1_000_000 + fraction);
        rest = behind.trim_start();
    }
    if let Some((period, behind)) = rest.split_once(' ')
        && period.bytes().all(|byte| byte.is_ascii_digit())
    {
        rest = behind;
    }
    let (event, behind) = match rest.split_once(": ") {
        Some(parts) => parts,
        None => (rest.strip_suffix(':')?, ""),
    };
    // The text after a tracepoint is not a frame.
    let frame = behind.trim().ends_with(')').then(|| address(behind));
    Some(Sample {
        micros,
        pid,
        tid,
        event: event.trim().to_owned(),
        frames: frame.into_iter().collect(),
        cut: false,
    })
}
